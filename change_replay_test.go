package quotient

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// A key that is touched after many changes is exactly where one is that followed each.
func TestLazyEqualsEager(t *testing.T) {
	limits := []Limit{
		rated(perSecond(3, 10)), rated(perSecond(7, 3)),
		rated(named("b", perSecond(5, 20)), perSecond(3, 10)),
		rated(perSecond(100, 1000), tokensPerMinute(60, 10)), rated(aligned(10, time.Second)),
		rated(aligned(7.5, time.Second), perSecond(3, 10)),
		{Rates: []Rate{perSecond(1.0/3, 7)}, InFlight: 5}, {InFlight: 9},
	}
	for seed := range uint64(40) {
		row(t, seed, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			start := Pool{Replicas: 3, Ordinal: 2, Fixed: true}
			opts := [][]Option{
				{StartPool(start)},
				{StartPool(start), StartEmpty()},
				{StartPool(start), Policy(policy.AIMD{})},
				{StartPool(start), StartEmpty(), Policy(policy.AIMD{}), BeyondShare()},
			}[seed%4]
			opts = append(opts, MaxKeys(1000)) // one shard
			eager, lazy := limiterOf(t, limits[0], opts...), limiterOf(t, limits[0], opts...)
			lazy.phase = eager.phase
			use := func() {
				n := 1 + rnd.IntN(12)
				p, a := eager.TryAcquireUpTo("k", n)
				q, b := lazy.TryAcquireUpTo("k", n)
				if f := []policy.Feedback{success, throttled, {}}[rnd.IntN(3)]; n%3 > 0 {
					p.Done(f)
					q.Done(f)
				}
				if a != b {
					t.Fatalf("a batch of %d: eager %d, lazy %d", n, a, b)
				}
			}
			for range 20 {
				use()
				for range rnd.IntN(6) {
					time.Sleep(time.Duration(rnd.Int64N(int64(700 * time.Millisecond))))
					change(t, rnd, limits, eager, lazy)
					tokensOf(t, eager, "k")
				}
				if a, b := tokensOf(t, eager, "k"), tokensOf(t, lazy, "k"); !slices.Equal(a, b) {
					t.Fatalf("eager %v, lazy %v", a, b)
				}
			}
		})
	}
}

// change makes one change in all limiters.
func change(t *testing.T, rnd *rand.Rand, limits []Limit, all ...*Limiter) {
	t.Helper()
	limit, n := limits[rnd.IntN(len(limits))], 1+rnd.IntN(4)
	pool := Pool{Replicas: n, Ordinal: rnd.IntN(n + 1), Fixed: true}
	setsLimit := rnd.IntN(2) == 0
	for _, l := range all {
		if setsLimit {
			setLimit(t, l, limit)
		} else if err := l.SetPool(pool, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// No key, however long untouched, holds on to more than so many changes.
func TestManyChangesAreReplayed(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(1, 5)), MaxKeys(4096))
		for i := range 500 {
			took(t, l, fmt.Sprint(i))
		}
		for i := range catchUp {
			setLimit(t, l, rated(perSecond(float64(1+i%2), 5)))
		}
		for i := range 500 {
			key := fmt.Sprint(i)
			if g := gateOf(l, key); g != nil && g.setting != l.shard(key).setting {
				t.Fatalf("key %q holds on to an old setting", key)
			}
		}
		wants(t, l, "7", 4)
	})
}

func TestManyChangesReachTheOverflowGate(t *testing.T) {
	l := limiterOf(t, rated(PerHour(1)), MaxKeys(1))
	wants(t, l, "busy", 1)
	wants(t, l, "late", 1)
	for i := range catchUp {
		setLimit(t, l, rated(PerHour(float64(1+i%2))))
	}
	if s := l.shard("late"); s.overflow.gate == nil || s.overflow.gate.setting != s.setting {
		t.Error("the overflow gate holds on to an old setting")
	}
	wants(t, l, "late", 0)
}
