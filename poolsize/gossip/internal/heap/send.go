package heap

import (
	"cmp"
	"encoding/binary"
	"math"
	"time"
)

// Tick sends each neighbour what it does not have yet, or a sign of life. It must be called once in every
// interval. Send must not keep the packet, nor call the node.
func (n *Node) Tick(now time.Duration, send func(to Member, packet []byte)) {
	n.tell(now)
	n.sweep()
	n.raise()
	for i := range n.edges {
		if e := &n.edges[i]; e.peer.ID != 0 {
			for _, p := range n.write(e) {
				send(e.peer, p)
			}
		}
	}
}

// write returns the packets of one tick for one edge. They are valid until the next call.
func (n *Node) write(e *edge) [][]byte {
	e.tick++
	nodes, origin := n.side(e)
	if nodes < e.counted {
		e.fell = e.tick
	}
	e.counted = nodes
	e.marks[e.tick%window] = mark{e.tick, nodes, origin}
	w := writer{n: n, e: e, h: n.header(e, nodes, origin)}
	w.open()
	if e.session != 0 {
		w.queue()
	} else {
		w.tidy()
	}
	w.close()
	parts := byte(len(w.packets))
	if w.more {
		parts = 0
	}
	for _, p := range w.packets {
		p[partsAt] = parts
	}
	n.packets, e.parts = w.packets, int(parts)
	return w.packets
}

// header is what all packets of a tick say alike.
func (n *Node) header(e *edge, nodes int, origin time.Duration) header {
	h := header{
		from: n.self.ID, to: e.peer.ID, list: n.list, session: n.session, yours: e.session,
		echo: e.top, got: e.got, nodes: nodes, age: n.now - origin, limit: n.shown,
	}
	if e.top != 0 {
		h.held = n.now - e.topAt
	}
	for i := range n.edges {
		if f := &n.edges[i]; f != e && f.peer.ID != 0 {
			h.limit = min(h.limit, f.limit)
		}
	}
	if h.limit != math.MaxUint64 {
		h.flags |= hasLimit
	}
	if e.parts == 1 || len(e.queue) == 0 {
		return h // a packet that arrives is all that there is to know
	}
	tick := e.lag()
	if m := e.marks[tick%window]; m.tick == tick && tick >= e.fell && m.nodes > 0 {
		h.flags |= hasHeld
		h.heldNodes, h.heldAge = m.nodes, n.now-m.origin
	}
	return h
}

// writer fills the packets of one tick for one edge.
type writer struct {
	n       *Node
	e       *edge
	h       header
	packets [][]byte
	start   int // where the section of records begins in the last packet; 0 for none
	items   []*item
	more    bool // not all fitted
}

// open begins the next packet.
func (w *writer) open() {
	w.e.seq++
	w.h.seq = w.e.seq
	w.h.part = len(w.packets)
	var p []byte
	if len(w.packets) < len(w.n.packets) {
		p = w.n.packets[len(w.packets)][:0]
	}
	w.packets = append(w.n.packets[:len(w.packets)], w.h.append(p))
	w.n.packets = w.packets[:cap(w.packets)]
	w.start = 0
	w.items = nil
}

// close ends the last packet.
func (w *writer) close() {
	p := w.packets[len(w.packets)-1]
	if w.start > 0 {
		binary.LittleEndian.PutUint16(p[w.start-2:], uint16(len(p)-w.start))
	}
	w.e.sent(flight{seq: w.e.seq, tick: w.e.tick, at: w.n.now, items: w.items})
}

// put adds a record for an item, and reports whether there was room for it.
func (w *writer) put(it *item, rec []byte) bool {
	last := len(w.packets) - 1
	if len(w.packets[last])+sectionHed+len(rec) > w.n.opt.PacketSize {
		if len(w.packets) == mostParts {
			return false
		}
		w.close()
		w.open()
		last++
	}
	p := w.packets[last]
	if w.start == 0 {
		p = append(p, records, 0, 0)
		w.start = len(p)
		w.items = w.e.list()
	}
	w.packets[last] = append(p, rec...)
	w.items = append(w.items, it)
	o := &it.out[w.e.at]
	o.first = cmp.Or(o.first, w.e.seq)
	o.last, o.fresh = [2]uint64{w.e.seq, o.last[0]}, [2]uint8{0, o.fresh[0]}
	return true
}

// queue writes what the peer may lack, and takes out of the queue what it has.
func (w *writer) queue() {
	q := w.e.queue
	kept := q[:0]
	for i, it := range q {
		rec := w.record(it)
		if rec == nil {
			continue
		}
		if !w.put(it, rec) {
			w.more = true
			sent := len(kept)
			kept = append(kept, q[i:]...)
			clear(q[len(kept):])
			w.e.queue = kept
			w.e.rotate(sent)
			return
		}
		kept = append(kept, it)
	}
	clear(q[len(kept):])
	w.e.queue = kept
}

// tidy takes out of the queue what is of no use to a peer that has not answered yet.
func (w *writer) tidy() {
	q := w.e.queue
	kept := q[:0]
	for _, it := range q {
		if it.gone || it.id == 0 && it.entry.side(w.e, w.n) == (Terms{}) {
			w.settle(it)
		} else {
			kept = append(kept, it)
		}
	}
	clear(q[len(kept):])
	w.e.queue = kept
}

// record writes an item's record; nil when there is nothing to send.
func (w *writer) record(it *item) []byte {
	en, o := it.entry, &it.out[w.e.at]
	var c record
	var text string
	ok := o.since != 0 && !it.gone
	switch {
	case !ok:
	case it.id != 0:
		c, text, ok = record{kind: ofTotal, id: it.id, total: it.total}, en.key.text, it.dead && en.hash <= w.n.fleet
	default:
		c, text, ok = w.values(en)
	}
	if !ok {
		w.settle(it)
		return nil
	}
	if en.key.kind == counter {
		c.idle = w.n.now - en.touched
	}
	w.n.rec = c.append(w.n.rec[:0], text)
	return w.n.rec
}

// values is the record of a key's sums, and the key where the peer may not know its number. It reports false when
// there is nothing to send: of a key for which some node has no room, only the removal is of use.
func (w *writer) values(en *entry) (c record, text string, ok bool) {
	o := &en.out[w.e.at]
	c.terms = en.side(w.e, w.n)
	if c.terms == (Terms{}) {
		if o.num != 0 {
			o.named, o.removed = false, true
		}
		return record{kind: ofRemoval, num: uint64(o.num)}, "", o.num != 0
	}
	if en.hash > w.n.fleet {
		return c, "", false
	}
	if o.num == 0 {
		o.num = w.e.number()
	}
	c.kind, c.num, c.mask, c.own = en.key.kind, uint64(o.num), o.mask, en.own[0]
	if !o.named {
		text = en.key.text
		c.mask |= c.terms.differs(Terms{})
	}
	return c, text, true
}

// settle takes an item out of the queue. A number whose removal has arrived is free again.
func (w *writer) settle(it *item) {
	o := &it.out[w.e.at]
	clean := o.since == 0
	o.queued, o.since, o.first = false, 0, 0
	if it.gone || it.id != 0 {
		return
	}
	switch {
	case !clean || o.num == 0:
	case it.entry.side(w.e, w.n) != (Terms{}):
		o.named, o.removed = true, false
	case o.removed:
		w.e.free = append(w.e.free, o.num)
		*o = out{}
	}
	w.n.drop(it.entry)
}
