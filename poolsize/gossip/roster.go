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
	"github.com/quotient-go/quotient/poolsize/internal/setting"
)

// mostMembers bounds the roster.
const mostMembers = 100_000

// contest is for how long two replicas of one name that start know each other before one of them goes on. By
// then reports have reached all.
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
	if i < 1 || i > setting.LongestName || len(full)-i != 17 {
		return "", false
	}
	return full[:i], true
}

func label(fleet string) string { return "quotient/" + fleet }

// roster is the live members, this replica included. It may be used from many goroutines.
type roster struct {
	id     uint64        // of this replica
	forget time.Duration // how long those that were lost are remembered

	mu      sync.Mutex // guards what follows
	entries map[string]entry
	lost    map[string]loss
	changes int
}

// loss is a member that has died without a word.
type loss struct {
	weight int
	until  time.Time // then it is forgotten
}

// entry is a member, and when it came.
type entry struct {
	member
	n int
}

func newRoster(id uint64, forget time.Duration) *roster {
	return &roster{id: id, forget: forget, entries: map[string]entry{}, lost: map[string]loss{}}
}

// admits reports whether a member may be put: it is known, or there is room.
func (r *roster) admits(full string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.entries[full]
	return known || len(r.entries) < mostMembers
}

// put puts a member on, or what is new about it. A lost member is back. A new one takes the place of the one
// that was lost first. So a rollout in which replicas do not announce that they leave is no partition.
func (r *roster) put(full string, m member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.entries[full]
	_, lost := r.lost[m.name]
	delete(r.lost, m.name)
	if !known && !lost && !r.replaces(m) {
		r.forgetOldest()
	}
	r.changes++
	r.entries[full] = entry{m, r.changes}
}

// replaces reports whether a member has the name or the address of another entry. Called with mu held.
func (r *roster) replaces(m member) bool {
	for _, o := range r.entries {
		if o.name == m.name || o.at == m.at {
			return true
		}
	}
	return false
}

// forgetOldest forgets the one that was lost first. Called with mu held.
func (r *roster) forgetOldest() {
	var first string
	for name, l := range r.lost {
		if o, ok := r.lost[first]; !ok || l.until.Before(o.until) {
			first = name
		}
	}
	delete(r.lost, first)
}

// remove takes a member off. It is lost, unless it has announced that it leaves, or is back under another word.
func (r *roster) remove(full string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.entries[full]
	if !ok {
		return
	}
	r.changes++
	delete(r.entries, full)
	if !e.leaving && len(r.lost) < mostMembers && !r.replaces(e.member) {
		r.lost[e.name] = loss{e.weight, now.Add(r.forget)}
	}
}

// view is what a roster amounts to at an instant.
type view struct {
	members []member  // by name
	lost    int       // the weights of those that have died, and are not forgotten
	until   time.Time // when the next of them is forgotten
}

// view returns the members, without those that leave, and forgets those that were lost long ago. If several members
// have one address, or one number, all but the last have been restarted since, although their death is not known yet.
func (r *roster) view(now time.Time) (v view) {
	r.mu.Lock()
	entries := slices.Collect(maps.Values(r.entries))
	for name, l := range r.lost {
		if !now.Before(l.until) {
			delete(r.lost, name)
			continue
		}
		if v.lost += l.weight; v.until.IsZero() || l.until.Before(v.until) {
			v.until = l.until
		}
	}
	r.mu.Unlock()
	slices.SortFunc(entries, r.newer)
	addresses, ids := make(map[netip.AddrPort]bool, len(entries)), make(map[uint64]bool, len(entries))
	for _, e := range entries {
		if e.leaving || addresses[e.at] || e.id != 0 && ids[e.id] {
			continue
		}
		addresses[e.at], ids[e.id] = true, true
		v.members = append(v.members, e.member)
	}
	slices.SortFunc(v.members, func(a, b member) int { // by name, and those of one name by number
		return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.id, b.id))
	})
	return v
}

// newer orders entries by when they came, the last one first. This replica stands before all others,
// whatever they take its address for.
func (r *roster) newer(a, b entry) int {
	if own := a.id == r.id; own != (b.id == r.id) && own {
		return -1
	} else if own != (b.id == r.id) {
		return 1
	}
	return b.n - a.n
}

// any returns the address of any other member, by a random number below n.
func (r *roster) any(random func(n int) int) (at netip.AddrPort, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := len(r.entries) - 1
	if left < 1 {
		return at, false
	}
	left = random(left)
	for _, e := range r.entries {
		if e.id == r.id {
			continue
		}
		if left--; left < 0 {
			return e.at, true
		}
	}
	return at, false
}

func (r *roster) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changes
}

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

// rival returns another member of this replica's name, one whose start is over before any other.
func (v view) rival(name string, id uint64) (rival member, ok bool) {
	for _, m := range v.members {
		if m.name == name && m.id != id && (!ok || m.settled && !rival.settled) {
			rival, ok = m, true
		}
	}
	return rival, ok
}

// yields reports whether a replica with that number, while it starts, must leave to another one of its name.
// One whose start is over goes on. If both are starting, the one with the smaller number goes on, once both
// must have known that for long enough.
func (m member) yields(rival member, known time.Duration) bool {
	return rival.settled || rival.id < m.id || known < contest
}

func (v view) weight() (w int) {
	for _, m := range v.members {
		w += m.weight
	}
	return w
}

// cut reports whether it must be this part of the fleet that was cut off from the rest: the living are
// no more than the lost.
func (v view) cut() bool { return v.lost >= v.weight() }

// pool returns what a replica reports: each member counts by its weight. In a part of the fleet that is cut off the
// lost count too, and there is no ordinal. It reports false while the replica is not among the members.
func (v view) pool(name string, id uint64) (p quotient.Pool, ok bool) {
	for _, m := range v.members {
		if m.name == name && m.id == id {
			p.Ordinal, ok = p.Replicas+1, true
			if m.weight > 1 {
				p.Weight = m.weight
			}
		}
		p.Replicas += m.weight
	}
	if v.cut() {
		p.Replicas, p.Ordinal = p.Replicas+v.lost, 0
	}
	if p.Replicas = min(p.Replicas, largestPool); p.Ordinal+max(1, p.Weight)-1 > p.Replicas {
		p.Ordinal = 0
	}
	return p, ok
}
