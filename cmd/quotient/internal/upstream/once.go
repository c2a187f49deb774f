package upstream

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// empty is a body that has nothing in it. http.Transport takes it for one that it cannot read twice.
type empty struct{}

func (empty) Read([]byte) (int, error) { return 0, io.EOF }
func (empty) Close() error             { return nil }

// WriteTo spares io.Copy a buffer.
func (empty) WriteTo(io.Writer) (int64, error) { return 0, nil }

// asIs is a transfer coding that changes nothing: with it http.Transport sends no body for empty, and no
// field that announces one.
var asIs = []string{"identity"}

// hasBody reports whether a request has something to send besides its head.
func hasBody(req *http.Request) bool { return req.Body != nil && req.Body != http.NoBody }

// onceHTTP1 makes a request without a body one that http.Transport does not send again over HTTP/1.1. The
// bytes that are sent stay the same.
func onceHTTP1(req *http.Request) {
	if hasBody(req) {
		return
	}
	hide(req.Header, "Expect", "expect") // or it would wait for a 100 to send the body that there is not
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		req.Body, req.TransferEncoding = empty{}, asIs
	default: // is sent again only if it has one of these, which it looks for in this spelling
		hide(req.Header, "Idempotency-Key", "idempotency-key")
		hide(req.Header, "X-Idempotency-Key", "x-idempotency-key")
	}
}

// hide spells a field in a way that is the same to the upstream, and that http.Transport does not look for.
func hide(h http.Header, name, other string) {
	if v, ok := h[name]; ok {
		delete(h, name)
		h[other] = v
	}
}

// guard watches a request without a body where HTTP/2 may be in use. There an empty body would not stay
// unseen, and a request is sent up to eight times. The guard ends the second attempt before anything is
// written.
type guard struct {
	cancel context.CancelCauseFunc
	wrote  atomic.Bool
	ended  atomic.Bool
}

// once puts a guard on a request. The caller must cancel it when the answer's body is at its end.
func once(req *http.Request) (*http.Request, *guard) {
	ctx, cancel := context.WithCancelCause(req.Context())
	g := &guard{cancel: cancel}
	trace := &httptrace.ClientTrace{GotConn: g.gotConn, WroteHeaders: func() { g.wrote.Store(true) }}
	return req.WithContext(httptrace.WithClientTrace(ctx, trace)), g
}

// gotConn is called before each attempt.
func (g *guard) gotConn(info httptrace.GotConnInfo) {
	if !g.wrote.Load() {
		return
	}
	g.ended.Store(true)
	g.cancel(errOnce) // HTTP/2 looks at the context before it writes
	if c, ok := info.Conn.(*tls.Conn); ok && c.ConnectionState().NegotiatedProtocol != "h2" {
		_ = c.Close() // HTTP/1.1 does not, and this connection is of this request alone
	}
}
