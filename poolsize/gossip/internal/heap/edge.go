package heap

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"
)

// window is how many packets back an acknowledgement reaches.
const window = 64

// mostParts is the most packets that one tick sends over one edge. The rest waits for the next tick.
const mostParts = 16

// edge joins this node to one neighbour.
type edge struct {
	at      int    // 0: the parent; 1 and 2: the children
	peer    Member // none when the ID is 0
	session uint64 // the peer's, as far as known; 0 before

	// Traffic sent.
	seq     uint64 // of the last packet sent
	tick    uint64
	queue   []*item
	flights [window]flight
	marks   [window]mark
	spare   [][]*item
	free    []int  // numbers that are free again
	last    int    // the largest number ever given
	parts   int    // packets of the last tick
	counted int    // nodes of the last tick
	fell    uint64 // the last tick that counted fewer nodes than the one before

	// Traffic received.
	top    uint64 // the largest number of a packet; 0 before the first
	got    uint64 // bit i: the packet top-1-i has come too
	topAt  time.Duration
	slots  []slot
	nodes  int           // how many nodes the peer's sums count; 0 while unknown
	origin time.Duration // when the oldest part of them was true
	whole  uint64        // the first packet of the last tick that came whole
	drop   uint64        // the first packet of the last tick that counted fewer nodes
	limit  uint64        // the least limit on the peer's side
}

// flight is a packet that was sent.
type flight struct {
	seq   uint64
	tick  uint64
	at    time.Duration
	items []*item // that it carries; nil once it is acknowledged
	done  bool
}

// mark is what a node's sums counted at one tick.
type mark struct {
	tick   uint64
	nodes  int
	origin time.Duration
}

// slot is what a number of the peer's stands for.
type slot struct {
	entry *entry // nil when it stands for nothing that is kept here
	seq   uint64 // the packet of the value
}

// begin readies an edge for a new session with a peer. Seq is the last packet number that was used before.
func (e *edge) begin(peer Member, seq uint64) {
	e.peer, e.session, e.seq, e.limit = peer, 0, seq, math.MaxUint64
	e.restart()
}

// restart forgets all that was sent and received, but not the numbers of packets.
func (e *edge) restart() {
	for i := range e.flights {
		e.flights[i] = flight{}
	}
	e.marks = [window]mark{}
	e.tick, e.last, e.parts, e.counted, e.fell, e.drop = 0, 0, 0, 0, 0, 0
	e.queue, e.free, e.spare, e.slots = nil, nil, nil, nil
	e.top, e.got, e.topAt, e.nodes, e.origin, e.whole = 0, 0, 0, 0, 0, 0
}

func (e *edge) mark(it *item, mask uint8) {
	o := &it.out[e.at]
	o.mask |= mask
	o.fresh[0] |= mask
	o.fresh[1] |= mask
	o.first = 0
	o.since = cmp.Or(o.since, e.tick+1)
	if !o.queued {
		o.queued = true
		e.queue = append(e.queue, it)
	}
}

// number is one that stands for no key: one that is free again, or the next.
func (e *edge) number() int {
	if k := len(e.free); k > 0 {
		num := e.free[k-1]
		e.free = e.free[:k-1]
		return num
	}
	e.last++
	return e.last
}

// seen reports whether a packet has come before, or is too old to know.
func (e *edge) seen(seq uint64) bool {
	switch {
	case seq > e.top:
		return false
	case seq == e.top || e.top-seq > window:
		return true
	}
	return e.got>>(e.top-seq-1)&1 == 1
}

func (e *edge) note(seq uint64, now time.Duration) {
	if seq <= e.top {
		e.got |= 1 << (e.top - seq - 1)
		return
	}
	if shift := seq - e.top; e.top == 0 || shift > window {
		e.got = 0
	} else {
		e.got = e.got<<shift | 1<<(shift-1)
	}
	e.top, e.topAt = seq, now
}

// hasAll reports whether packets of consecutive numbers have all come.
func (e *edge) hasAll(first uint64, parts int) bool {
	for i := range uint64(parts) {
		if seq := first + i; seq > e.top || e.top-seq > window || !e.seen(seq) {
			return false
		}
	}
	return true
}

// sent remembers a packet, so that its acknowledgement can be understood.
func (e *edge) sent(f flight) {
	old := &e.flights[f.seq%window]
	if cap(old.items) > 0 {
		e.spare = append(e.spare, old.items[:0])
	}
	*old = f
}

func (e *edge) list() []*item {
	if k := len(e.spare); k > 0 {
		list := e.spare[k-1]
		e.spare = e.spare[:k-1]
		return list
	}
	return nil
}

// transit is the longest that a packet can have been under way, by the packet of ours that it names. It
// reports false when nothing is known.
func (e *edge) transit(now time.Duration, echo uint64, held time.Duration) (time.Duration, bool) {
	f := e.flights[echo%window]
	if echo == 0 || f.seq != echo {
		return 0, false
	}
	return max(0, now-f.at-held), true
}

// acked handles what the peer says of packets that it has: echo, and bit i for echo-1-i.
func (e *edge) acked(echo, got uint64) {
	if echo == 0 || echo > e.seq {
		return
	}
	e.done(echo)
	for got != 0 {
		i := uint64(bits.TrailingZeros64(got))
		got &= got - 1
		if i+1 < echo {
			e.done(echo - 1 - i)
		}
	}
}

