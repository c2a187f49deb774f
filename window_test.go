package quotient

import (
	"math"
	"math/big"
	"testing"
	"time"
)

// later is t so much later by both clocks.
func (t instant) later(d time.Duration) instant { return instant{t.at + d, t.wall + int64(d)} }

// stepped is t as a machine would read it whose wall clock, and only that, was set by so much.
func (t instant) stepped(by time.Duration) instant { return instant{t.at, t.wall + int64(by)} }

// realNow is an instant whose time by the wall clock is the real one, so that windows are met at any phase.
func realNow() instant { return instant{at: time.Hour, wall: time.Now().UnixNano()} }

// total is what windows may do over the fleet between window k and the next: the difference of two floors.
func total(events uint64, k int64) int64 {
	upTo := func(k int64) *big.Int {
		n := new(big.Int).Mul(big.NewInt(k), new(big.Int).SetUint64(events))
		return n.Div(n, big.NewInt(milli)) // Euclidean: a floor
	}
	return new(big.Int).Sub(upTo(k+1), upTo(k)).Int64()
}

// opened returns the window that now lies in.
func opened(now instant, c *schedule) *window {
	w := openWindow(now, c)
	return &w
}

// uses takes n events at an instant, and reports whether the window had room for them.
func (w *window) uses(now instant, n int64, c *schedule) bool {
	r := &rule{schedule: c}
	if w.until(now, r, 0, 0, float64(n)) > 0 {
		return false
	}
	w.take(now, r, float64(n))
	return true
}

var fiveASecond = &schedule{per: int64(time.Second), events: 5000, replicas: 1, ordinal: 1, weight: 1}

func TestQuotaWithoutOrdinalRoundsDown(t *testing.T) {
	for _, c := range []struct {
		events, replicas uint64
		want             []int64 // from a window that is ours
	}{
		{100_000, 3, []int64{33, 33, 33}}, {100_999, 100, []int64{1, 1, 1}}, {10_000, 10, []int64{1, 1}},
		{10_000, 11, []int64{1, 0, 1, 0}}, {10_000, 30, []int64{1, 0, 0, 1, 0, 0}},
		{500, 1, []int64{1, 0, 1, 0}}, {300, 1, []int64{1, 0, 0, 0, 1}},
	} {
		for phase := range int64(7) {
			s := schedule{per: 1, events: c.events, replicas: c.replicas, weight: 1, phase: phase}
			first := int64(-10)
			for s.quota(first) == 0 {
				first++
			}
			for i, want := range c.want {
				is(t, []any{s, i}, s.quota(first+int64(i)), want)
			}
		}
	}
}

// The largest and smallest numbers that Validate lets through must not overflow anywhere.
func TestScheduleAtTheEdges(t *testing.T) {
	for _, c := range []struct {
		events float64
		per    time.Duration
		pool   Pool
	}{
		{maxEvents, time.Second, Pool{Replicas: 1, Ordinal: 1}},
		{maxEvents, time.Second, Pool{Replicas: maxReplicas, Ordinal: maxReplicas}},
		{maxEvents, math.MaxInt64, Pool{Replicas: maxReplicas}},
		{1, math.MaxInt64, Pool{Replicas: maxReplicas, Ordinal: 1}},
		{1, math.MaxInt64, Pool{Replicas: maxReplicas}}, {1, ms, Pool{Replicas: maxReplicas}},
		{0.001, ms, Pool{Replicas: maxReplicas}},
		{0.001, ms, Pool{Replicas: maxReplicas, Ordinal: maxReplicas}}, {2.5, year, Pool{Replicas: 2}},
	} {
		row(t, c, func(t *testing.T) {
			r := aligned(c.events, c.per)
			l := mustNew(t, Rates(r), StartPool(c.pool))
			l.TryAcquire("k", Weight(mostOf(r)))
			time.Sleep(150 * year)
			_, d := l.TryAcquire("k", Weight(mostOf(r)))
			if d.RetryAfter < 0 || !d.OK && d.Reason != ReasonRate {
				t.Errorf("got %+v", d)
			}
			l.TryAcquireUpTo("k", math.MaxInt)
			l.Stats()
			asking(t, l, "k").cancel()
		})
	}
}

