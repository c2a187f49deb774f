package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin/pods"
	"github.com/quotient-go/quotient/internal/tested"
)

const (
	writerToken, readerToken = "a-token-0123456789", "a-reader-0123456789"
	otherToken               = "another-0123456789"
)

// network carries the requests of looks to handlers by host. It notes them with the token that each has.
type network struct {
	pods map[string]http.Handler
	mu   sync.Mutex
	sent []string
}

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	n.mu.Lock()
	n.sent = append(n.sent, strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Method, r.URL, r.Header.Get("Authorization"))))
	n.mu.Unlock()
	pod := n.pods[r.URL.Host]
	if pod == nil {
		return nil, errors.New("connection refused")
	}
	rec := httptest.NewRecorder()
	pod.ServeHTTP(rec, overLoopback(r.Clone(r.Context())))
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return rec.Result(), nil
}

// takeSent returns what was sent since the last call, sorted.
func (n *network) takeSent() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	sent := slices.Sorted(slices.Values(n.sent))
	n.sent = nil
	return strings.Join(sent, "\n")
}

// onNetwork is a handler of a replica a that asks the pods of a list over n.
func onNetwork(t *testing.T, n *network, list string, opts ...Option) http.Handler {
	t.Helper()
	all, err := pods.Parse(list, nil)
	must(t, err)
	h := quiet(t, newLimiter(t), append(opts, Replica("a"), WithPeers(all, nil))...)
	h.(*Handler).api.peers.client.Transport = n
	return h
}

// summary writes a row for each pod.
func summary(p Peers) string {
	var lines []string
	for _, one := range p.Pods {
		self := map[bool]string{true: " (self)"}[one.Self]
		line := fmt.Sprintf("%s%s %s %d-%d %.2f-%.2f %d/%d %s%s", one.Name, self, one.Address, one.ReplicasFrom, one.ReplicasTo,
			one.ShareFrom, one.ShareTo, one.Admitted, one.Refused, one.Error, strings.Join(one.Differs, "; "))
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n")
}

func bearer(r request, token string) request { return r.with("Authorization", "Bearer "+token) }

// newNetwork has the pods b, c and d, of which c has all otherwise, and some that are none.
func newNetwork(t *testing.T, opts []Option) *network {
	t.Helper()
	n := &network{pods: map[string]http.Handler{
		"thief": http.NotFoundHandler(),
		"away": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://thief/state")
			w.WriteHeader(http.StatusFound)
		}),
		"slow": http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		}),
		"long": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(make([]byte, mostPeerState+1))
		}),
		"odd": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"limiters":{"x\u202e\u001b":{}}}`)
		}),
		"many": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"limiters":{"api":{"plans":[{}`+strings.Repeat(",{}", mostPeerObjects)+"]}}}")
		}),
	}}
	for _, name := range []string{"b", "c", "d"} {
		l := newLimiter(t)
		must(t, l.SetPool(quotient.Pool{Replicas: 4}, 0))
		if name == "c" {
			must(t, l.SetPool(quotient.Pool{Replicas: 2}, 0))
			must(t, l.SetLimit(quotient.Limit{InFlight: 3}))
			l.SetDryRun(true)
		}
		for range 12 {
			l.Allow("k")
		}
		n.pods[name] = quiet(t, l, append(opts, Replica(name))...)
	}
	return n
}

// TestPeers: one row a pod, with what it sees otherwise. A pod that does not answer, or not like one, is a row too.
func TestPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := []Option{Token(writerToken), ReadOnlyToken(readerToken)}
		n := newNetwork(t, tokens)
		const list = "http://b,http://c,http://d,http://gone,http://slow,http://away,http://long,http://many,http://odd"
		h := onNetwork(t, n, list, tokens...)
		got := decode[Peers](t, bearer(get("/peers"), readerToken).send(t, h))
		tested.Want(t, "pods", summary(got), `b b 4-4 0.25-0.25 2/10
c c 2-2 0.50-0.50 12/0 api: replicas 2, others 4; api: another limit; api: dry run on
d d 4-4 0.25-0.25 2/10
gone gone 0-0 0.00-0.00 0/0 Get "http://gone/state": connection refused
slow slow 0-0 0.00-0.00 0/0 no answer in 2s
away away 0-0 0.00-0.00 0/0 no answer of an admin handler:
long long 0-0 0.00-0.00 0/0 the answer is longer than 4194304 bytes
many many 0-0 0.00-0.00 0/0 the answer has more than 65536 objects
odd odd 0-0 0.00-0.00 0/0 api: not there; x\u202e\x1b: not there on others
a (self)  1-1 1.00-1.00 0/0 api: replicas 1, others 4`)
		want := ""
		for _, host := range []string{"away", "b", "c", "d", "gone", "long", "many", "odd", "slow"} {
			want += "\nGET http://" + host + "/state Bearer " + readerToken
		}
		tested.Want(t, "requests", n.takeSent(), want[1:])
		s := decode[State](t, bearer(get("/state"), readerToken).send(t, h))
		tested.Want(t, "the state says that there are peers", s.Peers, true)

		h = onNetwork(t, n, "file:/none") // nothing but itself is known
		got = decode[Peers](t, get("/peers").send(t, h))
		tested.Want(t, "pods without a list", summary(got), "a (self)  1-1 1.00-1.00 0/0")
		tested.Not(t, !strings.Contains(got.Error, "no such file"), "the error of the list: %q", got.Error)
	})
	tested.Want(t, "without WithPeers", get("/peers").send(t, quiet(t, newLimiter(t))).Code, http.StatusNotFound)
}

