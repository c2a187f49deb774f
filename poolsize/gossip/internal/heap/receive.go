package heap

import (
	"math"
	"time"
)

// Receive takes in a packet. It returns an error for one that makes no sense or is of another version. A packet that
// comes twice or too late, from a stranger or from a node with another member list is only counted.
func (n *Node) Receive(now time.Duration, packet []byte) error {
	n.tell(now)
	h, r, err := parse(packet)
	if err != nil {
		n.count.malformed++
		return err
	}
	e := n.edgeTo(h.from)
	if !n.counts(e, &h) {
		return nil
	}
	in := input{n: n, e: e, h: &h}
	if h.yours != 0 {
		in.transit, in.sure = e.transit(n.now, h.echo, h.held)
		if err := in.sections(&r); err != nil {
			n.count.malformed++
			return err
		}
		e.acked(h.echo, h.got)
	}
	e.note(h.seq, n.now)
	if h.yours != 0 {
		in.limit()
		in.state()
	}
	return nil
}

// counts reports whether a packet comes from a neighbour with the same list, for the first time and not too late.
func (n *Node) counts(e *edge, h *header) bool {
	switch {
	case h.to != n.self.ID || e == nil:
		n.count.strange++
		return false
	case h.list != n.list:
		n.count.otherList++
		return false
	case h.session > e.session:
		n.meet(e, h.session)
	}
	if h.session < e.session || h.yours != 0 && h.yours != n.session || e.seen(h.seq) {
		n.count.late++
		return false
	}
	return true
}

// meet notes the peer's session. A peer that began again has forgotten all that this node sent: the edge begins again.
func (n *Node) meet(e *edge, session uint64) {
	if e.session == 0 && e.top == 0 {
		e.session = session // nothing but signs of life was sent
		return
	}
	e.restart()
	e.session, e.limit = session, math.MaxUint64
	n.forgetEdge(e)
	n.weigh()
	n.refill(e)
	n.dropAll()
}

// input is a packet that counts.
type input struct {
	n       *Node
	e       *edge
	h       *header
	transit time.Duration // the longest that it can have been under way
	sure    bool          // transit is known
}

func (in *input) sections(r *reader) error {
	for {
		kind, content, ok := r.section()
		switch {
		case r.bad:
			return errShort
		case !ok:
			return nil
		case kind != records:
			continue
		}
		for s := (reader{p: content}); len(s.p) > 0; {
			c := s.record()
			if s.bad {
				return errRecord
			}
			in.record(&c)
		}
	}
}

func (in *input) record(c *record) {
	touched := in.n.now - in.transit - c.idle
	if c.kind == ofTotal {
		if c.idle < in.n.opt.Expire {
			in.total(c, touched)
		}
		return
	}
	s := in.slot(int(c.num))
	if c.text != nil && in.h.seq > s.seq {
		in.bind(s, c, touched)
	}
	en := s.entry
	if in.h.seq <= s.seq {
		return
	}
	if s.seq = in.h.seq; en == nil {
		return // a removal may come before what it removes
	}
	switch {
	case c.kind == ofRemoval:
		in.set(en, Terms{}, allTerms)
		s.entry, en.slot[in.e.at] = nil, 0
		in.n.drop(en)
	case c.kind == en.key.kind:
		if c.kind == counter {
			in.n.touch(en, touched)
		}
		in.set(en, c.terms, c.mask)
		if c.kind == counter {
			in.n.learn(en, in.e.peer.ID, c.own, in.e)
		}
	}
}

// slot returns what the peer's number stands for.
func (in *input) slot(num int) *slot {
	for len(in.e.slots) < num {
		in.e.slots = append(in.e.slots, slot{})
	}
	return &in.e.slots[num-1]
}

// bind makes a number stand for the key that a record names.
func (in *input) bind(s *slot, c *record, touched time.Duration) {
	e := in.e
	k := name{c.kind, string(c.text)}
	if s.entry != nil && s.entry.key == k {
		return
	}
	if old := s.entry; old != nil {
		in.set(old, Terms{}, allTerms)
		old.slot[e.at] = 0
		in.n.drop(old)
	}
	*s = slot{seq: in.h.seq - 1}
	en := in.n.insert(k, touched)
	if en == nil {
		return
	}
	if other := en.slot[e.at]; other != 0 { // the peer has given it another number
		e.slots[other-1].entry = nil
		in.set(en, Terms{}, allTerms)
	}
	s.entry, en.slot[e.at] = en, int(c.num)
}

// set replaces the terms of a mask of what the peer reports about a key.
func (in *input) set(en *entry, t Terms, mask uint8) {
	v := en.in[in.e.at]
	for i := range v {
		if mask>>i&1 == 1 {
			v[i] = t[i]
		}
	}
	if diff := v.differs(en.in[in.e.at]); diff != 0 {
		en.in[in.e.at] = v
		in.n.markAll(en, in.e, diff)
	}
}

// total takes in the total of a dead member.
func (in *input) total(c *record, touched time.Duration) {
	k := name{counter, string(c.text)}
	en := in.n.insert(k, touched)
	if en == nil {
		return
	}
	in.n.touch(en, touched)
	in.n.learn(en, c.id, c.total, in.e)
	in.n.drop(en)
}

// limit takes in which keys the peer's side does not keep. Sums of those are forgotten.
func (in *input) limit() {
	e := in.e
	if in.h.seq != e.top || in.h.limit == e.limit {
		return
	}
	lower := in.h.limit < e.limit
	e.limit = in.h.limit
	for i := range e.slots {
		if en := e.slots[i].entry; lower && en != nil && en.hash > e.limit {
			in.set(en, Terms{}, allTerms)
			e.slots[i].entry = nil
			en.slot[e.at] = 0
			in.n.drop(en)
		}
	}
	in.n.weigh()
}

// state takes in how many nodes the peer's sums count, and how old their oldest part is. It does so when
// all packets of the tick have come; else by what the peer knows to have arrived before. Fewer nodes count
// at once, since their numbers are out of the sums that have come.
func (in *input) state() {
	h, e := in.h, in.e
	first := h.seq - uint64(h.part)
	if first > e.whole && h.nodes < e.nodes {
		e.nodes, e.drop = h.nodes, max(e.drop, first)
	}
	nodes, age := h.nodes, h.age
	switch {
	case !in.sure:
		return
	case h.parts > 0 && first > e.whole && first >= e.drop && e.hasAll(first, h.parts):
		e.whole = first
	case h.flags&hasHeld != 0 && h.seq == e.top && h.heldNodes >= e.nodes:
		nodes, age = h.heldNodes, h.heldAge
	default:
		return
	}
	origin := in.n.now - in.transit - age
	if nodes = min(nodes, len(in.n.members)); nodes != e.nodes || origin > e.origin {
		e.nodes, e.origin = nodes, origin
	}
}
