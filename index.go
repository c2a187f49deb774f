package quotient

import (
	"math"
	"math/bits"
	"slices"
)

// index finds gates by the hash of their keys, in a power of two of lines. When they are too few there is a
// new index, and the gates move there line by line, so that no call waits for all.
type index []line

// line is a cache line of gates, each with a tag: a byte of its key's hash. So a look-up touches a line and
// the gate, and seldom more. A gate that finds its line full passes on to the next. Go puts eight bytes in
// front of an index of middle size. The tags come first, so that then only the last gate is on another cache
// line.
//
// The layout is that of F14: github.com/facebook/folly, folly/container/F14.md.
type line struct {
	tags  uint64           // a byte for each place; the top byte counts the gates that have passed
	gates [lineGates]*gate // nil for a free place
}

const (
	lineGates = 7
	lineFull  = 5 // gates for each line: with more there are twice as many lines
)

// Bits of each place's tag.
const (
	lowest  = 0x00_01_01_01_01_01_01_01
	highest = lowest << 7
	others  = highest - lowest // all but the highest
)

// match returns the highest bit of each place that has a tag. See "Determine if a word has a zero byte" in
// Anderson's Bit Twiddling Hacks.
func (ln *line) match(tag uint8) uint64 {
	x := ln.tags ^ lowest*uint64(tag)
	return ^((x&others + others) | x) & highest
}

// passed returns how many gates have passed. 255 may be more: it stays.
func (ln *line) passed() uint8 { return uint8(ln.tags >> 56) }

// pass adds to the gates that have passed.
func (ln *line) pass(by int) {
	if ln.passed() < math.MaxUint8 {
		ln.tags += uint64(by) << 56
	}
}

// swap puts a gate in the place of another one, and reports whether that was there.
func (ln *line) swap(old, g *gate, tag uint8) bool {
	at := slices.Index(ln.gates[:], old)
	if at >= 0 {
		ln.gates[at] = g
		ln.tags = ln.tags&^(0xff<<(8*at)) | uint64(tag)<<(8*at)
	}
	return at >= 0
}

// The lowest byte of a hash chooses the shard. The third is the tag, and the gate keeps the upper five. The
// upper half chooses the line too.
func tagOf(hash uint64) uint8 { return uint8(hash >> 16) }

// mark keeps the upper five bytes of the hash of the gate's key.
func (g *gate) mark(hash uint64) { g.half, g.eighth = uint32(hash>>32), uint8(hash>>24) }

// marked reports whether the gate keeps those of a hash.
func (g *gate) marked(hash uint64) bool {
	return g.half == uint32(hash>>32) && g.eighth == uint8(hash>>24)
}

// line returns the line that is i behind that of a gate.
func (ix index) line(half uint32, i int) *line { return &ix[(int(half)+i)&(len(ix)-1)] }

// find returns the gate of a hash, or nil.
func (ix index) find(hash uint64) *gate {
	for i := range ix {
		ln := ix.line(uint32(hash>>32), i)
		for match := ln.match(tagOf(hash)); match != 0; match &= match - 1 {
			if g := ln.gates[bits.TrailingZeros64(match)/8]; g != nil && g.marked(hash) {
				return g
			}
		}
		if ln.passed() == 0 {
			break
		}
	}
	return nil
}

// place puts a gate into the first free place from its line on.
func (ix index) place(g *gate, tag uint8) {
	for i := 0; !ix.line(g.half, i).swap(nil, g, tag); i++ {
		ix.line(g.half, i).pass(1)
	}
}

// displace undoes place, and reports whether the gate was there.
func (ix index) displace(g *gate) bool {
	for i := range ix {
		ln := ix.line(g.half, i)
		if ln.swap(g, nil, 0) {
			for j := range i {
				ix.line(g.half, j).pass(-1)
			}
			return true
		}
		if ln.passed() == 0 {
			break
		}
	}
	return false
}

// moveTo moves the gates of a line to another index.
func (ln *line) moveTo(ix index) {
	for i, g := range ln.gates {
		if g != nil {
			ix.place(g, uint8(ln.tags>>(8*i)))
			ln.gates[i] = nil
		}
	}
}