// TestTokensOfPeers: one look serves all callers of a token for a second, and no others. A token that the handler does
// not know is sent to nobody.
func TestTokensOfPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{pods: map[string]http.Handler{"b": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second / 2)
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, r.Header.Get("Authorization"))
		})}}
		h := onNetwork(t, n, "http://b", Token(writerToken, otherToken))
		ask := func(token string, callers int) string {
			answers := make([]string, callers)
			var all sync.WaitGroup
			for i := range answers {
				all.Go(func() {
					answers[i] = decode[Peers](t, bearer(get("/peers"), token).send(t, h)).Pods[0].Error
				})
			}
			all.Wait()
			return strings.Join(slices.Compact(answers), "\n")
		}
		for _, token := range []string{writerToken, otherToken, writerToken} {
			got := ask(token, 30)
			tested.Not(t, !strings.HasSuffix(got, ": Bearer "+token), "the caller of %s got %s", token, got)
		}
		const sent = "GET http://b/state Bearer "
		tested.Want(t, "requests within a second", n.takeSent(), sent+writerToken+"\n"+sent+otherToken)
		time.Sleep(peersFresh)
		ask(writerToken, 30)
		tested.Want(t, "requests after it", n.takeSent(), sent+writerToken)

		unknown := bearer(get("/peers"), "unknown-0123456789").send(t, h)
		tested.Want(t, "an unknown token", unknown.Code, http.StatusUnauthorized)
		tested.Want(t, "its requests", n.takeSent(), "")
		open := onNetwork(t, n, "http://b")
		bearer(get("/peers"), writerToken).send(t, open)
		tested.Want(t, "requests of a handler without tokens", n.takeSent(), "GET http://b/state")
	})
}

// TestCallersOfPeersGo: what is found for a caller that has gone is no answer for others, nor is it waited for.
func TestCallersOfPeersGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{pods: map[string]http.Handler{"b": http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		})}}
		h := onNetwork(t, n, "http://b")
		gone := func() int {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			req := overLoopback(httptest.NewRequestWithContext(ctx, http.MethodGet, "/peers", http.NoBody))
			return served(t, h, req).Code
		}
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { tested.Want(t, "a caller that has gone", gone(), http.StatusServiceUnavailable) })
		}
		start := time.Now()
		all.Wait()
		tested.Want(t, "the time", time.Since(start), time.Second)
		tested.Want(t, "what is kept", len(h.(*Handler).api.peers.done), 0)
		all.Go(func() { tested.Want(t, "a caller behind one that stays", gone(), http.StatusServiceUnavailable) })
		tested.Want(t, "the next", decode[Peers](t, get("/peers").send(t, h)).Pods[0].Error, "no answer in 2s")
		all.Wait()
	})
}

// TestOddOnes: what most pods have is not marked, and of two that differ both are.
func TestOddOnes(t *testing.T) {
	pod := func(limiters ...string) map[string]facets { // such as api=3: three replicas
		seen := make(map[string]facets)
		for _, text := range limiters {
			var f facets
			name, n, _ := strings.Cut(text, "=")
			fmt.Sscan(n, &f[0]) //nolint:errcheck // a number of the table
			seen[name] = f
		}
		return seen
	}
	var many []string
	for i := range mostOdd + 2 {
		many = append(many, fmt.Sprintf("l%02d=1", i))
	}
	last := strings.ReplaceAll(strings.Join(many[:mostOdd], ", "), "=1", ": not there on others") + ", 2 more"
	for name, r := range map[string]struct {
		pods []map[string]facets
		want string
	}{
		"alike":    {[]map[string]facets{pod("api=3"), pod("api=3"), nil}, "||"},
		"of three": {[]map[string]facets{pod("api=3"), pod("api=2"), pod("api=3")}, "|api: replicas 2, others 3|"},
		"two": {[]map[string]facets{pod("api=3"), pod("api=2")},
			"api: replicas 3, others 2|api: replicas 2, others 3"},
		"not there":   {[]map[string]facets{pod("api=3", "x=1"), pod("x=1"), pod("api=3", "x=1")}, "|api: not there|"},
		"there alone": {[]map[string]facets{pod("x=1"), pod("x=1"), pod("x=1", "y=1")}, "||y: not there on others"},
		"silent":      {[]map[string]facets{nil, pod("x=1")}, "|"},
		"many lines":  {[]map[string]facets{pod(many...), pod(), pod()}, last + "||"},
	} {
		var lines []string
		for _, odd := range oddOnes(r.pods) {
			lines = append(lines, strings.Join(odd, ", "))
		}
		tested.Want(t, name, strings.Join(lines, "|"), r.want)
	}
}
