package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/quotient-go/quotient/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// network is one in memory, so that a run fits into a bubble with a clock of its own.
type network struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newNetwork() *network {
	return &network{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *network) Close() error { n.once.Do(func() { close(n.closed) }); return nil }

func (n *network) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

func (n *network) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	theirs, ours := net.Pipe()
	select {
	case n.conns <- theirs:
		return ours, nil
	case <-n.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// inMemory runs the command on a clock that moves when all goroutines wait.
func inMemory(t *testing.T, adaptive bool) (status int, out string) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		base := &http.Transport{DialContext: n.dial, MaxIdleConnsPerHost: clients * workers}
		var stdout, stderr bytes.Buffer
		status = run(t.Context(), n, base, adaptive, &stdout, &stderr)
		base.CloseIdleConnections()
		out = stdout.String() + stderr.String()
	})
	return status, out
}

// TestClientsAdaptToBoth is the command's own claim: clients without any hint use up what is scarce. Nine
// seconds from a cold start are short for fairness: about one run in fifteen ends while a client is still
// near its least rate. So that claim must hold in most of five runs, and the others in each.
func TestClientsAdaptToBoth(t *testing.T) {
	const runs = 5
	unfair := 0
	for range runs {
		status, out := inMemory(t, true)
		if got := strings.Count(out, "\n"); got != 1+2*(3+seconds+4) {
			t.Fatalf("%d lines\n%s", got, out)
		}
		broken := strings.Count(out, "BROKEN")
		if strings.Count(out, "held ") != 6-broken || (status == exitHeld) != (broken == 0) {
			t.Fatalf("exit status %d\n%s", status, out)
		}
		if broken != strings.Count(out, "BROKEN  fairness") {
			t.Errorf("a claim besides fairness does not hold\n%s", out)
		}
		if broken > 0 {
			t.Logf("an unfair run:\n%s", out)
			unfair++
		}
	}
	if unfair > runs/2 {
		t.Errorf("%d of %d runs were unfair", unfair, runs)
	}
}

// TestWithoutLearningTheClaimsBreak: clients that each keep the limits of the account are refused three
// times of four, and the verdict reports it. This is the proof that it can fail.
func TestWithoutLearningTheClaimsBreak(t *testing.T) {
	status, out := inMemory(t, false)
	if status != exitBroken || strings.Count(out, "BROKEN  refused with 429") != 2 {
		t.Errorf("exit status %d\n%s", status, out)
	}
}

func TestVerdict(t *testing.T) {
	fair := []float64{10, 10, 10, 10}
	for _, c := range []struct {
		name   string
		scarce string
		got    tally
		served []float64
		want   string
	}{
		{"all held", "requests", tally{Served: 95 * judged, Refused: judged, Tokens: 1000}, fair, ""},
		{"tokens held", "tokens", tally{Served: 10, Tokens: 19_000 * judged}, fair, ""},
		{"too little", "requests", tally{Served: 80 * judged, Tokens: 20_000 * judged}, fair,
			"BROKEN  requests used: 80.0 %"},
		{"too few tokens", "tokens", tally{Served: 100 * judged, Tokens: 16_000 * judged}, fair,
			"BROKEN  tokens used: 80.0 %"},
		{"refused", "requests", tally{Served: 90, Refused: 10}, fair, "BROKEN  refused with 429: 10.0 %"},
		{"one has all", "tokens", tally{Served: 10, Tokens: 19_000 * judged}, []float64{40, 0, 0, 0},
			"BROKEN  fairness between the clients: 25.0 %"},
		{"nothing", "requests", tally{}, make([]float64, 4), "BROKEN  fairness"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			r := result{phase: phase{scarce: c.scarce}, to: c.got, servedFrom: make([]float64, 4),
				servedTo: c.served}
			held := r.held(&out)
			if held != (c.want == "") || !strings.Contains(out.String(), c.want) {
				t.Errorf("held %v\n%s", held, out.String())
			}
		})
	}
}

// TestOverLoopback runs on the real network until it is interrupted, and leaves nothing behind.
func TestOverLoopback(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var stdout, stderr bytes.Buffer
	status := loopback(ctx, true, &cutOff{&stdout, "   1 ", cancel}, &stderr)
	if status != exitFailed || !strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("exit status %d, %s", status, stderr.String())
	}
	if strings.Contains(stdout.String(), "   1         0 ") {
		t.Errorf("nothing was served\n%s", stdout.String())
	}
}

