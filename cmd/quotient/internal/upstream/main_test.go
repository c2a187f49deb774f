package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quotient-go/quotient/cmd/quotient/internal/wire"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/tested"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// section is the section [proxy] of a file with these upstreams.
func section(t testing.TB, urls ...string) *config.Proxy {
	t.Helper()
	p := &config.Proxy{
		Health:   config.Health{Every: 5 * time.Second, Timeout: 2 * time.Second, Unhealthy: 3, Healthy: 1},
		Timeouts: config.Timeouts{Dial: 5 * time.Second, ResponseHeader: time.Minute},
	}
	for _, s := range urls {
		u, err := url.Parse(s)
		must(t, err)
		p.Upstreams = append(p.Upstreams, u)
	}
	return p
}

func checked(t testing.TB, h config.Health, urls ...string) *config.Proxy {
	t.Helper()
	p := section(t, urls...)
	p.Health = h
	return p
}

// poolOf returns a Pool of upstreams that is closed at the end of the test.
func poolOf(t testing.TB, log *slog.Logger, urls ...string) *Pool {
	t.Helper()
	p := New(log)
	t.Cleanup(func() { _ = p.Close() })
	if len(urls) > 0 {
		p.apply(section(t, urls...))
	}
	return p
}

// poolTo returns a Pool of one upstream, whose certificate these sign.
func poolTo(t testing.TB, roots *x509.CertPool, to *config.Proxy) *Pool {
	t.Helper()
	p := poolOf(t, nil)
	p.tls = &secure{config: &tls.Config{RootCAs: roots}}
	p.apply(to)
	return p
}

var must = tested.Must

func serve(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func named(t testing.TB, name string) *httptest.Server {
	return serve(t, saying(name))
}

func saying(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }
}

// socket has a server answer at a Unix socket.
func socket(t testing.TB, h http.HandlerFunc) (url string) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	_ = s.Listener.Close()
	dir, err := os.MkdirTemp("", "q") // t.TempDir is too long for a socket on some systems
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	s.Listener, err = net.Listen("unix", path)
	must(t, err)
	s.Start()
	t.Cleanup(s.Close)
	return "unix:" + path
}

func h2(t testing.TB, secure bool, h http.HandlerFunc) (url string, roots *x509.CertPool) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	t.Cleanup(s.Close)
	if secure {
		s.EnableHTTP2 = true
		s.StartTLS()
		roots = x509.NewCertPool()
		roots.AddCert(s.Certificate())
		return s.URL, roots
	}
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	return "h2c://" + s.Listener.Addr().String(), nil
}

// ask makes a request as a proxy does: without scheme and host in its URL.
func ask(t testing.TB, method, path, body string) *http.Request {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), tested.Patience)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, "http://the.host"+path, nil)
	must(t, err)
	if body != "" {
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	}
	return req
}

// watcher calls what is set of its functions.
type watcher struct{ connected, sent func() }

func (w *watcher) Connected(bool)            { call(w.connected) }
func (w *watcher) Sent()                     { call(w.sent) }
func (w *watcher) Informed(int, http.Header) {}

func call(f func()) {
	if f != nil {
		f()
	}
}

func watched(req *http.Request, w wire.Watch) *http.Request {
	return req.WithContext(context.WithValue(req.Context(), wire.WatchKey{}, w))
}

func get(t testing.TB, p *Pool, path string) string {
	t.Helper()
	resp, err := p.RoundTrip(ask(t, http.MethodGet, path, ""))
	must(t, err)
	return read(t, resp)
}

func read(t testing.TB, resp *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	must(t, resp.Body.Close())
	return string(body)
}

func want[T comparable](t testing.TB, what string, got, wanted T) {
	t.Helper()
	if got != wanted {
		t.Fatalf("%s is %v, want %v", what, got, wanted)
	}
}

// events is a log whose lines are events: message, url and whether an upstream that is out is tried.
func events() (*slog.Logger, <-chan string) {
	c := make(chan string, 1000)
	return slog.New(eventLog(c)), c
}

type eventLog chan string

func (c eventLog) Enabled(context.Context, slog.Level) bool { return true }
func (c eventLog) WithAttrs([]slog.Attr) slog.Handler       { return c }
func (c eventLog) WithGroup(string) slog.Handler            { return c }
func (c eventLog) Handle(_ context.Context, r slog.Record) error {
	line := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "error" {
			line += " " + a.Key + "=" + a.Value.String()
		}
		return true
	})
	c <- line
	return nil
}

func watch(t testing.TB, p *Pool) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Watch(ctx) }()
	ended := false
	stop = func() {
		cancel()
		if !ended {
			ended = true
			must(t, tested.Event(t, done))
		}
	}
	t.Cleanup(stop)
	return stop
}

// nowhere is an address at which no server listens, so that a test can listen there later.
var nowhere = tested.FreeAddr

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// accept has each connection of a listener served until that is closed, and closes them then.
func accept(l net.Listener, serve func(net.Conn)) {
	var all []net.Conn
	for {
		c, err := l.Accept()
		if err != nil {
			break
		}
		all = append(all, c)
		go serve(c)
	}
	for _, c := range all {
		_ = c.Close()
	}
}

func errorText(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}
