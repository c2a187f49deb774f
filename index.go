package quotient

import (
	"math"
	"math/bits"
	"slices"
)

// index finds gates by their keys, in a power of two of lines. When they are too few there is a new index.
// Each gate that is added then moves some others there, so that no ask waits for all.
type index []line

// line is a cache line of gates, each with a tag: a byte of its key's hash. So a look-up touches a line and
// the gate, and seldom more. A gate that finds its line full passes on to the next.
//
// The layout is that of F14: github.com/facebook/folly, folly/container/F14.md.
type line struct {
	gates [lineGates]*gate // nil for a free place
	tags  uint64           // a byte for each place; the top byte counts the gates that have passed
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

// The lowest byte of a hash chooses the shard, and the next two the line. The fourth is the tag, and the gate
// keeps the upper half.
func tagOf(hash uint64) uint8    { return uint8(hash >> 24) }
func checkOf(hash uint64) uint32 { return uint32(hash >> 32) }

// line returns the line that is i behind that of a hash.
func (ix index) line(hash uint64, i int) *line { return &ix[(int(hash>>8)+i)&(len(ix)-1)] }

// find returns the gate of a hash, or nil.
func (ix index) find(hash uint64) *gate {
	for i := range ix {
		ln := ix.line(hash, i)
		for match := ln.match(tagOf(hash)); match != 0; match &= match - 1 {
			if g := ln.gates[bits.TrailingZeros64(match)/8]; g != nil && g.check == checkOf(hash) {
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
func (ix index) place(hash uint64, g *gate) {
	g.check = checkOf(hash)
	for i := 0; !ix.line(hash, i).swap(nil, g, tagOf(hash)); i++ {
		ix.line(hash, i).pass(1)
	}
}

// displace undoes place, and reports whether the gate was there.
func (ix index) displace(hash uint64, g *gate) bool {
	for i := range ix {
		ln := ix.line(hash, i)
		if ln.swap(g, nil, 0) {
			for j := range i {
				ix.line(hash, j).pass(-1)
			}
			return true
		}
		if ln.passed() == 0 {
			break
		}
	}
	return false
}
