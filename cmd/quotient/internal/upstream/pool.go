package upstream

import (
	"errors"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quotient-go/quotient/config"
)

// Pool is an http.RoundTripper that sends each request to one of its upstreams, once. It is safe for use by
// many goroutines. New makes one; it has no upstreams before a file is in force.
type Pool struct {
	log     *slog.Logger
	mu      sync.Mutex
	ups     []*upstream   // in the order of the configuration; one for each address of a name
	leaving []*upstream   // not configured any more, with requests in flight
	next    int           // the upstream whose turn is first among equals
	health  config.Health // how upstreams are checked
	limits  limits        // of the transports
	tls     *secure       // how https upstreams are reached; nil: as is usual
	changed chan struct{} // closed when ups or health change
	watched bool          // Watch is running
	closed  bool

	targets  []target         // of the configuration
	names    map[string]*name // of their hosts
	resolver resolver
}

// New returns a Pool that logs to log the upstreams that go out and come back. Nil is a log that is thrown away.
func New(log *slog.Logger) *Pool {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Pool{log: log, changed: make(chan struct{}), resolver: net.DefaultResolver}
}

// State is how one upstream is doing.
type State struct {
	URL      string    // scheme://host:port or unix:PATH
	Address  string    // that its name has, one of several perhaps; empty: it was not looked up
	Healthy  bool      // it gets requests
	Since    time.Time // when it went out or came back, or was configured
	InFlight int       // requests whose answers are not at their ends
	Resent   uint64    // requests that were sent a second time: see the package
	Leaving  bool      // it is not configured any more, and finishes what it has in flight
	Error    string    // the last failure of a check or a connection; empty if there was none
	ErrorAt  time.Time // when that was
}

// State returns the state of each upstream, in the order of the configuration, and of those that are leaving.
func (p *Pool) State() []State {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]State, 0, len(p.ups)+len(p.leaving))
	for _, u := range p.ups {
		list = append(list, u.state(false))
	}
	for _, u := range p.leaving {
		list = append(list, u.state(true))
	}
	return list
}

func (p *Pool) apply(section *config.Proxy) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.health, p.next = section.Health, 0
	p.limits = limits{
		section.Timeouts.Dial, section.Timeouts.ResponseHeader, section.Max.Upstream, p.tls, section.Host,
	}
	targets := make([]target, len(section.Upstreams))
	for i, u := range section.Upstreams {
		targets[i] = targetOf(u)
	}
	idle := p.swap(targets)
	p.mu.Unlock()
	closeIdle(idle)
}

// Close ends the use of the Pool. Requests fail from now on, and those in flight are finished. Connections
// are closed as those of an upstream that goes.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	idle := p.swap(nil)
	p.mu.Unlock()
	closeIdle(idle)
	return nil
}

// swap makes these the upstreams, with all addresses that are known, wakes Watch, and returns what has no requests of
// ours from now on. The caller holds p.mu.
func (p *Pool) swap(targets []target) (idle []*sender) {
	known := slices.Concat(p.ups, p.leaving)
	old := make(map[target]*upstream, len(known))
	for _, u := range known {
		old[u.target] = u
	}
	p.ups, p.leaving, p.targets = nil, nil, targets
	for _, t := range p.expand(targets) {
		u := old[t]
		if u == nil {
			u = newUpstream(p, t, p.limits)
		} else if u.limits != p.limits {
			if u.by.inFlight == 0 {
				idle = append(idle, u.by)
			}
			u.limits, u.by = p.limits, newSender(t, p.limits, u)
		}
		p.ups = append(p.ups, u)
		delete(old, t)
	}
	for _, u := range known {
		switch {
		case old[u.target] == nil: // it stays
		case u.inFlight > 0:
			p.leaving = append(p.leaving, u)
		default:
			idle = append(idle, u.by)
		}
	}
	close(p.changed)
	p.changed = make(chan struct{})
	return idle
}

func closeIdle(all []*sender) {
	for _, s := range all {
		s.retire()
	}
}

