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

// Bound 11: with ordinals the fleet's total is exact in each single window.
func TestQuotasAddUpExactly(t *testing.T) {
	for _, events := range []uint64{1, 7, 333, 999, 1000, 1001, 2500, 3333, 10_000, 100_000, 123_457,
		1_000_000_007, 1e15} {
		for _, replicas := range []uint64{1, 2, 3, 7, 10, 64, 333} {
			for _, k := range []int64{0, 1, 2, 3, 999, 1000, 63_939_132, 1 << 50, -1, -17, math.MaxInt64 - 1,
				math.MinInt64 + 1} {
				sum := int64(0)
				for i := range replicas {
					c := schedule{per: 1, events: events, replicas: replicas, ordinal: i + 1, weight: 1}
					q := c.quota(k)
					if q < 0 || float64(q) > math.Ceil(c.mean()) {
						t.Fatalf("%+v: quota(%d) is %d", c, k, q)
					}
					sum += q
				}
				if want := total(events, k); sum != want {
					t.Errorf("%d thousandths, %d replicas, window %d: the sum is %d, want %d", events,
						replicas, k, sum, want)
				}
			}
		}
	}
}

func TestQuotaWithoutOrdinalRoundsDown(t *testing.T) {
	for _, c := range []struct {
		events, replicas uint64
		want             []int64 // from a window that is ours
	}{
		{100_000, 3, []int64{33, 33, 33}},
		{100_999, 100, []int64{1, 1, 1}},
		{10_000, 10, []int64{1, 1}},
		{10_000, 11, []int64{1, 0, 1, 0}},
		{10_000, 30, []int64{1, 0, 0, 1, 0, 0}},
		{500, 1, []int64{1, 0, 1, 0}},
		{300, 1, []int64{1, 0, 0, 0, 1}},
	} {
		for phase := range int64(7) {
			s := schedule{per: 1, events: c.events, replicas: c.replicas, weight: 1, phase: phase}
			first := int64(-10)
			for s.quota(first) == 0 {
				first++
			}
			for i, want := range c.want {
				if got := s.quota(first + int64(i)); got != want {
					t.Errorf("%+v: window %d has %d, want %d", s, i, got, want)
				}
			}
		}
	}
}

func TestScheduleSumIsTheLoop(t *testing.T) {
	for _, c := range []schedule{
		{events: 2500, replicas: 1, weight: 1, ordinal: 1},
		{events: 2500, replicas: 3, weight: 1, ordinal: 2},
		{events: 100_000, replicas: 7, weight: 1, ordinal: 7},
		{events: 300, replicas: 2, weight: 1, ordinal: 1}, {events: 100_000, replicas: 7, weight: 1},
		{events: 300, replicas: 2, weight: 1, phase: 5}, {events: 1, replicas: 1, weight: 1},
	} {
		for _, from := range []int64{-3000, -1, 0, 5, 999, 123_456} {
			want := 0.0
			for n := range int64(4000) {
				if got := c.sum(from, from+n); got != want {
					t.Fatalf("%+v: sum(%d, %d) is %v, want %v", c, from, from+n, got, want)
				}
				want += float64(c.quota(from + n))
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
		{1, math.MaxInt64, Pool{Replicas: maxReplicas}},
		{1, time.Millisecond, Pool{Replicas: maxReplicas}},
		{0.001, time.Millisecond, Pool{Replicas: maxReplicas}},
		{0.001, time.Millisecond, Pool{Replicas: maxReplicas, Ordinal: maxReplicas}},
		{2.5, year, Pool{Replicas: 2}},
	} {
		row(t, c, func(t *testing.T) {
			r := Rate{Events: c.events, Per: c.per, Aligned: true}
			l := limiterOf(t, rated(r), StartPool(c.pool))
			l.TryAcquire("k", Weight(int(r.burst())))
			time.Sleep(150 * year)
			_, d := l.TryAcquire("k", Weight(int(r.burst())))
			if d.RetryAfter < 0 || !d.OK && d.Reason != ReasonRate {
				t.Errorf("got %+v", d)
			}
			l.TryAcquireUpTo("k", math.MaxInt)
			l.Stats()
			asking(t, l, "k").cancel()
		})
	}
}

// Fewer events in a window than a thousandth must not break a limiter.
func TestAlignedRateOfHardlyAnything(t *testing.T) {
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("a limit that Validate accepts panics: %v", p)
		}
	}()
	limit := rated(Rate{Events: 0.0005, Per: time.Second, Aligned: true})
	if limit.Validate() == nil {
		limiterOf(t, limit).Allow("k")
	}
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

func TestWindow(t *testing.T) {
	w := opened(dawn, fiveASecond)
	for _, a := range []taking{
		{0, 3, true}, {0.5, 2, true}, {0.9, 1, false}, {0.999, 1, false},
		{1, 5, true}, {1, 1, false},
		{7.3, 5, true}, {7.3, 1, false}, // six windows without a call are lost
		{8, 1, true}, {8, 7, false}, // more than a window has waits for a fresh one
		{9, 7, true}, {9.5, 1, false}, {10, 3, true}, {10, 1, false}, // and owes
		{11, 17, true}, {12, 1, false}, {13, 1, false}, {14, 4, false}, {14, 3, true}, {14, 1, false},
		{15, 17, true}, {30, 5, true},
	} {
		if ok := w.uses(sec(a.t), int64(a.n), fiveASecond); ok != a.ok {
			t.Errorf("at %v s take %v: %v, want %v", a.t, a.n, ok, a.ok)
		}
	}
}

func TestAlignedWaitsEndAtTheWindowsStart(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Rate{Events: 3, Per: time.Minute, Aligned: true}))
		time.Sleep(17 * time.Second) // a bubble starts at midnight
		wants(t, l, "k", 3)
		if d := refusedFor(t, l, ReasonRate, "k"); d.RetryAfter != 43*time.Second {
			t.Errorf("retry after %v, want 43s", d.RetryAfter)
		}
		first, last := asking(t, l, "k", Weight(3)), asking(t, l, "k")
		time.Sleep(43 * time.Second)
		first.admittedAfter(t, 43*time.Second)
		last.waits(t)
		time.Sleep(time.Minute)
		last.admittedAfter(t, 103*time.Second)
		wants(t, l, "k", 2)
	})
}