func TestWindowsOfALimiter(t *testing.T) {
	row(t, "a batch gets also what has been carried over", func(t *testing.T) {
		l := mustNew(t, Rates(aligned(2.5, time.Second)), StartPool(Pool{Replicas: 1, Ordinal: 1}))
		sum := 0
		for range 100 {
			_, n := l.TryAcquireUpTo("k", 10)
			sum += n
			time.Sleep(time.Second)
		}
		is(t, "events in 100 windows of 2.5", sum, 250)
	})
	row(t, "a correction does not reach into the next window", func(t *testing.T) {
		l := mustNew(t, Rates(Rate{Unit: "tokens", Events: 100, Per: time.Minute, Kind: Window}))
		early := took(t, l, "k", Cost("tokens", 100))
		time.Sleep(time.Minute)
		took(t, l, "k", Cost("tokens", 100))
		corrects(t, early, 0)
		refuses(t, l, "k", Cost("tokens", 100))
	})
	row(t, "another rate changes no window", func(t *testing.T) {
		for phase := range 2 { // of the sparse windows of three replicas every second one is ours
			l := mustNew(t, Rates(aligned(1, time.Second)), WithPhase(int64(phase)))
			left := func() float64 { return l.Explain("k").Rules[0].Left }
			l.Allow("k")
			time.Sleep(time.Second)
			left()
			setLimit(t, l, Limit{Deny: true})
			setReplicas(t, l, 3)
			setLimit(t, l, Rates(aligned(2, time.Second)))
			is(t, "left", left(), 1)
			setLimit(t, l, Rates(aligned(2, time.Second), PerMinute(100)))
			is(t, "left after the change of another rate", left(), 1)
			time.Sleep(time.Second) // the other phase's window
		}
	})
	// It may have done so just before a first aligned rate was set.
	row(t, "windows go on for a caller that has read the monotonic clock alone", func(t *testing.T) {
		l := mustNew(t, Rates(aligned(5, time.Hour)))
		for i := range 3 {
			wants(t, l, "k", 5)
			now := instant{at: l.shard("k").latest.at + time.Hour}
			for n := range 6 {
				is(t, []any{i, n}, allowedAt(l, "k", now), n < 5)
			}
			time.Sleep(2 * time.Hour)
		}
	})
	row(t, "a raised limit brings each replica whole events, beside those that were kept", func(t *testing.T) {
		var fleet []*Limiter
		sum := func() (n int) {
			for _, l := range fleet {
				n += admitted(l, "k")
			}
			return n
		}
		other := Rate{Name: "b", Unit: "tok", Events: 0.2, Per: 5 * time.Second, Kind: Window}
		for i := range 4 {
			fleet = append(fleet, mustNew(t, Rates(other, aligned(1, 5*time.Second)),
				StartPool(Pool{Replicas: 4, Ordinal: i + 1})))
		}
		sum()
		time.Sleep(20 * time.Second)
		is(t, "kept", sum(), 4)
		for _, l := range fleet {
			setLimit(t, l, Rates(other, aligned(10, 5*time.Second)))
		}
		is(t, "more", sum(), 4)
	})
	row(t, "one waits for the next window where that has the event which this one keeps", func(t *testing.T) {
		limit := Rates(aligned(2, time.Second),
			Rate{Name: "b", Unit: "tok", Events: 0.2, Per: 5 * time.Second, Kind: Window})
		l := mustNew(t, limit, StartPool(Pool{Replicas: 5, Ordinal: 2, Weight: 2, Fixed: true}))
		time.Sleep(time.Second) // the next window has two of its own, the one behind it none
		took(t, l, "k")
		c := asking(t, l, "k", Weight(2))
		time.Sleep(time.Second)
		c.admittedAfter(t, time.Second)
	})
}

// A call above what a window has for this replica is let in by the next window that is unused, in a fleet of
// any size. Its debt of many windows is waited for to its end, and not longer.
func TestLargeCallWaitsForOneWindowOnly(t *testing.T) {
	for _, weight := range []int{2, 50, 63, 64, 65, 70, 100} {
		row(t, weight, func(t *testing.T) {
			l := mustNew(t, Rates(aligned(100, time.Minute)), Replicas(100))
			wants(t, l, "k", 1)
			is(t, "retry after", refusedFor(t, l, ReasonRate, "k", Weight(weight)).RetryAfter, time.Minute)
			c := asking(t, l, "k", Weight(weight))
			time.Sleep(time.Minute)
			c.admittedAfter(t, time.Minute)
			owed := time.Duration(weight) * time.Minute
			is(t, "owed", refusedFor(t, l, ReasonRate, "k").RetryAfter, owed)
			next := asking(t, l, "k")
			time.Sleep(owed)
			next.admittedAfter(t, owed)
		})
	}
}