// take picks the upstream for a request and counts it there. Each that is taken is given back. If some were tried, it
// is another address of the same name.
func (p *Pool) take(tried ...*upstream) (*upstream, *sender, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	best := -1
	for i := range p.ups {
		at := (p.next + i) % len(p.ups)
		u := p.ups[at]
		if p.usable(u) && u.fits(tried) && (best < 0 || u.before(p.ups[best])) {
			best = at
		}
	}
	if best < 0 {
		return nil, nil, p.none()
	}
	p.next = (best + 1) % len(p.ups)
	u := p.ups[best]
	u.inFlight++
	u.by.inFlight++
	return u, u.by, nil
}

// usable reports whether an upstream gets requests. The caller holds p.mu.
func (p *Pool) usable(u *upstream) bool {
	return u.healthy || len(p.targets) == 1 && p.health.Path == ""
}

// before reports whether u is to be taken and not o. The caller holds Pool.mu.
func (u *upstream) before(o *upstream) bool {
	if u.healthy != o.healthy {
		return u.healthy
	}
	return u.inFlight < o.inFlight
}

// fits reports whether u may take the place of those that were tried.
func (u *upstream) fits(tried []*upstream) bool {
	return len(tried) == 0 || u.target.sameName(tried[0].target) && !slices.Contains(tried, u)
}

// none is the error when no upstream is usable. The caller holds p.mu.
func (p *Pool) none() error {
	cause := ErrNoUpstream
	if p.closed {
		cause = errors.Join(ErrNoUpstream, errors.New("the pool of upstreams is closed"))
	}
	after := max(time.Second, p.health.Every*time.Duration(p.health.Healthy))
	return &Error{Kind: Unavailable, After: after, Err: cause}
}

// give takes a request off the counts of its upstream and of what sent it. What gets no other one is closed after the
// last: http.Transport takes a connection for idle before it hands an answer without a body on, and loses the answer
// if it closes that connection.
func (p *Pool) give(u *upstream, by *sender) {
	var idle []*sender
	p.mu.Lock()
	by.inFlight--
	if by.inFlight == 0 && by != u.by {
		idle = append(idle, by)
	}
	if u.inFlight--; u.inFlight == 0 && slices.Contains(p.leaving, u) {
		p.leaving = slices.DeleteFunc(p.leaving, func(o *upstream) bool { return o == u })
		idle = append(idle, u.by)
	}
	p.mu.Unlock()
	closeIdle(idle)
}

// Prepare is the first half of a reload. commit puts what the file says of upstreams in force. Upstreams that
// stay keep their health and what they have in flight, and their connections unless a time-out, their number,
// the Host, or what [proxy.upstream-tls] and its files say has changed. Upstreams that go finish what they have in
// flight. Their connections close then, those of HTTP/2 at most 4 s later, or when they have been idle for 4 s.
// Package config has checked the file.
func (p *Pool) Prepare(f *config.File) (commit func(), err error) {
	if f.Proxy == nil {
		return nil, errors.New("upstream: the file has no section [proxy]")
	}
	next, err := readSecure(f)
	if err != nil {
		return nil, err
	}
	return func() {
		p.secure(next)
		p.apply(f.Proxy)
	}, nil
}

type target struct {
	scheme, host string // as the file spells the scheme
	socket       string // the path of a Unix socket; empty: the host is reached
	at           string // the address of the host's name, or two with a blank between them; empty: none is known
}

func targetOf(u *url.URL) target {
	if u.Scheme == "unix" {
		return target{scheme: u.Scheme, host: "localhost", socket: u.Path}
	}
	return target{scheme: strings.ToLower(u.Scheme), host: strings.ToLower(u.Host)}
}

func (t target) String() string {
	if t.socket != "" {
		return "unix:" + t.socket
	}
	return t.scheme + "://" + t.host
}

type limits struct {
	dial, head time.Duration
	conns      int
	tls        *secure
	host       string // config.Proxy.Host
}
