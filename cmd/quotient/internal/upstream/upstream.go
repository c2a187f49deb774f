// Package upstream sends the requests of the proxy to the servers behind it.
//
// A Pool picks the healthy upstream with the fewest requests in flight, and sends a request to it once: a limit that an
// upstream relies on holds only if every request that was admitted arrives once. It never goes to another upstream. A
// GET, HEAD or OPTIONS without a body goes once more to the same one if the connection that it took was idle before and
// broke before a byte of the answer came, for then the upstream has closed it without reading the request (RFC 9110,
// 9.2.2; package wire). State counts these. Any other request gets 502 then. Idle connections are closed after 4 s,
// sooner than most servers close them. Give a server that closes sooner a longer keep-alive.
//
// A WebSocket is opened over HTTP/1.1, also where an https upstream speaks HTTP/2. An upgrade to another
// protocol fails there, and any upgrade does at an h2c upstream, which has no HTTP/1.1.
//
// Each address of an upstream's name is an upstream of its own: it has its share of the requests, its connections and
// its health. Where no connection to one opens, and nothing was sent, a request tries the next, within the time of a
// dial. Watch looks names up: at once, each 30 s and after a check that has failed. What has gone from an answer goes
// as if it were gone from the file, and without an answer all stay. Before the first answer a name is dialled as it is.
//
// An upstream is taken out after Unhealthy failures in a row of its checks, or of the connections that
// requests open, and comes back after Healthy successes of its checks. An upstream that fails its very first
// check is out at once. An answer to a request, also 500, is no failure. While Watch does not run nothing is
// taken out, as nothing would bring it back. When all are out a request fails at once with Unavailable, for
// which the client gets 503 and a Retry-After. There is one exception: a single upstream whose checks only
// open connections is always tried. The request's own attempt to connect finds out as much as a check, and a
// refusal by a check that is seconds old would be worse.
package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quotient-go/quotient/cmd/quotient/internal/wire"
)

// Settings of the connections to upstreams.
const (
	// idleFor is less than the keep-alive of common servers, 5 s and more (Node.js, Apache, uvicorn). A
	// request must not meet a connection that its server closes at that moment.
	idleFor = 4 * time.Second
	// maxIdle is more than an upstream has in flight, so that connections are not closed and dialled again as
	// the load goes up and down. They are gone after idleFor.
	maxIdle = 4096
	// maxHead bounds the head of an answer.
	maxHead = 256 << 10
	// continueFor is how long a request that expects 100 Continue keeps its body back.
	continueFor = time.Second
	// pingAfter is how long a connection of HTTP/2 is silent before a ping checks that it is still there.
	pingAfter = 15 * time.Second
	// buffers is the size of both buffers of each connection. As measured with other sizes, 4 KiB takes a
	// fifth more time for large bodies, and 32 KiB as much.
	buffers = 16 << 10
)

// upstream is one server. Pool.mu guards its fields.
type upstream struct {
	target   target
	limits   limits
	by       *sender // of these limits
	inFlight int     // by this one and those before
	resent   atomic.Uint64
	record
}

// sender sends requests to an upstream, over connections of its own. Pool.mu guards inFlight.
type sender struct {
	http1    *wire.Transport // nil: the upstream has only HTTP/2
	http2    *http.Transport // nil: it has none
	newer    atomic.Bool     // it has chosen HTTP/2
	host     string          // that requests get; empty: they keep the client's
	dialFor  time.Duration   // how long a request may take to be connected
	inFlight int
}

// newUpstream returns an upstream that is taken to be healthy until it fails.
func newUpstream(p *Pool, t target, l limits) *upstream {
	u := &upstream{target: t, limits: l, record: record{pool: p, healthy: true, since: time.Now()}}
	u.by = newSender(t, l, u)
	return u
}

// state is how the upstream is doing. The caller holds Pool.mu.
func (u *upstream) state(leaving bool) State {
	return State{URL: u.target.String(), Address: u.target.at, Healthy: u.healthy, Since: u.since, InFlight: u.inFlight,
		Leaving: leaving, Resent: u.resent.Load(), Error: u.err, ErrorAt: u.errAt}
}

func (t target) urlScheme() string {
	if t.scheme == "https" {
		return t.scheme
	}
	return "http"
}

// dial opens a connection to an upstream, without a handshake of TLS.
type dial = func(context.Context) (net.Conn, error)

// dial tries all addresses of a target within a time, first the one that answered last.
func (t target) dial(within time.Duration) dial {
	network, places := "tcp", strings.Fields(t.at)
	switch {
	case t.socket != "":
		network, places = "unix", []string{t.socket}
	case t.at == "":
		places = []string{t.addr()}
	}
	d := net.Dialer{Timeout: within / time.Duration(len(places))}
	var first atomic.Uint32
	return func(ctx context.Context) (conn net.Conn, err error) {
		for range places {
			i := first.Load()
			conn, err = d.DialContext(ctx, network, places[int(i)%len(places)])
			if err == nil {
				break
			}
			first.CompareAndSwap(i, i+1)
		}
		return conn, err
	}
}