// cutOff calls cancel once a text is written.
type cutOff struct {
	*bytes.Buffer
	text   string
	cancel func()
}

func (c *cutOff) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(c.text)) {
		c.cancel()
	}
	return c.Buffer.Write(p)
}

// TestAPIReportsItsLimits holds the fields of an answer and of a refusal, and that an answer's cost counts.
func TestAPIReportsItsLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := newAPI()
		ask := func(body string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			upstream.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
			return w
		}
		says := func(w *httptest.ResponseRecorder, status int, fields ...string) {
			t.Helper()
			if w.Code != status {
				t.Errorf("status %d, want %d", w.Code, status)
			}
			for i := 0; i < len(fields); i += 2 {
				if got := w.Header().Get(fields[i]); got != fields[i+1] {
					t.Errorf("%s: %q, want %q", fields[i], got, fields[i+1])
				}
			}
		}
		long := `{"prompt":"` + strings.Repeat("text", 2000) + `","max_tokens":0}`
		says(ask(long), http.StatusOK,
			"x-ratelimit-limit-requests", "100", "x-ratelimit-remaining-requests", "100",
			"x-ratelimit-reset-requests", "0s",
			"x-ratelimit-limit-tokens", "20000", "x-ratelimit-remaining-tokens", "18400",
			"x-ratelimit-reset-tokens", "80ms")
		upstream.charge(22_000) // more than there is
		says(ask(long), http.StatusTooManyRequests, "x-ratelimit-remaining-tokens", "0",
			"x-ratelimit-reset-tokens", "1.18s", "Retry-After", "")
		says(ask(long), http.StatusTooManyRequests, "Retry-After", "")
		says(ask(long), http.StatusTooManyRequests, "Retry-After", "1")
		time.Sleep(2 * minute)
		says(ask(long), http.StatusOK)
		says(ask("{"), http.StatusBadRequest)
		says(ask(`{"max_tokens":-1}`), http.StatusBadRequest)
	})
}

// TestClientPutsTheCostRight: a prompt's estimate of 200 tokens is replaced by the cost in the answer.
func TestClientPutsTheCostRight(t *testing.T) {
	for _, used := range []int{50, 500} {
		synctest.Test(t, func(t *testing.T) { // the buckets do not fill meanwhile
			c := clientOf(t, http.StatusOK, fmt.Sprintf(`{"usage":{"total_tokens":%d}}`, used))
			if _, err := c.complete(t.Context(), prompt{strings.Repeat("text", 100), 200}); err != nil {
				t.Fatal(err)
			}
			for k := range c.limiter.Keys() {
				if left := k.Rules[1].Left; left != tokensPerMinute-float64(used) {
					t.Errorf("%v tokens are left of %d after %d", left, tokensPerMinute, used)
				}
			}
		})
	}
}

func TestClientTellsRefusalsFromErrors(t *testing.T) {
	for status, refused := range map[int]bool{
		http.StatusTooManyRequests: true,
		http.StatusBadRequest:      false,
		http.StatusOK:              false,
	} {
		c := clientOf(t, status, "{")
		_, err := c.complete(t.Context(), prompt{"text", 1})
		if err == nil || errors.Is(err, errRefused) != refused {
			t.Errorf("status %d: %v", status, err)
		}
		if s := c.limiter.Stats(); s.InFlight != 0 || (s.Throttled == 1) != refused {
			t.Errorf("status %d: in flight %d, throttled %d", status, s.InFlight, s.Throttled)
		}
	}
}

// answers is a network that always gives the same answer.
type answers struct {
	status int
	body   string
}

func (a answers) RoundTrip(*http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	w.WriteHeader(a.status)
	_, _ = w.WriteString(a.body)
	return w.Result(), nil
}

func clientOf(t *testing.T, status int, body string) *client {
	t.Helper()
	l, err := newLimiter(policy.Tracking{})
	if err != nil {
		t.Fatal(err)
	}
	return &client{limiter: l, http: &http.Client{Transport: answers{status, body}}, url: "http://h/"}
}
