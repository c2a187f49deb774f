package heap

import (
	"math"
	"time"
)

// Kinds of key.
const (
	gauge   = 0
	counter = 1
)

// name is a key: a gauge and a counter with the same text are two.
type name struct {
	kind uint8
	text string
}

// hash is the same number on every node. It decides which keys stay when there are too many.
func (k name) hash() uint64 {
	h := uint64(fnvOffset)
	h = (h ^ uint64(k.kind)) * fnvPrime
	h = fnv(h, k.text)
	h ^= h >> 32
	h *= 0x9e3779b97f4a7c15
	return h ^ h>>29
}

// valid reports whether a key can be sent.
func (k name) valid() bool { return k.text != "" && len(k.text) <= MaxKeyLength }

// Constants of FNV-1a with 64 bits.
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

func fnv(h uint64, s string) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * fnvPrime
	}
	return h
}

// entry is what is known about one key.
type entry struct {
	item
	key     name
	index   int // in entries
	hash    uint64
	own     Terms    // what this node says; a counter uses the first term
	in      [3]Terms // what each neighbour reported of its side
	slot    [3]int   // the number by which each neighbour calls it, plus one; 0 for none
	others  []*item  // totals of single other members, of a counter
	touched time.Duration
}

// item is what is sent over edges: the sums of a key, or the total of one dead member.
type item struct {
	entry *entry
	id    uint64 // whose total it is; 0 in the item of the key itself
	total int64
	dead  bool // no member has the ID
	gone  bool // no longer kept
	out   [3]out
}

// out is how far an item has come over one edge.
type out struct {
	num     int       // the number by which this node calls the key, plus one; 0 for none
	first   uint64    // the first packet with the present value; 0 before there is one
	last    [2]uint64 // the last packets that had it, with whatever value; the latest comes first
	since   uint64    // the tick since which the peer may lack something; 0 when it has all
	mask    uint8     // terms that may differ from what the peer has
	fresh   [2]uint8  // terms that changed since each of them
	queued  bool
	named   bool // the peer knows the number; of a total: the peer has it
	removed bool // the peer may have been asked to forget the number
}

// named reports whether any node has an entry for the key.
func (en *entry) named() bool {
	return en.own != (Terms{}) || en.in[0] != (Terms{}) || en.in[1] != (Terms{}) || en.in[2] != (Terms{})
}

// side is the sum that is sent over an edge; without an edge the sum of all sides.
func (en *entry) side(to *edge, n *Node) Terms {
	sum := en.own
	for i := range n.edges {
		if e := &n.edges[i]; e != to && e.peer.ID != 0 && en.in[i] != (Terms{}) {
			sum = sum.plus(en.in[i])
		}
	}
	return sum
}

// expired reports whether the key is a counter to which nothing was added for too long.
func (n *Node) expired(en *entry, now time.Duration) bool {
	return en.key.kind == counter && now-en.touched >= n.opt.Expire
}

// touch notes that a counter was added to at a time. A counter that has expired meanwhile begins at zero.
func (n *Node) touch(en *entry, at time.Duration) {
	if at > en.touched {
		if n.expired(en, n.now) {
			n.expire(en)
		}
		en.touched = at
	}
}

// expire forgets what is known of a counter but for what the neighbours still report.
func (n *Node) expire(en *entry) {
	if en.own[0] != 0 {
		en.own[0] = 0
		n.markAll(en, nil, 1)
	}
	n.forgetOthers(en)
}

// forgetOthers drops the totals of single other members.
func (n *Node) forgetOthers(en *entry) {
	for _, it := range en.others {
		it.gone = true
	}
	n.totals -= len(en.others)
	en.others = nil
}

// sweep expires counters and drops what is no longer needed.
func (n *Node) sweep() {
	if n.now < n.sweepAt {
		return
	}
	n.sweepAt = n.now + n.opt.Expire/8
	for i := len(n.entries) - 1; i >= 0; i-- {
		en := n.entries[i]
		if n.expired(en, n.now) {
			n.expire(en)
		}
		n.drop(en)
	}
}

// drop takes an entry out of the table when nothing is left to send, to receive or to remember of it.
func (n *Node) drop(en *entry) {
	lives := en.key.kind == counter && !n.expired(en, n.now)
	if en.gone || lives || len(en.others) > 0 || en.named() {
		return
	}
	for i := range en.out {
		if o := en.out[i]; o.num != 0 || o.queued || en.slot[i] != 0 {
			return
		}
	}
	n.remove(en)
}

// dropAll drops all that only an edge needed that has begun again.
func (n *Node) dropAll() {
	for i := len(n.entries) - 1; i >= 0; i-- {
		n.drop(n.entries[i])
	}
}

func (n *Node) remove(en *entry) {
	en.gone = true
	n.forgetOthers(en)
	delete(n.table, en.key)
	last := n.entries[len(n.entries)-1]
	n.entries[en.index], last.index = last, en.index
	n.entries[len(n.entries)-1] = nil
	n.entries = n.entries[:len(n.entries)-1]
}

