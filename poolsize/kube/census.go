package kube

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/quotient-go/quotient"
	discovery "k8s.io/api/discovery/v1"
)

// maxEndpoints is quotient's largest pool. So many endpoints are kept, and as many slices.
const maxEndpoints = 1_000_000

// census is what the slices of a Service hold, and of them only what counts. It is the store of a
// cache.Reflector, which calls it from one goroutine at a time.
type census struct {
	service     string
	own         string // the name of this pod; "" when it is not known
	servingOnly bool
	slices      map[string]slice // by namespace and name
	endpoints   int              // of all slices
	cut         bool             // there were too many to keep, and so it is until the next list
	changed     func(finding)
}

// slice is what counts of an EndpointSlice.
type slice struct {
	namespace string
	endpoints []endpoint
}

// endpoint is what counts of an endpoint.
type endpoint struct {
	target  string // what all endpoints of one replica share; "" when it is not known
	address string
	pod     string // the name of the pod; "" when it is not a pod
	family  discovery.AddressType

	ready, serving, terminating bool
}

// Add takes in a slice that is new.
func (c *census) Add(obj any) error {
	c.take(obj)
	c.tell()
	return nil
}

// Update takes in a slice that has changed.
func (c *census) Update(obj any) error { return c.Add(obj) }

// Delete drops a slice.
func (c *census) Delete(obj any) error {
	if s, ok := obj.(*discovery.EndpointSlice); ok {
		c.drop(key(s))
		c.tell()
	}
	return nil
}

// Replace takes in a list of all slices, in place of what was there.
func (c *census) Replace(list []any, _ string) error {
	c.slices, c.endpoints, c.cut = map[string]slice{}, 0, false
	for _, obj := range list {
		c.take(obj)
	}
	c.tell()
	return nil
}

// Resync does nothing: the source repeats itself.
func (c *census) Resync() error { return nil }

// take takes in one slice, or drops what it was if it belongs to the Service no more.
func (c *census) take(obj any) {
	s, ok := obj.(*discovery.EndpointSlice)
	if !ok {
		return
	}
	c.drop(key(s))
	if s.Labels[discovery.LabelServiceName] != c.service {
		return // a client that does not select by labels, such as client-go's fake when it watches
	}
	if len(c.slices) >= maxEndpoints || c.endpoints+len(s.Endpoints) > maxEndpoints {
		c.cut = true
		return
	}
	c.slices[key(s)] = slice{s.Namespace, endpoints(s)}
	c.endpoints += len(s.Endpoints)
}

func (c *census) tell() {
	p, err := c.pool()
	c.changed(finding{pool: p, err: err})
}

func (c *census) drop(key string) {
	c.endpoints -= len(c.slices[key].endpoints)
	delete(c.slices, key)
}

func key(s *discovery.EndpointSlice) string { return s.Namespace + "/" + s.Name }

func endpoints(s *discovery.EndpointSlice) []endpoint {
	list := make([]endpoint, len(s.Endpoints))
	for i, from := range s.Endpoints {
		e := endpoint{family: s.AddressType}
		if len(from.Addresses) > 0 {
			e.address = from.Addresses[0] // the others mean nothing, says the API
			if a, err := netip.ParseAddr(e.address); err == nil {
				e.address = a.Unmap().String()
			}
		}
		if t := from.TargetRef; t != nil {
			switch {
			case t.UID != "":
				e.target = string(t.UID)
			case t.Name != "":
				e.target = t.Kind + "/" + t.Namespace + "/" + t.Name
			}
			if t.Kind == "Pod" {
				e.pod = t.Name
			}
		}
		e.ready = yes(from.Conditions.Ready, true)
		e.serving = yes(from.Conditions.Serving, true)
		e.terminating = yes(from.Conditions.Terminating, false)
		list[i] = e
	}
	return list
}

// yes is a condition, or what it is when it is not set.
func yes(condition *bool, unset bool) bool {
	if condition == nil {
		return unset
	}
	return *condition
}

// counts reports whether an endpoint counts for all replicas. See the table in the package's comment.
func (c *census) counts(e endpoint) bool {
	return e.ready || e.serving || !e.terminating && !c.servingOnly
}

