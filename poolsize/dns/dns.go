// Package dns counts the replicas that a name lists: the addresses of a Kubernetes headless Service,
// or the targets of the SRV records that Consul, Nomad and Kubernetes serve.
//
// The worth of the count depends on how the name is published. A replica that is listed late, such as a pod
// that is not ready yet, is not counted by the others until then, although it already works. A headless
// Service with publishNotReadyAddresses lists it from its start. It counts itself meanwhile, if it knows its
// address. Replicas that share an address, such as pods in the network of their host, count once by address:
// count them by SRV, where each has a port of its own.
package dns

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"github.com/quotient-go/quotient"
)

// Source is a quotient.Source that looks a name up again and again. Set its fields before the first Watch
// and leave them be; then any number of Watches may run at once. Look-ups are those of Go's own
// resolver. Bounds are what a DNS message holds: 64 KiB, some 4,000 addresses.
//
// A limiter that follows a Source should have a quotient.HoldDown longer than Refresh and the time that DNS
// servers keep the answers together. An ordinal counts as fixed once it has not changed for one HoldDown, and
// until then every replica must have learned of a change.
type Source struct {
	// Name is a host name, or with SRV the full name of a service, such as
	// _http._tcp.web.default.svc.cluster.local. (with the dot). An address is no name.
	//
	// It should end with a dot. Without one the machine's search list is tried, in Kubernetes before the name
	// itself when that has fewer than five dots (ndots:5). A wildcard in one of its domains may answer with a
	// list of one, and a server that refuses one of its names fails the look-up. Also, the machine's hosts
	// file comes first, and an entry there wins: a container whose own host name is Name finds itself alone.
	// With the dot an entry for a name of one part, such as "web.", is passed over. One for a name of more
	// parts, such as "web.test.", is not: have none there. SRV does without the hosts file.
	Name string
	// SRV counts the distinct pairs of target and port that Name's SRV records list. They tell no ordinal,
	// nor whether this replica is among them, so nothing is added.
	SRV bool
	// Refresh is the pause between look-ups, give or take a tenth, so that replicas that start together do
	// not ask together. It is 10 ms to 24 h; 0 is 5 s, which is how long CoreDNS lets answers of Kubernetes
	// be kept.
	Refresh time.Duration
	// Timeout bounds one look-up, all its questions together: 1 ms to 24 h; 0 is 2 s. A server that has not
	// answered a question after a quarter of it is given up for the next one, or asked once more. So a
	// look-up without an answer may fail before Timeout.
	Timeout time.Duration
	// Resolver says by its Dial whom to ask; nil, or without Dial: the machine's name servers. Its other
	// fields do not count. A look-up asks for both families of addresses. It fails when no server answers for
	// one of them, whether they fail, refuse, or send a part of the answer: half a list may be all that came.
	// That there is no such name, or no address of a family, is an answer.
	Resolver *net.Resolver
	// Own are the addresses of this replica; nil: those of its interfaces at each look-up, but for
	// loopback and link-local ones. Where the first of them stands in the sorted list is the ordinal, from 1.
	// It is 0, not known, while none is listed.
	//
	// While none of them is listed, in either family, this replica counts as one more than the list holds.
	// It is at work, and not in the list yet, or no longer. So say here which address is listed where that
	// is none of the interfaces', such as one of a host that translates. Otherwise one is counted too many
	// for ever, which is safe and slow. An empty slice, unlike nil, means that the address is not known:
	// there is no ordinal, and nothing is added.
	Own []netip.Addr
	// Uncapped believes a list of exactly eight. Without it such a list is taken for one that was cut, since
	// AWS Cloud Map, which names ECS services, and some resolvers give eight at most. It then counts as eight
	// (nine, if this replica is not among them) or as the last other count, whichever is larger. It has no
	// ordinal, and is reported as ErrEight besides, at each look-up. So a fleet that shrinks to exactly eight
	// counts as what it was before as long as it has eight. Set Uncapped where DNS lists all, as CoreDNS does
	// in Kubernetes.
	Uncapped bool
}

