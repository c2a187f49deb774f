package heap

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// A packet is a header and sections. The first byte's upper half is the version; a reader refuses another
// one. A later release of the same version adds sections of other kinds, which a reader skips.
//
//	 0     version
//	 1     flags
//	 2-9   the sender's ID, little endian as all that follows
//	10-17  the receiver's ID
//	18-25  the hash of the sender's member list
//	26     the number of this packet among those of its tick, from 0
//	27     how many packets the tick has; 0 when more was to be said than fits
//
// Then come varints:
//
//	the sender's session
//	the session of the receiver for which this was made; 0 while unknown
//	the number of the packet
//	the echo: the largest number that came from the receiver
//	bits of the 64 numbers before the echo: 0 for each that came
//	for how many milliseconds the sender had the echo
//	how many nodes the sums count
//	their age in milliseconds
//
// Then comes what the flags promise. A section is a byte for its kind, two bytes for its length and its content.
const (
	version    = 1
	hasLimit   = 1 << 0 // 8 bytes: keys with a larger hash are not complete
	hasHeld    = 1 << 1 // varints: how many nodes and what age the state has that the receiver surely holds
	partAt     = 26
	partsAt    = 27
	fixedSize  = 28
	sectionHed = 3
	records    = 1 // the kind of section that holds records
)

var (
	errShort   = errors.New("heap: the packet ends too early")
	errVersion = errors.New("heap: the packet is of another version")
	errRecord  = errors.New("heap: a record makes no sense")
)

// header is what a packet says of itself and of its sender.
type header struct {
	flags          uint8
	from, to, list uint64
	part, parts    int
	session, yours uint64
	seq, echo, got uint64
	held           time.Duration
	nodes          int
	age            time.Duration
	limit          uint64
	heldNodes      int
	heldAge        time.Duration
}

func (h *header) append(p []byte) []byte {
	p = append(p, version<<4, h.flags)
	p = binary.LittleEndian.AppendUint64(p, h.from)
	p = binary.LittleEndian.AppendUint64(p, h.to)
	p = binary.LittleEndian.AppendUint64(p, h.list)
	p = append(p, byte(h.part), byte(h.parts))
	p = binary.AppendUvarint(p, h.session)
	p = binary.AppendUvarint(p, h.yours)
	p = binary.AppendUvarint(p, h.seq)
	p = binary.AppendUvarint(p, h.echo)
	p = binary.AppendUvarint(p, ^h.got)
	p = binary.AppendUvarint(p, uint64(h.held/time.Millisecond))
	p = binary.AppendUvarint(p, uint64(h.nodes))
	p = binary.AppendUvarint(p, millis(h.age))
	if h.flags&hasLimit != 0 {
		p = binary.LittleEndian.AppendUint64(p, h.limit)
	}
	if h.flags&hasHeld != 0 {
		p = binary.AppendUvarint(p, uint64(h.heldNodes))
		p = binary.AppendUvarint(p, millis(h.heldAge))
	}
	return p
}

// millis is a duration in milliseconds, rounded up.
func millis(d time.Duration) uint64 {
	return uint64((max(0, d) + time.Millisecond - 1) / time.Millisecond)
}

// reader takes a packet apart. After the first failure all that it returns is zero.
type reader struct {
	p   []byte
	bad bool
}

func (r *reader) bytes(k uint64) []byte {
	if r.bad || k > uint64(len(r.p)) {
		r.bad = true
		return nil
	}
	b := r.p[:k]
	r.p = r.p[k:]
	return b
}

func (r *reader) byte() uint8 {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) fixed() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	v, k := binary.Uvarint(r.p)
	if r.bad || k <= 0 {
		r.bad = true
		return 0
	}
	r.p = r.p[k:]
	return v
}

// positive takes a number that must fit int64.
func (r *reader) positive() int64 {
	u := r.uvarint()
	if u > math.MaxInt64 {
		r.bad = true
		return 0
	}
	return int64(u)
}

// mostTime is the longest time that a packet can state.
const mostTime = 10 * 365 * 24 * time.Hour

// duration takes a number of milliseconds.
func (r *reader) duration() time.Duration {
	return time.Duration(min(r.uvarint(), uint64(mostTime/time.Millisecond))) * time.Millisecond
}

func (r *reader) nodes() int { return int(min(r.uvarint(), math.MaxInt32)) }

