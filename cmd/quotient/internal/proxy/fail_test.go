package proxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/cmd/quotient/internal/upstream"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/held"
	"github.com/quotient-go/quotient/internal/tested"
	"github.com/quotient-go/quotient/policy"
)

// wantProblem fails the test unless an answer is a problem that says nothing of ours.
func wantProblem(t testing.TB, what string, resp *http.Response, body string, status int) {
	t.Helper()
	want(t, what+": status", resp.StatusCode, status)
	want(t, what+": Content-Type", resp.Header.Get("Content-Type"), "application/problem+json")
	want(t, what+": Cache-Control", resp.Header.Get("Cache-Control"), "no-store")
	var p struct {
		Type, Title, Detail string
		Status              int
	}
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		t.Errorf("%s: the body is %q: %v", what, body, err)
	}
	want(t, what+": status in the body", p.Status, status)
	if p.Detail == "" || p.Title == "" || strings.Contains(body, "127.0.0.1") ||
		strings.Contains(body, "dial") {
		t.Errorf("%s: the body is %q", what, body)
	}
}

const problemType = "application/problem+json"

// breaking takes connections, reads a head, sends a text, and closes.
func breaking(t testing.TB, answer string) (url string, asked *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	asked = new(atomic.Int64)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				asked.Add(1)
				_, _ = io.WriteString(c, answer)
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return "http://" + l.Addr().String(), asked
}

// TestFailures: what a client gets when the upstream has no answer.
func TestFailures(t *testing.T) {
	broken, asked := breaking(t, "")
	odd, _ := breaking(t, "HTTP/1.1 099 What\r\nContent-Length: 0\r\n\r\n")
	garbage, _ := breaking(t, "HTTP/9.9 what\r\n\r\n")
	late := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(late.Close)
	for _, row := range []struct {
		what, url string
		header    []string
		status    int
		retry     string
	}{
		{"nothing listens", nowhere, nil, http.StatusServiceUnavailable, "1"},
		{"broken off", broken, nil, http.StatusBadGateway, ""},
		{"no HTTP", garbage, nil, http.StatusBadGateway, ""},
		{"a status that cannot be written", odd, nil, http.StatusBadGateway, ""},
		{"late", late.URL, nil, http.StatusGatewayTimeout, ""},
		{"a protocol that is none", late.URL, []string{"Connection", "Upgrade", "Upgrade", "a\x80b"},
			http.StatusBadRequest, ""},
	} {
		w := worldBefore(t, hundred+all+"[proxy.timeouts]\nresponse-header = \"20ms\"\n", row.url)
		for _, left := range []string{`"hour";r=99;`, `"hour";r=98;`} {
			resp, body := w.get("/", row.header...)
			wantProblem(t, row.what, resp, body, row.status)
			want(t, row.what+": Retry-After", resp.Header.Get("Retry-After"), row.retry)
			want(t, row.what+": Ratelimit begins with "+left,
				strings.HasPrefix(resp.Header.Get("Ratelimit"), left), true)
		}
	}
	want(t, "times that the upstream was asked by two requests", asked.Load(), 2)
}

// TestOwnRefusals: a rule says what is answered in place of 429, and nothing of how the limit stands.
func TestOwnRefusals(t *testing.T) {
	const page = `status = 503, body = "<p>é", type = "text/html", ` +
		`fields = { x-why = "quota", Cache-Control = "private" }`
	const quota = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	for _, row := range []struct {
		what, text, refusal, method string
		status                      int
		kind, body                  string // of the body: what is in it
		why, retry                  string // fields
	}{
		{"a page", strict, page, "GET", 503, "text/html", "<p>é", "quota", "3600"},
		{"a head", strict, page, "HEAD", 503, "text/html", "", "quota", "3600"},
		{"denied", "[limiters.all]\ndeny = true\n", page, "POST", 503, "text/html", "<p>é", "quota", ""},
		{"a text", strict, `body = "no"`, "GET", 429, config.PlainText, "no", "", "3600"},
		{"another status", strict, "status = 403", "GET", 403, problemType, `The limit \"hour\" is reached.`, "",
			"3600"},
		{"more fields", strict, `fields = { X-Why = "quota" }`, "GET", 429, problemType, quota, "quota", "3600"},
		{"no share", "[pool]\nreplicas = 4\n[limiters.all]\nin-flight = 1\n", page, "GET", 503, problemType,
			"no more requests", "", "1"},
		{"the second limiter", loose + strings.Replace(strict, "all", "more", 1), `body = "no"`, "GET", 429, config.PlainText,
			"no", "", "3600"},
	} {
		rule := all + "refusal = { " + row.refusal + " }\n"
		if strings.Contains(row.text, "limiters.more") {
			rule += "also = [{ limiter = \"more\" }]\n"
		}
		w := newWorld(t, row.text+rule, ok)
		w.get("/")
		resp, body := w.do(w.ask(row.method, "/", nil))
		want(t, row.what+": status", resp.StatusCode, row.status)
		want(t, row.what+": Content-Type", resp.Header.Get("Content-Type"), row.kind)
		want(t, row.what+": body "+body, strings.Contains(body, row.body) && (row.body == "") == (body == ""), true)
		want(t, row.what+": X-Why", resp.Header.Get("X-Why"), row.why)
		private := resp.Header.Get("Cache-Control") == "private"
		want(t, row.what+": private", private, strings.Contains(row.kind, "html"))
		want(t, row.what+": Retry-After", resp.Header.Get("Retry-After"), row.retry)
		want(t, row.what+": RateLimit", resp.Header.Get("Ratelimit") != "", row.retry != "")
		want(t, row.what+": scripts read more", resp.Header.Get(exposeHeaders), "")
	}
}

