package quotient

import (
	"fmt"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"
)

func TestWhatKeepsAKey(t *testing.T) {
	take := func(pause time.Duration, opts ...CallOption) func(*testing.T, *Limiter) {
		return func(t *testing.T, l *Limiter) { took(t, l, "k", opts...); time.Sleep(pause) }
	}
	window := Rates(aligned(5, time.Hour))
	for _, c := range []struct {
		name  string
		limit Limit
		use   func(*testing.T, *Limiter)
		stays bool
	}{
		{"nothing", Rates(perSecond(1, 5)), func(*testing.T, *Limiter) {}, false},
		{"a token missing", Rates(perSecond(1, 5)), take(0), true},
		{"a bucket that is full again", Rates(perSecond(100, 5)), take(time.Second), false},
		{"the second bucket", Rates(perSecond(100, 5), PerHour(1)), take(time.Second), true},
		{"a window", window, take(0), true},
		{"a window that is over", window, take(time.Hour), false},
		{"a permit", Limit{InFlight: 1}, take(0), true},
		{"a permit that was released", Limit{InFlight: 1},
			func(t *testing.T, l *Limiter) { took(t, l, "k").Release() }, false},
		{"a permit of a cost, which may be corrected", Rates(perSecond(100, 5), tokensPerMinute(60, 5)),
			take(time.Minute, Cost("tokens", 5)), true},
	} {
		row(t, c.name, func(t *testing.T) {
			l := mustNew(t, c.limit, MaxKeys(1))
			refusedFor(t, l, ReasonTooLarge, "k", Weight(100)) // the key is there
			c.use(t, l)
			l.TryAcquire("another")
			is(t, "stays", gateOf(l, "k") != nil, c.stays)
		})
	}
}

// An evicted key must not live on in the short cut to the keys that were looked up of late.
func TestEvictedKeyStartsAnew(t *testing.T) {
	for _, keys := range []int{1, 8} {
		row(t, keys, func(t *testing.T) {
			l := mustNew(t, Rates(perSecond(1, 1)), MaxKeys(keys))
			for i := range 20 * keys {
				for range 3 {
					wants(t, l, key(i), 1)
					time.Sleep(time.Second)
				}
				for j := range i { // some are gone, and come back in place of others
					wants(t, l, key(j), 1)
					if gateOf(l, key(j)) == nil {
						t.Fatalf("%q is admitted, and not remembered", key(j))
					}
					time.Sleep(time.Second)
				}
				if n := l.Stats().Keys; n > keys {
					t.Fatalf("%d keys", n)
				}
			}
		})
	}
}

func TestOverflowGate(t *testing.T) {
	row(t, "a key that comes out of it starts with what it has left", func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(1, 5)), MaxKeys(1))
		took(t, l, "busy")
		wants(t, l, "late", 5) // through the overflow gate
		time.Sleep(time.Second)
		wants(t, l, "late", 1) // in place of the busy key, which is idle again
		is(t, "a gate of its own", gateOf(l, "late") != nil, true)
	})
	row(t, "what never fits is refused for that, and not for want of room", func(t *testing.T) {
		l := mustNew(t, Limit{Rates: []Rate{perSecond(1, 5)}, InFlight: 4}, MaxKeys(1), Replicas(2))
		took(t, l, "busy")
		refusedFor(t, l, ReasonTooLarge, "late", Weight(6))
		refusedFor(t, l, ReasonShare, "late", Weight(3))
		for l.Allow("late") {
		}
		refusedFor(t, l, ReasonKeys, "late")
	})
	row(t, "goes when there is room again", func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(1, 5)), MaxKeys(2))
		for i := range 4 {
			l.Allow(key(i))
		}
		time.Sleep(time.Minute)
		wants(t, l, key(2), 5)
		wants(t, l, key(3), 5)
		is(t, "still there", l.shard(key(2)).overflow.gate != nil, false)
	})
	// The empty key is a key like any other.
	for _, late := range []string{"late", ""} {
		row(t, fmt.Sprintf("keeps %q, which holds a permit through it", late), func(t *testing.T) {
			l := mustNew(t, Limit{InFlight: 2}, MaxKeys(1))
			busy := took(t, l, "busy")
			held := took(t, l, late, Weight(2))
			busy.Release()
			refusedFor(t, l, ReasonKeys, late)
			c := asking(t, l, late)
			c.waits(t)
			held.Release()
			c.admittedAfter(t, 0)
			c.permit.Release()
			took(t, l, late, Weight(2)).Release()
			is(t, "a gate of its own", gateOf(l, late) != nil, true)
			is(t, "queues that are left", len(l.shard(late).waiting), 0)
		})
	}
}