// done handles one packet that has arrived.
func (e *edge) done(seq uint64) {
	f := &e.flights[seq%window]
	if f.seq != seq || f.done {
		return
	}
	f.done = true
	for _, it := range f.items {
		o := &it.out[e.at]
		switch {
		case it.gone || o.since == 0: // it is no longer sent, or a later packet was acknowledged before
		case o.first != 0 && o.first <= seq:
			o.since, o.mask, o.named = 0, 0, !o.removed
		default: // it has changed since
			o.since = max(o.since, f.tick+1)
			if i := slices.Index(o.last[:], seq); i >= 0 {
				o.mask &= o.fresh[i]
			}
			o.named = o.named || !o.removed
		}
	}
	clear(f.items)
	if cap(f.items) > 0 {
		e.spare = append(e.spare, f.items[:0])
	}
	f.items = nil
}

// forget takes an entry out of the peer's numbers.
func (e *edge) forget(en *entry) {
	en.in[e.at] = Terms{}
	if k := en.slot[e.at]; k != 0 {
		e.slots[k-1].entry = nil
		en.slot[e.at] = 0
	}
}

// lag is the last tick of which the peer certainly has everything.
func (e *edge) lag() uint64 {
	tick := e.tick
	for _, it := range e.queue {
		if since := it.out[e.at].since; since != 0 && !it.gone {
			tick = min(tick, since-1)
		}
	}
	return tick
}

// rotate moves the first k items of the queue behind the others.
func (e *edge) rotate(k int) {
	slices.Reverse(e.queue[:k])
	slices.Reverse(e.queue[k:])
	slices.Reverse(e.queue)
}

// edgeTo returns the edge to a member; nil when it is no neighbour.
func (n *Node) edgeTo(id uint64) *edge {
	for i := range n.edges {
		if e := &n.edges[i]; e.peer.ID == id && id != 0 {
			return e
		}
	}
	return nil
}

func (n *Node) isMember(id uint64) bool {
	return slices.ContainsFunc(n.members, func(m Member) bool { return m.ID == id })
}

// SetMembers replaces the list of nodes that live, this one included. The order does not matter. When two
// have the same name, the one with the larger ID counts. The node keeps ms, which must not change any more.
//
// Another list than before begins all edges again, from nothing.
func (n *Node) SetMembers(now time.Duration, ms []Member) {
	n.tell(now)
	ms = n.normal(ms)
	hash := hashOf(ms)
	if n.session > 0 && hash == n.list && slices.Equal(ms, n.members) {
		return
	}
	n.members, n.list = ms, hash
	living := make(map[uint64]bool, len(ms))
	for _, m := range ms {
		living[m.ID] = true
	}
	for _, en := range n.entries {
		for _, it := range en.others {
			it.dead = !living[it.id]
		}
	}
	n.renew()
}

// normal returns the members sorted by name, each name once, with this node in it.
func (n *Node) normal(ms []Member) []Member {
	order := func(a, b Member) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(b.ID, a.ID)) }
	clean := slices.IsSortedFunc(ms, order) && slices.Contains(ms, n.self)
	for i, m := range ms {
		clean = clean && m.ID != 0 && (i == 0 || ms[i-1].Name != m.Name)
	}
	if clean {
		return ms
	}
	out := make([]Member, 0, len(ms)+1)
	for _, m := range ms {
		if m.ID != 0 && m.ID != n.self.ID && m.Name != n.self.Name {
			out = append(out, m)
		}
	}
	out = append(out, n.self)
	slices.SortFunc(out, order)
	return slices.CompactFunc(out, func(a, b Member) bool { return a.Name == b.Name })
}

// hashOf is the same number for the same list.
func hashOf(ms []Member) uint64 {
	h := uint64(fnvOffset)
	for _, m := range ms {
		h = (fnv(h, m.Name) ^ 0xff) * fnvPrime
		for i := range 8 {
			h = (h ^ m.ID>>(8*i)&0xff) * fnvPrime
		}
	}
	return h
}

// renew begins all edges again: nothing that was received counts any more, and everything is sent again.
func (n *Node) renew() {
	n.session++
	for i := range n.edges {
		n.seq = max(n.seq, n.edges[i].seq)
	}
	self := n.index()
	places := [3]int{(self - 1) / 2, 2*self + 1, 2*self + 2}
	for i := range n.edges {
		var peer Member
		if p := places[i]; p < len(n.members) && p != self && (i > 0 || self > 0) {
			peer = n.members[p]
		}
		n.edges[i].begin(peer, n.seq)
		n.forgetEdge(&n.edges[i])
	}
	n.weigh()
	for i := range n.edges {
		n.refill(&n.edges[i])
	}
	n.dropAll()
}

// forgetEdge clears what entries know of an edge.
func (n *Node) forgetEdge(e *edge) {
	for _, en := range n.entries {
		if en.in[e.at] != (Terms{}) {
			n.markAll(en, e, en.in[e.at].differs(Terms{}))
		}
		en.in[e.at], en.slot[e.at], en.out[e.at] = Terms{}, 0, out{}
		for _, it := range en.others {
			it.out[e.at] = out{}
		}
	}
}

// refill queues all that is to be sent over an edge and is not queued.
func (n *Node) refill(e *edge) {
	if e.peer.ID == 0 {
		return
	}
	for _, en := range n.entries {
		if o := en.out[e.at]; !o.queued && o.num == 0 && en.side(e, n) != (Terms{}) {
			e.mark(&en.item, 0)
		}
		for _, it := range en.others {
			if o := it.out[e.at]; it.dead && !o.queued && !o.named {
				e.mark(it, 1)
			}
		}
	}
}

func (n *Node) index() int { return slices.Index(n.members, n.self) }
