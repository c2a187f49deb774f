package admin

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/quotient-go/quotient/internal/listen"
	"github.com/quotient-go/quotient/internal/tested"
)

// loopbackConn is a connection in memory that seems to have come over the loopback interface.
type loopbackConn struct{ net.Conn }

func (loopbackConn) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9090} }
func (loopbackConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 5} }

// watched reports when the other end has closed it.
type watched struct {
	net.Conn
	ended chan time.Time
}

func (w watched) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if err != nil {
		w.end()
	}
	return n, err
}

// Close is what a client does when the server asks it to leave.
func (w watched) Close() error {
	w.end()
	return w.Conn.Close()
}

func (w watched) end() {
	select {
	case w.ended <- time.Now():
	default:
	}
}

// soon is how long what needs no waiting may take on a busy machine. It is shorter than each time-out of
// Serve, so that what passes did not wait for one.
const soon = headerTimeout - time.Second

// crowd is so many connections of strangers to addr, each of which does the same and stays.
func crowd(t *testing.T, addr string, n int, act func(net.Conn)) (leave func()) {
	t.Helper()
	var conns []net.Conn
	var mu sync.Mutex
	var comers sync.WaitGroup
	until := time.Now().Add(soon / 2) // none of them waits longer for an answer
	for part := range 16 {
		comers.Go(func() {
			for i := part; i < n; i += 16 {
				conn, err := net.DialTimeout("tcp", addr, soon)
				if err != nil {
					continue // it was closed for another at once
				}
				mu.Lock()
				conns = append(conns, conn)
				mu.Unlock()
				_ = conn.SetReadDeadline(until)
				_ = conn.(*net.TCPConn).SetReadBuffer(4096) // the machine is ours
				act(conn)
			}
		})
	}
	comers.Wait()
	tested.Not(t, len(conns) < n/2, "only %d strangers came", len(conns))
	leave = func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}
	t.Cleanup(leave)
	return leave
}

// says sends text, and reads the first line of an answer if there is to be one. It may be closed at any time.
func says(text string, answered bool) func(net.Conn) {
	return func(conn net.Conn) {
		_, _ = io.WriteString(conn, text)
		if answered {
			_, _ = bufio.NewReader(conn).ReadString('\n')
		}
	}
}

// askState asks for the state, and reports how long that took, and whether it went over a connection that was open
// before.
func askState(t *testing.T, c *Client) (took time.Duration, reused bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*soon)
	defer cancel()
	got := func(info httptrace.GotConnInfo) { reused = info.Reused }
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: got})
	start := time.Now()
	_, err := c.State(ctx)
	took = time.Since(start)
	must(t, err)
	t.Logf("an operator was served after %v", took)
	return took, reused
}

// operatorOf is a client with a connection of its own.
func operatorOf(t *testing.T, base string, config *tls.Config) *Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	c, err := NewClient(base, BearerToken(secret), HTTPClient(&http.Client{Transport: transport}))
	must(t, err)
	return c
}

// become fails unless so many connections are there, and known, soon.
func become(t *testing.T, all *listen.Places, open, known int) {
	t.Helper()
	for end := time.Now().Add(2 * soon); ; time.Sleep(time.Millisecond) {
		now := all.State()
		if now.Open == open && now.Known == known {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%+v, want %d connections and %d known", now, open, known)
		}
	}
}

const manyStrangers = 2000

// TestStrangersDoNotKeepOperatorsOut: whatever 2,000 strangers do, an operator is served at once, and one who
// was there before still is. A busy machine has three tries, since a crowd that keeps operators out does so each time.
func TestStrangersDoNotKeepOperatorsOut(t *testing.T) {
	certificate, trusted := selfSigned(t, "server")
	hello := []byte{22, 3, 1, 2, 0} // the head of a TLS record whose rest never comes
	for name, tt := range map[string]struct {
		tls bool
		act func(net.Conn)
	}{
		"asks for a public asset": {false,
			says("GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n", true)},
		"asks for what is open": {false, says("GET /ready HTTP/1.1\r\nHost: 10.1.2.3\r\n\r\n", true)},
		"asks, and does not read": {false,
			says(strings.Repeat("GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n", 50), false)},
		"is refused":          {false, says("GET /state HTTP/1.1\r\nHost: localhost\r\n\r\n", true)},
		"says nothing":        {false, says("", false)},
		"never ends its head": {false, says("GET / HTTP/1.1\r\nHost: localhost\r\nX", false)},
		"never sends its body": {false,
			says("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n", false)},
		"no handshake":     {true, says("", false)},
		"half a handshake": {true, says(string(hello), false)},
	} {
		t.Run(name, func(t *testing.T) {
			secure := func(l net.Listener) (net.Listener, string) { return l, "http://" }
			if tt.tls {
				secure = func(l net.Listener) (net.Listener, string) {
					return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{certificate}}), "https://"
				}
			}
			longest := time.Hour
			for try := 0; try < 3 && longest > soon; try++ {
				longest = operatorsWait(t, secure, trusted, tt.act)
			}
			tested.Not(t, longest > soon, "an operator waited for %v", longest)
		})
	}
}

