package quotient

import (
	"testing"
	"time"
)

// Bound 11: a step back by an hour does not repeat the quota of a sparse window in each period until the wall
// has caught up.
func TestSparseWindowAfterAStepBack(t *testing.T) {
	oneOfSixty := &schedule{per: int64(time.Minute), events: 1000, replicas: 60, ordinal: 1, weight: 1}
	for _, late := range []time.Duration{0, time.Minute, 10 * time.Minute, 59 * time.Minute} {
		start := realNow()
		for oneOfSixty.quota(oneOfSixty.index(start.wall)) == 0 {
			start = start.later(time.Minute)
		}
		w, n := opened(start, oneOfSixty), 0
		for i := range 60 {
			now := start.later(time.Duration(i) * time.Minute)
			if now.at-start.at > late {
				now = now.stepped(-time.Hour)
			}
			for w.uses(now, 1, oneOfSixty) {
				n++
			}
		}
		if n > 2 {
			t.Errorf("a step of an hour back after %v: %d events in an hour, want at most 2", late, n)
		}
	}
}

// Two sparse windows of different lengths, or of different numbers of events, are open at one instant before
// long: also for the replica whose own windows never coincide. One alone keeps its fleet's total exact.
func TestSparseWindowsMeet(t *testing.T) {
	second := Rate{Name: "second", Events: 1, Per: time.Second, Aligned: true}
	for name, other := range map[string]Rate{
		"another length": {Name: "ten", Unit: "tokens", Events: 1, Per: 10 * time.Second, Aligned: true},
		"another number": {Name: "two", Unit: "tokens", Events: 2, Per: time.Second, Aligned: true},
		"half a window":  {Name: "half", Unit: "tokens", Events: .5, Per: 7 * time.Second, Aligned: true},
	} {
		row(t, name, func(t *testing.T) {
			cycle := time.Duration(60 / other.Events * float64(other.Per))
			var calls []*call
			for i := range 60 {
				l := limiterOf(t, rated(second, other), StartPool(Pool{Replicas: 60, Ordinal: i + 1}),
					StartEmpty())
				calls = append(calls, asking(t, l, "k", Cost("tokens", 1)))
			}
			time.Sleep(2 * max(cycle, time.Minute))
			for i, c := range calls {
				if !c.ended() || c.err != nil {
					t.Errorf("replica %d waits after two cycles", i+1)
					c.cancel()
				}
			}
		})
	}
}

// keptBesideTokens is a limit of requests whose sparse windows keep an event, since those of the tokens are
// longer.
var keptBesideTokens = rated(
	Rate{Name: "a", Events: 1, Per: time.Second, Aligned: true},
	Rate{Name: "b", Unit: "tokens", Events: 1, Per: 10 * time.Second, Aligned: true},
)

// An event that a sparse window keeps is one, however many windows pass, and it is there once. That holds
// also where the window in which it is used has one of its own.
func TestSparseWindowKeepsOneEvent(t *testing.T) {
	for late := range 10 * time.Second / time.Second {
		row(t, late, func(t *testing.T) {
			l := limiterOf(t, keptBesideTokens, StartPool(Pool{Replicas: 10, Ordinal: 1}))
			wants(t, l, "k", 0) // from now on the windows of the key pass one by one
			time.Sleep(time.Hour + late*time.Second)
			wants(t, l, "k", 1)
			n := 0
			for range 100 {
				time.Sleep(time.Second)
				for l.Allow("k") {
					n++
				}
			}
			if n != 10 {
				t.Errorf("%d events in a hundred windows, want every tenth", n)
			}
		})
	}
}

// An event that a sparse window keeps is still there when the pool has grown.
func TestSparseWindowKeepsItsEventInALargerPool(t *testing.T) {
	for late := range 10 * time.Second / time.Second {
		row(t, late, func(t *testing.T) {
			l := limiterOf(t, keptBesideTokens, StartPool(Pool{Replicas: 10, Ordinal: 1}))
			wants(t, l, "k", 0)
			time.Sleep(time.Hour + late*time.Second)
			if err := l.SetPool(Pool{Replicas: 20, Ordinal: 1}, 0); err != nil {
				t.Fatal(err)
			}
			wants(t, l, "k", 1)
		})
	}
}

// A call that does not fit beside what a window has admitted waits for the next one alone, where that has
// the event which this one keeps.
func TestWaitForAKeptEvent(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		limit := rated(Rate{Name: "a", Events: 2, Per: time.Second, Aligned: true},
			Rate{Name: "b", Unit: "tok", Events: 0.2, Per: 5 * time.Second, Aligned: true})
		pool := Pool{Replicas: 5, Ordinal: 2, Weight: 2, Fixed: true}
		l := limiterOf(t, limit, StartPool(pool))
		time.Sleep(time.Second) // the next window has two of its own, the one behind it none
		if !l.Allow("k") {
			t.Fatal("the first was refused")
		}
		began := time.Now()
		p, err := l.Acquire(t.Context(), "k", Weight(2))
		if err != nil {
			t.Fatal(err)
		}
		p.Release()
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("it waited %v, want the next window", waited)
		}
	})
}
