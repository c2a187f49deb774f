package quotient

import (
	"context"
	"errors"
	"math"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func TestAcquireServesFirstInFirstOut(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(1, 4)))
		took(t, l, "k", Weight(4))
		var calls []*call
		for _, weight := range []int{1, 4, 1, 2} {
			calls = append(calls, asking(t, l, "k", Weight(weight)))
		}
		other := asking(t, l, "another key")
		other.admittedAfter(t, 0)
		time.Sleep(8 * time.Second)
		for i, after := range []time.Duration{1, 5, 6, 8} {
			calls[i].admittedAfter(t, after*time.Second)
		}
	})
}

// Failure mode 32: small calls do not starve a large one, and TryAcquire overtakes no waiter.
func TestNoWaiterOvertakes(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 4})
		p := took(t, l, "k")
		large, small := asking(t, l, "k", Weight(4)), asking(t, l, "k")
		wants(t, l, "k", 0)
		refusedFor(t, l, ReasonInFlight, "k")
		if _, n := l.TryAcquireUpTo("k", 3); n != 0 {
			t.Errorf("a batch of %d overtook", n)
		}
		small.waits(t)
		p.Release()
		large.admittedAfter(t, 0)
		small.waits(t)
		large.permit.Release()
		small.admittedAfter(t, 0)
	})
}

func TestTurnBeyondTheDeadlineFailsAtOnce(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Every(10*time.Second)), Replicas(2))
		wants(t, l, "k", 1)
		c := askingUntil(t, l, 19*time.Second, "k")
		want := LimitedError{Key: "k", Decision: Decision{Rule: "interval", Reason: ReasonDeadline, Limit: 1,
			Share: .5, Window: 10 * time.Second, RetryAfter: 20 * time.Second}}
		if got := c.refusedAfter(t, 0, ReasonDeadline); *got != want {
			t.Errorf("got %+v, want %+v", *got, want)
		}
		if !errors.Is(c.err, context.DeadlineExceeded) || !errors.Is(c.err, ErrLimited) {
			t.Errorf("%v is not what it should be", c.err)
		}
		first := askingUntil(t, l, 21*time.Second, "k")
		askingUntil(t, l, 39*time.Second, "k").refusedAfter(t, 0, ReasonDeadline) // behind the first
		time.Sleep(20 * time.Second)
		first.admittedAfter(t, 20*time.Second)
	})
}

func TestUnknownTurnWaitsForTheDeadline(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 1})
		p := took(t, l, "k")
		c := askingUntil(t, l, 5*time.Second, "k")
		time.Sleep(5 * time.Second)
		if !c.ended() || c.err != context.DeadlineExceeded || c.took != 5*time.Second {
			t.Errorf("ended after %v with %v", c.took, c.err)
		}
		p.Release()
		took(t, l, "k")
	})
}

func TestContextThatHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l := limiterOf(t, rated(perSecond(1, 3)))
	if _, err := l.Acquire(ctx, "k"); err != context.Canceled {
		t.Errorf("got %v", err)
	}
	if st := l.Stats(); st.Admitted != 0 || st.Cancelled != 0 || st.Keys != 0 {
		t.Errorf("it left a trace: %+v", st)
	}
}

func TestMaxWait(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Every(10*time.Second)), MaxWait(10*time.Second))
		wants(t, l, "k", 1)
		c := asking(t, l, "k")
		if err := asking(t, l, "k").refusedAfter(t, 0, ReasonWait); err.RetryAfter != 20*time.Second {
			t.Errorf("retry after %v, want 20s", err.RetryAfter)
		}
		time.Sleep(10 * time.Second)
		c.admittedAfter(t, 10*time.Second)
	})
}

// Where the turn is not known each waiter ends after its own MaxWait, not only the head.
func TestMaxWaitOfAnUnknownTurn(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 1}, MaxWait(10*time.Second))
		p := took(t, l, "k")
		var calls []*call
		for range 5 {
			calls = append(calls, asking(t, l, "k"))
			time.Sleep(time.Second)
		}
		time.Sleep(7 * time.Second) // at 12 s
		for _, c := range calls[:3] {
			c.refusedAfter(t, 10*time.Second, ReasonWait)
		}
		p.Release()
		calls[3].admittedAfter(t, 9*time.Second)
		calls[4].waits(t)
		time.Sleep(2 * time.Second)
		calls[4].refusedAfter(t, 10*time.Second, ReasonWait)
	})
}

// A turn that was near when a caller came may move away; its patience ends all the same.
func TestMaxWaitAfterACut(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Every(time.Second)), MaxWait(10*time.Second))
		wants(t, l, "k", 1)
		c := asking(t, l, "k")
		setLimit(t, l, rated(Every(time.Hour)))
		time.Sleep(10 * time.Second)
		c.refusedAfter(t, 10*time.Second, ReasonWait)
	})
}

