package upstream

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync/atomic"

	"github.com/quotient-go/quotient/cmd/quotient/internal/wire"
)

// guard watches a request without a body over HTTP/2, where http.Transport may send it up to eight times. The guard
// ends the second attempt before anything is written.
type guard struct {
	watch  wire.Watch // nil: not watched
	cancel context.CancelCauseFunc
	wrote  atomic.Bool
	ended  atomic.Bool
}

// byHTTP2 sends a request over HTTP/2, once. The context of the request ends with the answer's body.
func (s *sender) byHTTP2(req *http.Request) (*http.Response, context.CancelCauseFunc, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	g := &guard{cancel: cancel}
	g.watch, _ = ctx.Value(wire.WatchKey{}).(wire.Watch)
	trace := &httptrace.ClientTrace{GotConn: g.gotConn, WroteHeaders: g.wroteHeaders}
	if g.watch != nil {
		trace.Got1xxResponse = func(status int, h textproto.MIMEHeader) error {
			g.watch.Informed(status, http.Header(h))
			return nil
		}
	}
	resp, err := s.http2.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, trace)))
	if err != nil {
		cancel(nil)
		if _, dialled := errors.AsType[*dialError](err); g.ended.Load() || dialled && g.wrote.Load() {
			err = errOnce
		}
		return nil, nil, err
	}
	return resp, cancel, nil
}

// gotConn is called before each attempt.
func (g *guard) gotConn(info httptrace.GotConnInfo) {
	if g.wrote.Load() {
		g.ended.Store(true)
		g.cancel(errOnce) // HTTP/2 looks at the context before it writes
		return
	}
	if g.watch != nil {
		g.watch.Connected(info.WasIdle)
	}
}

func (g *guard) wroteHeaders() {
	if !g.wrote.Swap(true) && g.watch != nil {
		g.watch.Sent()
	}
}
