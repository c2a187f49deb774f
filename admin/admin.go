// Package admin is the operator's side of a limiter: a small JSON API over HTTP.
//
//	GET /state       what the limiter is doing now
//	PUT /replicas    {"replicas":4,"ordinal":2}: the pool has four replicas and this is the second
//
// PUT replaces the whole pool: an ordinal that is left out, or 0, is unknown, and none that is given
// counts as fixed (see quotient.Pool). It answers with the state. replicas is 1 to 1,000,000, ordinal 0
// to replicas, the body at most 64 KiB.
//
// Every answer is JSON and is never cached. A refusal is an application/problem+json document
// (RFC 9457); when one field of the request is to blame it has the members "field", "value" and
// "range".
//
// The handler has no login. It is made for a listener on the loopback interface, or on a Unix
// socket, and holds two doors shut that such a listener leaves open to web pages in a browser on
// the same machine: it answers only requests whose Host is the loopback interface (a rebound DNS
// name is not), and it refuses writes that come from another origin. Whoever mounts it elsewhere
// must put authentication in front of it, and must name the host with [AllowHosts].
//
// Time-outs belong to the http.Server: set at least ReadTimeout.
package admin

import (
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/quotient-go/quotient"
)

// An Option changes what Handler does.
type Option func(*handler)

// AllowHosts lets the handler also answer requests for these hosts, on any port. A host is a name
// or an address without a port; case and a dot at the end do not matter. An empty one allows nothing.
// Loopback hosts (localhost, 127.0.0.0/8, ::1) are always allowed.
func AllowHosts(hosts ...string) Option {
	return func(h *handler) {
		for _, host := range hosts {
			h.hosts = append(h.hosts, canonicalHost(host))
		}
	}
}

// Logger sets where changes are logged, each with its old and its new value. Without it, or with
// nil, they go to slog.Default.
func Logger(log *slog.Logger) Option {
	return func(h *handler) { h.log = log }
}

type handler struct {
	limiter *quotient.Limiter
	hosts   []string
	log     *slog.Logger
	writing sync.Mutex // one change at a time, so that the logged old values form a chain
}

// Handler returns the API of l, which must not be nil. Mount it at the root of a listener, or
// under a prefix with http.StripPrefix. It is safe for concurrent use, and starts no goroutine.
func Handler(l *quotient.Limiter, opts ...Option) http.Handler {
	h := &handler{limiter: l}
	for _, opt := range opts {
		opt(h)
	}
	if h.log == nil {
		h.log = slog.Default()
	}
	sameOrigin := http.NewCrossOriginProtection()
	sameOrigin.SetDenyHandler(http.HandlerFunc(crossOrigin))
	return h.guard(sameOrigin.Handler(http.HandlerFunc(h.route)))
}

// route chooses by the path as it was sent. A ServeMux would redirect other spellings, with a page of
// HTML and to a path that lacks the prefix under which Handler is mounted.
func (h *handler) route(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/state":
		allow(h.getState, http.MethodGet, http.MethodHead)(w, r)
	case "/replicas":
		allow(h.putReplicas, http.MethodPut)(w, r)
	default:
		notFound(w, r)
	}
}

// guard sets the fields that every answer has and refuses hosts that are not allowed.
func (h *handler) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if !h.allowed(r.Host) {
			writeProblem(w, problem{
				Status: http.StatusForbidden,
				Detail: "this host is not served here; only loopback and configured hosts are",
				Field:  "Host", Value: clip(r.Host),
			})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// allowed reports whether hostport, a request's Host, names the loopback interface or a
// configured host. Only the literal name and literal addresses count as loopback: to look a name
// up would be to trust the very DNS answer that an attacker controls.
func (h *handler) allowed(hostport string) bool {
	host := hostport
	if name, _, err := net.SplitHostPort(hostport); err == nil {
		host = name
	}
	host = canonicalHost(host)
	if host == "" {
		return false
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		return true
	}
	return host == "localhost" || slices.Contains(h.hosts, host)
}

// canonicalHost drops what may differ between two spellings of one host.
func canonicalHost(host string) string {
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// allow lets only the given methods through to next.
func allow(next http.HandlerFunc, methods ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(methods, r.Method) {
			next(w, r)
			return
		}
		w.Header().Set("Allow", strings.Join(methods, ", "))
		writeProblem(w, problem{
			Status: http.StatusMethodNotAllowed,
			Detail: "this resource does not have that method",
			Field:  "method", Value: clip(r.Method), Range: strings.Join(methods, ", "),
		})
	}
}

func notFound(w http.ResponseWriter, r *http.Request) {
	writeProblem(w, problem{
		Status: http.StatusNotFound,
		Detail: "there is no such resource",
		Field:  "path", Value: clip(r.URL.Path), Range: "/state, /replicas",
	})
}

func crossOrigin(w http.ResponseWriter, r *http.Request) {
	writeProblem(w, problem{
		Status: http.StatusForbidden,
		Detail: "a change must not come from a page of another origin",
		Field:  "Origin", Value: clip(r.Header.Get("Origin")),
	})
}
