package httplimit

import (
	"bufio"
	"context"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
	"github.com/quotient-go/quotient/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func limiter(t testing.TB, limit quotient.Limit, opts ...quotient.Option) *quotient.Limiter {
	t.Helper()
	l, err := quotient.New(limit, opts...)
	tested.Must(t, err)
	return l
}

// oneSlot is a limit under which a second request waits for the first.
var oneSlot = quotient.Limit{InFlight: 1}

// hourly is a limit of one request an hour.
var hourly = quotient.Rates(quotient.PerHour(1))

// both is a limit of a rate and of slots.
var both = quotient.Limit{Rates: hourly.Rates, InFlight: 1}

// plenty is a limit with a rate and slots that no benchmark reaches.
var plenty = quotient.Limit{Rates: []quotient.Rate{{Events: 1e12, Per: 1e9, Burst: 1 << 30}},
	InFlight: 1 << 20}

// rates is a limit of these rates.
func rates(r ...quotient.Rate) quotient.Limit { return quotient.Limit{Rates: r} }

// minutely is a limit of so many requests a minute.
func minutely(n float64) quotient.Limit {
	return rates(quotient.Rate{Name: "minute", Events: n, Per: time.Minute, Burst: int(n)})
}

// slots is a limit of so many requests in flight.
func slots(n int) quotient.Limit { return quotient.Limit{InFlight: n} }

// idle fails unless every permit was given back, once.
func idle(t testing.TB, l *quotient.Limiter) {
	t.Helper()
	if s := l.Stats(); s.InFlight != 0 || s.Waiting != 0 || s.DoubleReleases != 0 {
		t.Errorf("in flight %d, waiting %d, double releases %d; want none", s.InFlight, s.Waiting,
			s.DoubleReleases)
	}
}

// inFlight fails unless n permits are out.
func inFlight(t testing.TB, l *quotient.Limiter, n int) {
	t.Helper()
	if s := l.Stats(); s.InFlight != n || s.DoubleReleases != 0 {
		t.Errorf("in flight %d, double releases %d; want %d, 0", s.InFlight, s.DoubleReleases, n)
	}
}

// leftOf is how much is left of the first rule of a key.
func leftOf(l *quotient.Limiter, key string) float64 {
	return l.Explain(key).Rules[0].Left
}

// spy is a policy that writes down its samples of requests, which no rate of these tests bounds.
type spy struct {
	mu    sync.Mutex
	heard []policy.Feedback
}

func (s *spy) New(uint64) policy.Controller { return s }

func (s *spy) Next(sample policy.Sample, b policy.Bounds) policy.Pace {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sample.Outcome != policy.Unknown && math.IsInf(b.Ceiling, 1) {
		s.heard = append(s.heard, policy.Feedback{
			Outcome: sample.Outcome, RetryAfter: sample.RetryAfter,
			Quotas: [policy.MaxQuotas]policy.Quota{sample.Quota},
		})
	}
	return policy.Pace{Rate: min(b.Ceiling, 1e6)}
}

// learned fails unless the policy got these samples and no other.
func (s *spy) learned(t testing.TB, want ...policy.Feedback) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	tested.Not(t, !slices.Equal(s.heard, want), "the policy got %v, want %v", s.heard, want)
	s.heard = nil
}

// learning returns a limiter with one slot whose policy is a spy.
func learning(t testing.TB) (*quotient.Limiter, *spy) {
	s := &spy{}
	return limiter(t, oneSlot, quotient.Policy(s)), s
}

// touchy is a policy whose controllers panic at feedback.
type touchy struct{}

func (touchy) New(uint64) policy.Controller { return touchy{} }

func (touchy) Next(sample policy.Sample, b policy.Bounds) policy.Pace {
	if sample.Outcome != policy.Unknown {
		panic("touchy")
	}
	return policy.Pace{Rate: min(b.Ceiling, 1e6)}
}

