// Package proxy is the handler of quotient proxy: it finds the rule of a request, asks the rule's limiter,
// and passes the request on to the upstream, once.
//
// A rule is found by the canonical path (httplimit.CanonicalPath), or by what the file says of the upstreams' way to
// read paths, and the host in lower case. Where another way leads to another rule the request is refused. The path that
// goes to the upstream is the client's own, byte for byte. Only bytes that no URI may hold, such as a quote or a letter
// that is not ASCII, are percent-encoded. The query goes on as it came.
//
// Addresses that a client sent go on only if it is in a trusted network: Forwarded, X-Forwarded-* and
// X-Real-IP of others are dropped. X-Forwarded-For, -Host and -Proto are always set.
package proxy

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
)

// Proxy is an http.Handler that limits requests and passes them on. It is a config.Part, and a prometheus.Collector
// of its overhead. It is safe for use by many goroutines. New makes one; it answers 503 until a file is in force.
type Proxy struct {
	reg   *quotient.Registry
	ups   http.RoundTripper
	log   *slog.Logger
	now   atomic.Pointer[table]
	drain context.Context
	end   context.CancelFunc
	cost  *overhead

	failures failures

	rotation rotation

	secret  []byte        // of the access log, unless the file has one
	lines   chan *entry   // of the access log
	dropped atomic.Uint64 // of them
	early   earlyLines
}

// New returns a Proxy that asks the limiters of reg and sends requests by ups. That gets requests without a
// scheme and a host in their URL, which it sets. Nil is a log that is thrown away.
func New(reg *quotient.Registry, ups http.RoundTripper, log *slog.Logger) *Proxy {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	p := &Proxy{reg: reg, ups: ups, log: log, cost: newOverhead()}
	p.lines, p.secret = make(chan *entry, maxQueued), make([]byte, sha256.Size)
	_, _ = rand.Read(p.secret) // it never fails
	p.drain, p.end = context.WithCancel(context.Background())
	return p
}

// Prepare makes the routes of a file: commit puts them in force. Requests that wait go on waiting, by what
// was in force when they came. A rule that stays as it is keeps its state.
func (p *Proxy) Prepare(f *config.File) (commit func(), err error) {
	if f.Proxy == nil {
		return nil, errors.New("proxy: the section is missing")
	}
	next, err := newTable(f)
	if err != nil {
		return nil, err
	}
	client := next.partOf(config.Key{Kind: config.KeyClient}, "", nil)
	if next.access, err = newAccessLog(f.Proxy, p.secret, client); err != nil {
		return nil, err
	}
	return func() {
		old := p.now.Load()
		next.join(p, old)
		p.now.Store(next)
	}, nil
}

// Drain answers requests that wait with 503, and those that would have to wait from now on: for a shutdown.
// Requests that were admitted go on.
func (p *Proxy) Drain() { p.end() }

// ServeHTTP limits a request and passes it on.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	arrived, t := time.Now(), p.now.Load()
	if t != nil && t.cors != nil {
		t.cors.set(w.Header(), r)
	}
	if t != nil && t.access != nil {
		p.serveLogged(w, r, t, arrived)
	} else {
		p.serve(w, r, t, arrived, nil)
	}
}

// serve is ServeHTTP by a table, nil for none, and with an entry of the access log, nil for none.
func (p *Proxy) serve(w http.ResponseWriter, r *http.Request, t *table, arrived time.Time, e *entry) {
	if status := misfit(r); status != 0 {
		turnBack(w, r, status)
		return
	}
	if t == nil {
		writeProblem(w, r, http.StatusServiceUnavailable, time.Second)
		return
	}
	to, clear := t.find(r)
	if to == nil { // config refuses such a file
		writeProblem(w, r, http.StatusNotFound, 0)
		return
	}
	if e != nil {
		e.rule, e.limiter = to.spec.rule, to.spec.rule.Limiter
	}
	trusted := t.trusts(r)
	if !trusted {
		t.doubt(r, p.log)
	}
	if why := to.unclear(r, clear, trusted); why != "" {
		writeDetail(w, r, http.StatusBadRequest, why)
		return
	}
	if t.maxBody > 0 && r.ContentLength > t.maxBody {
		refuseBody(w, r)
		return
	}
	f := &flight{Context: r.Context(), proxy: p, route: to, w: w, from: arrived, trusted: trusted, entry: e}
	f.cors = t.cors
	if to.learns && to.fields != (span{}) {
		f.late = &lateFields{ResponseWriter: w}
		w = f.late
	}
	f.request = *r.WithContext(f)
	r = &f.request
	if t.maxBody > 0 && r.ContentLength < 0 {
		r.Body = http.MaxBytesReader(f.w, r.Body, t.maxBody)
	}
	to.serve(w, r)
}

// misfit is the status for a request that is not passed on, 0 for any other.
func misfit(r *http.Request) int {
	switch method := strings.ToUpper(r.Method); {
	case method == http.MethodConnect, method == http.MethodTrace:
		return http.StatusMethodNotAllowed
	case method == http.MethodHead && method != r.Method: // it is not known whether the answer has a body
		return http.StatusMethodNotAllowed
	case r.RequestURI == "*" && r.Method == http.MethodOptions:
		return http.StatusNoContent
	case r.URL.Opaque != "", r.URL.Path != "" && r.URL.Path[0] != '/':
		return http.StatusBadRequest
	case r.URL.Scheme != "" && r.URL.Scheme != "http" && r.URL.Scheme != "https":
		return http.StatusBadRequest
	}
	return 0
}

// allowed are the methods that are passed on, and whatever else an upstream knows.
const allowed = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"

func turnBack(w http.ResponseWriter, r *http.Request, status int) {
	switch status {
	case http.StatusMethodNotAllowed:
		w.Header().Set("Allow", allowed)
	case http.StatusNoContent: // OPTIONS * is about the server
		w.Header().Set("Allow", allowed)
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusOK)
		return
	}
	writeProblem(w, r, status, 0)
}

// peer is the address of a request's peer, not valid if it has none.
func peer(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || ofUnix(r) { // the name of a socket may look like an address
		return netip.Addr{}
	}
	return at.Addr().Unmap().WithZone("")
}

// ofUnix reports whether a request has come over a Unix socket.
func ofUnix(r *http.Request) bool {
	at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return at != nil && at.Network() == "unix"
}
