package proxy

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// flight is one request on its way. It is the request's context, too, so that all of it costs one allocation.
type flight struct {
	context.Context // of the server
	proxy           *Proxy
	route           *route
	w               http.ResponseWriter  // of the server
	trusted         bool                 // the peer is
	switched        bool                 // the upstream has switched protocols
	from            time.Time            // arrival, or when there was room; the overhead begins here
	sent            time.Time            // to the upstream's transport
	dialled         atomic.Int64         // of that, how long it took to get a connection
	written         atomic.Bool          // the overhead is known
	ours            [mostFields][]string // fields of the answer, those of route.fields
	request         http.Request         // what the handlers behind get
	late            *lateFields          // nil: fields are put together at once
}

type flightKey struct{}

// Value returns the flight itself for its key.
func (f *flight) Value(key any) any {
	if key == (flightKey{}) {
		return f
	}
	return f.Context.Value(key)
}

// flightOf is the flight of a request, nil if there is none.
func flightOf(r *http.Request) *flight {
	if f, ok := r.Context().(*flight); ok {
		return f
	}
	f, _ := r.Context().Value(flightKey{}).(*flight)
	return f
}

// waited is the hook of a middleware: a request has waited, and is admitted now.
func waited(r *http.Request, _, overhead time.Duration) {
	if f := flightOf(r); f != nil {
		f.from = time.Now().Add(-overhead)
	}
}

func (p *Proxy) pass(w http.ResponseWriter, r *http.Request) {
	flightOf(r).note()
	p.reverse.ServeHTTP(w, r)
}

// timed is the transport of a Proxy: it measures how long a request takes to the first byte that is written.
type timed Proxy

// RoundTrip sends a request by the proxy's own transport.
func (t *timed) RoundTrip(req *http.Request) (*http.Response, error) {
	// The trace is the one that ReverseProxy has made for this request alone.
	if trace := httptrace.ContextClientTrace(req.Context()); trace != nil {
		f := flightOf(req)
		f.sent = time.Now()
		trace.GotConn, trace.WroteHeaders = f.gotConn, f.wroteHeaders
	}
	return t.ups.RoundTrip(req)
}

// gotConn notes how long a connection took that was not idle at once: it was dialled, or another one became
// free meanwhile.
func (f *flight) gotConn(info httptrace.GotConnInfo) {
	if !info.WasIdle {
		f.dialled.Store(int64(time.Since(f.sent)))
	}
}

// wroteHeaders is called when the head of the request is written, and again should it have to be.
func (f *flight) wroteHeaders() {
	if f.written.CompareAndSwap(false, true) {
		f.route.cost.observe(time.Since(f.from) - time.Duration(f.dialled.Load()))
	}
}