// newSender returns what sends each request to one upstream.
func newSender(t target, l limits, u *upstream) *sender {
	s := &sender{host: t.hostFor(l.host), dialFor: l.dial}
	bare := t.dial(l.dial)
	dial := func(ctx context.Context) (net.Conn, error) {
		start := time.Now()
		limited, cancel := context.WithTimeout(ctx, u.pool.share(t, l.dial))
		defer cancel()
		conn, err := bare(limited)
		if ctx.Err() == nil {
			u.dialled(err)
		}
		if err != nil {
			return nil, &dialError{err, time.Since(start)}
		}
		return conn, nil
	}
	if t.scheme == "https" || t.scheme == "h2c" {
		s.http2 = bareTransport(t, l, dial)
		s.http2.MaxIdleConnsPerHost, s.http2.MaxConnsPerHost = maxIdle, l.conns
	}
	if t.scheme == "h2c" {
		return s
	}
	s.http1 = &wire.Transport{
		Head: l.head, Idle: idleFor, Conns: l.conns, MaxIdle: maxIdle, MaxHead: maxHead, Buffer: buffers,
		Continue: continueFor, Again: func() { u.resent.Add(1) },
		Dial: dial,
	}
	if t.scheme == "https" {
		s.chooses(t, l, dial)
	}
	return s
}

// chooses has each connection of TLS agree on a version of HTTP.
func (s *sender) chooses(t target, l limits, dial dial) {
	handshake := func(ctx context.Context, versions ...string) (*tls.Conn, error) {
		conn, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		c := tls.Client(conn, t.tlsConfig(l, versions...))
		ctx, cancel := context.WithTimeout(ctx, l.dial)
		defer cancel()
		if err := c.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, fmt.Errorf("handshake of TLS: %w", err)
		}
		if chosen := c.ConnectionState().NegotiatedProtocol; len(versions) > 1 {
			s.newer.Store(chosen == "h2")
		}
		return c, nil
	}
	s.http1.Dial = func(ctx context.Context) (net.Conn, error) {
		if ctx.Value(onlyHTTP1{}) != nil {
			return handshake(ctx, "http/1.1")
		}
		c, err := handshake(ctx, "h2", "http/1.1")
		if err == nil && c.ConnectionState().NegotiatedProtocol == "h2" {
			_ = c.Close()
			return nil, wire.ErrElsewhere
		}
		return c, err
	}
	s.http2.DialTLSContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := handshake(ctx, "h2", "http/1.1")
		if err == nil && c.ConnectionState().NegotiatedProtocol != "h2" {
			_ = c.Close()
			return nil, errOlder
		}
		return c, err
	}
}

// onlyHTTP1 is the key of a context's value for a request that HTTP/2 is not good for.
type onlyHTTP1 struct{}

// errOlder is why a request to an upstream that spoke HTTP/2 until now was not sent.
var errOlder = errors.New("the server does not speak HTTP/2 any more")

// send sends a request by the version that the upstream speaks, or has changed to. An upgrade takes HTTP/1.1, if there
// is that.
func (s *sender) send(req *http.Request) (*http.Response, context.CancelCauseFunc, error) {
	if s.http1 == nil {
		return s.byHTTP2(req)
	}
	if s.http2 != nil && req.Header.Get("Upgrade") != "" {
		return s.byHTTP1(req)
	}
	if !s.newer.Load() {
		resp, err := s.http1.RoundTrip(req)
		if err != wire.ErrElsewhere {
			return resp, nil, err
		}
	}
	resp, cancel, err := s.byHTTP2(req)
	if errors.Is(err, errOlder) { // nothing was sent, and a proxy's body can be read after its Close
		return s.byHTTP1(req)
	}
	return resp, cancel, err
}

// byHTTP1 sends a request by HTTP/1.1, also where HTTP/2 could be had.
func (s *sender) byHTTP1(req *http.Request) (*http.Response, context.CancelCauseFunc, error) {
	resp, err := s.http1.RoundTrip(req.WithContext(context.WithValue(req.Context(), onlyHTTP1{}, true)))
	return resp, nil, err
}

// retire closes the connections, which are idle.
func (s *sender) retire() {
	if s.http1 != nil {
		s.http1.Retire()
	}
	if s.http2 != nil {
		s.http2.CloseIdleConnections()
	}
}

// bareTransport returns a transport for requests and checks of an upstream.
func bareTransport(t target, l limits, d dial) *http.Transport {
	tr := &http.Transport{ // Proxy is nil: the environment does not say where requests go
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return d(ctx) },
		TLSHandshakeTimeout:    l.dial,
		ResponseHeaderTimeout:  l.head,
		ExpectContinueTimeout:  continueFor,
		IdleConnTimeout:        idleFor,
		MaxResponseHeaderBytes: maxHead,
		DisableCompression:     true, // what the client asked for is what it gets
		ForceAttemptHTTP2:      t.scheme == "https",
		WriteBufferSize:        buffers,
		ReadBufferSize:         buffers,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: l.dial},
	}
	if t.scheme == "https" {
		tr.TLSClientConfig = t.tlsConfig(l)
	}
	if t.scheme == "h2c" {
		tr.Protocols = new(http.Protocols)
		tr.Protocols.SetUnencryptedHTTP2(true)
	}
	return tr
}
