package quotient

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// A store finds the gates that it holds, and no others: also where many have to pass full lines, and where
// their hashes differ in few bits.
func TestPropertyStore(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		bits := rapid.SampledFrom([]uint64{1 << 24, 0xff << 24, 0xff << 50, math.MaxUint64}).Draw(rt, "bits of the hash")
		lines := rapid.SampledFrom([]uint64{0, 1, 0xff, 0xffff}).Draw(rt, "bits that choose the line")
		hash := func(key string) uint64 { // two of them always differ beyond the line
			n, _ := strconv.ParseUint(key, 10, 64)
			n = n * 0x9e3779b97f4a7c15 & bits
			return n&^0xff_ffff | n>>40&lines<<8
		}
		st, held := newStore(1000, hash), map[uint64]*gate{}
		for range rapid.IntRange(1, 400).Draw(rt, "steps") {
			name := fmt.Sprint(rapid.IntRange(0, 300).Draw(rt, "key"))
			h := hash(name)
			g := held[h]
			switch {
			case g == nil:
				g = &gate{name: name}
				st.add(h, g)
				held[h] = g
			case rapid.Bool().Draw(rt, "drop"):
				st.drop(g)
				delete(held, h)
			default:
				st.rename(h, g, name)
			}
			if got := st.find(h); got != held[h] {
				rt.Fatalf("%s: %v, want %v", name, got, held[h])
			}
		}
		for h, g := range held {
			if st.find(h) != g || hash(g.name) != h {
				rt.Fatalf("%s is not found", g.name)
			}
		}
		n, passed := 0, 0
		for _, ln := range slices.Concat(st.old, st.index) {
			for _, g := range ln.gates {
				if g != nil {
					n++
				}
			}
		}
		for _, ln := range st.index {
			passed += int(ln.passed())
		}
		if n != len(held) || st.order.Len() != n {
			rt.Fatalf("%d gates in lines, %d in order, want %d", n, st.order.Len(), len(held))
		}
		if n == 0 && passed > 0 {
			rt.Fatalf("an empty store has lines that %d gates have passed", passed)
		}
	})
}

// A line that more gates had to pass than it can count leads on for ever.
func TestLineThatManyHadToPass(t *testing.T) {
	hash := func(string) uint64 { return 0 }
	st := newStore(1000, hash)
	var gates []*gate
	for i := range 600 {
		gates = append(gates, &gate{name: fmt.Sprint(i)})
		st.add(0, gates[i])
	}
	for _, g := range gates[:599] {
		st.remove(g)
	}
	if st.find(0) != gates[599] {
		t.Error("the last gate is not found")
	}
}

// What an ask touches of a shard is on one cache line, and that is on none of another shard's.
func TestShardsAndCacheLines(t *testing.T) {
	const cacheLine = 64
	var s shard
	first, last := unsafe.Offsetof(s.index), unsafe.Offsetof(s.counts)
	if strconv.IntSize == 64 && (first%cacheLine != 0 || last+8 > first+cacheLine || unsafe.Sizeof(s)%cacheLine != 0) {
		t.Errorf("an ask touches the bytes %d to %d of a shard of %d", first, last+8, unsafe.Sizeof(s))
	}
	if n := unsafe.Sizeof(line{}); strconv.IntSize == 64 && n != cacheLine {
		t.Errorf("a line has %d bytes", n)
	}
}
