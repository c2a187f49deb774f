package gossip

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quotient-go/quotient"
)

// mostMembers bounds the roster.
const mostMembers = 100_000

// contest is for how long two replicas of one name that start know each other before one of them goes on. By
// then news has reached all.
const contest = 10 * slowestGossip

// largestPool is the largest size that a limiter takes.
const largestPool = 1_000_000

// member is a live replica.
type member struct {
	name string
	at   netip.AddrPort
	meta
}

// fullName is what memberlist calls a replica. The random word lets no two starts have the same name: else
// those who know that the former one has left do not believe that the latter one is there.
func fullName(name string, word uint64) string { return fmt.Sprintf("%s#%016x", name, word) }

// baseName returns the name without the word. It reports false where there is none.
func baseName(full string) (name string, ok bool) {
	i := strings.LastIndexByte(full, '#')
	if i < 1 || i > longestName || len(full)-i != 17 {
		return "", false
	}
	return full[:i], true
}

// label keeps fleets apart.
func label(fleet string) string { return "quotient/" + fleet }

// roster is the live members, this replica included. It may be used from many goroutines.
type roster struct {
	name string // of this replica
	id   uint64

	mu      sync.Mutex // guards what follows
	entries map[string]entry
	puts    int
}

// entry is a member, and when it came.
type entry struct {
	member
	n int
}

func newRoster(name string, id uint64) *roster {
	return &roster{name: name, id: id, entries: map[string]entry{}}
}

// admits reports whether a member may be put: it is known, or there is room.
func (r *roster) admits(full string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.entries[full]
	return known || len(r.entries) < mostMembers
}

func (r *roster) put(full string, m member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.puts++
	r.entries[full] = entry{m, r.puts}
}

func (r *roster) remove(full string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.entries, full)
}

// sorted returns the members by name. Of those at one address, or with one number, all but the last have
// been restarted since, although their death is not known yet.
func (r *roster) sorted() []member {
	r.mu.Lock()
	entries := slices.Collect(maps.Values(r.entries))
	r.mu.Unlock()
	slices.SortFunc(entries, func(a, b entry) int {
		if own := a.id == r.id; own != (b.id == r.id) && own {
			return -1 // this replica is there, whatever others take its address for
		} else if own != (b.id == r.id) {
			return 1
		}
		return b.n - a.n
	})
	addresses, ids := make(map[netip.AddrPort]bool, len(entries)), make(map[uint64]bool, len(entries))
	var members []member
	for _, e := range entries {
		if addresses[e.at] || e.id != 0 && ids[e.id] {
			continue
		}
		addresses[e.at], ids[e.id] = true, true
		members = append(members, e.member)
	}
	slices.SortFunc(members, compare)
	return members
}

// compare orders members by name, and those of one name by number.
func compare(a, b member) int {
	return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.id, b.id))
}

// has reports whether a member has an address.
func (r *roster) has(at netip.AddrPort) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.entries {
		if e.at == at {
			return true
		}
	}
	return false
}

// rival returns another replica of this one's name, one whose start is over before any other.
func (r *roster) rival() (rival member, ok bool) {
	for _, m := range r.sorted() {
		if m.name == r.name && m.id != r.id && (!ok || m.settled && !rival.settled) {
			rival, ok = m, true
		}
	}
	return rival, ok
}

// yields reports whether this replica, while it starts, must give way to another one of its name. One whose
// start is over goes on. Of two that start, the one with the smaller number does, once both must know that.
func (r *roster) yields(rival member, known time.Duration) bool {
	return rival.settled || rival.id < r.id || known < contest
}

// pool returns what a replica reports of sorted members: each counts by its weight. It reports false
// while the replica is not among them.
func pool(members []member, name string, id uint64) (p quotient.Pool, ok bool) {
	for _, m := range members {
		if m.name == name && m.id == id {
			p.Ordinal, ok = p.Replicas+1, true
			if m.weight > 1 {
				p.Weight = m.weight
			}
		}
		p.Replicas += m.weight
	}
	if p.Replicas = min(p.Replicas, largestPool); p.Ordinal+max(1, p.Weight)-1 > p.Replicas {
		p.Ordinal = 0
	}
	return p, ok
}
