package admin

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/quotient-go/quotient"
)

// An Option changes what New makes. New returns an error for an invalid one.
type Option func(*handler)

// AllowHosts lets the handler also answer requests for these hosts, on any port. A host is a name or an address without
// a port; case and a dot at the end do not matter. New returns an error for a host that no request can have. Examples
// are an empty host, a port, a scheme, a wildcard, and letters beyond ASCII (browsers send the xn-- form).
//
// Loopback hosts (localhost, 127.0.0.0/8, ::1) are always allowed. With a [Token] or [MutualTLS] the
// address of the connection is allowed too, since Prometheus uses the address of a pod.
func AllowHosts(hosts ...string) Option {
	return func(h *handler) {
		for _, host := range hosts {
			name := canonicalHost(host)
			h.mustBe(net.ParseIP(name) != nil || name != "" && strings.Trim(name, hostBytes) == "",
				"AllowHosts: %q is not a host name or an address, without a port", host)
			h.hosts = append(h.hosts, name)
		}
	}
}

// hostBytes are those of a name that is asked for by DNS, and the underscore, which some private names have.
const hostBytes = "abcdefghijklmnopqrstuvwxyz0123456789-._"

// Logger sets where changes are logged, each in one line with its old and its new value and who made it; the limiter's
// own Logger has none of it, and a change that changes nothing has no line. Requests that were refused for their
// credentials, host or origin are logged too, at most one line a second. A pool size with an end is logged with it;
// that it has ended is in the limiter's own log. Without Logger, or with nil, they go to slog.Default.
func Logger(log *slog.Logger) Option {
	return func(h *handler) { h.log = log }
}

// CheckKeys has PUT /override refuse a key that check returns an error for, with 422 and the text of the error: no call
// of the limiter has such a key. The program knows which keys it makes; config.File.CheckKey does of a proxy's file. A
// key that the limiter remembers is not refused.
func CheckKeys(check func(limiter, key string) error) Option {
	return func(h *handler) {
		h.checkKey = check
		h.mustBe(check != nil, "CheckKeys: check: nil")
	}
}

// EventsEvery sets the time between two events of GET /events: 10 ms to one hour, 1 s by default.
func EventsEvery(d time.Duration) Option {
	return func(h *handler) {
		h.every = d
		h.mustBe(d >= shortestInterval && d <= time.Hour,
			"EventsEvery: %v is not between %v and %v", d, shortestInterval, time.Hour)
	}
}

const shortestInterval = 10 * time.Millisecond

// longestReplica is the length of the longest DNS name, in bytes.
const longestReplica = 253

// Replica names this process in GET /state and on the page, so that operators see which replica they change.
// Without it the name is that of the host, which in Kubernetes is the pod's. A name is 1 to 253 bytes of
// printable UTF-8; New refuses any other one.
func Replica(name string) Option {
	return func(h *handler) {
		h.replica = name
		h.mustBe(printable(name), "Replica: name: %q is not 1 to %d bytes of printable UTF-8", clip(name), longestReplica)
	}
}

// printable reports whether a replica can have the name.
func printable(name string) bool {
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	return name != "" && len(name) <= longestReplica && utf8.ValidString(name) && !strings.ContainsFunc(name, unprintable)
}

// hostname is the name of the host, "" where it has none that can be shown.
var hostname = sync.OnceValue(func() string {
	name, err := os.Hostname()
	if err != nil || !printable(name) {
		return ""
	}
	return name
})

// Handler is the API of a registry's limiters. It is safe for concurrent use. Mount it at the root of a listener, or
// under a prefix with http.StripPrefix. New makes it; the zero value answers every request with 500.
//
// A Handler starts no goroutine. It keeps a timer that samples the limiters once a second for [History]. The
// timer runs while [Handler.Serve] runs, and under other servers until five minutes after the last GET of
// /state or /events. The samples need about 4 KiB for each limiter.
type Handler struct{ api *handler }

// handler is what the routes share.
type handler struct {
	reg     *quotient.Registry
	replica string // its name
	samples recorder
	hosts   []string
	log     *slog.Logger
	errs    []error // of the options

	checkKey func(limiter, key string) error // nil without CheckKeys
	kept     *kept                           // nil without KeepOverrides

	file   func() FileState // nil without File
	tables []func() []Table
	leases Leases // nil without WithLeases
	peers  *peers // nil without WithPeers
	mounts []route

	every   time.Duration // between events
	streams streams

	tokens  []token
	mutual  bool // client certificates count
	inFront bool // the server in front has looked at the credentials
	origin  *http.CrossOriginProtection
	seen    seen
	scans   scans
	seed    maphash.Seed // makes the tags of one handler its own
	failed  failures

	// one change at a time: what If-Match was compared with is what is changed, and logged old values form a chain
	writing sync.Mutex
}

// mustBe notes a mistake in an option, for New.
func (h *handler) mustBe(meant bool, mistake string, args ...any) {
	if !meant {
		h.errs = append(h.errs, fmt.Errorf("admin: "+mistake, args...))
	}
}

// New returns the API of the limiters in reg, which must not be nil. It follows limiters that are added to
// reg or removed later.
func New(reg *quotient.Registry, opts ...Option) (*Handler, error) {
	if reg == nil {
		return nil, errors.New("admin: New: registry: nil")
	}
	h := &handler{
		reg: reg, samples: recorder{reg: reg}, replica: hostname(), every: time.Second,
		scans:  scans{make(chan struct{}, 1), make(map[scan]found)},
		origin: http.NewCrossOriginProtection(), seed: maphash.MakeSeed(),
	}
	for i, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("admin: New: option %d: nil", i+1)
		}
		opt(h)
	}
	if err := errors.Join(h.errs...); err != nil {
		return nil, err
	}
	h.log = cmp.Or(h.log, slog.Default())
	if h.kept != nil {
		if err := h.kept.open(h); err != nil {
			return nil, err
		}
	}
	return &Handler{api: h}, nil
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if h.api == nil {
		writeProblem(w, &Problem{Status: http.StatusInternalServerError, Detail: "this handler was not made by New"})
		return
	}
	rt := h.api.find(r.URL.Path)
	if rt != nil && rt.open {
		h.api.open(w, r, rt)
		return
	}
	if !h.api.allowed(r) {
		h.api.refuse(w, r, caller{}, &Problem{
			Status: http.StatusForbidden,
			Detail: "this host is not served here; only loopback and configured hosts are",
			Field:  "Host", Value: clip(r.Host),
		})
		return
	}
	h.api.route(w, r, rt)
}

// allowed reports whether a request's Host names the loopback interface, a configured host or, where there
// are credentials, the address that the connection came to. Only the literal name and literal addresses
// count: to look a name up would be to trust the very DNS answer that an attacker controls.
func (h *handler) allowed(r *http.Request) bool {
	host := r.Host
	if name, port, err := net.SplitHostPort(host); err == nil {
		if strings.Trim(port, "0123456789") != "" {
			return false
		}
		host = name
	}
	host = canonicalHost(host)
	if ip := net.ParseIP(host); ip != nil {
		to, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		if ip.IsLoopback() || h.guarded() && ok && to.IP.Equal(ip) {
			return true
		}
	}
	return host == "localhost" || slices.Contains(h.hosts, host)
}

// canonicalHost drops what may differ between two spellings of one host.
func canonicalHost(host string) string {
	if inner, ok := strings.CutPrefix(host, "["); ok && strings.HasSuffix(inner, "]") {
		host = strings.TrimSuffix(inner, "]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
