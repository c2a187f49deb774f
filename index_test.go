package quotient

import (
	"fmt"
	"math"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// A store finds the gates that it holds, and no others: also where many have to pass full lines, and where
// their hashes differ in few bits.
func TestPropertyStore(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		bits := rapid.SampledFrom([]uint64{
			0x3 << 16, 0xff << 16, 0xff << 24, 0x7 << 32, 0xffff << 48, 0xff00_0003_0000_0000, math.MaxUint64,
		}).Draw(rt, "bits of the hash")
		keys, less := rapid.IntRange(1, 900).Draw(rt, "keys"),
			rapid.SliceOfN(rapid.IntRange(0, 9), 3, 3).Draw(rt, "tenths dropped")
		st, held := newStore(1000), map[uint64]*gate{}
		steps := rapid.IntRange(1, 1500).Draw(rt, "steps")
		for step := range steps {
			h := uint64(rapid.IntRange(0, keys).Draw(rt, "key")) * 0x9e3779b97f4a7c15 & bits &^ 0xffff
			switch g := held[h]; {
			case g == nil:
				held[h] = new(gate)
				st.add(h, held[h])
			case rapid.IntRange(0, 9).Draw(rt, "drop") < less[3*step/steps]:
				st.drop(g)
				delete(held, h)
			default:
				st.move()
			}
			if got := st.find(h); got != held[h] {
				rt.Fatalf("%x: %p, want %p", h, got, held[h])
			}
		}
		for h, g := range held {
			if st.find(h) != g {
				rt.Fatalf("%x is not found", h)
			}
		}
		if n := st.index.gates(rt, true) + st.old.gates(rt, false); n != len(held) || st.order.Len() != n {
			rt.Fatalf("%d gates in lines, %d in order, want %d", n, st.order.Len(), len(held))
		}
	})
}

// gates returns how many gates the index has. It fails unless each line counts those that have passed: all of
// them, or more where some have moved to a new index.
func (ix index) gates(t *rapid.T, exact bool) (n int) {
	passed := make([]int, len(ix))
	for at := range ix {
		for _, g := range ix[at].gates {
			if g == nil {
				continue
			}
			n++
			for i := 0; ix.line(g.half, i) != &ix[at]; i++ {
				passed[(int(g.half)+i)&(len(ix)-1)]++
			}
		}
	}
	for at := range ix {
		if got := int(ix[at].passed()); got < passed[at] && got < math.MaxUint8 ||
			exact && got > passed[at] && got < math.MaxUint8 {
			t.Fatalf("line %d counts %d gates that have passed, want %d", at, got, passed[at])
		}
	}
	return n
}

// An old index goes when no key is added any more.
func TestOldIndexGoes(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := mustNew(t, Rates(PerHour(1)), MaxKeys(1000))
		for i := range 321 {
			wants(t, l, fmt.Sprint(i), 1)
		}
		if l.shards[0].old == nil {
			t.Fatal("321 keys fill 64 lines")
		}
		for range 64 * longPause {
			l.Allow("1")
		}
		is(t, "the old index is still there", l.shards[0].old != nil, false)
	})
}

// A line that more gates had to pass than it can count leads on for ever.
func TestLineThatManyHadToPass(t *testing.T) {
	st := newStore(1000)
	gates := make([]gate, 600)
	for i := range gates {
		st.add(0, &gates[i])
	}
	for i := range 599 {
		st.remove(&gates[i])
	}
	if st.find(0) != &gates[599] {
		t.Error("the last gate is not found")
	}
}

// A call touches one cache line of a shard, and that line has nothing of another shard. All tags and all
// gates but the last of a line are on one.
func TestShardsAndCacheLines(t *testing.T) {
	const cacheLine = 64
	if math.MaxInt == math.MaxInt32 {
		t.Skip("pointers have 32 bits")
	}
	for _, keys := range []int{1, 2048, 5000, 65536, 1 << 20} {
		l := mustNew(t, Rates(PerHour(1)), MaxKeys(keys))
		for i := range l.shards {
			s := &l.shards[i]
			first, last := uintptr(unsafe.Pointer(&s.index)), uintptr(unsafe.Pointer(&s.counts.admitted))
			if first%cacheLine != 0 || last/cacheLine != first/cacheLine {
				t.Fatalf("MaxKeys %d: an ask touches the bytes %d to %d of shard %d", keys, first, last+8, i)
			}
		}
	}
	var s shard
	if rest := unsafe.Offsetof(s.permits) + unsafe.Sizeof(s.permits); unsafe.Sizeof(s)%cacheLine != 0 ||
		rest > unsafe.Sizeof(s) {
		t.Errorf("a shard has %d bytes", unsafe.Sizeof(s))
	}
	for n := 1; n <= 1<<12; n *= 2 {
		ln := &make(index, n)[n-1]
		first, last := uintptr(unsafe.Pointer(ln)), uintptr(unsafe.Pointer(&ln.gates[lineGates-2]))
		if unsafe.Sizeof(*ln) != cacheLine || first/cacheLine != (last+7)/cacheLine {
			t.Errorf("%d lines: one reaches from byte %d on its cache line", n, first%cacheLine)
		}
	}
}
