// Package door answers questions of other proxies: may this request go on? The answer is that of quotient proxy, so
// that rules, keys, plans, waits, refusals and the log are the same. A question comes over HTTP, as a subrequest that
// describes the request in its fields (profile.go), or over gRPC, as Envoy's Authorization (check.go). It is turned
// into the request that the client has sent, which the handler of quotient proxy serves into a small recorder
// (question.go). Its upstream is the Door itself, which answers 200 at once: a request has been admitted if and only if
// it gets there, whatever the status of its answer is.
//
// A question is about the start of a request. What begins and ends with it, a slot in flight, is free again when the
// answer is there, unless the caller asks to hold it (hold.go). Limits that learn from answers, and rules that count
// only some of them, see nothing but 200.
//
// A caller names the client, and all else is what that client has sent. So a Door believes callers on loopback and at
// Unix sockets, and those in proxy.trusted, alone. It reads each thing from one field, which the caller's
// configuration has to set for every request in place of what a client sent. A field that is missing, malformed or
// there twice is an error, never a decision under another key.
package door

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/quotient-go/quotient/config"
)

// Door is an http.Handler of /decide and /release, a config.Part, the server of Envoy's Authorization, and the upstream
// (http.RoundTripper) of the handler that decides. It is safe for use by many goroutines. New makes one; it answers 503
// until a file is in force. Serve it without an http.ServeMux, which redirects paths that Envoy has made of clients'.
type Door struct {
	authv3.UnimplementedAuthorizationServer
	ask     http.Handler
	log     *slog.Logger
	now     atomic.Pointer[settings]
	permits permits
	drain   context.Context
	end     context.CancelFunc
	warned  atomic.Int64 // when the next question may be logged that was not understood, in nanoseconds since 1970
}

// settings are those of a file.
type settings struct {
	profile *profile
	trusted []netip.Prefix
	maxHold time.Duration
}

// New returns a Door, which SetHandler gives its handler. Nil is a log that is thrown away.
func New(log *slog.Logger) *Door {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	d := &Door{log: log}
	d.drain, d.end = context.WithCancel(context.Background())
	return d
}

// SetHandler sets the handler that decides, whose upstream is d. It is called once, before the first question.
func (d *Door) SetHandler(ask http.Handler) { d.ask = ask }

// Prepare reads the sections [decide] and [proxy] of a file: commit puts them in force. Permits that are held stay as
// they were.
func (d *Door) Prepare(f *config.File) (commit func(), err error) {
	if f.Decide == nil || f.Proxy == nil {
		return nil, errors.New("decide: the section is missing")
	}
	next := &settings{
		profile: profiles[f.Decide.Profile], trusted: f.Proxy.Trusted, maxHold: f.Decide.MaxHold, // config has checked
	}
	return func() { d.now.Store(next) }, nil
}

// Drain ends the holding of permits, and lets none be held from now on: for a shutdown. It does not wait.
func (d *Door) Drain() { d.end() }

// ServeHTTP answers /decide, also with a path of Envoy's behind it, and POST /release.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := d.now.Load()
	path, _, _ := strings.Cut(r.RequestURI, "?")
	release := path == "/release"
	switch {
	case !release && path != decidePath && !strings.HasPrefix(path, decidePath+"/"):
		http.Error(w, "want /decide, or /release", http.StatusNotFound)
	case s == nil:
		http.Error(w, "no file is in force yet", http.StatusServiceUnavailable)
	case !s.trusts(r):
		d.refuse(w, r, http.StatusForbidden, errStranger)
	case release:
		d.release(w, r)
	default:
		d.decide(w, r, s)
	}
}

// decidePath is where questions are asked. Envoy puts it before the path of its client.
const decidePath = "/decide"

var errStranger = errors.New("a caller has to be on loopback, at a Unix socket, or in proxy.trusted")

// refuse answers a question that is not decided, and has the operator know.
func (d *Door) refuse(w http.ResponseWriter, r *http.Request, status int, err error) {
	d.warn(r.RemoteAddr, err)
	http.Error(w, err.Error(), status)
}

// Answered is for a server that refuses a question with a status before d has it, such as one with too long a head: the
// client has a part in that. It returns the status for the caller, by its profile, and notes the true one in h.
func (d *Door) Answered(h http.Header, status int) int {
	if s := d.now.Load(); s != nil {
		return s.profile.carried(h, status)
	}
	return status
}

// warn logs a question that is not decided, one a second at most: whoever may ask can have as many as it sends.
func (d *Door) warn(asker string, err error) {
	now, next := time.Now().UnixNano(), d.warned.Load()
	if now >= next && d.warned.CompareAndSwap(next, now+int64(time.Second)) {
		d.log.Warn("a question was not decided", "asker", asker, "error", err)
	}
}

// trusts reports whether the peer that asks over HTTP may describe requests.
func (s *settings) trusts(r *http.Request) bool {
	at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return at != nil && at.Network() == "unix" || s.trustsAddr(r.RemoteAddr)
}

// trustsAddr is trusts for an address with a port.
func (s *settings) trustsAddr(text string) bool {
	peer, err := netip.ParseAddrPort(text)
	at := peer.Addr().Unmap().WithZone("")
	within := func(p netip.Prefix) bool { return p.Contains(at) }
	return err == nil && (at.IsLoopback() || slices.ContainsFunc(s.trusted, within))
}