// What an aligned rate has let through is not owed after a cut of limit or share.
func TestALowerLimitOwesNothing(t *testing.T) {
	for name, lower := range map[string]func(l *Limiter) error{
		"limit": func(l *Limiter) error { return l.SetLimit(Rates(aligned(10, time.Minute))) },
		"pool":  func(l *Limiter) error { return l.SetPool(Pool{Replicas: 10}, 0) },
	} {
		row(t, name, func(t *testing.T) {
			l := mustNew(t, Rates(aligned(100, time.Minute)))
			wants(t, l, "k", 100)
			must(t, lower(l))
			wants(t, l, "k", 0)
			time.Sleep(time.Minute)
			wants(t, l, "k", 10) // the window is new
		})
	}
}

// Bound 11: a step of the wall clock opens at most one window, and a step back opens none at once.
func TestClockStepOpensOneWindow(t *testing.T) {
	for step, most := range map[time.Duration]int64{
		time.Second: 5, time.Hour: 5, 10_000 * time.Hour: 5, -time.Second: 0, -time.Hour: 0,
		-10_000 * time.Hour: 0,
	} {
		now := realNow()
		w, n := opened(now, fiveASecond), int64(0)
		w.used = 5
		for w.uses(now.stepped(step), 1, fiveASecond) {
			n++
		}
		is(t, step, n, most)
	}
}

// However the wall clock swings, no more windows open than real time has room for, plus one.
func TestClockThatSwingsOpensNoWindows(t *testing.T) {
	start := realNow()
	w, n := opened(start, fiveASecond), 0
	for i := range 1000 {
		now := start.later(time.Duration(i) * ms)
		swing := time.Duration(i%2) * time.Hour
		for w.uses(now.stepped(swing), 1, fiveASecond) {
			n++
		}
	}
	if n > 15 {
		t.Errorf("%d events in one second, want at most those of three windows", n)
	}
}

// After a step back one window opens each period, and it is the one by the wall clock.
func TestClockThatWasAheadGoesOn(t *testing.T) {
	start := realNow()
	w := opened(start, fiveASecond)
	for i := range 60 {
		now := start.later(time.Duration(i) * time.Second).stepped(-time.Hour)
		is(t, []any{i, "a window"}, w.uses(now, 5, fiveASecond), true)
		is(t, []any{i, "a second one"}, w.uses(now, 1, fiveASecond), false)
		is(t, []any{i, "index"}, w.index, fiveASecond.index(now.wall))
	}
}

// A step forward repays no debt: only windows that time has passed for do.
func TestStepForwardRepaysNothing(t *testing.T) {
	start := realNow()
	w := opened(start, fiveASecond)
	is(t, "a large ask in a fresh window", w.uses(start, 50, fiveASecond), true)
	is(t, "after a step", w.uses(start.stepped(time.Hour), 1, fiveASecond), false)
	later := start.later(11 * time.Second).stepped(time.Hour)
	is(t, "after eleven windows, of which nine are owed", w.uses(later, 1, fiveASecond), true)
}

// A limit that gets its first aligned rate long after the start goes by the wall clock of then. The clock may
// have been set since the limiter was made, and calls have not read it.
func TestFirstAlignedRateReadsTheWallClock(t *testing.T) {
	for _, step := range []time.Duration{1000 * time.Hour, -1000 * time.Hour} {
		row(t, step, func(t *testing.T) {
			wrong := step // the wall clock is wrong by so much
			wall := func(t time.Time) int64 { return t.Add(wrong).UnixNano() }
			l := mustNew(t, Rates(perSecond(1, 5)), WithWallClock(wall))
			r := aligned(5, 10*time.Hour)
			wants(t, l, "k", 5)
			wrong = 0
			time.Sleep(time.Hour)
			l.Allow("other") // at the instant of the change
			setLimit(t, l, Rates(r))
			wants(t, l, "k", 5) // of a window that the key has taken nothing of
			for name, g := range map[string]*gate{
				"a key never seen": l.shard("k").untouched, "a key": gateOf(l, "k"),
			} {
				is(t, name, g.ext.rest[0].(*window).index, time.Now().UnixNano()/int64(r.Per))
			}
		})
	}
}

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
	second := Rate{Name: "second", Events: 1, Per: time.Second, Kind: Window}
	for name, other := range map[string]Rate{
		"another length": {Unit: "tokens", Events: 1, Per: 10 * time.Second, Kind: Window},
		"another number": {Unit: "tokens", Events: 2, Per: time.Second, Kind: Window},
		"half a window":  {Unit: "tokens", Events: .5, Per: 7 * time.Second, Kind: Window},
	} {
		row(t, name, func(t *testing.T) {
			cycle := time.Duration(60 / other.Events * float64(other.Per))
			var calls []*call
			for i := range 60 {
				l := mustNew(t, Rates(second, other), StartPool(Pool{Replicas: 60, Ordinal: i + 1}),
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
