// Package adaptertest is what the adapter of every HTTP framework must do, as one test that each of them calls
// with its own router.
package adaptertest

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/internal/tested"
	"github.com/quotient-go/quotient/policy"
)

// soon is the deadline of what happens on the real network.
const soon = 10 * time.Second

// Adapter is the adapter of one framework.
type Adapter struct {
	// Router makes a router with one route.
	Router func(t testing.TB, r Route) http.Handler
	// MadeUp is the key by route of a request for GET /items/:id with a method that nobody knows.
	MadeUp string
	// Mistakes are calls that panic, since something is nil.
	Mistakes []func(l *quotient.Limiter)
	// TooMany is the framework's error that it answers with 429; nil: its handlers return none.
	TooMany error
}

// Route is one route, and what stands in front of it.
type Route struct {
	Method, Path string // GET and / where they are empty
	Limiter      *quotient.Limiter
	Options      []httplimit.Option
	ByToken      bool                        // limits this route by the header Token, else all by route
	Seen         func(status int, err error) // of a middleware in front, with what the handler returned
	Recover      bool                        // the framework's own recovery stands in front
	Handle       http.HandlerFunc            // gets the framework's own writer and request
	Fails        error                       // what the handler returns after that
	OnError      func(w http.ResponseWriter) // answers errors instead of the framework, unless it is nil
}

// Run checks an adapter.
func Run(t *testing.T, a Adapter) {
	router := a.Router
	a.Router = func(t testing.TB, r Route) http.Handler {
		r.Method, r.Path = cmp.Or(r.Method, http.MethodGet), cmp.Or(r.Path, "/")
		if r.Seen == nil {
			r.Seen = func(int, error) {}
		}
		return router(t, r)
	}
	tests := map[string]func(*testing.T, Adapter){
		"refusal": refusal, "keys": keys, "panic": panics, "stream": stream, "body": body, "hijack": hijack,
		"permit": permit, "mistakes": mistakes,
	}
	if a.TooMany != nil {
		tests["errors"], tests["one answer"] = fails, oneAnswer
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(t, a) })
	}
}

// Limiter makes a limiter.
func Limiter(t testing.TB, limit quotient.Limit, opts ...quotient.Option) *quotient.Limiter {
	t.Helper()
	l, err := quotient.New(limit, opts...)
	tested.Must(t, err)
	return l
}

// Learners are limiters with one slot: under a policy that learns handlers see another writer.
func Learners(t testing.TB) map[string]*quotient.Limiter {
	slot := quotient.Limit{InFlight: 1}
	return map[string]*quotient.Limiter{
		"fixed":    Limiter(t, slot),
		"learning": Limiter(t, slot, quotient.Policy(policy.AIMD{})),
	}
}

// Idle waits until every permit was given back, and fails if one was twice. A client may have the answer before
// the handler has returned.
func Idle(t testing.TB, l *quotient.Limiter) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	for state := range l.Keys() {
		permit, err := l.Acquire(ctx, state.Key)
		if err != nil {
			t.Fatalf("the permit of %q was not given back: %v", state.Key, err)
		}
		permit.Release()
	}
	if s := l.Stats(); s.InFlight != 0 || s.Waiting != 0 || s.DoubleReleases != 0 {
		t.Errorf("in flight %d, waiting %d, double releases %d; want none", s.InFlight, s.Waiting, s.DoubleReleases)
	}
}

// Ask sends one request to a router and returns the answer.
func Ask(h http.Handler, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, path, nil)
	r.Header.Set("X-Tenant", "abc")
	h.ServeHTTP(w, r)
	return w
}

// serve runs a router on the loopback interface and returns its address and a client.
func (a Adapter) serve(t *testing.T, r Route) (string, *http.Client) {
	t.Helper()
	s := httptest.NewServer(a.Router(t, r))
	t.Cleanup(s.Close)
	client := s.Client()
	client.Timeout = soon
	return s.URL, client
}

