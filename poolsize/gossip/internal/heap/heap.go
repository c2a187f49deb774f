// Package heap sums numbers over a fleet: every node learns, for every key, the sum of what all nodes
// say, and talks to at most three others.
//
// The members, sorted by name, form a binary heap: member i has the parent (i-1)/2 and the children 2i+1
// and 2i+2. At every tick a node sends each neighbour the sums of its own side of that edge: what it says
// itself plus what the other two neighbours reported last. A later value replaces an earlier one. So a lost
// packet costs time and never a number, and a side never counts the one that it is sent to.
//
// A packet carries a hash of its sender's member list, and counts only where that list is the same. When
// the list changes, all edges begin from nothing and are complete again about one diameter later.
//
// There are two kinds of key. A gauge is what a node says now; it goes with its node. A counter is a total
// that only grows; the last total of a dead node counts on as long as the counter lives.
//
// The package is pure: it has no clock, no socket and no goroutine. The time is an argument, as a duration
// since any moment of the caller's choice. It must not run backwards.
package heap

import (
	"cmp"
	"iter"
	"math"
	"math/bits"
	"time"
)

// Terms are the numbers that a node says about a key. None is below 0, and a packet with a negative number is refused:
// it would take away what others say. Sums stop at the end of int64 and do not wrap round.
type Terms [6]int64

func (t Terms) plus(o Terms) Terms {
	for i := range t {
		t[i] = add(t[i], o[i])
	}
	return t
}

// differs is a bit for each term that is not the same in both.
func (t Terms) differs(o Terms) uint8 {
	var mask uint8
	for i := range t {
		if t[i] != o[i] {
			mask |= 1 << i
		}
	}
	return mask
}

// add is a sum that stops at the ends of int64.
func add(a, b int64) int64 {
	sum := a + b
	if (sum > a) == (b > 0) {
		return sum
	}
	if b > 0 {
		return math.MaxInt64
	}
	return math.MinInt64
}

// Member is one node of the fleet.
type Member struct {
	Name string // its place in the heap: members are sorted by name
	ID   uint64 // another one after each start, drawn at random; never 0
}

// Never is the age of a sum that is not complete.
const Never time.Duration = math.MaxInt64

const (
	// MinPacketSize is the least PacketSize: a header and the longest record.
	MinPacketSize = 512
	// MaxKeyLength is the most bytes of a key, which has at least one.
	MaxKeyLength = 255
	mostKeys     = 1 << 16
)

// Options are the bounds of a Node. A zero field means its default. The caller has checked them.
type Options struct {
	PacketSize int           // most bytes of a packet: MinPacketSize to 65,000; default 1400
	MaxKeys    int           // most keys that are kept, of both kinds: 1 to 65536; default 1024
	MaxTotals  int           // most totals of single other members that are kept; default 8 x MaxKeys
	Expire     time.Duration // a counter untouched for so long is dropped; at least 1 s; default 10 min
}

// Node is one member's part of the heap: what it says, and what its neighbours reported. It is not safe for
// concurrent use.
type Node struct {
	self    Member
	opt     Options
	members []Member
	list    uint64 // the hash of members
	session uint64 // how often the edges began again
	seq     uint64 // no packet of an earlier session has a larger number
	edges   [3]edge
	now     time.Duration // the latest time seen

	table   map[name]*entry
	entries []*entry      // the same, in an order that does not depend on chance
	totals  int           // items of single members, over all entries
	limit   uint64        // keys with a larger hash are not kept here
	shown   uint64        // sums of keys with a larger hash are not complete here
	fleet   uint64        // the least limit that is known of any node
	full    time.Duration // when there was last hardly any room for keys
	sweepAt time.Duration

	count   counts
	rec     []byte   // the record being written
	packets [][]byte // the packets of one edge at one tick
}

// New returns a node that is alone. Self needs a name of 1 to 255 bytes and an ID other than 0. It starts no
// goroutine.
func New(self Member, o Options) *Node {
	o.PacketSize = cmp.Or(o.PacketSize, 1400)
	o.MaxKeys = cmp.Or(o.MaxKeys, 1024)
	o.MaxTotals = cmp.Or(o.MaxTotals, 8*o.MaxKeys)
	o.Expire = cmp.Or(o.Expire, 10*time.Minute)
	n := &Node{self: self, opt: o, table: map[name]*entry{}, limit: math.MaxUint64,
		shown: math.MaxUint64, fleet: math.MaxUint64}
	for i := range n.edges {
		n.edges[i].at = i
	}
	n.SetMembers(0, nil)
	return n
}

// Say sets what this node says about a gauge from now on. The zero Terms take it back, and a term below 0
// counts as 0. It reports whether the key is kept: one that is empty or longer than MaxKeyLength, or for
// which there is no room, needs another call later.
func (n *Node) Say(key string, t Terms) bool {
	for i := range t {
		t[i] = max(0, t[i])
	}
	k := name{gauge, key}
	if t == (Terms{}) && n.table[k] == nil {
		return true
	}
	en := n.insert(k, n.now)
	if en == nil {
		return false
	}
	mask := en.own.differs(t)
	en.own = t
	n.markAll(en, nil, mask)
	n.drop(en)
	return true
}

