package quotient

import (
	"fmt"
	"hash/maphash"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// keysAre fails unless the limiter remembers exactly so many keys.
func keysAre(t *testing.T, l *Limiter, n int) {
	t.Helper()
	seen := map[string]bool{}
	for state := range l.Keys() {
		key := state.Key
		seen[key] = true
	}
	if st := l.Stats(); st.Keys != n || len(seen) != n {
		t.Errorf("%d keys are remembered, %d distinct, want %d", st.Keys, len(seen), n)
	}
}

// Failure mode 2: a key that is being limited is never forgotten.
func TestOnlyIdleKeysAreEvicted(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(1, 5)), MaxKeys(2))
		wants(t, l, "busy", 5)
		for i := range 100 {
			took(t, l, fmt.Sprint("other ", i)) // each is the second key, idle a second later
			wants(t, l, "busy", min(i, 1))
			time.Sleep(time.Second)
		}
		if got := l.Stats(); got.Keys > 2 || got.Evicted < 90 || got.Overflowed != 0 {
			t.Errorf("keys %d, evicted %d, overflowed %d", got.Keys, got.Evicted, got.Overflowed)
		}
	})
}

func TestWhatKeepsAKey(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit Limit
		use   func(*testing.T, *Limiter)
		stays bool
	}{
		{"nothing", rated(perSecond(1, 5)), func(*testing.T, *Limiter) {}, false},
		{"a token missing", rated(perSecond(1, 5)), func(t *testing.T, l *Limiter) { took(t, l, "k") }, true},
		{"a bucket that is full again", rated(perSecond(100, 5)), func(t *testing.T, l *Limiter) {
			took(t, l, "k")
			time.Sleep(time.Second)
		}, false},
		{"the second bucket", rated(perSecond(100, 5), PerHour(1)), func(t *testing.T, l *Limiter) {
			took(t, l, "k")
			time.Sleep(time.Second)
		}, true},
		{"a window", rated(Rate{Events: 5, Per: time.Hour, Aligned: true}),
			func(t *testing.T, l *Limiter) { took(t, l, "k") }, true},
		{"a window that is over", rated(Rate{Events: 5, Per: time.Hour, Aligned: true}),
			func(t *testing.T, l *Limiter) { took(t, l, "k"); time.Sleep(time.Hour) }, false},
		{"a permit", Limit{InFlight: 1}, func(t *testing.T, l *Limiter) { took(t, l, "k") }, true},
		{"a permit that was released", Limit{InFlight: 1},
			func(t *testing.T, l *Limiter) { took(t, l, "k").Release() }, false},
		{"a permit of a cost", rated(perSecond(100, 5), tokensPerMinute(60, 5)),
			func(t *testing.T, l *Limiter) {
				took(t, l, "k", Cost("tokens", 5)) // it may be corrected
				time.Sleep(time.Minute)
			}, true},
	} {
		row(t, c.name, func(t *testing.T) {
			l := limiterOf(t, c.limit, MaxKeys(1))
			refusedFor(t, l, ReasonTooLarge, "k", Weight(100)) // the key is there
			c.use(t, l)
			l.TryAcquire("another")
			if gone := gateOf(l, "k") == nil; gone == c.stays {
				t.Errorf("the key is gone: %v", gone)
			}
		})
	}
}

// An evicted key must not live on in the short cut to the keys that were looked up of late.
func TestEvictedKeyStartsAnew(t *testing.T) {
	for _, keys := range []int{1, 8} {
		row(t, keys, func(t *testing.T) {
			l := limiterOf(t, rated(perSecond(1, 1)), MaxKeys(keys))
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

// A look at a key must not take the key that was looked up before for it.
func TestCheckAfterAnotherKey(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(1, 1)))
		for i := range 10 {
			wants(t, l, key(i), 1)
			for j := range 20 {
				if got := l.Check(key(j)).OK; got != (j > i) {
					t.Errorf("after %d keys were used up the key %d has room: %v", i+1, j, got)
				}
			}
		}
	})
}

// Failure mode 9: MaxKeys is a hard bound, and what does not fit gets no fresh burst.
func TestMaxKeysIsHard(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(1, 5)), MaxKeys(10))
		for i := range 10 {
			wants(t, l, fmt.Sprint("busy ", i), 5)
		}
		admitted := 0
		for i := range 1000 {
			if _, d := l.TryAcquire(fmt.Sprint("late ", i)); d.OK {
				admitted++
			} else if d.Reason != ReasonKeys {
				t.Fatalf("refused for %v", d.Reason)
			}
		}
		if admitted != 5 {
			t.Errorf("1000 keys that do not fit had %d asks admitted, want one burst, 5", admitted)
		}
		keysAre(t, l, 10)
		if got := l.Stats(); got.Overflowed != 1000 || got.Refused[ReasonKeys] != 995 {
			t.Errorf("overflowed %d, refused %d", got.Overflowed, got.Refused[ReasonKeys])
		}
	})
}

// A key that comes out of the overflow gate starts with what that one has left.
func TestOverflowBringsNoFreshBurst(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(1, 5)), MaxKeys(1))
		took(t, l, "busy")
		wants(t, l, "late", 5) // through the overflow gate
		time.Sleep(time.Second)
		wants(t, l, "late", 1) // in place of the busy key, which is idle again
		if gateOf(l, "late") == nil {
			t.Error("the key has no gate of its own")
		}
	})
}

