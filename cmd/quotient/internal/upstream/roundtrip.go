package upstream

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// RoundTrip sends a request to the healthy upstream with the fewest requests in flight; those with equally
// many take turns. It is sent once. The request is the proxy's own: its URL gets the scheme and host of the
// upstream, and other fields may change in ways that the upstream does not see. Its Host stays as it is. It
// counts as in flight until the answer's body is at its end, fails or is closed; that of 101 Switching
// Protocols until it is closed. Errors are of type *Error.
func (p *Pool) RoundTrip(req *http.Request) (*http.Response, error) {
	u, tr, err := p.take()
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // as http.RoundTripper promises
		}
		return nil, err
	}
	held := &held{pool: p, up: u, by: tr}
	answered := false
	defer func() {
		if !answered { // an error, or a panic of a trace
			held.end()
		}
	}()
	req, g := prepare(req, u.target)
	if g != nil {
		held.guard = g.cancel
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return nil, failure(req, u.target, g, err)
	}
	answered = true
	held.hold(resp)
	return resp, nil
}

// prepare directs a request to an upstream, and makes it one that is sent once.
func prepare(req *http.Request, t target) (*http.Request, *guard) {
	req.URL.Scheme, req.URL.Host = t.urlScheme(), t.host
	req.GetBody = nil
	if hasBody(req) {
		req.Body = sentBody{req.Body}
		return req, nil
	}
	if t.scheme == "http" {
		onceHTTP1(req)
		return req, nil
	}
	return once(req)
}

// failure is the error of a request that was sent, or tried to be.
func failure(req *http.Request, t target, g *guard, err error) error {
	kind := Classify(err)
	if g != nil && g.ended.Load() {
		err, kind = errOnce, Broken
	}
	if req.Context().Err() == context.Canceled && context.Cause(req.Context()) != errOnce {
		kind = Gone
	}
	e := &Error{Kind: kind, URL: t.String(), Err: err}
	if kind == Unavailable {
		e.After = time.Second
	}
	return e
}

// held is the body of an answer, which counts as in flight to its end.
type held struct {
	io.ReadCloser
	pool  *Pool
	up    *upstream
	by    *http.Transport
	guard context.CancelCauseFunc // nil without a guard
	over  atomic.Bool
}

// hold puts the body of an answer into h. An answer without a body is at its end.
func (h *held) hold(resp *http.Response) {
	if resp.Body == nil || resp.Body == http.NoBody {
		h.end()
		return
	}
	h.ReadCloser = resp.Body
	if conn, ok := resp.Body.(io.ReadWriteCloser); ok && resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body = &stream{ReadWriteCloser: conn, held: h}
		return
	}
	resp.Body = h
}

// Read reads the body; its end, or an error, ends what is in flight.
func (h *held) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	if err != nil {
		h.end()
	}
	return n, err
}

// Close closes the body.
func (h *held) Close() error {
	defer h.end()
	return h.ReadCloser.Close()
}

// end takes the request off the count, once.
func (h *held) end() {
	if !h.over.CompareAndSwap(false, true) {
		return
	}
	if h.guard != nil {
		h.guard(nil)
	}
	h.pool.give(h.up, h.by)
}

// stream is an upgraded connection, which counts as in flight until it is closed.
type stream struct {
	io.ReadWriteCloser
	held *held
}

// Close closes the connection.
func (s *stream) Close() error {
	defer s.held.end()
	return s.ReadWriteCloser.Close()
}

// CloseWrite ends the direction to the upstream.
func (s *stream) CloseWrite() error {
	if c, ok := s.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return http.ErrNotSupported
}
