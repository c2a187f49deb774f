// Package dns counts the replicas that a DNS name lists: the addresses of a Kubernetes headless Service, or the SRV
// records that Consul, Nomad and Kubernetes serve. It needs no permission and no store, so it is the source to begin
// with:
//
//	pods := &dns.Source{Name: "api-replicas.prod.svc.cluster.local.", Uncapped: true}
//	if err := pods.Validate(); err != nil {
//		return err
//	}
//	return limiter.Follow(ctx, pods)
//
// The count is as late as the list: a change reaches a replica after the time that DNS servers cache an answer, often
// 30 s, and Source.Refresh. A pod that is not ready may send requests before DNS lists it, and then the others count
// too few. So set publishNotReadyAddresses on the headless Service, which lists a pod from its start. A replica that
// knows its own address counts itself meanwhile.
//
// Replicas that share an address, such as pods in the network of their host, count as one. Count them by SRV, where
// each has a port of its own: see Source.SRV for names that list several ports of each replica. Some servers cut long
// lists: see Source.Uncapped for Route 53. Consul cuts its answers over UDP silently, so set enable_truncate on its
// agents, or a Resolver that dials TCP.
package dns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/rest"
	"github.com/quotient-go/quotient/poolsize/internal/setting"
)

// Source is a quotient.Source that looks up a name again and again. Set its fields before the first Watch,
// and do not change them afterwards. Then any number of Watches may run at once. The resolver is Go's own.
// One look-up returns at most what a DNS message holds: 64 KiB, some 4,000 addresses.
//
// A limiter that follows a Source should have a quotient.HoldDown longer than the sum of Refresh and the
// time that DNS servers cache an answer. An ordinal counts as fixed once it has not changed for one
// HoldDown. Every replica must have learned of a change by then.
type Source struct {
	// Name is a host name, or with SRV the full name of a service, such as
	// _http._tcp.web.default.svc.cluster.local. (with the dot). An IP address is an error.
	//
	// Name should end with a dot. Without the dot the resolver tries the machine's search list. In Kubernetes it
	// tries the list before the name itself if the name has fewer than five dots (ndots:5). A wildcard in one of the
	// search domains may then answer with a list of one. A server that refuses one of the names fails the look-up.
	//
	// The machine's hosts file comes before DNS: a container whose own host name is Name counts itself alone. With
	// the dot the resolver skips an entry for a name of one part, such as "web.". It does not skip an entry for a
	// name of more parts, such as "web.test.": remove such an entry. SRV does not read the hosts file.
	Name string
	// SRV counts the distinct pairs of target and port in the SRV records of Name, so that replicas that
	// share a host count each. There is no ordinal then. This replica is not added to the list, since the
	// records do not show whether it is in it.
	//
	// Let Name begin with a service and a protocol, such as _http._tcp. In Kubernetes that is one port of
	// the Service. The name of the Service alone lists each pod once for each port, and the count is too
	// high: each share is a half of what it could be, or less. Where a target of such a name has several
	// ports, each look-up also reports ErrPorts. A Service of both address families may list each pod twice
	// too, under the names of two addresses: count its addresses instead.
	SRV bool
	// Hosts counts each target of SRV once, whatever its ports. It is for a name that lists several ports of
	// each replica. Where replicas share a host it counts too few, and the fleet exceeds its limit.
	Hosts bool
	// Refresh is the pause between look-ups: 10 ms to 24 h; 0 means 5 s, the time for which CoreDNS lets
	// clients cache answers of Kubernetes. Each pause varies by up to a tenth, so that replicas that start
	// together do not query together.
	Refresh time.Duration
	// Timeout bounds one look-up with all its queries: 1 ms to 24 h; 0 means 2 s. If a server has not
	// answered a query after a quarter of Timeout, the resolver tries the next server or repeats the query.
	// So a look-up without an answer may fail before Timeout.
	Timeout time.Duration
	// Resolver chooses the name servers by its Dial. Nil, or a Resolver without Dial, means those of the
	// machine. Its other fields have no effect.
	//
	// A look-up queries both families of addresses. It fails when no server answers for one of them: each
	// fails, refuses, or sends only a part of its answer. The other family alone may be half of the list.
	// An answer that the name does not exist, or has no address of a family, is no failure.
	Resolver *net.Resolver
	// Own are the addresses of this replica. Nil means those of its interfaces at each look-up, without
	// loopback and link-local ones. The ordinal is the position of the first listed one in the sorted list,
	// from 1. It is 0, not known, while none is listed.
	//
	// While none of them is listed, in either family, the count is one more than the list holds: this replica runs,
	// and is not listed yet or no longer. If the listed address is not one of the interfaces', for example behind
	// NAT, set it here. Otherwise the count stays one too high, which is safe and makes shares smaller.
	//
	// An empty slice, unlike nil, means that the address is not known. There is no ordinal then, and
	// nothing is added to the list.
	Own []netip.Addr
	// Uncapped accepts a list of exactly eight. Set it where DNS lists every replica, as CoreDNS does in Kubernetes.
	//
	// Some resolvers return at most eight addresses, and so does AWS Cloud Map, which names ECS services. So without
	// Uncapped a list of eight counts as one that was cut. The count is then eight (nine, if this replica is not in
	// the list) or the last other count, whichever is larger. There is no ordinal, and each look-up also reports
	// ErrEight. A fleet that shrinks to exactly eight keeps its earlier count for as long as it has eight.
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

// ErrPorts is reported for each list in which a target has several ports, if Name asks for no port and Hosts is
// not set. The count holds every pair.
var ErrPorts = errors.New("a target has several ports: ask for one, as by _http._tcp, or set Hosts if each target " +
	"is one replica")

// Watch looks up Name at once and then after each Refresh, and reports each result. Only one look-up runs
// at a time. A missing, refused, truncated or incomplete answer and an empty list are errors that contain
// Name, and never a count. When the context ends, Watch returns the context's error at once, also during a
// look-up. If a field is out of range, Watch reports nothing and returns an error that names the field.
//
// Each address counts once; ::ffff:10.0.0.1 equals 10.0.0.1. The family with more addresses counts, and
// IPv4 if both have as many. So a replica with an address of each family is one replica. If some replicas
// have only IPv4 and others only IPv6 the count is too low: use SRV there. A replica that knows its
// addresses and is not listed is added (see Own), but not to an empty list.
//
// Name must list the replicas. A Service with one address for all of them looks like a list of one that
// does not hold this replica. Each replica would then count two, whatever the size of the fleet.
func (s *Source) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	if err := s.Validate(); err != nil {
		return err
	}
	w := watcher{Source: s, resolver: resolver(s.Resolver, cmp.Or(s.Timeout, defaultTimeout)/exchanges)}
	for {
		found, err := w.look(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		w.tell(found, err, report)
		rest.For(ctx, setting.Jittered(cmp.Or(s.Refresh, defaultRefresh)))
	}
}

// Validate reports the first field that is wrong, as Watch does. It asks no server.
func (s *Source) Validate() error {
	if _, err := netip.ParseAddr(s.Name); err == nil {
		return fmt.Errorf("dns: Source.Name: %q is an address", s.Name)
	}
	if !isName(s.Name) {
		return fmt.Errorf("dns: Source.Name: %.80q names no host", s.Name)
	}
	if s.Hosts && !s.SRV {
		return errors.New("dns: Source.Hosts: true without SRV: addresses have no ports")
	}
	for i, a := range s.Own {
		if !a.IsValid() {
			return fmt.Errorf("dns: Source.Own[%d]: %v", i, a)
		}
	}
	return errors.Join(setting.Default("dns: Source.Refresh", s.Refresh, leastRefresh, longest),
		setting.Default("dns: Source.Timeout", s.Timeout, leastTimeout, longest))
}

// isName reports whether package net would ask for a name. The root is no host.
func isName(name string) bool {
	const bytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
	name = strings.TrimSuffix(name, ".")
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, bytes) != "" || strings.Trim(label, "-") != label {
			return false
		}
	}
	return len(name) <= 253 && strings.Trim(name, "0123456789.") != ""
}

// watcher is one Watch.
type watcher struct {
	*Source
	resolver *net.Resolver
	last     int // the last count that was not capped
}

// tell reports what a look-up has found, and what is doubtful in it. Whether a list was cut follows from its
// length alone.
func (w *watcher) tell(found finding, err error, report func(quotient.Pool, error)) {
	if err != nil {
		report(quotient.Pool{}, err)
		return
	}
	p, cut := found.pool(), found.answers == capped && !w.Uncapped
	if cut {
		p = quotient.Pool{Replicas: max(p.Replicas, w.last, capped)}
	} else {
		w.last = p.Replicas
	}
	report(p, nil)
	if cut {
		report(quotient.Pool{}, fmt.Errorf("dns: %s: %w", w.Name, ErrEight))
	}
	if found.ports {
		report(quotient.Pool{}, fmt.Errorf("dns: %s: %w", w.Name, ErrPorts))
	}
}
