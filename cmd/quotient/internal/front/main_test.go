package front

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/tested"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	loopback = netip.MustParsePrefix("127.0.0.0/8")
	ok       = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
)

var must = tested.Must

func section() *config.Proxy {
	return &config.Proxy{
		Listen: "127.0.0.1:0",
		Timeouts: config.Timeouts{
			ReadHeader: 10 * time.Second, ReadBody: 10 * time.Second, Write: 10 * time.Second,
			Idle: time.Minute, Stream: time.Minute, Shutdown: 10 * time.Second,
		},
		Max: config.Max{HeaderBytes: 64 << 10, Connections: 1000, Streams: 100, HeldBytes: 64 << 20},
	}
}

// running is a server that serves at an address of loopback until the test ends.
type running struct {
	*Server
	addr string
	end  func()       // begins the shutdown
	over <-chan error // of Serve
}

func serve(t testing.TB, p *config.Proxy, h http.Handler, opts ...Option) *running {
	t.Helper()
	s, err := New(p, h, slog.New(slog.DiscardHandler), opts...)
	must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ctx, end := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- s.Serve(ctx, l); close(over) }()
	t.Cleanup(func() {
		end()
		select {
		case err := <-over:
			must(t, err)
		case <-time.After(tested.Patience):
			t.Error("Serve does not end")
		}
	})
	return &running{s, l.Addr().String(), end, over}
}

func dial(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, tested.Patience)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	must(t, c.SetDeadline(time.Now().Add(tested.Patience)))
	return c.(*net.TCPConn)
}

func send(t *testing.T, c io.Writer, text string) {
	t.Helper()
	_, err := io.WriteString(c, text)
	must(t, err)
}

// said is all that the server says to a text until it closes the connection. A reset is an end as well.
func (s *running) said(t *testing.T, sent string) string {
	t.Helper()
	c := dial(t, s.addr)
	_, _ = io.WriteString(c, sent)
	text, _ := io.ReadAll(c)
	return string(text)
}

var waitFor = tested.Until

// sectionOf is a section [proxy] for one kind of connection.
type sectionOf struct {
	*config.Proxy
	kind string
}

// each runs a test over HTTP/1, TLS and HTTP/2.
func each(t *testing.T, set func(*config.Proxy), test func(t *testing.T, p *sectionOf)) {
	for _, kind := range []string{"HTTP/1.1", "HTTP/1.1 with TLS", "h2c", "h2"} {
		t.Run(kind, func(t *testing.T) {
			p := &sectionOf{section(), kind}
			set(p.Proxy)
			test(t, p)
		})
	}
}

func (p *sectionOf) secure() bool { return strings.HasSuffix(p.kind, "TLS") || p.kind == "h2" }

func (p *sectionOf) serve(t *testing.T, h http.Handler, opts ...Option) *running {
	t.Helper()
	if p.H2C = p.kind == "h2c"; p.secure() {
		p.TLS = writePair(t, t.TempDir(), "first")
	}
	return serve(t, p.Proxy, h, opts...)
}

func (p *sectionOf) url(s *running) string {
	return map[bool]string{true: "https://", false: "http://"}[p.secure()] + s.addr
}

func (p *sectionOf) client(t *testing.T) *http.Client {
	var protocols http.Protocols
	protocols.SetHTTP1(!strings.HasPrefix(p.kind, "h2"))
	protocols.SetHTTP2(p.kind == "h2")
	protocols.SetUnencryptedHTTP2(p.kind == "h2c")
	transport := &http.Transport{Protocols: &protocols, TLSClientConfig: trusting()}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: tested.Patience}
}

// fetch is the status and the body of an answer; the error where there is no whole one.
func fetch(c *http.Client, method, url string, body io.Reader) (status, text string) {
	r, err := http.NewRequest(method, url, body)
	if err != nil {
		return "", err.Error()
	}
	answer, err := c.Do(r)
	if err != nil {
		return "", err.Error()
	}
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	if err != nil {
		return answer.Status, string(all) + err.Error()
	}
	return answer.Status, string(all)
}

func trusting(protocols ...string) *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, NextProtos: protocols} //nolint:gosec // loopback
}

func writePair(t *testing.T, dir, name string) *config.TLS {
	t.Helper()
	files := &config.TLS{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	cert, key := tested.Certificate(t, name)
	must(t, os.WriteFile(files.Cert, cert, 0o600))
	must(t, os.WriteFile(files.Key, key, 0o600))
	return files
}

// recorder is an upstream that notes the bytes of each request that it gets, and answers "ok".
type recorder struct {
	net.Listener
	wg sync.WaitGroup

	mu    sync.Mutex
	whole []string // requests that came to their end
}

func record(t *testing.T) *recorder {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	u := &recorder{Listener: l}
	u.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			u.wg.Go(func() { u.serve(c) })
		}
	})
	t.Cleanup(func() { l.Close(); u.wg.Wait() })
	return u
}

// serve answers one request, and notes all that comes until the peer closes.
func (u *recorder) serve(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(tested.Patience))
	var seen bytes.Buffer
	in := bufio.NewReader(io.TeeReader(c, &seen))
	r, err := http.ReadRequest(in)
	if err == nil {
		_, err = io.Copy(io.Discard, r.Body)
	}
	if err != nil {
		return
	}
	u.note(seen.String())
	before := seen.Len()
	_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
	_, _ = io.Copy(io.Discard, in)
	if seen.Len() > before {
		u.note("more after the request: " + seen.String()[before:])
	}
}

func (u *recorder) note(text string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.whole = append(u.whole, text)
}

func (u *recorder) requests() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]string{}, u.whole...)
}

// proxy is a bare reverse proxy that changes nothing but the address.
func (u *recorder) proxy(t *testing.T) http.Handler {
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	to := &url.URL{Scheme: "http", Host: u.Addr().String()}
	return &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = to.Scheme, to.Host
			r.Out.Host, r.Out.URL.RawQuery = r.In.Host, r.In.URL.RawQuery
			r.Out.Trailer = r.In.Trailer
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			w.WriteHeader(http.StatusBadGateway)
		},
	}
}
