package upstream

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"
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
	target    target
	limits    limits
	transport *http.Transport // of these limits
	inFlight  int
	record
}

// newUpstream returns an upstream that is taken to be healthy until it fails.
func newUpstream(p *Pool, t target, l limits) *upstream {
	u := &upstream{target: t, limits: l, record: record{pool: p, healthy: true, since: time.Now()}}
	u.transport = newTransport(t, l, u)
	return u
}

// state is how the upstream is doing. The caller holds Pool.mu.
func (u *upstream) state(leaving bool) State {
	return State{URL: u.target.String(), Healthy: u.healthy, Since: u.since, InFlight: u.inFlight,
		Leaving: leaving, Error: u.err, ErrorAt: u.errAt}
}

func (t target) urlScheme() string {
	if t.scheme == "h2c" {
		return "http"
	}
	return t.scheme
}

// newTransport returns the transport of one upstream. It tries each request once; see once.go.
func newTransport(t target, l limits, u *upstream) *http.Transport {
	tr := bareTransport(t, l)
	tr.MaxIdleConnsPerHost = maxIdle
	tr.MaxConnsPerHost = l.conns
	dial := tr.DialContext
	tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if ctx.Err() == nil {
			u.dialled(err)
		}
		if err != nil {
			return nil, &dialError{err}
		}
		return conn, nil
	}
	return tr
}

// bareTransport returns a transport for requests and checks of an upstream.
func bareTransport(t target, l limits) *http.Transport {
	tr := &http.Transport{ // Proxy is nil: the environment does not say where requests go
		DialContext:            (&net.Dialer{Timeout: l.dial}).DialContext,
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
		tr.TLSClientConfig = &tls.Config{RootCAs: l.roots}
	}
	if t.scheme == "h2c" {
		tr.Protocols = new(http.Protocols)
		tr.Protocols.SetUnencryptedHTTP2(true)
	}
	return tr
}