// Failure mode 8: the longest Duration is no bound, and above all it does not overflow into the past. This
// runs by the real clock: in a bubble a timer that fires without end stops the clock.
func TestLongestMaxWait(t *testing.T) {
	l := limiterOf(t, Limit{InFlight: 1}, MaxWait(math.MaxInt64))
	took(t, l, "k")
	s := l.shard("k")
	s.mu.Lock() // a timer that fires must wait for this
	defer s.mu.Unlock()
	now := s.tick(instant{at: time.Hour})
	g, w := s.gate(l.hash("k"), "k", now, 0), newWaiter(oneRequest)
	w.key, w.since = "k", now.at
	l.waiting.Add(1)
	s.enqueue(g, w, now)
	timer := g.ext.timer
	for range 1000 {
		runtime.Gosched()
	}
	if timer != nil && !timer.Stop() {
		t.Error("the timer of a waiter that may wait for 292 years has fired at once")
	}
	s.dequeue(g, w)
}

// Failure mode 3: a raised limit lets all waiters through that it admits, at once.
func TestRaiseWakesWaiters(t *testing.T) {
	for name, raise := range map[string]func(*testing.T, *Limiter){
		"a higher rate": func(t *testing.T, l *Limiter) {
			setLimit(t, l, Limit{Rates: []Rate{perSecond(1e12, 1000)}, InFlight: 2_000_000})
			time.Sleep(time.Microsecond)
		},
		"no rate":  func(t *testing.T, l *Limiter) { setLimit(t, l, Limit{InFlight: 2_000_000}) },
		"no limit": func(t *testing.T, l *Limiter) { setLimit(t, l, Limit{}) },
		"fewer peers": func(t *testing.T, l *Limiter) {
			setReplicas(t, l, 1)
			time.Sleep(10 * time.Millisecond)
		},
	} {
		row(t, name, func(t *testing.T) {
			l := limiterOf(t, Limit{Rates: []Rate{perSecond(1e6, 1000)}, InFlight: 1999}, Replicas(1000))
			took(t, l, "k")
			var calls []*call
			for range 1000 {
				calls = append(calls, asking(t, l, "k"))
			}
			start := time.Now()
			raise(t, l)
			for i, c := range calls {
				if !c.ended() || c.err != nil {
					t.Fatalf("waiter %d of 1000 was not let through: %v", i, c.err)
				}
			}
			if d := time.Since(start); d > 10*time.Millisecond {
				t.Errorf("it took %v", d)
			}
		})
	}
}

// Failure mode 4: a cut re-paces those who wait already.
func TestCutRepacesWaiters(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(1000, 1)))
		wants(t, l, "k", 1)
		for range 500 {
			defer asking(t, l, "k").cancel()
		}
		before := l.Stats()
		setLimit(t, l, rated(perSecond(1, 1)))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := l.Stats().Admitted - before.Admitted; got != 10 {
			t.Errorf("%d were admitted in 10 s at 1 a second", got)
		}
	})
}

// A waiter that a cut makes impossible is refused, with the reason.
func TestCutRefusesTheHead(t *testing.T) {
	for _, c := range []struct {
		name   string
		cut    func(*testing.T, *Limiter)
		reason Reason
	}{
		{"slots of the fleet", func(t *testing.T, l *Limiter) { setLimit(t, l, Limit{InFlight: 2}) },
			ReasonTooLarge},
		{"slots of this replica", func(t *testing.T, l *Limiter) { setReplicas(t, l, 2) }, ReasonShare},
		{"burst", func(t *testing.T, l *Limiter) { setLimit(t, l, rated(perSecond(1, 2))) }, ReasonTooLarge},
		{"all", func(t *testing.T, l *Limiter) { setLimit(t, l, Limit{Deny: true}) }, ReasonDenied},
	} {
		row(t, c.name, func(t *testing.T) {
			l := limiterOf(t, Limit{InFlight: 4})
			p := took(t, l, "k", Weight(2))
			head, next := asking(t, l, "k", Weight(3)), asking(t, l, "k")
			time.Sleep(time.Second)
			c.cut(t, l)
			head.refusedAfter(t, time.Second, c.reason)
			p.Release()
			next.cancel()
		})
	}
}

// A waiter in the middle of a queue, however long, is refused too, and those before and behind it stay.
func TestCutRefusesWhereverTheyStand(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 4})
		p := took(t, l, "k", Weight(4))
		var small, large []*call
		for range 200 {
			small, large = append(small, asking(t, l, "k")), append(large, asking(t, l, "k", Weight(3)))
		}
		setLimit(t, l, Limit{InFlight: 2})
		for _, c := range large {
			c.refusedAfter(t, 0, ReasonTooLarge)
		}
		for _, c := range small {
			c.waits(t)
		}
		p.Release()
		small[0].admittedAfter(t, 0)
		small[1].admittedAfter(t, 0)
		for _, c := range small[2:] {
			c.gaveUp(t)
		}
		inFlight(t, l, 2)
	})
}

