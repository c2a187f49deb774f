package proxy

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/quotient-go/quotient/cmd/quotient/internal/wire"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/httplimit"
)

// flight is one request on its way. It is the request's context, too, so that all of it costs one allocation.
type flight struct {
	context.Context // of the server
	proxy           *Proxy
	route           *route
	w               http.ResponseWriter // of the server
	entry           *entry              // of the access log; nil: none
	trusted         bool                // the peer is
	from            time.Time           // arrival, or when there was room; the overhead begins here
	asked           time.Time           // for a connection to the upstream
	dialled         time.Duration       // how long it took to get one that was not idle
	cors            *cors               // nil: answers of ours have no fields for browsers
	late            *lateFields         // nil: fields are put together at once
	request         http.Request        // what the handlers behind get
	out             http.Request        // what the upstream gets
	url             url.URL             // of out
	taken           []taken             // from the limiters that may give it back
	connected       bool                // to an upstream, which may have got the request

	mu       sync.Mutex
	answered bool // the head of the answer is there
}

type flightKey struct{}

// Value returns the flight itself for its key, and to who sends its request.
func (f *flight) Value(key any) any {
	if key == (flightKey{}) || key == (wire.WatchKey{}) {
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
func waited(r *http.Request, wait, overhead time.Duration) {
	if f := flightOf(r); f != nil {
		f.from = time.Now().Add(-overhead)
		if f.entry != nil {
			f.entry.decision = afterAll
			f.entry.wait += wait
		}
	}
}

// taking notes the permit of the limiter in front, which may be refunded, with the costs that it has.
func taking(costs []config.Cost, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		permit, _ := httplimit.PermitFrom(r.Context())
		f := flightOf(r)
		f.taken = append(f.taken, taken{permit, costs})
		next.ServeHTTP(w, r)
	})
}

// refund gives back what the request has taken from rates.
func (f *flight) refund() {
	for _, t := range f.taken {
		t.permit.Refund()
	}
	f.correct(nothing)
}

// Connected notes how long a connection took that was not idle at once: it was dialled, or another one became free
// meanwhile.
func (f *flight) Connected(idle bool) {
	f.connected = true
	if !idle {
		f.dialled = time.Since(f.asked)
	}
}

// Sent is called when the head of the request was written, after Connected.
func (f *flight) Sent() {
	overhead := time.Since(f.from) - f.dialled
	f.route.cost.observe(overhead)
	if f.entry != nil {
		f.entry.overhead.Store(int64(max(overhead, 0)))
	}
}
