package proxy

import (
	"bufio"
	"cmp"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/cmd/quotient/internal/front"
	"github.com/quotient-go/quotient/cmd/quotient/internal/upstream"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/tested"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a proxy between a client and an upstream.
type world struct {
	t     testing.TB
	reg   *quotient.Registry
	proxy *Proxy
	conf  *config.Config
	front *httptest.Server

	address string // of another server in front, if there is one
}

// all is the end of a file that limits every path.
const all = `
[[proxy.rules]]
pattern = "/"
limiter = "all"
`

// strict is a limiter of one request an hour, refused.
const strict = `
[limiters.all]
mode = "refuse"
rates = [{ name = "hour", events = 1, per = "1h", burst = 1, no-turns = true }]
`

// loose is a limiter that no test reaches.
const loose = `
[limiters.all]
rates = [{ name = "second", events = 1_000_000, per = "1s" }]
`

// newWorld makes a world of the text of a file, before an upstream.
func newWorld(t testing.TB, text string, up http.HandlerFunc, setUp ...func(*httptest.Server)) *world {
	t.Helper()
	behind := httptest.NewServer(up)
	t.Cleanup(behind.Close)
	return worldBefore(t, text, behind.URL, setUp...)
}

// worldBefore is newWorld before an upstream that is there: UPSTREAM in the file is its address.
func worldBefore(t testing.TB, text, address string, setUp ...func(*httptest.Server)) *world {
	t.Helper()
	return worldWith(t, text, address, nil, setUp...)
}

// worldWith is worldBefore with options of the limiters.
func worldWith(
	t testing.TB, text, address string, opts []quotient.Option, setUp ...func(*httptest.Server),
) *world {
	t.Helper()
	w := &world{t: t, reg: new(quotient.Registry)}
	if !strings.Contains(text, "[proxy]") {
		text = "[proxy]\nupstreams = [\"UPSTREAM\"]\n" + text
	}
	text = strings.ReplaceAll(text, "UPSTREAM", address)
	pool := upstream.New(nil)
	w.proxy = New(w.reg, pool, nil)
	f, err := config.Parse("test.toml", []byte(text))
	must(t, err)
	w.conf, err = config.New(f, w.reg, config.With(pool), config.With(w.proxy),
		config.LimiterOptions(opts...))
	must(t, err)
	w.front = httptest.NewUnstartedServer(w.proxy)
	w.front.Config.DisableGeneralOptionsHandler = true
	for _, f := range setUp {
		f(w.front)
	}
	if w.front.EnableHTTP2 {
		w.front.StartTLS()
	} else {
		w.front.Start()
	}
	t.Cleanup(func() {
		w.proxy.Drain()
		w.front.Close()
		_ = pool.Close()
	})
	return w
}

func overH2(s *httptest.Server) { s.EnableHTTP2 = true }

// both runs a test with clients of HTTP/1.1 and of HTTP/2.
func both(t *testing.T, f func(t *testing.T, setUp ...func(*httptest.Server))) {
	t.Run("http1", func(t *testing.T) { f(t) })
	t.Run("http2", func(t *testing.T) { f(t, overH2) })
}

// later asks for a path in a goroutine, with a body unless that is empty. The status is 0 without an answer.
func (w *world) later(ctx context.Context, body string) <-chan int {
	w.t.Helper()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	req := w.ask(method, "/", strings.NewReader(body)).WithContext(ctx)
	status := make(chan int, 1)
	go func() {
		resp, err := w.front.Client().Do(req)
		if err != nil {
			status <- 0
			return
		}
		_ = resp.Body.Close()
		status <- resp.StatusCode
	}()
	return status
}

func (w *world) waiting(n int) {
	w.t.Helper()
	until(w.t, "so many wait", func() bool { return w.limiter().Stats().Waiting == n })
}

func (w *world) get(path string, header ...string) (*http.Response, string) {
	w.t.Helper()
	return w.do(w.ask(http.MethodGet, path, nil, header...))
}

func (w *world) ask(method, path string, body io.Reader, header ...string) *http.Request {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), tested.Patience)
	w.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, w.front.URL+path, body)
	must(w.t, err)
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		} else {
			req.Header.Add(header[i], header[i+1])
		}
	}
	return req
}

func (w *world) do(req *http.Request) (*http.Response, string) {
	w.t.Helper()
	resp, err := w.front.Client().Do(req)
	must(w.t, err)
	body, err := io.ReadAll(resp.Body)
	must(w.t, err)
	must(w.t, resp.Body.Close())
	return resp, string(body)
}

// dial opens a connection to the proxy.
func (w *world) dial() net.Conn {
	w.t.Helper()
	c, err := net.Dial("tcp", cmp.Or(w.address, w.front.Listener.Addr().String()))
	must(w.t, err)
	w.t.Cleanup(func() { _ = c.Close() })
	must(w.t, c.SetDeadline(time.Now().Add(tested.Patience)))
	return c
}

// behindFront has the program's own server in front of the proxy, for raw.
func (w *world) behindFront() {
	w.t.Helper()
	s, err := front.New(w.conf.File().Proxy, w.proxy, slog.New(slog.DiscardHandler), front.OnRefusal(w.proxy.Refused))
	must(w.t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(w.t, err)
	ctx, end := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- s.Serve(ctx, l) }()
	w.t.Cleanup(func() { end(); must(w.t, tested.Event(w.t, over)) })
	w.address = l.Addr().String()
}

// raw sends a text, and returns the answer with its body.
func (w *world) raw(text string) (*http.Response, string) {
	w.t.Helper()
	c := w.dial()
	_, err := io.WriteString(c, strings.ReplaceAll(text, "\n", "\r\n"))
	must(w.t, err)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	must(w.t, err)
	body, err := io.ReadAll(resp.Body)
	must(w.t, err)
	must(w.t, resp.Body.Close())
	return resp, string(body)
}

func (w *world) limiter() *quotient.Limiter {
	w.t.Helper()
	l, ok := w.reg.Get("all")
	if !ok {
		w.t.Fatal("the limiter is missing")
	}
	return l
}

func (w *world) reload(f *config.File) {
	w.t.Helper()
	commit, err := w.proxy.Prepare(f)
	must(w.t, err)
	commit()
}

var must = tested.Must

func want[T comparable](t testing.TB, what string, got, wanted T) {
	t.Helper()
	if got != wanted {
		t.Errorf("%s is %v, want %v", what, got, wanted)
	}
}

var until = tested.Until

// nowhere is an address at which no server listens.
const nowhere = "http://127.0.0.1:1"

func ok(http.ResponseWriter, *http.Request) {}

const one = "[limiters.all]\nin-flight = 1\n"

// holding is an upstream whose requests stay until stop is called.
func holding(t *testing.T) (h http.HandlerFunc, entered chan string, stop func()) {
	entered = make(chan string, 100)
	end, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		entered <- string(body)
		select {
		case <-end.Done():
		case <-r.Context().Done():
		}
	}, entered, cancel
}