// serve reports whether there may be more to do: only when it has served as many as it may under one lock.
func TestServeReportsWhetherThereIsMore(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: wakeBatch + 1})
		held := took(t, l, "k", Weight(wakeBatch+1))
		s, g := l.shard("k"), gateOf(l, "k")
		more := func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.serve(g, s.latest)
		}
		if more() {
			t.Error("there is more to do in an empty queue")
		}
		var calls []*call
		for range wakeBatch + 1 {
			calls = append(calls, asking(t, l, "k"))
		}
		if more() {
			t.Error("there is more to do where the head has no room")
		}
		s.mu.Lock()
		g.used -= wakeBatch // as a release does before it serves
		s.mu.Unlock()
		if !more() || g.waiters() != 1 {
			t.Errorf("after a whole batch there is no more to do, and %d wait", g.waiters())
		}
		s.mu.Lock()
		g.used += wakeBatch
		s.mu.Unlock()
		for _, c := range calls[:wakeBatch] {
			c.admittedAfter(t, 0)
			c.permit.Release()
		}
		held.Release()
		calls[wakeBatch].admittedAfter(t, 0)
	})
}

// Failure mode 5: a thousand cancelled waiters leave the tokens as they were.
func TestCancelStorm(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{Rates: []Rate{perSecond(1, 2)}, InFlight: 500})
		wants(t, l, "k", 2)
		var calls []*call
		for range 1000 {
			calls = append(calls, asking(t, l, "k"))
		}
		for _, c := range calls {
			c.gaveUp(t)
		}
		has(t, l, "k", 0)
		time.Sleep(time.Second)
		wants(t, l, "k", 1)
		if st := l.Stats(); st.Waiting != 0 || st.Cancelled != 1000 || st.InFlight != 0 {
			t.Errorf("waiting %d, cancelled %d, in flight %d", st.Waiting, st.Cancelled, st.InFlight)
		}
	})
}

// Failure mode 32: a head that gives up wakes the next one.
func TestCancelledHeadWakesTheNext(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(1, 5)))
		took(t, l, "k", Weight(3))
		head, next := asking(t, l, "k", Weight(4)), asking(t, l, "k", Weight(2))
		next.waits(t)
		time.Sleep(500 * time.Millisecond)
		head.gaveUp(t)
		next.admittedAfter(t, 500*time.Millisecond)
		has(t, l, "k", 0.5)
	})
}

func TestCancelInTheMiddleMovesThoseBehind(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Every(time.Second)))
		wants(t, l, "k", 1)
		first, second, third := asking(t, l, "k"), asking(t, l, "k"), asking(t, l, "k")
		second.gaveUp(t)
		time.Sleep(2 * time.Second)
		first.admittedAfter(t, time.Second)
		third.admittedAfter(t, 2*time.Second)
	})
}

// Behind a head that waits for a slot, an aligned window with room must not count as a wait for the next
// window.
func TestAlignedTurnBehindASlot(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		limit := Limit{InFlight: 1,
			Rates: []Rate{{Name: "day", Events: 1000, Per: 24 * time.Hour, Aligned: true}}}
		l := limiterOf(t, limit, MaxWait(time.Minute))
		p := took(t, l, "k")
		a := asking(t, l, "k")
		b := asking(t, l, "k") // 998 of 1000 are left today
		a.waits(t)
		b.waits(t)
		_, d := l.TryAcquire("k")
		if d.RetryAfter > time.Minute {
			t.Errorf("RetryAfter %v with 998 of 1000 left in the window", d.RetryAfter)
		}
		p.Release()
		for _, c := range []*call{a, b} {
			c.cancel()
		}
		synctest.Wait()
	})
}

// A waiter that was given up counts in no estimate.
func TestCancelledWaiterIsNotCounted(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Every(time.Second)))
		wants(t, l, "k", 1)
		stays, goes := asking(t, l, "k"), asking(t, l, "k")
		goes.cancel()
		synctest.Wait()
		if d := refusedFor(t, l, ReasonRate, "k"); d.RetryAfter != 2*time.Second {
			t.Errorf("retry after %v behind one waiter, want 2s", d.RetryAfter)
		}
		stays.cancel()
	})
}

// The end of a queue leaves nothing behind: no timer, no entry in the shard's list, nothing behind the gate.
func TestQueueLeavesNothingBehind(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Every(time.Hour)))
		wants(t, l, "k", 1)
		c := asking(t, l, "k")
		g, s := gateOf(l, "k"), l.shard("k")
		timer := g.ext.timer
		c.cancel()
		synctest.Wait()
		if g.ext != nil || len(s.waiting) != 0 {
			t.Errorf("left: %+v, %d gates with waiters", g.ext, len(s.waiting))
		}
		if timer == nil || timer.Stop() {
			t.Error("the timer goes on")
		}
	})
}

// MaxWait ends in time also under slots alone, which are decided without a clock: an overtaker sets the timer
// again.
func TestMaxWaitBehindAnOvertakerOfSlots(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 2}, MaxWait(time.Second))
		took(t, l, "k")
		low := asking(t, l, "k", Weight(2), PriorityLow.Option())
		time.Sleep(900 * time.Millisecond)
		took(t, l, "k", PriorityHigh.Option())
		time.Sleep(100 * time.Millisecond)
		low.refusedAfter(t, time.Second, ReasonWait)
	})
}
