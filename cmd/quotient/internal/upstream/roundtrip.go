package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// RoundTrip sends a request to the healthy upstream with the fewest requests in flight; those with equally many take
// turns. It is sent once, as the package says. The request is the proxy's own: its URL gets the scheme and host of
// the upstream, its Host may become the upstream's, and other fields may change in ways that it does not see. It
// counts as in flight until the answer's body is at its end, fails or is closed; that of 101 Switching Protocols until
// it is closed.
// Errors are of type *Error.
func (p *Pool) RoundTrip(req *http.Request) (*http.Response, error) {
	u, by, err := p.take()
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // as http.RoundTripper promises
		}
		return nil, err
	}
	if req.Body != nil && req.Body != http.NoBody {
		req.Body = sentBody{req.Body}
	}
	resp, err := p.sendTo(u, by, req)
	if err != nil {
		resp, err = p.elsewhere(req, u, by, err)
	}
	if err != nil {
		return nil, failure(req, u.target, err)
	}
	return resp, nil
}

// elsewhere sends a request to the other addresses of its upstream's name, one after the other, as long as no
// connection opens, so that nothing was sent, and there is time for it. A proxy's body can be read after its Close.
func (p *Pool) elsewhere(req *http.Request, u *upstream, by *sender, err error) (*http.Response, error) {
	var tried []*upstream
	for left := by.dialFor; ; {
		e, ok := errors.AsType[*dialError](err)
		if !ok {
			return nil, err
		}
		if left -= e.took; left < p.share(u.target, by.dialFor) {
			return nil, err
		}
		tried = append(tried, u)
		next, by, none := p.take(tried...)
		if none != nil {
			return nil, err
		}
		u = next
		var resp *http.Response
		if resp, err = p.sendTo(u, by, req); err == nil {
			return resp, nil
		}
	}
}

// sendTo sends a request to an upstream that was taken for it, and gives that back at the end of the answer.
func (p *Pool) sendTo(u *upstream, by *sender, req *http.Request) (*http.Response, error) {
	held := &held{pool: p, up: u, by: by}
	answered := false
	defer func() {
		if !answered { // an error, or a panic of a trace
			held.end()
		}
	}()
	req.URL.Scheme, req.URL.Host = u.target.urlScheme(), u.target.host
	if by.host != "" {
		req.Host = by.host
	}
	resp, cancel, err := by.send(req)
	if err != nil {
		return nil, err
	}
	answered = true
	held.cancel = cancel
	held.hold(resp)
	return resp, nil
}

// failure is the error of a request that was sent, or tried to be.
func failure(req *http.Request, t target, err error) error {
	kind := Classify(err)
	if req.Context().Err() == context.Canceled {
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
	pool   *Pool
	up     *upstream
	by     *sender
	cancel context.CancelCauseFunc // ends the context of a request over HTTP/2; nil for another
	over   atomic.Bool
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

// Ready reports whether a read would find something that has come already.
func (h *held) Ready() bool {
	r, ok := h.ReadCloser.(interface{ Ready() bool })
	return ok && r.Ready()
}

// end takes the request off the count, once.
func (h *held) end() {
	if !h.over.CompareAndSwap(false, true) {
		return
	}
	if h.cancel != nil {
		h.cancel(nil)
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

// ErrNoUpstream is in the chain of the error of a request for which every upstream is out, or the Pool closed.
var ErrNoUpstream = errors.New("no upstream is healthy")

// errOnce is why a request that was sent is not sent again.
var errOnce = errors.New("the connection broke after the request was sent, and it is not sent again")

// Kind is what went wrong with a request, as its client should learn it.
type Kind int

// The kinds of failures.
const (
	None        Kind = iota // no error
	Unavailable             // 503: no upstream is healthy, or no connection to it opened; nothing was sent
	Broken                  // 502: the upstream was reached, and there is no valid answer
	Timeout                 // 504: the handshake of TLS, or the head of the answer, did not come in time
	Gone                    // the client has left: there is none to answer
	Body                    // the request's body could not be read: its client is at fault, or has left
)

// Error is the error of Pool.RoundTrip.
type Error struct {
	Kind  Kind
	URL   string        // of the upstream; empty if none was picked
	After time.Duration // of Unavailable: when another try may do better at the soonest, at least 1 s
	Err   error
}

// Error names the upstream and the cause.
func (e *Error) Error() string {
	if e.URL == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("upstream %s: %v", e.URL, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Classify returns the kind of an error of Pool.RoundTrip, or of reading a body that it returned.
func Classify(err error) Kind {
	if err == nil {
		return None
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	if _, ok := errors.AsType[*bodyError](err); ok {
		return Body
	}
	if errors.Is(err, context.Canceled) {
		return Gone
	}
	if _, ok := errors.AsType[*dialError](err); ok {
		return Unavailable
	}
	if t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); ok && t.Timeout() {
		return Timeout
	}
	return Broken
}

// dialError is why no connection opened.
type dialError struct {
	error
	took time.Duration
}

func (e *dialError) Unwrap() error { return e.error }

// bodyError is why the body of a request could not be read.
type bodyError struct{ error }

func (e *bodyError) Unwrap() error { return e.error }

// sentBody is the body of a request. It marks its errors, which are not those of the upstream.
type sentBody struct{ io.ReadCloser }

func (b sentBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = &bodyError{err}
	}
	return n, err
}