// After a flood the map holds the keys that are limited, not those that were ever seen, and gives memory
// back.
func TestMemoryFallsBack(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		const flood = 20_000
		l := mustNew(t, Rates(perSecond(10, 20)), MaxKeys(flood))
		for i := range flood {
			took(t, l, fmt.Sprint(i))
		}
		if keys := l.Stats().Keys; keys < flood*9/10 {
			t.Fatalf("only %d keys are remembered", keys)
		}
		time.Sleep(time.Minute)
		for i := range 200_000 {
			l.Allow(fmt.Sprint("steady ", i%3)) // most shards have no calls of their own
		}
		if got := l.Stats().Keys; got > 1000 {
			t.Errorf("%d keys are remembered a minute later", got)
		}
		for i := range l.shards {
			if peak, n := l.shards[i].peak, l.shards[i].n; peak > max(4*n, rebuildAt) {
				t.Errorf("shard %d: a map that held %d keys was not rebuilt for %d", i, peak, n)
			}
		}
	})
}

func TestRebuildKeepsKeysAndOrder(t *testing.T) {
	st := newStore()
	seed := maphash.MakeSeed()
	hash := func(key string) uint64 { return maphash.String(seed, key) }
	for i := range 2000 {
		st.add(hash(key(i)), &gate{name: key(i)})
	}
	for st.n > 90 {
		if !st.evictOne(1, func(*gate) bool { return true }) {
			t.Fatal("nothing was dropped")
		}
	}
	if st.peak > 4*90 || len(st.index)*lineFull > 2*4*90 {
		t.Errorf("peak %d, %d lines: the store was not rebuilt", st.peak, len(st.index))
	}
	for i, g := range st.gates() {
		if want := key(1910 + i); g.name != want || st.find(hash(want)) != g {
			t.Fatalf("place %d holds %s, want %s", i, g.name, want)
		}
	}
	is(t, "a key that was dropped", st.find(hash(key(5))), nil)
}

// A key is a copy: a part of a large body, used as a key, keeps the body from being collected.
func TestKeysAreCopied(t *testing.T) {
	l := mustNew(t, Rates(PerHour(1)))
	name := strings.Repeat("x", 1<<20)[:8]
	wants(t, l, name, 1)
	for state := range l.Keys() {
		wrong(t, unsafe.StringData(state.Key) == unsafe.StringData(name), "the map keeps the caller's memory")
	}
}

func TestShardCount(t *testing.T) {
	for _, keys := range []int{1, 1023, 1024, 2048, 3000, 1 << 16, 1 << 20, maxKeys} {
		n := shardCount(keys)
		if n < 1 || n&(n-1) != 0 || n > maxShards || n > 1 && keys/n < keysPerShard {
			t.Errorf("%d keys: %d shards", keys, n)
		}
	}
}

// crowdedBy fills a limiter with keys, so many percent of them busy and the others idle, in random order.
func crowdedBy(t testing.TB, keys, busy int) *Limiter {
	t.Helper()
	l := mustNew(t, Rates(Rate{Name: "hour", Events: 5, Per: time.Hour, Burst: 5}), MaxKeys(keys))
	random := rand.New(rand.NewPCG(1, uint64(busy)))
	for i, at := range random.Perm(keys) {
		key := fmt.Sprint("old ", i)
		l.TryAcquire(key, Weight(6)) // too much: the key is there, and idle
		if at < keys*busy/100 {
			l.Allow(key)
		}
	}
	stats(t, l, "Keys", keys, "Overflowed", 0)
	return l
}