// Defaults and bounds of the fields.
const (
	defaultRefresh = 5 * time.Second
	leastRefresh   = 10 * time.Millisecond
	defaultTimeout = 2 * time.Second
	leastTimeout   = time.Millisecond
	longest        = 24 * time.Hour
)

// exchanges is how many servers may be silent one after the other within Timeout: two, each asked twice, as package
// net does unless resolv.conf says otherwise.
const exchanges = 4

// capped is the length of lists that are known to be cut.
const capped = 8

// ErrEight is reported for each list of exactly eight, unless Uncapped is set.
var ErrEight = errors.New("exactly eight answers, where some servers cut longer lists: set Uncapped if yours does not")

// Watch looks Name up at once and then after each Refresh, and reports what it finds, one look-up after the
// other. No answer, a failed or refused look-up, a truncated or cut answer and an empty list are errors that name Name,
// never a count. Watch returns the context's error when the context ends, at once, also during a look-up. If a
// field is out of range it returns an error that says so, and reports nothing.
//
// Addresses count once each, ::ffff:10.0.0.1 the same as 10.0.0.1. The family with more addresses counts,
// IPv4 if there are as many, so a replica that has both is one. In a pool where some have only IPv4 and
// others only IPv6 that is too few: use SRV there. A replica that knows its own addresses and is not listed
// is counted besides (see Own), but never alone: an empty list stays an error.
//
// Name must list the replicas. That of a Service with an address of its own, one for all, looks like a list
// of one that this replica is about to join. Each replica would then count two, however many there are.
func (s *Source) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	if err := s.validate(); err != nil {
		return err
	}
	w := watcher{Source: s, resolver: resolver(s.Resolver, or(s.Timeout, defaultTimeout)/exchanges)}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		found, err := w.look(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		w.tell(found, err, report)
		timer.Reset(jittered(or(s.Refresh, defaultRefresh)))
	}
}

// validate reports the first field that is out of range.
func (s *Source) validate() error {
	if s.Name == "" {
		return errors.New(`dns: Source.Name: ""`)
	}
	if _, err := netip.ParseAddr(s.Name); err == nil {
		return fmt.Errorf("dns: Source.Name: %q is an address", s.Name)
	}
	for i, a := range s.Own {
		if !a.IsValid() {
			return fmt.Errorf("dns: Source.Own[%d]: %v", i, a)
		}
	}
	return errors.Join(between("Refresh", s.Refresh, leastRefresh), between("Timeout", s.Timeout, leastTimeout))
}

// between reports a duration that is out of range; 0 stands for the default.
func between(field string, d, least time.Duration) error {
	if d != 0 && (d < least || d > longest) {
		return fmt.Errorf("dns: Source.%s: %v is not between %v and %v", field, d, least, longest)
	}
	return nil
}

// or is d, or what 0 stands for.
func or(d, zero time.Duration) time.Duration {
	if d == 0 {
		return zero
	}
	return d
}

// jittered is d give or take a tenth.
func jittered(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1)
}

// watcher is one Watch.
type watcher struct {
	*Source
	resolver *net.Resolver
	last     int // the last count that was not capped
}

// tell reports what a look-up has found. Whether a list was cut follows from its length alone.
func (w *watcher) tell(found finding, err error, report func(quotient.Pool, error)) {
	p := found.pool()
	switch {
	case err != nil:
		report(quotient.Pool{}, err)
	case found.listed.Replicas == capped && !w.Uncapped:
		report(quotient.Pool{Replicas: max(p.Replicas, w.last)}, nil)
		report(quotient.Pool{}, fmt.Errorf("dns: %s: %w", w.Name, ErrEight))
	default:
		w.last = p.Replicas
		report(p, nil)
	}
}