// panicOf is what f panics with.
func panicOf(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

// gives is feedback with these quotas.
func gives(outcome policy.Outcome, pause time.Duration, quotas ...policy.Quota) policy.Feedback {
	f := policy.Feedback{Outcome: outcome, RetryAfter: pause}
	copy(f.Quotas[:], quotas)
	return f
}

// network is one in memory, for servers inside a synctest bubble.
type network struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *network) Close() error   { n.once.Do(func() { close(n.closed) }); return nil }
func (n *network) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

// dial connects to the server, as http.Transport.DialContext.
func (n *network) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case n.conns <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// serve runs a server with a handler until the test is over.
func serve(t *testing.T, h http.Handler) *network {
	t.Helper()
	n := &network{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(n)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return n
}

// client speaks HTTP to n.
func (n *network) client(t *testing.T) *http.Client {
	base := &http.Transport{DialContext: n.dial}
	t.Cleanup(base.CloseIdleConnections)
	return &http.Client{Transport: base}
}

// send dials and writes raw bytes, without waiting for the server to read them.
func (n *network) send(t *testing.T, raw string) net.Conn {
	t.Helper()
	c, err := n.dial(t.Context(), "", "")
	tested.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	go func() { _, _ = io.WriteString(c, raw) }()
	synctest.Wait()
	return c
}

// answer reads one response from a raw connection.
func answer(t *testing.T, c net.Conn) *http.Response {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	tested.Must(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func readAll(t testing.TB, r io.Reader) string {
	t.Helper()
	text, err := io.ReadAll(r)
	tested.Must(t, err)
	return string(text)
}

// soon is the deadline of tests on a real network.
const soon = 10 * time.Second

// receive returns what comes from a channel, or fails.
func receive[T any](t testing.TB, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(soon):
		t.Fatalf("no %s within %v", what, soon)
	}
	return v
}

// body is a request body that knows whether it was closed.
type body struct {
	io.Reader
	closed int
}

func newBody(text string) *body { return &body{Reader: strings.NewReader(text)} }

func (b *body) Close() error { b.closed++; return nil }

// long is a body that is too long to be buffered.
var long = strings.Repeat("x", maxBuffer+1)

// get makes a request as a server sees it, from the target of a request line.
func get(t testing.TB, target string) *http.Request {
	t.Helper()
	u, err := url.ParseRequestURI(target)
	if err != nil {
		t.Fatalf("target %q: %v", target, err)
	}
	return &http.Request{Method: "GET", URL: u, RequestURI: target, Host: "example.com",
		Header: http.Header{}, ProtoMajor: 1}
}

// post makes a request over HTTP/1 with a body of unknown length.
func post(t testing.TB, b io.ReadCloser) *http.Request {
	r := get(t, "/")
	r.Method, r.Body, r.ContentLength = "POST", b, -1
	return r
}

var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusNoContent)
})

var nothing = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// noWriter is an http.ResponseWriter that does nothing.
type noWriter struct{ header http.Header }

func (w noWriter) Header() http.Header         { return w.header }
func (w noWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w noWriter) WriteHeader(int)             {}

// ask sends one request to a handler and returns the answer.
func ask(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// query is what a request says of itself, for tests in which a client chooses.
func query(name string) func(*http.Request) string {
	return func(r *http.Request) string { return r.URL.Query().Get(name) }
}

// number is what a query says, for tests in which a client chooses.
func number(name string) func(*http.Request) int {
	return func(r *http.Request) int { n, _ := strconv.Atoi(r.URL.Query().Get(name)); return n }
}

// handle puts a function behind a Middleware by path.
func handle(l *quotient.Limiter, f http.HandlerFunc, opts ...Option) http.Handler {
	return Middleware(l, Path(), opts...)(f)
}

// taken is a limiter with one slot, which / has.
func taken(t *testing.T) (l *quotient.Limiter, held quotient.Permit) {
	l = limiter(t, oneSlot)
	held, _ = l.TryAcquire("/")
	return l, held
}

// elapsed fails unless just so much time has passed since a start.
func elapsed(t *testing.T, start time.Time, want time.Duration) {
	t.Helper()
	tested.Want(t, "the time", time.Since(start), want)
}

// bubble runs a test of a name in fake time.
func bubble(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}