// Add adds v, which is positive, to this node's part of a counter. It reports whether the key is kept.
// Nothing is added when v is not positive, when the key is empty or longer than MaxKeyLength, or when there
// is no room for it. A counter that was dropped for want of room begins at zero once there is room again.
func (n *Node) Add(now time.Duration, key string, v int64) bool {
	n.tell(now)
	if v <= 0 {
		return false
	}
	en := n.insert(name{counter, key}, n.now)
	if en == nil {
		return false
	}
	n.touch(en, n.now)
	en.own[0] = add(en.own[0], v)
	n.markAll(en, nil, 1)
	return true
}

// Keys yields the gauges about which any node says something, as far as it is known here, in no order. Say
// may be called meanwhile.
func (n *Node) Keys() iter.Seq[string] {
	return func(yield func(string) bool) {
		for k, en := range n.table {
			if k.kind == gauge && en.named() && !yield(k.text) {
				return
			}
		}
	}
}

// Counters yields the counters that live, as far as it is known here, in no order.
func (n *Node) Counters() iter.Seq[string] {
	return func(yield func(string) bool) {
		for k, en := range n.table {
			if k.kind == counter && !n.expired(en, n.now) && !yield(k.text) {
				return
			}
		}
	}
}

// Sum returns what all nodes say about a gauge, this one included, and the age of the oldest part of it.
// The age is Never while the sum is not complete.
func (n *Node) Sum(now time.Duration, key string) (Terms, time.Duration) {
	n.tell(now)
	k := name{gauge, key}
	en := n.table[k]
	if en == nil {
		return Terms{}, n.ageOf(k)
	}
	return en.side(nil, n), n.age(en.hash)
}

// Total returns what all nodes together added to a counter, the dead ones included, and the age of the
// oldest part of it. The age is Never while the sum is not complete.
func (n *Node) Total(now time.Duration, key string) (int64, time.Duration) {
	n.tell(now)
	k := name{counter, key}
	en := n.table[k]
	if en == nil {
		return 0, n.ageOf(k)
	}
	if n.expired(en, n.now) {
		return 0, n.age(en.hash)
	}
	sum := en.side(nil, n)[0]
	for _, it := range en.others {
		if it.dead {
			sum = add(sum, it.total)
		}
	}
	return sum, n.age(en.hash)
}

// ageOf is age for a key that is not kept.
func (n *Node) ageOf(k name) time.Duration {
	if !k.valid() {
		return Never
	}
	return n.age(k.hash())
}

// tell notes the time. It never runs backwards.
func (n *Node) tell(now time.Duration) { n.now = max(n.now, now) }

// age is the age of the oldest part of a sum whose key has this hash.
func (n *Node) age(hash uint64) time.Duration {
	nodes, origin := n.side(nil)
	if nodes != len(n.members) || hash > n.fleet {
		return Never
	}
	return max(0, n.now-origin)
}

// side is how many nodes the sums count that are sent over an edge, and when the oldest part of them was
// true. Without an edge it mentions all sums known here.
func (n *Node) side(to *edge) (nodes int, origin time.Duration) {
	nodes, origin = 1, n.now
	for i := range n.edges {
		if e := &n.edges[i]; e != to && e.nodes > 0 {
			nodes += e.nodes
			origin = min(origin, e.origin)
		}
	}
	return nodes, origin
}

// counts are the packets since New that did not count.
type counts struct {
	malformed uint64 // they made no sense, or were of another version
	strange   uint64 // from or for a node that is no neighbour
	otherList uint64 // of a node with another member list
	late      uint64 // they came twice, too late or out of an earlier session
}

// Stats are a node's numbers at one moment.
type Stats struct {
	Diameter int           // edges between the two nodes that are farthest apart
	Age      time.Duration // of the oldest part of the sums; Never while they are not complete
	Keys     int           // gauges and counters that are kept
	Refused  uint64        // packets since New that did not count, but for those that came late or twice
}

// Stats returns the numbers of this node.
func (n *Node) Stats(now time.Duration) Stats {
	n.tell(now)
	return Stats{Diameter: Diameter(len(n.members)), Age: n.age(0), Keys: len(n.table),
		Refused: n.count.malformed + n.count.strange + n.count.otherList}
}

// Diameter is how many edges lie between the two nodes of a heap that are farthest apart.
func Diameter(nodes int) int {
	if nodes < 2 {
		return 0
	}
	depth := bits.Len(uint(nodes)) - 1
	if half := 1<<depth - 1 + 1<<(depth-1); nodes > half {
		return 2 * depth // both children of the root reach the last level
	}
	return 2*depth - 1
}