// reached is an address of each endpoint that counts, in order.
func (c *census) reached() []netip.Addr {
	first := map[string]netip.Addr{} // by target, or by address where that is not known
	for _, s := range c.slices {
		for _, e := range s.endpoints {
			a, err := netip.ParseAddr(e.address)
			if err != nil || !c.counts(e) { // the name of a host, which slices may still have
				continue
			}
			target := cmp.Or(e.target, e.address)
			if other, ok := first[target]; !ok || a.Less(other) {
				first[target] = a
			}
		}
	}
	return slices.SortedFunc(maps.Values(first), netip.Addr.Compare)
}

func (c *census) pool() (quotient.Pool, error) {
	if c.cut {
		return quotient.Pool{}, fmt.Errorf("kube: Service %s: more than %d endpoints", c.service, maxEndpoints)
	}
	t := tally{targets: map[string]bool{}, addresses: map[discovery.AddressType]map[string]bool{}}
	base, index, numbered := series(c.own)
	namespace, first := "", true
	for _, s := range c.slices {
		if !first && s.namespace != namespace {
			a, b := min(namespace, s.namespace), max(namespace, s.namespace)
			return quotient.Pool{}, fmt.Errorf("kube: Service %s: slices of two namespaces, %s and %s", c.service, a, b)
		}
		namespace, first = s.namespace, false
		for _, e := range s.endpoints {
			b, _, ok := series(e.pod)
			numbered = numbered && ok && b == base
			t.add(e, c.counts(e), c.own)
		}
	}
	p, err := t.pool(c.own != "")
	if err != nil {
		return quotient.Pool{}, fmt.Errorf("kube: Service %s: %w", c.service, err)
	}
	if numbered && t.own != "" {
		p.Ordinal, p.Fixed = 0, false
		if index < p.Replicas {
			p.Ordinal, p.Fixed = index+1, true
		}
	}
	return p, nil
}

// tally counts endpoints, each once.
type tally struct {
	targets   map[string]bool                           // reports whether a target counts
	addresses map[discovery.AddressType]map[string]bool // the same of those without a target
	own       string                                    // the target that is this pod
	listed    int
}

// add takes in an endpoint. A pod in several slices counts if any of them counts it: they change one after the other.
func (t *tally) add(e endpoint, counts bool, own string) {
	t.listed++
	if e.target == "" {
		family := t.addresses[e.family]
		if family == nil {
			family = map[string]bool{}
			t.addresses[e.family] = family
		}
		family[e.address] = family[e.address] || counts
		return
	}
	t.targets[e.target] = t.targets[e.target] || counts
	if own != "" && e.pod == own {
		t.own = e.target
	}
}

// errNone is the error of a Service whose slices hold nothing.
var errNone = errors.New("no endpoints: no such Service in this namespace, or none of its pods has an address")

// pool is the count. This replica is in it whatever its conditions are, if its name is known, but never alone
// when nothing is listed.
func (t *tally) pool(named bool) (quotient.Pool, error) {
	var p quotient.Pool
	counted := t.targets[t.own]
	for target, counts := range t.targets {
		if counts {
			p.Replicas++
			if counted && target <= t.own {
				p.Ordinal++
			}
		}
	}
	most := 0
	for _, family := range t.addresses {
		n := 0
		for _, counts := range family {
			if counts {
				n++
			}
		}
		most = max(most, n)
	}
	if p.Replicas += most; most > 0 {
		p.Ordinal = 0 // addresses have no place among UIDs
	}
	switch {
	case t.listed == 0:
		return quotient.Pool{}, errNone
	case named && !counted && (t.own != "" || p.Replicas > 0):
		p.Replicas++
	case p.Replicas == 0:
		return quotient.Pool{}, fmt.Errorf("none of %d endpoints counts", t.listed)
	}
	return p, nil
}

// series takes a StatefulSet's pod name apart: web-12 is the pod 12 of web.
func series(pod string) (base string, index int, ok bool) {
	i := strings.LastIndexByte(pod, '-')
	if i < 1 {
		return "", 0, false
	}
	digits := pod[i+1:]
	if strings.Trim(digits, "0123456789") != "" || len(digits) > 1 && digits[0] == '0' {
		return "", 0, false
	}
	index, err := strconv.Atoi(digits)
	return pod[:i], index, err == nil && index < maxEndpoints
}