func refusal(t *testing.T, a Adapter) {
	var seen []int
	served := 0
	h := a.Router(t, Route{
		Path: "/items/:id", Limiter: Limiter(t, quotient.Rates(quotient.Every(time.Hour))),
		Options: []httplimit.Option{httplimit.SendFields(httplimit.FieldsDraft11)},
		Seen:    func(status int, _ error) { seen = append(seen, status) },
		Handle:  func(w http.ResponseWriter, _ *http.Request) { served++; _, _ = io.WriteString(w, "item") },
	})
	w := Ask(h, "GET", "/items/1")
	if w.Code != 200 || w.Body.String() != "item" ||
		w.Header().Get("RateLimit-Policy") != `"interval";q=1;w=3600` {
		t.Errorf("status %d, body %q, fields %v", w.Code, w.Body, w.Header())
	}
	w = Ask(h, "GET", "/items/2")
	if w.Code != 429 || !strings.Contains(w.Body.String(), `"violated-policies":["interval"]`) {
		t.Errorf("status %d, body %q", w.Code, w.Body)
	}
	for name, want := range map[string]string{
		"Retry-After": "3600", "Content-Type": "application/problem+json", "RateLimit": `"interval";r=0;t=3600`,
	} {
		tested.Want(t, name, w.Header().Get(name), want)
	}
	tested.Want(t, "requests that reached the handler", served, 1)
	tested.Not(t, !slices.Equal(seen, []int{200, 429}), "the handler in front saw %v", seen)
}

func keys(t *testing.T, a Adapter) {
	l := Limiter(t, quotient.Rates(quotient.PerHour(1e6)))
	for _, r := range []Route{{Method: "GET"}, {Method: "PUT"}, {Method: "GET", ByToken: true}} {
		r.Path, r.Limiter, r.Handle = "/items/:id", l, func(http.ResponseWriter, *http.Request) {}
		h := a.Router(t, r)
		for _, path := range []string{"/items/1", "/items/2", "/nothing/1", "/nothing/2"} {
			Ask(h, r.Method, path)
		}
		Ask(h, "MADEUP", "/items/1")
		Ask(h, "MADEUP2", "/items/1")
	}
	var got []string
	for state := range l.Keys() {
		got = append(got, state.Key)
	}
	want := []string{"(unmatched)", "GET /items/:id", "PUT /items/:id", "abc", a.MadeUp}
	slices.Sort(got)
	slices.Sort(want)
	tested.Not(t, !slices.Equal(got, slices.Compact(want)), "keys %q, want %q", got, want)
}

func panics(t *testing.T, a Adapter) {
	for name, l := range Learners(t) {
		h := a.Router(t, Route{
			Limiter: l, Options: []httplimit.Option{httplimit.Wait(httplimit.Forever)}, Recover: true,
			Handle: func(http.ResponseWriter, *http.Request) { panic("a bug") },
		})
		for range 2 {
			tested.Want(t, name+": status", Ask(h, "GET", "/").Code, 500)
			Idle(t, l)
		}
	}
}

// A handler that streams holds its permit until it returns, and its client reads what was flushed.
func stream(t *testing.T, a Adapter) {
	for name, l := range Learners(t) {
		end := make(chan struct{})
		url, client := a.serve(t, Route{Limiter: l, Handle: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "first\n")
			w.(http.Flusher).Flush()
			<-end
		}})
		resp, err := client.Get(url)
		tested.Must(t, err)
		line, err := bufio.NewReader(resp.Body).ReadString('\n')
		if line != "first\n" || err != nil || l.Stats().InFlight != 1 {
			t.Errorf("%s: read %q, %v; in flight %d, want 1", name, line, err, l.Stats().InFlight)
		}
		close(end)
		_ = resp.Body.Close()
		Idle(t, l)
	}
}

// A body that was read while its request waited comes to the handler whole.
func body(t *testing.T, a Adapter) {
	for name, l := range Learners(t) {
		url, client := a.serve(t, Route{
			Method: "POST", Limiter: l, Options: []httplimit.Option{httplimit.Wait(httplimit.Forever)},
			Handle: func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) },
		})
		held, _ := l.TryAcquire("POST /")
		go func() {
			for l.Stats().Waiting == 0 {
				time.Sleep(time.Millisecond)
			}
			held.Release()
		}()
		resp, err := client.Post(url, "text/plain", strings.NewReader("the body"))
		tested.Must(t, err)
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		tested.Must(t, err)
		tested.Want(t, name+": what the handler read", string(text), "the body")
		Idle(t, l)
	}
}

// A connection that is taken over holds the permit until it is closed, directly or through a controller.
func hijack(t *testing.T, a Adapter) {
	for _, direct := range []bool{true, false} {
		l, conns := Learners(t)["learning"], make(chan net.Conn, 1)
		url, client := a.serve(t, Route{Limiter: l, Handle: func(w http.ResponseWriter, _ *http.Request) {
			rc := http.NewResponseController(w)
			take, err := rc.Hijack, rc.SetReadDeadline(time.Now().Add(soon))
			if direct {
				take = w.(http.Hijacker).Hijack
			}
			conn, _, err2 := take()
			if err := errors.Join(err, err2); err != nil {
				panic(err)
			}
			conns <- conn
		}})
		failed := make(chan error)
		go func() {
			resp, err := client.Get(url)
			if err == nil {
				_ = resp.Body.Close()
			}
			failed <- err
		}()
		conn := <-conns
		tested.Want(t, "in flight", l.Stats().InFlight, 1)
		_ = conn.Close()
		tested.Not(t, <-failed == nil, "the client got an answer over a connection that was closed")
		Idle(t, l)
	}
}