// operatorsWait is how long two operators wait at most who come before strangers and among them.
func operatorsWait(t *testing.T, secure func(net.Listener) (net.Listener, string), trusted *x509.CertPool,
	act func(net.Conn)) (longest time.Duration) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	h, _, _ := two(t, Token(secret), MountOpen("/ready", says200("ready")), Logger(slog.New(slog.DiscardHandler)))
	l, err := h.Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	addr := l.Addr().String()
	l, scheme := secure(l)
	all := h.newPlaces()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- h.serve(ctx, l, all) }()
	first := operatorOf(t, scheme+addr, &tls.Config{RootCAs: trusted})
	second := operatorOf(t, scheme+addr, &tls.Config{RootCAs: trusted})
	askState(t, first)
	leave := crowd(t, addr, manyStrangers, act)
	open := all.State().Open
	tested.Not(t, open > maxConns, "%d connections", open)
	longest, _ = askState(t, second)
	for _, c := range []*Client{first, second} {
		took, reused := askState(t, c)
		longest = max(longest, took)
		tested.Not(t, !reused, "an operator's connection was closed")
	}
	leave()
	become(t, all, 2, 2)
	first.Close()
	second.Close()
	become(t, all, 0, 0)
	cancel()
	tested.Want(t, "Serve", <-served, nil)
	tested.Want(t, "leaks", goleak.Find(before), nil)
	return longest
}

// TestStrangersAreIdleForShort: a connection that has only asked for what is public may be idle for five
// seconds, one whose caller is known for two minutes. Each is also tried over HTTP/2, and where every caller
// that asks for data is known.
func TestStrangersAreIdleForShort(t *testing.T) {
	certificate, trusted := selfSigned(t, "server")
	now := time.Now() // not that of the bubble, in which the certificate is not valid yet
	for name, tt := range map[string]struct {
		opts   []Option
		secret string
		paths  []string
		h2     bool
		want   time.Duration
	}{
		"public": {[]Option{Token(secret)}, "", []string{"/openapi.json", "/"}, false, listen.StrangerIdle},
		"public, HTTP/2": {[]Option{Token(secret)}, "", []string{"/openapi.json", "/"}, true,
			listen.StrangerIdle},
		"public, and there is no token": {nil, "", []string{"/openapi.json", "/"}, false, listen.StrangerIdle},
		"data":                          {[]Option{Token(secret)}, secret, []string{"/state"}, false, idleTimeout},
		// after GOAWAY
		"data, HTTP/2": {[]Option{Token(secret)}, secret, []string{"/state"}, true,
			idleTimeout + time.Second},
		"data, and there is no token": {nil, "", []string{"/state"}, false, idleTimeout},
		"public, with the token": {[]Option{Token(secret)}, secret, []string{"/openapi.json"}, false,
			idleTimeout},
		"data, and then public": {[]Option{Token(secret)}, secret, []string{"/state", "/"}, false,
			idleTimeout},
		"open": {[]Option{Token(secret)}, "", []string{"/ready"}, false, listen.StrangerIdle},
		"open, with the token": {[]Option{Token(secret)}, secret, []string{"/ready"}, false,
			listen.StrangerIdle},
		"open, and there is no token": {nil, "", []string{"/ready"}, false, listen.StrangerIdle},
		"mounted":                     {[]Option{Token(secret)}, secret, []string{"/metrics", "/ready"}, false, idleTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, _, _ := two(t, append(tt.opts, MountOpen("/ready", says200("ready")),
					Mount("/metrics", says200("metrics")))...)
				inner := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
				var l net.Listener = inner
				if tt.h2 {
					l = tls.NewListener(l,
						&tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}})
				}
				all := h.newPlaces()
				ctx, cancel := context.WithCancel(t.Context())
				served := make(chan error, 1)
				go func() { served <- h.serve(ctx, l, all) }()
				dialed, ended := 0, make(chan time.Time, 9)
				transport := &http.Transport{
					ForceAttemptHTTP2: tt.h2,
					TLSClientConfig:   &tls.Config{RootCAs: trusted, Time: func() time.Time { return now }},
					DialContext: func(context.Context, string, string) (net.Conn, error) {
						here, there := net.Pipe()
						dialed++
						inner.conns <- loopbackConn{there}
						return watched{here, ended}, nil
					},
				}
				var last time.Time
				for _, path := range tt.paths {
					time.Sleep(listen.StrangerIdle / 2)
					last = time.Now()
					ask(t, transport, map[bool]string{false: "http", true: "https"}[tt.h2], path, tt.secret)
				}
				if idle := (<-ended).Sub(last); idle != tt.want || dialed != 1 {
					t.Errorf("%d connections were dialed, and the last was idle for %v, want one for %v",
						dialed, idle, tt.want)
				}
				synctest.Wait()
				if now := all.State(); now.Open != 0 || now.Known != 0 {
					t.Errorf("%+v, want none", now)
				}
				transport.CloseIdleConnections()
				cancel()
				tested.Want(t, "Serve", <-served, nil)
			})
		})
	}
}

// ask sends one request, and reads its answer to the end.
func ask(t *testing.T, rt http.RoundTripper, scheme, path, secret string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, scheme+"://127.0.0.1:9090"+path, nil)
	must(t, err)
	if secret != "" {
		req.Header.Set("Authorization", "Bearer "+secret)
	}
	resp, err := rt.RoundTrip(req)
	must(t, err)
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}
