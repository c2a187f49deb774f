package gossip

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/quotient-go/quotient"
)

// mostMembers bounds the roster. The sum of all weights stays below what a pool may hold: see pool.
const mostMembers = 100_000

// largestPool is the largest size that a limiter takes.
const largestPool = 1_000_000

// member is a live replica.
type member struct {
	name   string
	at     netip.AddrPort
	id     uint64 // 0: it says nothing that this version can add up
	weight int
}

// roster is the live members, this replica included. It may be used from many goroutines.
type roster struct {
	own string

	mu      sync.Mutex // guards what follows
	members map[string]member
}

func newRoster(own string) *roster { return &roster{own: own, members: map[string]member{}} }

// admits reports whether a member may be put: it is known, or there is room.
func (r *roster) admits(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.members[name]
	return known || len(r.members) < mostMembers
}

func (r *roster) put(m member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members[m.name] = m
}

func (r *roster) remove(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.members, name)
}

// sorted returns the members by name.
func (r *roster) sorted() []member {
	r.mu.Lock()
	defer r.mu.Unlock()
	byName := func(a, b member) int { return strings.Compare(a.name, b.name) }
	return slices.SortedFunc(maps.Values(r.members), byName)
}

// has reports whether a member has an address.
func (r *roster) has(at netip.AddrPort) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.members {
		if m.at == at {
			return true
		}
	}
	return false
}

// pool returns what a replica of that name reports of sorted members: each counts by its weight. It reports
// false while the replica is not among them.
func pool(members []member, own string) (quotient.Pool, bool) {
	var p quotient.Pool
	i, found := slices.BinarySearchFunc(members, own, func(m member, name string) int {
		return strings.Compare(m.name, name)
	})
	if !found {
		return p, false
	}
	for j, m := range members {
		if j == i {
			p.Ordinal = p.Replicas + 1
		}
		p.Replicas += m.weight
	}
	if p.Replicas = min(p.Replicas, largestPool); p.Ordinal+members[i].weight-1 > p.Replicas {
		p.Ordinal = 0
	}
	if members[i].weight > 1 {
		p.Weight = members[i].weight
	}
	return p, true
}