// While idle keys remain, a new key takes the place of one. Where there are many shards, each
// sees its own keys alone at first, and what it has saved may be used up before the last idle ones are found.
func TestNewKeysFindTheIdleOnes(t *testing.T) {
	for _, c := range []struct {
		keys    int
		percent map[int]int // busy keys to new keys that may land in the overflow gate, of a hundred
	}{
		{100, map[int]int{0: 0, 50: 0, 75: 0, 90: 0, 99: 0}},
		{500, map[int]int{0: 0, 50: 0, 75: 0, 90: 0, 99: 0}},
		{10_000, map[int]int{0: 1, 50: 1, 75: 2, 90: 3, 99: 8}},
	} {
		for busy, most := range c.percent {
			row(t, fmt.Sprintf("%d keys, %d percent of them busy", c.keys, busy), func(t *testing.T) {
				l := crowdedBy(t, c.keys, busy)
				idle := c.keys - c.keys*busy/100
				for i := range idle {
					l.Allow(fmt.Sprint("new ", i))
				}
				st := l.Stats()
				if got := int(st.Overflowed); got*100 > most*idle || st.Keys > c.keys {
					t.Errorf("%d of %d new keys in the overflow gate, %d keys in all", got, idle, st.Keys)
				}
			})
		}
	}
}