// The handlers get the request that carries the permit, and put its cost right.
func permit(t *testing.T, a Adapter) {
	l := Limiter(t, quotient.Rates(
		quotient.Rate{Name: "tokens", Unit: "tokens", Events: 100, Per: time.Hour, Burst: 100}))
	sixty := httplimit.CostBy("tokens", func(*http.Request) int { return 60 })
	h := a.Router(t, Route{
		Limiter: l, Options: []httplimit.Option{sixty}, ByToken: true,
		Handle: func(w http.ResponseWriter, r *http.Request) {
			if p, ok := httplimit.PermitFrom(r.Context()); !ok || p.Correct("tokens", 15) != nil {
				t.Error("no permit that can be corrected")
			}
			w.WriteHeader(204)
		},
	})
	tested.Want(t, "status", Ask(h, "GET", "/").Code, 204)
	if left := l.Explain("abc").Rules[0].Left; left < 85 || left > 86 {
		t.Errorf("%v tokens are left, want 85", left)
	}
}

// The policy reads the status that is written, also of an error that the framework answers.
func fails(t *testing.T, a Adapter) {
	none := func(http.ResponseWriter) {}
	for name, tt := range map[string]struct {
		handle    func(http.ResponseWriter)
		fails     error
		status    int
		throttled uint64
		answered  bool // before the error, as far as the framework knows
	}{
		"nothing":                {none, nil, 200, 0, false},
		"status":                 {func(w http.ResponseWriter) { w.WriteHeader(429) }, nil, 429, 1, true},
		"error":                  {none, a.TooMany, 429, 1, false},
		"a bug":                  {none, io.ErrUnexpectedEOF, 500, 0, false},
		"error after the answer": {func(w http.ResponseWriter) { w.WriteHeader(200) }, a.TooMany, 200, 0, true},
		"flushed":                {func(w http.ResponseWriter) { w.(http.Flusher).Flush() }, a.TooMany, 200, 0, false},
	} {
		for kind, l := range Learners(t) {
			var heard error
			w := Ask(a.Router(t, Route{
				Limiter: l, Seen: func(_ int, err error) { heard = err }, Fails: tt.fails,
				Handle: func(w http.ResponseWriter, _ *http.Request) { tt.handle(w) },
			}), "GET", "/")
			want := tt.fails
			if kind == "learning" && !tt.answered {
				want = nil // it was answered
			}
			if w.Code != tt.status || heard != want {
				t.Errorf("%s, %s: status %d, error %v; want %d, %v", name, kind, w.Code, heard, tt.status, want)
			}
			if got := l.Stats().Throttled; kind == "learning" && got != tt.throttled {
				t.Errorf("%s: throttled %d, want %d", name, got, tt.throttled)
			}
			Idle(t, l)
		}
	}
}

// One error is one call of the framework's error handler, also of one that does not look whether an answer has
// begun, and one answer. A logger in front sees its status.
func oneAnswer(t *testing.T, a Adapter) {
	for kind, l := range Learners(t) {
		called, seen := 0, 0
		w := Ask(a.Router(t, Route{
			Limiter: l, Seen: func(status int, _ error) { seen = status }, Fails: io.ErrUnexpectedEOF,
			Handle: func(http.ResponseWriter, *http.Request) {},
			OnError: func(w http.ResponseWriter) {
				called++
				w.WriteHeader(502)
				_, _ = io.WriteString(w, "sorry")
			},
		}), "GET", "/")
		tested.Want(t, kind+": calls", called, 1)
		tested.Want(t, kind+": answer", fmt.Sprint(w.Code, w.Body), "502 sorry")
		tested.Not(t, kind == "learning" && seen != 502, "the logger sees %d", seen) // else it is answered later
		Idle(t, l)
	}
}

func mistakes(t *testing.T, a Adapter) {
	for i, mistake := range a.Mistakes {
		func() {
			defer func() {
				text := fmt.Sprint(recover())
				tested.Not(t, !strings.Contains(text, " nil"), "mistake %d: panic %s", i, text)
			}()
			mistake(Limiter(t, quotient.Limit{InFlight: 1}))
		}()
	}
}