// insert returns the entry of a key, a new one where there was none; nil when there is no room for it.
func (n *Node) insert(k name, touched time.Duration) *entry {
	if en := n.table[k]; en != nil {
		return en
	}
	hash := k.hash()
	if !k.valid() || !n.room(hash) {
		return nil
	}
	en := &entry{key: k, hash: hash, touched: touched}
	en.entry = en
	n.table[k] = en
	en.index = len(n.entries)
	n.entries = append(n.entries, en)
	return en
}

// room makes room for a key with this hash, and reports whether there is some. Every node prefers the
// smallest hashes, so that all keep the same keys.
func (n *Node) room(hash uint64) bool {
	if hash > n.limit {
		return false
	}
	if len(n.table) < n.opt.MaxKeys {
		return true
	}
	last := n.last()
	if last == nil || last.hash < hash {
		n.lower(hash - 1)
		return false
	}
	n.evict(last)
	return true
}

func (n *Node) last() *entry {
	var last *entry
	for _, en := range n.entries {
		if last == nil || en.hash > last.hash {
			last = en
		}
	}
	return last
}

// evict forgets a key for want of room. From now on no sum of a key with such a hash is complete.
func (n *Node) evict(en *entry) {
	for i := range n.edges {
		e := &n.edges[i]
		e.forget(en)
		if o := &en.out[i]; o.num != 0 {
			e.free = append(e.free, o.num)
		}
		en.out[i] = out{}
	}
	n.remove(en)
	n.lower(en.hash - 1)
}

// lower notes that keys with a larger hash found no room.
func (n *Node) lower(limit uint64) {
	n.full = n.now
	n.limit = min(n.limit, limit)
	n.shown = min(n.shown, n.limit)
	n.weigh()
}

// raise tries all keys again after a time with room to spare: first those that are used here, then those of others.
func (n *Node) raise() {
	if len(n.table) > n.opt.MaxKeys*3/4 {
		n.full = n.now
	}
	if n.shown == math.MaxUint64 || n.now-n.full < min(n.opt.Expire, time.Minute) {
		return
	}
	if n.limit != math.MaxUint64 {
		n.limit, n.full = math.MaxUint64, n.now
		return
	}
	n.shown = math.MaxUint64
	n.renew()
}

// weigh finds the least limit of all nodes. When it has risen, the keys in between are sent again, with
// their text, since others have forgotten them.
func (n *Node) weigh() {
	old := n.fleet
	n.fleet = n.shown
	for i := range n.edges {
		if e := &n.edges[i]; e.peer.ID != 0 {
			n.fleet = min(n.fleet, e.limit)
		}
	}
	if n.fleet <= old {
		return
	}
	for _, en := range n.entries {
		if en.hash > old {
			for i := range en.out {
				en.out[i].named, en.out[i].removed = false, true
			}
			n.markAll(en, nil, allTerms)
			for _, it := range en.others {
				n.markItem(it, nil)
			}
		}
	}
}

// allTerms is the mask of all terms.
const allTerms = 1<<len(Terms{}) - 1

// markAll puts an entry into the queues of all edges but one, for the terms of a mask.
func (n *Node) markAll(en *entry, not *edge, mask uint8) {
	if mask != 0 {
		n.queue(&en.item, not, mask)
	}
}

// markItem puts the total of a dead member into the queues of all edges but one.
func (n *Node) markItem(it *item, not *edge) {
	if it.dead {
		n.queue(it, not, 1)
	}
}

func (n *Node) queue(it *item, not *edge, mask uint8) {
	for i := range n.edges {
		if e := &n.edges[i]; e != not && e.peer.ID != 0 {
			e.mark(it, mask)
		}
	}
}

// learn notes the total of another member. A value from the member itself is right in any case; among those
// that others remember the largest counts.
func (n *Node) learn(en *entry, id uint64, total int64, from *edge) {
	itself := id == from.peer.ID
	for _, it := range en.others {
		if it.id == id {
			if itself || total > it.total {
				changed := it.total != total
				it.total = total
				if changed {
					n.markItem(it, from)
				}
			}
			return
		}
	}
	if id == n.self.ID || total <= 0 || !n.roomForTotal() || en.gone {
		return
	}
	it := &item{entry: en, id: id, total: total, dead: !itself && !n.isMember(id)}
	en.others = append(en.others, it)
	n.totals++
	n.markItem(it, from)
}

// roomForTotal makes room for the total of a member, and reports whether there is some. Totals of members
// that live and are no neighbours go first; then the key with the largest hash goes.
func (n *Node) roomForTotal() bool {
	if n.totals < n.opt.MaxTotals {
		return true
	}
	for _, en := range n.entries {
		kept := en.others[:0]
		for _, it := range en.others {
			if it.gone = !it.dead && n.edgeTo(it.id) == nil; !it.gone {
				kept = append(kept, it)
			}
		}
		n.totals -= len(en.others) - len(kept)
		clear(en.others[len(kept):])
		en.others = kept
	}
	for n.totals >= n.opt.MaxTotals {
		last := n.last()
		if last == nil {
			return false
		}
		n.evict(last)
	}
	return true
}