func TestFractionsCarryOverWindows(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Rate{Events: 2.5, Per: time.Second, Aligned: true}),
			StartPool(Pool{Replicas: 1, Ordinal: 1, Fixed: true}))
		n := 0
		for range 100 {
			for l.Allow("k") {
				n++
			}
			time.Sleep(time.Second)
		}
		if n != 250 {
			t.Errorf("%d events in 100 windows of 2.5", n)
		}
	})
}

// A window may hold more than the global burst when fractions add up; a batch reader gets what there is.
func TestUpToOfAWindowWithACarriedEvent(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Rate{Events: 2.5, Per: time.Second, Aligned: true}),
			StartPool(Pool{Replicas: 1, Ordinal: 1, Fixed: true}))
		for i := range 4 {
			if _, n := l.TryAcquireUpTo("k", 10); n < 2 {
				t.Errorf("window %d: a batch of %d, want at least 2", i, n)
			}
			time.Sleep(time.Second)
		}
	})
}

func TestReplicasWithOrdinalsShareAWindowExactly(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		var fleet []*Limiter
		for i := range 7 {
			fleet = append(fleet, limiterOf(t, rated(Rate{Events: 10, Per: time.Minute, Aligned: true}),
				StartPool(Pool{Replicas: 7, Ordinal: i + 1, Fixed: true})))
		}
		for window := range 10 {
			n := 0
			for _, l := range fleet {
				for l.Allow("k") {
					n++
				}
			}
			if n != 10 {
				t.Errorf("window %d: %d events, want 10", window, n)
			}
			time.Sleep(time.Minute)
		}
	})
}

// A call above what a window has for this replica is let in by the next window that is unused, in a fleet of
// any size.
func TestLargeCallWaitsForOneWindowOnly(t *testing.T) {
	for _, weight := range []int{2, 50, 63, 64, 65, 70, 100} {
		row(t, weight, func(t *testing.T) {
			l := limiterOf(t, rated(Rate{Events: 100, Per: time.Minute, Aligned: true}), Replicas(100))
			wants(t, l, "k", 1)
			if d := refusedFor(t, l, ReasonRate, "k", Weight(weight)); d.RetryAfter != time.Minute {
				t.Errorf("weight %d: retry after %v, want 1m", weight, d.RetryAfter)
			}
			c := asking(t, l, "k", Weight(weight))
			time.Sleep(time.Minute)
			c.admittedAfter(t, time.Minute)
			c.cancel()
		})
	}
}

