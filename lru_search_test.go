package quotient

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// crowdedBy fills a limiter with keys, so many percent of them busy and the others idle, in random order.
func crowdedBy(t testing.TB, keys, busy int) *Limiter {
	t.Helper()
	l := limiterOf(t, rated(Rate{Name: "hour", Events: 5, Per: time.Hour, Burst: 5}), MaxKeys(keys))
	random := rand.New(rand.NewPCG(1, uint64(busy)))
	for i, at := range random.Perm(keys) {
		key := fmt.Sprint("old ", i)
		l.TryAcquire(key, Weight(6)) // too much: the key is there, and idle
		if at < keys*busy/100 {
			l.Allow(key)
		}
	}
	if st := l.Stats(); st.Keys != keys || st.Overflowed != 0 {
		t.Fatalf("%d keys, %d asks of the overflow gate", st.Keys, st.Overflowed)
	}
	return l
}

// Failure mode 9: while idle keys remain, a new key takes the place of one. Where there are many shards, each
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
				t.Logf("%d of %d new keys in the overflow gate", st.Overflowed, idle)
			})
		}
	}
}

// Where all keys are busy and new ones come without end, no call looks at more keys than it may. All
// together look at no more than the calls have paid for: one a key that is there, and a few for each new one.
func TestLooksOfAnAttackAreBounded(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		const keys, asks = 1000, 3000
		l := crowdedBy(t, keys, 100)
		s, all := l.shard(""), 0
		before := s.order.Keys()
		for i := range asks {
			l.Allow(fmt.Sprint("new ", i))
			after := s.order.Keys()
			looks := slices.Index(before, after[0]) // so many have been turned to the front
			if all += looks; looks > maxLooks+1 {
				t.Fatalf("ask %d looked at %d keys", i, looks)
			}
			before = after
		}
		if most := keys + asks*(probes+1); all > most {
			t.Errorf("%d asks looked at %d keys, more than %d", asks, all, most)
		}
		if all < keys {
			t.Errorf("%d asks looked at %d of %d keys", asks, all, keys)
		}
		if got := l.Stats().Overflowed; got != asks {
			t.Errorf("%d of %d asks in the overflow gate", got, asks)
		}
	})
}

// A search for an idle key in other shards goes on behind the one that it began in.
func TestSearchGoesOnBehindItsOwnShard(t *testing.T) {
	hash := func(key string) uint64 { return uint64(key[0]-'a')%2 | uint64(key[1])<<32 }
	l := limiterOf(t, rated(PerHour(1)), MaxKeys(2048), WithHash(hash))
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
	other := l.shard("b0")
	other.saved, s.saved = probes, 0
	if !s.evictIdle(s.now()) {
		t.Error("the idle key of the other shard was not found")
	}
}

// A key that has missed many settings takes long to look at: it counts for more than one look.
func TestLooksAtKeysThatHaveMissedSettings(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := crowdedBy(t, 1000, 100)
		for i := range 50 * perLook {
			limit := l.Stats().Limit
			limit.InFlight = 1000 + i%2
			setLimit(t, l, limit)
		}
		s := l.shard("")
		before := s.order.Keys()
		l.Allow("new")
		looks := slices.Index(before, s.order.Keys()[0])
		if n := l.Stats().Overflowed; n != 1 || looks < maxLooks/100 || looks > maxLooks/50+2 {
			t.Errorf("an ask looked at %d keys, each with %d settings to apply; overflowed %d",
				looks, 50*perLook, n)
		}
	})
}

// A call that finds all keys busy, and no idle one for a whole round, saves no looks until there is one.
func TestLooksAreNotSavedInVain(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		const keys = 500
		l := crowdedBy(t, keys, 100)
		s := l.shard("")
		for i := range keys {
			l.Allow(fmt.Sprint("new ", i))
		}
		for range 10 * longPause {
			l.Allow("old 7") // pays for looks, as each call does
		}
		if s.saved > 2*probes {
			t.Errorf("%d looks are saved while all keys are busy", s.saved)
		}
		time.Sleep(5 * time.Hour) // all are idle, and sweeps drop some
		for range 2 * longPause {
			l.Allow("old 7")
		}
		if s.vain != 0 {
			t.Errorf("sweeps have found idle keys, and still %d looks count as in vain", s.vain)
		}
	})
}

// Each call pays for a look, also that of a key which is there: a new key may need them.
func TestCallsPayForLooks(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		const keys = 500
		l := crowdedBy(t, keys, 99)
		s := l.shard("")
		s.saved = 0
		for range 3 * longPause {
			l.Allow("old 7")
		}
		if s.saved < keys {
			t.Errorf("%d looks are saved after %d asks", s.saved, 3*longPause)
		}
		for i := range keys - keys*99/100 {
			l.Allow(fmt.Sprint("new ", i))
		}
		if n := l.Stats().Overflowed; n != 0 {
			t.Errorf("%d new keys in the overflow gate", n)
		}
	})
}

// An operator who gives a key a limit of its own does not depend on what calls have paid for.
func TestOverrideFindsAnIdleKey(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := crowdedBy(t, 500, 99)
		s := l.shard("")
		s.saved = 0
		if !s.hasRoomBeyond(s.latest) {
			t.Error("no idle key was found, and there are five")
		}
	})
}

// BenchmarkNewKeys is what a call of a new key costs while all keys are busy, as in an attack by keys.
func BenchmarkNewKeys(b *testing.B) {
	for _, keys := range []int{1000, 100_000} {
		b.Run(fmt.Sprintf("%d busy keys", keys), func(b *testing.B) {
			l := crowdedBy(b, keys, 100)
			names := make([]string, 1<<14)
			for i := range names {
				names[i] = fmt.Sprint("new ", i)
				l.Allow(names[i])
			}
			for i := 0; b.Loop(); i++ {
				l.Allow(names[i%len(names)])
			}
			if st := l.Stats(); st.Overflowed != uint64(b.N+len(names)) {
				b.Errorf("%d of %d asks in the overflow gate", st.Overflowed, b.N+len(names))
			}
		})
	}
}
