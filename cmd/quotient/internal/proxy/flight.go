package proxy

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"strings"
	"sync/atomic"
	"time"
)

// flight is one request on its way. It is the request's context, too, so that it costs one allocation.
type flight struct {
	context.Context // of the server
	proxy           *Proxy
	route           *route
	w               http.ResponseWriter // of the server
	trusted         bool                // the peer is
	switched        bool                // the upstream has switched protocols
	from            time.Time           // arrival, or when there was room; the overhead begins here
	sent            time.Time           // to the upstream's transport
	dialled         atomic.Int64        // of that, how long it took to get a connection
	written         atomic.Bool         // the overhead is known
	ours            fieldLines          // of the answer
	late            *lateFields         // nil: fields are put together at once
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

// pass passes an admitted request on.
func (p *Proxy) pass(w http.ResponseWriter, r *http.Request) {
	if f := flightOf(r); f.route.fields {
		f.ours = linesOf(f.w.Header())
	}
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

// gotConn notes how long a connection took that was not idle at once: it was dialled, or another one became free
// meanwhile.
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

// rewrite makes the request that goes to the upstream.
func rewrite(r *httputil.ProxyRequest) {
	out, in := r.Out, r.In
	keepTarget(out, in)
	f := flightOf(in)
	for name := range out.Header {
		if name == "X-Real-Ip" || strings.HasPrefix(name, "X-Forwarded-") {
			if !f.trusted {
				delete(out.Header, name)
			}
		}
	}
	if f.trusted {
		forward(out, in)
	}
	r.SetXForwarded()
	if f.trusted { // the first proxy knows what the client has asked for
		keep(out.Header, in.Header, "X-Forwarded-Host")
		keep(out.Header, in.Header, "X-Forwarded-Proto")
	}
}

// forward passes on what a trusted peer says of the addresses before it.
func forward(out, in *http.Request) {
	keep(out.Header, in.Header, "X-Forwarded-For")
	lines := in.Header["Forwarded"]
	if at := peer(in.RemoteAddr); len(lines) > 0 && at.IsValid() {
		by := "for=" + at.String()
		if at.Is6() {
			by = `for="[` + at.String() + `]"`
		}
		out.Header["Forwarded"] = []string{strings.Join(lines, ", ") + ", " + by}
	}
}

func keep(out, in http.Header, name string) {
	if lines := in[name]; len(lines) > 0 {
		out[name] = lines
	}
}

// keepTarget has the target go to the upstream as the client sent it.
func keepTarget(out, in *http.Request) {
	out.URL.RawQuery, out.URL.User = in.URL.RawQuery, nil
	raw := in.RequestURI
	if raw == "" { // not of a server
		return
	}
	if raw[0] != '/' { // absolute form
		_, rest, _ := strings.Cut(raw, "://")
		i := strings.IndexAny(rest, "/?")
		if i < 0 || rest[i] == '?' {
			return // no path
		}
		raw = rest[i:]
	}
	raw, _, _ = strings.Cut(raw, "?")
	if raw != out.URL.EscapedPath() {
		out.URL.RawPath = encoded(raw)
	}
}

// encoded is a path in which bytes that no path may hold are percent-encoded, and all others are as they were.
func encoded(raw string) string {
	const digits = "0123456789ABCDEF"
	out := make([]byte, 0, len(raw)+16)
	for i := range len(raw) {
		if c := raw[i]; mayStand(c) {
			out = append(out, c)
		} else {
			out = append(out, '%', digits[c>>4], digits[c&15])
		}
	}
	return string(out)
}

// mayStand reports whether a byte may stand in a path, "%" too (RFC 3986, 3.3).
func mayStand(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		strings.IndexByte("-._~!$&'()*+,;=:@/%[]", c) >= 0
}