// A call that can never be admitted is refused for that, and not for want of room, where a key has no room
// either.
func TestOverflowRefusesWhatNeverFits(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{Rates: []Rate{perSecond(1, 5)}, InFlight: 4}, MaxKeys(1), Replicas(2))
		took(t, l, "busy")
		refusedFor(t, l, ReasonTooLarge, "late", Weight(6))
		refusedFor(t, l, ReasonShare, "late", Weight(3))
		for l.Allow("late") {
		}
		refusedFor(t, l, ReasonKeys, "late")
	})
}

func TestOverflowRecovers(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(1, 5)), MaxKeys(2))
		for _, key := range []string{"a", "b", "c", "d"} {
			l.Allow(key)
		}
		time.Sleep(time.Minute)
		wants(t, l, "c", 5)
		wants(t, l, "d", 5)
		if s := l.shard("c"); s.overflow.gate != nil {
			t.Error("the overflow gate is still there")
		}
	})
}

// A key that holds a permit through the overflow gate stays there until it is released.
func TestOverflowKeepsThoseWhoHoldThroughIt(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 2}, MaxKeys(1))
		busy := took(t, l, "busy")
		held := took(t, l, "late", Weight(2))
		busy.Release()
		refusedFor(t, l, ReasonKeys, "late")
		c := asking(t, l, "late")
		c.waits(t)
		held.Release()
		c.admittedAfter(t, 0)
		c.permit.Release()
		took(t, l, "late", Weight(2)).Release()
		if gateOf(l, "late") == nil {
			t.Error("the key has no gate of its own")
		}
		if len(l.shard("late").waiting) != 0 {
			t.Error("a queue is left")
		}
	})
}

func TestOverflowQueueIsBounded(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 1}, MaxKeys(1), MaxWaiting(2, 100))
		took(t, l, "busy")
		took(t, l, "late")
		a, b := asking(t, l, "a"), asking(t, l, "b")
		asking(t, l, "c").refusedAfter(t, 0, ReasonKeys)
		a.gaveUp(t)
		b.gaveUp(t)
	})
}

// After a flood the map holds the keys that are limited, not those that were ever seen, and gives memory
// back.
func TestMemoryFallsBack(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		const flood = 20_000
		l := limiterOf(t, rated(perSecond(10, 20)), MaxKeys(flood))
		for i := range flood {
			took(t, l, fmt.Sprint(i))
		}
		keys := l.Stats().Keys
		if keys < flood*9/10 {
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
			if peak, n := l.shards[i].peak, l.shards[i].order.Len(); peak > max(4*n, rebuildAt) {
				t.Errorf("shard %d: a map that held %d keys was not rebuilt for %d", i, peak, n)
			}
		}
	})
}

func TestRebuildKeepsKeysAndOrder(t *testing.T) {
	seed := maphash.MakeSeed()
	hash := func(key string) uint64 { return maphash.String(seed, key) }
	st := newStore(2000)
	for i := range 2000 {
		name := fmt.Sprint(i)
		st.add(hash(name), &gate{name: name})
	}
	for st.order.Len() > 90 {
		if !st.evictOne(1, func(*gate) bool { return true }) {
			t.Fatal("nothing was dropped")
		}
	}
	if st.peak > 4*90 || len(st.index)*lineFull > 2*4*90 {
		t.Errorf("peak %d, %d lines: the store was not rebuilt", st.peak, len(st.index))
	}
	for i, g := range st.order.Keys() {
		if want := fmt.Sprint(1910 + i); g.name != want || st.find(hash(want)) != g {
			t.Fatalf("place %d holds %s, want %s", i, g.name, want)
		}
	}
	if st.find(hash("5")) != nil {
		t.Error("a key that was dropped is still there")
	}
}

// A key is a copy: a part of a large body, used as a key, keeps the body from being collected.
func TestKeysAreCopied(t *testing.T) {
	l := limiterOf(t, rated(PerHour(1)))
	body := strings.Repeat("x", 1<<20)
	name := body[:8]
	wants(t, l, name, 1)
	for state := range l.Keys() {
		key := state.Key
		if unsafe.StringData(key) == unsafe.StringData(name) {
			t.Error("the map keeps the caller's memory")
		}
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

// The empty key is a key like any other.
func TestEmptyKeyLeavesTheOverflowGate(t *testing.T) {
	l := limiterOf(t, Limit{InFlight: 3}, MaxKeys(1))
	busy := took(t, l, "busy")
	took(t, l, "stays")
	took(t, l, "").Release()
	busy.Release()
	took(t, l, "")
	if gateOf(l, "") == nil {
		t.Error("the key holds nothing through the overflow gate, and is still sent there")
	}
}

// A key is idle only if nothing of its window was used.
func TestUsedWindowIsNotIdle(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Rate{Events: 3, Per: time.Minute, Aligned: true}), MaxKeys(1))
		wants(t, l, "k", 3)
		l.TryAcquire("another")
		wants(t, l, "k", 0)
		time.Sleep(time.Minute)
		l.TryAcquire("another") // takes the place of k
		wants(t, l, "k", 3)
	})
}