func TestLooks(t *testing.T) {
	// All keys are busy and new ones come without end. All calls together look at no more keys than they have
	// paid for: one a key that is there, and a few for each new one.
	row(t, "of an attack are bounded", func(t *testing.T) {
		const keys, asks = 1000, 3000
		l := crowdedBy(t, keys, 100)
		s, all := l.shard(""), 0
		before := s.gates()
		for i := range asks {
			l.Allow(fmt.Sprint("new ", i))
			after := s.gates()
			looks := slices.Index(before, after[0]) // so many have been turned to the front
			if all += looks; looks > maxLooks+1 {
				t.Fatalf("ask %d looked at %d keys", i, looks)
			}
			before = after
		}
		if most := keys + asks*(probes+1); all > most || all < keys {
			t.Errorf("%d asks looked at %d keys of %d, at most %d", asks, all, keys, most)
		}
		stats(t, l, "Overflowed", asks)
	})
	row(t, "at keys that have missed many settings count for more", func(t *testing.T) {
		l := crowdedBy(t, 1000, 100)
		for i := range 50 * perLook {
			limit := l.Stats().Limit
			limit.InFlight = 1000 + i%2
			setLimit(t, l, limit)
		}
		s := l.shard("")
		before := s.gates()
		l.Allow("new")
		stats(t, l, "Overflowed", 1)
		looks := slices.Index(before, s.gates()[0])
		within(t, "keys that were looked at", maxLooks/100, maxLooks/50+2, looks)
	})
	row(t, "are not saved in vain, until there is an idle key", func(t *testing.T) {
		const keys = 500
		l := crowdedBy(t, keys, 100)
		s := l.shard("")
		for i := range keys {
			l.Allow(fmt.Sprint("new ", i))
		}
		for range 10 * longPause {
			l.Allow("old 7") // pays for looks, as each call does
		}
		wrong(t, s.saved > 2*probes, "%d looks are saved while all keys are busy", s.saved)
		time.Sleep(5 * time.Hour) // all are idle, and sweeps drop some
		for range 2 * longPause {
			l.Allow("old 7")
		}
		is(t, "looks in vain after sweeps have found idle keys", s.vain, 0)
	})
	// An operator who gives a key a limit of its own does not depend on that.
	row(t, "are paid for by each call, also that of a key which is there", func(t *testing.T) {
		const keys = 500
		l := crowdedBy(t, keys, 99)
		s := l.shard("")
		s.saved = 0
		is(t, "room for an operator's key", s.hasRoomBeyond(s.latest), true)
		s.saved = 0
		for range 3 * longPause {
			l.Allow("old 7")
		}
		wrong(t, s.saved < keys, "%d looks are saved after %d asks", s.saved, 3*longPause)
		for i := range keys - keys*99/100 - 1 { // the operator's has taken the place of one
			l.Allow(fmt.Sprint("new ", i))
		}
		stats(t, l, "Overflowed", 0)
	})
	row(t, "go on in the shards behind the one that they began in", func(t *testing.T) {
		hash := func(key string) uint64 { return uint64(key[0]-'a')%2 | uint64(key[1])<<32 }
		l := mustNew(t, Rates(PerHour(1)), MaxKeys(2048), WithHash(hash))
		for i := range 200 {
			l.Allow("a" + string(rune(i)))
		}
		l.TryAcquire("b0", Weight(9)) // too much: the key is there, and idle
		s := l.shard("a0")
		for i := range l.shards {
			if &l.shards[i] == s {
				l.broom.Store(uint64(i))
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		l.shard("b0").saved, s.saved = probes, 0
		is(t, "the idle key of the other shard was found", s.evictIdle(s.now()), true)
	})
}

// A page takes as much memory for one key as for many.
func TestPagesWithRoomAreJoined(t *testing.T) {
	st, stays := newStore(), map[*gate]bool{}
	for i := range uint64(4 * pageGates) { // too few for the store to be rebuilt
		g := new(gate)
		stays[g] = i%9 == 0
		st.add(i<<32, g)
	}
	for range 2 * 4 * pageGates {
		st.evictOne(1, func(g *gate) bool { return !stays[g] })
	}
	is(t, "pages", fmt.Sprint(st.order.Len(), " of ", st.n), "1 of 28")
}

// A store finds the gates that it holds, and no others: also where many have to pass full lines, and where
// their hashes differ in few bits.
func TestPropertyStore(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		bits := rapid.SampledFrom([]uint64{
			0x3 << 16, 0xff << 16, 0xff << 24, 0x7 << 32, 0xffff << 48, 0xff00_0003_0000_0000, math.MaxUint64,
		}).Draw(rt, "bits of the hash")
		keys, less := rapid.IntRange(1, 900).Draw(rt, "keys"),
			rapid.SliceOfN(rapid.IntRange(0, 9), 3, 3).Draw(rt, "tenths dropped")
		st, held := newStore(), map[uint64]*gate{}
		steps := rapid.IntRange(1, 1500).Draw(rt, "steps")
		for step := range steps {
			h := uint64(rapid.IntRange(0, keys).Draw(rt, "key")) * 0x9e3779b97f4a7c15 & bits &^ 0xffff
			switch g := held[h]; {
			case g == nil:
				held[h] = new(gate)
				st.add(h, held[h])
			case rapid.IntRange(0, 9).Draw(rt, "drop") < less[3*step/steps]:
				st.remove(g)
				delete(held, h)
			default:
				st.move()
			}
			if got := st.find(h); got != held[h] || got != nil && !st.has(got) {
				rt.Fatalf("%x: %p, want %p", h, got, held[h])
			}
			if ps := st.order.Keys(); st.newest != ps[len(ps)-1] {
				rt.Fatal("the newest page is not the last to be looked at")
			}
			if looks := rapid.IntRange(0, 3).Draw(rt, "looks"); looks > 0 { // in the order of gates, and at all in turn
				order, looked := st.gates(), []*gate(nil)
				st.evictOne(looks, func(g *gate) bool { looked = append(looked, g); return false })
				if n := min(looks, len(order)); !slices.Equal(looked, order[:n]) || len(st.gates()) != len(order) {
					rt.Fatalf("looked at %p, want %p", looked, order[:n])
				}
			}
		}
		for h, g := range held {
			if st.find(h) != g {
				rt.Fatalf("%x is not found", h)
			}
		}
		if n := st.index.gates(rt, true) + st.old.gates(rt, false); n != len(held) || int(st.n) != n {
			rt.Fatalf("%d gates in lines, %d in order, want %d", n, st.n, len(held))
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
	st := newStore()
	gates := make([]gate, 600)
	for i := range gates {
		st.add(0, &gates[i])
	}
	for i := range 599 {
		st.remove(&gates[i])
	}
	wrong(t, st.find(0) != &gates[599], "the last gate is not found")
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
