package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quotient-go/quotient"
)

// Decide is the section [decide]: a process beside a proxy that decides for it, and passes nothing on. Rules and all
// else are those of [proxy], whose upstreams and listen it does not use.
type Decide struct {
	// GRPC is where Envoy's services of rate limits and authorization listen: host:port or unix:PATH, 127.0.0.1:8081
	// by default; "off" for none.
	GRPC string
	// HTTP is where /decide and /release listen: host:port or unix:PATH, 127.0.0.1:8080 by default; "off" for none.
	HTTP string
	// Profile is how the proxy that asks over HTTP describes a request: forward-auth (the default), nginx, envoy or
	// haproxy.
	Profile string
	// RateLimitFiles are configurations of Envoy's reference rate limit service. With one of them no rule is needed if
	// HTTP is off.
	RateLimitFiles []string
	RateLimitKind  string        // of their limits: window (the default), counted-window or bucket
	MaxHold        time.Duration // that a permit is held for a caller at most; 1 s to 24 h, 1 min by default
}

// The profiles, and the kinds of the limits of the reference service.
var (
	profiles       = []string{"forward-auth", "nginx", "envoy", "haproxy"}
	rateLimitKinds = []string{"window", "counted-window", "bucket"}
)

func defaultDecide() *Decide {
	return &Decide{
		GRPC: "127.0.0.1:8081", HTTP: "127.0.0.1:8080", Profile: profiles[0], RateLimitKind: rateLimitKinds[0],
		MaxHold: time.Minute,
	}
}

// Add adds a limiter that the program itself asks: no rule has to use it, and its keys may be anything. A name that the
// file has already is an error. State.Differs leaves its plans out, since the program may set some. It is for functions
// of Adjust.
func (f *File) Add(name string, l Limiter) error {
	if _, taken := f.Limiters[name]; taken {
		return fmt.Errorf("config: Add: the file has a limiter %s already", clip(name))
	}
	f.Limiters[name], f.added = l, append(slices.Clip(f.added), name)
	return nil
}

func (f *File) checkDecide(r *report) {
	d := f.Decide
	if f.Proxy == nil {
		r.field("proxy", "nil beside decide")
		return
	}
	listens := map[string]string{f.Proxy.Admin.Listen: "proxy.admin.listen"}
	for _, own := range []struct{ field, address string }{{"decide.grpc", d.GRPC}, {"decide.http", d.HTTP}} {
		if own.address == "off" {
			continue
		}
		if !checkSocket(r, own.field, own.address) {
			checkListen(r, own.field, own.address)
		}
		if other := listens[own.address]; other != "" && !strings.HasSuffix(own.address, ":0") {
			r.field(own.field, "%s is %s too", clip(own.address), other)
		}
		listens[own.address] = own.field
	}
	if d.GRPC == "off" && d.HTTP == "off" {
		r.field("decide.grpc", `"off" beside http = "off": nobody can ask`)
	}
	oneOf(r, "decide.profile", d.Profile, profiles...)
	oneOf(r, "decide.ratelimit-kind", d.RateLimitKind, rateLimitKinds...)
	between(r, "decide.max-hold", d.MaxHold, time.Second, 24*time.Hour)
	if len(d.RateLimitFiles) > 0 && d.GRPC == "off" {
		r.field("decide.ratelimit-files", `they are set beside grpc = "off": nobody can ask`)
	}
	for i, name := range d.RateLimitFiles {
		at := element("decide.ratelimit-files", i)
		if name == "" {
			r.field(at, "it is empty")
		} else if slices.Contains(d.RateLimitFiles[:i], name) {
			r.field(at, "%s is in the list twice", clip(name))
		}
	}
	f.warnOfQuestions(r)
}

// mostAsked is how long a proxy waits for an answer by the configurations in deploy/proxy/beside.
const mostAsked = 250 * time.Millisecond

// warnOfQuestions warns of limiters that do for a question less than they do for a request: it holds no slot, and its
// caller does not wait for long.
func (f *File) warnOfQuestions(r *report) {
	for _, rule := range f.Proxy.Rules {
		for _, one := range rule.All() {
			l, at := f.Limiters[one.Limiter], inner("limiters", one.Limiter)
			if !l.Refuse && (l.MaxWait == 0 || l.MaxWait >= mostAsked) {
				r.warn(r.places.key(at), inner(at, "max-wait"), "a question of quotient decide may wait for longer "+
					"than its caller does, which may then let the request pass: set less than 250ms, "+
					`or mode = "refuse"`)
			}
			l.limits(at, func(path string, l quotient.Limit) {
				if at := inner(path, "in-flight"); l.InFlight > 0 {
					r.warn(r.places.value(at), at, "a question of quotient decide has a slot only until it is "+
						"answered, unless its caller asks to hold the slot and releases it")
				}
			})
		}
	}
}

// ruleless reports whether a file is for questions that no rule answers: those of the reference service.
func (f *File) ruleless() bool {
	d := f.Decide
	return d != nil && f.Proxy != nil && d.HTTP == "off" && len(d.RateLimitFiles) > 0 && len(f.Proxy.Rules) == 0
}
