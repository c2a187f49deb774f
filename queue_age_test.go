package quotient

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// A queue that has emptied starts its count again.
func TestTrickleBeginsAnew(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{Rates: []Rate{perSecond(1e6, 1e6), PerMinute(1e9)}, InFlight: 1})
		p := took(t, l, "k")
		for range 2 {
			low := asking(t, l, "k", PriorityLow.Option())
			for range 5 {
				high := asking(t, l, "k", PriorityHigh.Option())
				p.Release()
				high.admittedAfter(t, 0)
				p = high.permit
			}
			low.gaveUp(t)
			synctest.Wait()
		}
	})
}

// Failure mode 27: a caller that overtakes and never gives back does not keep the others waiting.
func TestOvertakerThatForgets(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 3}, MaxHold(5*time.Second))
		p := took(t, l, "k", Weight(2))
		p.ExpireIn(0)
		waiter := asking(t, l, "k", Weight(3))
		took(t, l, "k", PriorityHigh.Option())
		p.Release()
		time.Sleep(5 * time.Second)
		waiter.admittedAfter(t, 5*time.Second)
		waiter.permit.Release()
	})
}

// A waiter that becomes next because others have passed it is admitted at once where there is room. It does
// not wait for the turn of one that needs more.
func TestOvertakenUntilItIsNext(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(1, 20)))
		took(t, l, "k", Weight(20))
		low := asking(t, l, "k", PriorityLow.Option())
		big := asking(t, l, "k", Weight(18), PriorityHigh.Option())
		time.Sleep(10 * time.Second) // ten tokens, which are not enough for the big one
		low.waits(t)
		for range trickle - 1 {
			took(t, l, "k", PriorityCritical.Option())
		}
		low.admittedAfter(t, 10*time.Second)
		big.waits(t)
		time.Sleep(16 * time.Second)
		big.admittedAfter(t, 26*time.Second)
	})
}

// The seventh overtaker makes the oldest next, but no timer asks it: the one that is set is that of the head.
func TestSeventhOvertakerWakesTheOldest(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(100, 100),
			Rate{Name: "tok", Unit: "tokens", Events: 1, Per: time.Hour, Burst: 1}))
		took(t, l, "k", Weight(100), Cost("tokens", 1)) // all is empty
		low := asking(t, l, "k", PriorityLow.Option())  // would be served in 10 ms
		normal := asking(t, l, "k", Cost("tokens", 1))  // goes before it, and waits an hour for a token
		time.Sleep(time.Second)
		low.waits(t) // head of line, by design
		for range 7 {
			took(t, l, "k", PriorityCritical.Option())
		}
		time.Sleep(time.Second)
		if !low.ended() {
			t.Error("low is next, has all it asks for, and is not asked")
		}
		if _, d := l.TryAcquire("k", PriorityCritical.Option()); !d.OK {
			t.Errorf("and a critical ask is refused: %+v", d)
		}
		time.Sleep(10 * time.Minute)
		if !low.ended() {
			t.Error("low still waits 10 minutes later")
		}
		low.cancel()
		normal.cancel()
		synctest.Wait()
	})
}

// The take of a call is as old as the youngest of the rules that it has taken from, and of no others.
func TestAgeIsThatOfRulesAskedFor(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		tokens := Rate{Name: "tokens", Unit: "tokens", Events: 1, Per: time.Second, Burst: 10}
		l := limiterOf(t, Limit{Rates: []Rate{perSecond(10, 10), tokens}, InFlight: 5})
		if p, d := l.TryAcquire("k", Cost("tokens", 10)); !d.OK {
			t.Fatal(d)
		} else {
			p.Release()
		}
		s, g := l.shard("k"), gateOf(l, "k")
		s.mu.Lock()
		defer s.mu.Unlock()
		now := s.now()
		if got := g.age(now, &oneRequest); got < 800*time.Millisecond || got > 900*time.Millisecond {
			t.Errorf("nine of ten requests a second are left, for %v", got)
		}
		d := oneRequest
		d.costs[0], d.priced = 1, true
		if got := g.age(now, &d); got != 0 {
			t.Errorf("no token is left, and they were there for %v", got)
		}
	})
}

// The events of a window have no age.
func TestAgeLeavesWindowsOut(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t,
			rated(perSecond(10, 10), Rate{Name: "minute", Events: 100, Per: time.Minute, Aligned: true}))
		took(t, l, "k")
		s, g := l.shard("k"), gateOf(l, "k")
		s.mu.Lock()
		defer s.mu.Unlock()
		if got := g.age(s.now(), &oneRequest); got < 800*time.Millisecond {
			t.Errorf("nine of ten requests a second are left, for %v", got)
		}
	})
}

// Slots, learned or not, come back by releases: what a call has taken of them has no age.
func TestAgeLeavesSlotsOut(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 50}, policyOf(policy.AIMD{}, false))
		took(t, l, "k")
		time.Sleep(time.Second)
		s, g := l.shard("k"), gateOf(l, "k")
		s.mu.Lock()
		defer s.mu.Unlock()
		if got := g.age(s.now(), &oneRequest); got == 0 {
			t.Error("no age")
		}
	})
}
