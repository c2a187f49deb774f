package config

import (
	"cmp"
	"maps"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/quotient-go/quotient/lease"
)

// Leases is the section [leases], or the whole of a throttle.toml: the settings of a lease server.
type Leases struct {
	Listen string // host:port; 127.0.0.1:8000 by default, and always in a throttle.toml
	// Semaphores are lease.Config.Semaphores: A = 42, or A = { max = 42, level = 1 }.
	Semaphores map[string]lease.Semaphore
	// KeepIdle is how long an expired peer without locks is kept; 5 minutes by default. A throttle.toml calls
	// it litter_collection_interval.
	KeepIdle time.Duration
	Grace    time.Duration // for this long after the start locks are only restored; 0 by default
	MaxPeers int           // 1 to 1,048,576; 100,000 by default
	Election *Election     // nil: this is the only server

	throttle bool // it is a throttle.toml, which spells its fields in its own way
}

// Election is the section [leases.election]: several servers, of which one leads.
type Election struct {
	Endpoints []string // of etcd: host:port, or http or https URLs; one at least
	URL       string   // of this server, for clients; by default http:// and the address of Listen
	Name      string   // all servers of the election share it; "leases" by default
	// without contact to etcd until another server leads: whole seconds, 2 s to 1 h; 10 s by default
	TTL          time.Duration
	User         string // of etcd; empty: none
	PasswordFile string // a file with the user's password
}

// Defaults of an Election.
const (
	DefaultElectionName = "leases"
	DefaultElectionTTL  = 10 * time.Second
)

// Bounds of [leases]. Those of semaphores and peers are those of lease.Config.
const (
	maxPeers      = 1 << 20
	maxLevel      = 1 << 31
	maxSemaphores = 10_000
	maxSemaphore  = 1024 // bytes of a name
	longestTTL    = time.Hour
)

func defaultLeases() *Leases {
	return &Leases{
		Listen: "127.0.0.1:8000", Semaphores: make(map[string]lease.Semaphore),
		KeepIdle: lease.DefaultKeepIdle, MaxPeers: lease.DefaultMaxPeers,
	}
}

// Config returns the configuration for a lease.Server.
func (l *Leases) Config() lease.Config {
	return lease.Config{
		Semaphores: maps.Clone(l.Semaphores), Grace: l.Grace, MaxPeers: l.MaxPeers,
		KeepIdle: cmp.Or(l.KeepIdle, 1), // 0 would be the default
	}
}

// at is the path of a field. A throttle.toml has no section [leases], and spells fields with underscores.
func (l *Leases) at(field string) string {
	if l.throttle {
		if field == "keep-idle" {
			return "litter_collection_interval"
		}
		return strings.ReplaceAll(field, "-", "_")
	}
	return "leases." + field
}

// spelt are fields by the names that the file has for them.
func (l *Leases) spelt(known fields) fields {
	named := make(fields, len(known))
	for name, take := range known {
		named[strings.TrimPrefix(l.at(name), "leases.")] = take
	}
	return named
}

// read reads [leases], or the whole of a throttle.toml, whose settings of logs have no effect.
func (l *Leases) read(v value) {
	more := fields{
		"semaphores": l.readSemaphores, "election": l.readElection,
	}
	if l.throttle {
		more["listen"] = nil
		more["logging"] = func(v value) {
			v.each(func(_ string, of value) {
				v.r.warn(v.r.places.key(of.path), of.path, "the log goes to stderr, and nowhere else")
			})
		}
	}
	v.table(l.spelt(fieldsOf(l, more)))
}

func (l *Leases) readSemaphores(v value) {
	v.each(func(name string, of value) {
		var s lease.Semaphore
		if _, ok := of.is.(map[string]any); !ok {
			whole(&s.Max)(of)
		} else if of.table(fieldsOf(&s, nil)); !of.has("max") {
			of.r.field(inner(of.path, "max"), "it is missing")
		}
		l.Semaphores[name] = s
	})
}

func (l *Leases) readElection(v value) {
	l.Election = &Election{Name: DefaultElectionName, TTL: DefaultElectionTTL}
	v.table(l.spelt(fieldsOf(l.Election, nil)))
}

func (l *Leases) check(r *report) {
	checkListen(r, l.at("listen"), l.Listen)
	between(r, l.at("keep-idle"), l.KeepIdle, 0, longest)
	between(r, l.at("grace"), l.Grace, 0, longest)
	between(r, l.at("max-peers"), l.MaxPeers, 1, maxPeers)
	if n := len(l.Semaphores); n > maxSemaphores {
		r.field(l.at("semaphores"), "%d are more than %d", n, maxSemaphores)
		return
	}
	for name, s := range l.Semaphores {
		at := inner(l.at("semaphores"), name)
		if name == "" || len(name) > maxSemaphore {
			r.field(at, "a name of %d bytes is not of 1 to %d", len(name), maxSemaphore)
		}
		most := inner(at, "max")
		if !r.places.has(most) { // A = 0
			most = at
		}
		between(r, most, s.Max, 1, lease.MaxCount)
		between(r, inner(at, "level"), s.Level, 0, maxLevel)
	}
	if l.Election != nil {
		l.checkElection(r)
	}
}

func (l *Leases) checkElection(r *report) {
	e, at := l.Election, func(field string) string { return l.at("election." + field) }
	if len(e.Endpoints) == 0 {
		r.hinted(at("endpoints"), `as ["127.0.0.1:2379"]`, "none is given")
	}
	for i, endpoint := range e.Endpoints {
		if place := element(at("endpoints"), i); !strings.Contains(endpoint, "://") {
			checkListen(r, place, endpoint)
		} else if what := notServer(endpoint); what != "" {
			r.field(place, "%s %s", clip(redacted(endpoint)), what)
		}
	}
	if e.URL != "" {
		if what := notServer(e.URL); what != "" {
			r.hinted(at("url"), `as "http://10.0.0.7:8000"`, "%s %s", clip(redacted(e.URL)), what)
		}
	} else if host, _, err := net.SplitHostPort(l.Listen); err == nil && isAny(host) {
		r.hinted(at("url"), `as "http://10.0.0.7:8000"`,
			"it is missing: %s names no host for clients", l.Listen)
	}
	if e.Name == "" || len(e.Name) > 200 || !isOf(e.Name, "-._") {
		r.field(at("name"), "%s is not 1 to 200 letters, digits, '.', '_' and '-'", clip(e.Name))
	}
	if between(r, at("ttl"), e.TTL, 2*time.Second, longestTTL); e.TTL%time.Second != 0 {
		r.field(at("ttl"), "%v is no whole number of seconds", e.TTL)
	}
	switch {
	case e.User == "" && e.PasswordFile != "":
		r.field(at("user"), "it is missing beside the file with a password")
	case e.User != "" && e.PasswordFile == "":
		r.field(at("password-file"), "it is missing beside a user")
	}
}

// isAny reports whether a listener at the host listens at all addresses.
func isAny(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// notServer is what keeps a text from being the URL of a server; "" for nothing.
func notServer(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return "is no URL of http or https"
	}
	return notPlain(u)
}