// A debt of many windows is waited for to its end, and not longer.
func TestDebtOfManyWindows(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Rate{Events: 1000, Per: time.Second, Aligned: true}), Replicas(1000))
		took(t, l, "k", Weight(1000))
		if d := refusedFor(t, l, ReasonRate, "k"); d.RetryAfter != 1000*time.Second {
			t.Errorf("retry after %v, want 1000 s", d.RetryAfter)
		}
		c := asking(t, l, "k")
		time.Sleep(1000 * time.Second)
		c.admittedAfter(t, 1000*time.Second)
	})
}

// A refund of a call that an earlier window paid for must not enlarge the present one.
func TestCorrectionDoesNotReachIntoTheNextWindow(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Rate{Unit: "tokens", Events: 100, Per: time.Minute, Aligned: true}))
		early := took(t, l, "k", Cost("tokens", 100))
		time.Sleep(time.Minute)
		took(t, l, "k", Cost("tokens", 100))
		if err := early.Correct("tokens", 0); err != nil {
			t.Fatal(err)
		}
		if _, d := l.TryAcquire("k", Cost("tokens", 100)); d.OK {
			t.Error("200 events in a window of 100")
		}
	})
}

// The time to come back is one at which all rules have room, also where one of them is open now and then.
func TestComeBackWhenAllAreOpen(t *testing.T) {
	bucket := Rate{Name: "bucket", Events: 1, Per: 7 * time.Second, Burst: 2}
	for name, limit := range map[string]Limit{
		"a sparse window": rated(bucket, Rate{Name: "w", Events: 1, Per: time.Second, Aligned: true}),
		"two sparse windows": rated(bucket, Rate{Name: "v", Events: 1, Per: time.Second, Aligned: true},
			Rate{Name: "w", Events: .7, Per: 3 * time.Second, Aligned: true}),
		"a turn": rated(bucket, Every(time.Second)),
	} {
		for ordinal := 1; ordinal <= 5; ordinal++ {
			row(t, []any{name, ordinal}, func(t *testing.T) {
				l := limiterOf(t, limit, StartPool(Pool{Replicas: 5, Ordinal: ordinal}), StartEmpty())
				for range 5 {
					d := l.Check("k")
					time.Sleep(d.RetryAfter)
					took(t, l, "k")
				}
			})
		}
	}
}

// A change that leaves an aligned rate as it is leaves its present window as it is too.
func TestAnotherRateChangesNoWindow(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		window := func(events float64) Rate {
			return Rate{Name: "w", Events: events, Per: time.Second, Aligned: true}
		}
		for phase := range 2 { // of the sparse windows of three replicas every second one is ours
			l := limiterOf(t, Rates(window(1)), WithPhase(int64(phase)))
			touch := func() float64 { return l.AppendState(nil, "k")[0].Left }
			l.Allow("k")
			time.Sleep(time.Second)
			touch()
			must(t, l.SetLimit(Limit{Deny: true}))
			must(t, l.SetPool(Pool{Replicas: 3}, 0))
			must(t, l.SetLimit(Rates(window(2))))
			before := touch()
			must(t, l.SetLimit(Rates(window(2), PerMinute(100))))
			if after := touch(); before != 1 || after != before {
				t.Errorf("phase %d: %v left, after the change of another rate %v, want 1", phase,
					before, after)
			}
			time.Sleep(time.Second) // the other phase's window
		}
	})
}

// TestALowerLimitOwesNothing: what an aligned rate has let through is not owed after a cut of limit or share.
func TestALowerLimitOwesNothing(t *testing.T) {
	for name, lower := range map[string]func(l *Limiter) error{
		"limit": func(l *Limiter) error { return l.SetLimit(rated(aligned(10, time.Minute))) },
		"pool":  func(l *Limiter) error { return l.SetPool(Pool{Replicas: 10}, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T) {
				l := limiterOf(t, rated(aligned(100, time.Minute)))
				wants(t, l, "k", 100)
				if err := lower(l); err != nil {
					t.Fatal(err)
				}
				wants(t, l, "k", 0)
				time.Sleep(time.Minute)
				wants(t, l, "k", 10) // the window is new
			})
		})
	}
}