// TestFailuresAreLoggedOnceASecond: with how many were not.
func TestFailuresAreLoggedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		log, l := slog.New(slog.NewTextHandler(&text, nil)), new(failures)
		for range 30 {
			l.log(log, "/", 503, errors.New("down"))
			time.Sleep(100 * time.Millisecond)
		}
		want(t, "lines", strings.Count(text.String(), "request failed"), 3)
		want(t, "lines with a count", strings.Count(text.String(), "unlogged=9"), 2)
	})
}

// TestNoEmptyAnswer: a request that was given up is not answered with an empty 200.
func TestNoEmptyAnswer(t *testing.T) {
	w := newWorld(t, loose+all, ok)
	for _, err := range []error{context.Canceled,
		&upstream.Error{Kind: upstream.Gone, Err: context.Canceled},
		&upstream.Error{Kind: upstream.Body, Err: held.ErrNoRoom}} {
		w.proxy.ups = failing{err}
		resp, body := w.get("/")
		wantProblem(t, "given up", resp, body, http.StatusServiceUnavailable)
	}
}

// failing is a transport that fails.
type failing struct{ err error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.err }

// TestBodiesAreCapped: a body that is too long is answered with 413, before anything goes on if that can be.
func TestBodiesAreCapped(t *testing.T) {
	read := make(chan error, 10)
	var asked atomic.Int64
	w := newWorld(t, loose+all+"[proxy.max]\nbody-bytes = 100_000\n",
		func(_ http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			_, err := io.Copy(io.Discard, r.Body)
			read <- err
		})
	post := func(n int, announced bool) (*http.Response, string) {
		var body io.Reader = strings.NewReader(strings.Repeat("a", n))
		if !announced {
			body = io.MultiReader(body)
		}
		return w.do(w.ask(http.MethodPost, "/", body))
	}
	resp, body := post(100_001, true)
	wantProblem(t, "announced", resp, body, http.StatusRequestEntityTooLarge)
	want(t, "requests at the upstream", asked.Load(), 0)
	resp, body = post(1_000_000, false)
	wantProblem(t, "not announced", resp, body, http.StatusRequestEntityTooLarge)
	if err := tested.Event(t, read); err == nil {
		t.Error("the upstream has taken a part of a body for the whole")
	}
	for _, announced := range []bool{true, false} {
		resp, _ = post(100_000, announced)
		want(t, "status of a body that is as long as may be", resp.StatusCode, 200)
		must(t, tested.Event(t, read))
	}
}

// outcomes is a policy that notes the outcomes that its controllers get.
type outcomes chan policy.Outcome

func (o outcomes) New(uint64) policy.Controller { return o }

// Next notes an outcome.
func (o outcomes) Next(s policy.Sample, b policy.Bounds) policy.Pace {
	if s.Outcome != policy.Unknown {
		o <- s.Outcome
	}
	return policy.Pace{Rate: b.Ceiling}
}

// TestOutcomes: what a policy learns of each end of a request.
func TestOutcomes(t *testing.T) {
	broken, _ := breaking(t, "")
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/late" {
			<-r.Context().Done()
			return
		}
		status, err := strconv.Atoi(r.URL.Path[1:])
		must(t, err)
		w.WriteHeader(status)
	}))
	t.Cleanup(up.Close)
	for _, row := range []struct {
		url, path string
		body      int
		want      policy.Outcome
	}{
		{up.URL, "/200", 0, policy.Success},
		{up.URL, "/502", 0, policy.Success}, // an answer of the upstream, which does not complain of the rate
		{up.URL, "/429", 0, policy.Throttled},
		{up.URL, "/503", 0, policy.Unavailable},
		{up.URL, "/late", 0, policy.Failed},
		{up.URL, "/200", 100_001, policy.Failed}, // ours
		{broken, "/200", 0, policy.Failed},
		{nowhere, "/200", 0, policy.Failed},
	} {
		noted := make(outcomes, 10)
		w := worldWith(t, "[proxy]\nupstreams = [\"UPSTREAM\"]\nmax.body-bytes = 100_000\n"+
			"timeouts.response-header = \"20ms\"\n"+hundred+all, row.url, []quotient.Option{quotient.Policy(noted)})
		req := w.ask(http.MethodGet, row.path, nil)
		if row.body > 0 {
			req = w.ask(http.MethodPost, row.path,
				io.MultiReader(strings.NewReader(strings.Repeat("a", row.body))))
		}
		w.do(req)
		want(t, "outcome of "+row.path, tested.Event(t, noted), row.want)
	}
}

// TestFixedLearnsNothing: whatever the upstream says, unless the file has the policy that tracks it.
func TestFixedLearnsNothing(t *testing.T) {
	for policy, open := range map[string]bool{"fixed": true, "tracking": false} {
		text := hundred + "policy = \"" + policy + "\"\n" + all
		w := newWorld(t, text, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "30")
			w.WriteHeader(http.StatusTooManyRequests)
		})
		w.get("/")
		want(t, policy+": the next may go", w.limiter().Check("/").OK, open)
	}
}