// parse takes the header off a packet.
func parse(p []byte) (header, reader, error) {
	var h header
	r := reader{p: p}
	if v := r.byte(); !r.bad && v>>4 != version {
		return h, r, fmt.Errorf("%w: %d, not %d", errVersion, v>>4, version)
	}
	h.flags = r.byte()
	h.from, h.to, h.list = r.fixed(), r.fixed(), r.fixed()
	h.part, h.parts = int(r.byte()), int(r.byte())
	h.session, h.yours = r.uvarint(), r.uvarint()
	h.seq, h.echo, h.got = r.uvarint(), r.uvarint(), ^r.uvarint()
	h.held = r.duration()
	h.nodes, h.age = r.nodes(), r.duration()
	h.limit = math.MaxUint64
	if h.flags&hasLimit != 0 {
		h.limit = r.fixed()
	}
	if h.flags&hasHeld != 0 {
		h.heldNodes, h.heldAge = r.nodes(), r.duration()
	}
	switch {
	case r.bad:
		return h, r, errShort
	case h.seq <= uint64(h.part), h.session == 0, h.parts > mostParts, h.part >= cmp.Or(h.parts, mostParts):
		return h, r, errRecord
	}
	return h, r, nil
}

// section takes the next section; false at the end.
func (r *reader) section() (kind uint8, content []byte, ok bool) {
	if len(r.p) == 0 {
		return 0, nil, false
	}
	kind = r.byte()
	if b := r.bytes(2); b != nil {
		content = r.bytes(uint64(binary.LittleEndian.Uint16(b)))
	}
	return kind, content, !r.bad
}

// Bits of a record's head. The number of the key stands above them.
const (
	kindBits  = 3 // values, a removal, or the total of a dead member
	hasText   = 1 << 2
	hasOwn    = 1 << 3
	headShift = 4
)

// Kinds of record.
const (
	ofGauge = iota
	ofCounter
	ofRemoval
	ofTotal
)

// record is the smallest part of a packet: it mentions one key.
type record struct {
	kind  uint8
	num   uint64 // the key's number; 0 for none
	text  []byte // the key; nil when the number says it
	mask  uint8
	terms Terms
	own   int64
	id    uint64
	total int64
	idle  time.Duration // for how long the counter was not added to
}

func (c *record) append(p []byte, text string) []byte {
	head := c.num<<headShift | uint64(c.kind)
	if text != "" {
		head |= hasText
	}
	if c.kind == ofCounter && c.own != c.terms[0] {
		head |= hasOwn
	}
	p = binary.AppendUvarint(p, head)
	if text != "" {
		p = append(p, byte(len(text)))
		p = append(p, text...)
	}
	if c.kind == ofCounter || c.kind == ofTotal {
		p = binary.AppendUvarint(p, uint64((c.idle+idleUnit-1)/idleUnit))
	}
	switch c.kind {
	case ofGauge:
		p = append(p, c.mask)
		for i, v := range c.terms {
			if c.mask>>i&1 == 1 {
				p = binary.AppendVarint(p, v)
			}
		}
	case ofCounter:
		p = binary.AppendUvarint(p, uint64(c.terms[0]))
		if head&hasOwn != 0 {
			p = binary.AppendUvarint(p, uint64(c.own))
		}
	case ofTotal:
		p = binary.LittleEndian.AppendUint64(p, c.id)
		p = binary.AppendUvarint(p, uint64(c.total))
	}
	return p
}

// idleUnit is the unit in which a record states the silence of a counter. It is rounded up: however often
// nodes repeat to each other what they know, a counter never seems younger than it is.
const idleUnit = 8 * time.Millisecond

func (r *reader) record() record {
	var c record
	head := r.uvarint()
	c.kind, c.num = uint8(head&kindBits), head>>headShift
	if head&hasText != 0 {
		c.text = r.bytes(uint64(r.byte()))
		r.bad = r.bad || len(c.text) == 0
	}
	if c.kind == ofCounter || c.kind == ofTotal {
		c.idle = time.Duration(min(r.uvarint(), uint64(mostTime/idleUnit))) * idleUnit
	}
	switch c.kind {
	case ofGauge:
		c.mask = r.byte()
		r.bad = r.bad || c.mask > allTerms
		for i := range c.terms {
			if c.mask>>i&1 == 1 {
				u := r.uvarint()
				c.terms[i] = int64(u>>1) ^ -int64(u&1) // as binary.Varint has it
				r.bad = r.bad || c.terms[i] < 0
			}
		}
	case ofCounter:
		c.mask = 1
		c.terms[0] = r.positive()
		c.own = c.terms[0]
		if head&hasOwn != 0 {
			c.own = r.positive()
		}
	case ofTotal:
		c.id, c.total = r.fixed(), r.positive()
		r.bad = r.bad || c.text == nil || c.id == 0
	}
	r.bad = r.bad || c.num > mostKeys || c.num == 0 && c.kind != ofTotal || c.kind == ofRemoval && c.text != nil
	return c
}
