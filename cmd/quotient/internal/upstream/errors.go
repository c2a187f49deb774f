package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// ErrNoUpstream is in the chain of the error of a request for which every upstream is out, or the Pool
// closed.
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
type dialError struct{ error }

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
