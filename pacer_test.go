package quotient

import (
	"math"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// pause hands over a pace of so many events a second that starts so long from now.
func (p *panel) pause(t *testing.T, l *Limiter, name string, rate float64, d time.Duration) {
	t.Helper()
	p.gives(t, l, name, policy.Pace{Rate: rate, NotBefore: since(l) + d})
}

// slotsOf8 is how many slots a key of a panel may have in flight: what its controller has learned, of 8.
func slotsOf8(g *gate) int { return min(g.ext.learned.slots, g.setting.slots) }

// Nothing passes before the instant that a controller names, one request at it, and more at its rate.
func TestNotBefore(t *testing.T) {
	for _, name := range []string{requests, tokens} {
		row(t, name, func(t *testing.T) {
			l, p := governing(t, Replicas(1))
			time.Sleep(time.Minute)
			p.pause(t, l, name, 10, 5*time.Second)
			if d := refusedFor(t, l, ReasonRate, "k", Cost("tokens", 1)); d.RetryAfter != 5*time.Second ||
				d.Rule != ctrlRule {
				t.Errorf("refused with %+v, want to wait 5 s for a controller", d)
			}
			a, b, c := asking(t, l, "k", Cost("tokens", 1)), asking(t, l, "k", Cost("tokens", 1)),
				asking(t, l, "k", Cost("tokens", 1))
			time.Sleep(5*time.Second - 1)
			a.waits(t)
			time.Sleep(time.Second)
			a.admittedAfter(t, 5*time.Second)
			b.admittedAfter(t, 5100*time.Millisecond)
			c.admittedAfter(t, 5200*time.Millisecond)
		})
	}
}

// Nothing accrues during a pause, nor does a full bucket survive it.
func TestNothingAccruesBehindAGate(t *testing.T) {
	for _, c := range []struct {
		after time.Duration // the end of the gate
		want  int
	}{
		{-1, 0},
		{0, 1},
		{9 * time.Millisecond, 1},
		{10 * time.Millisecond, 2},
		{50 * time.Millisecond, 6},
		{time.Minute, 10},
	} {
		row(t, c.after, func(t *testing.T) {
			l, p := governing(t, Replicas(1))
			setLimit(t, l, rated(perSecond(2000, 4000)))
			time.Sleep(time.Minute)
			p.says[requests] = policy.Pace{Rate: 100, NotBefore: since(l) + 3*time.Second}
			took(t, l, "k").Done(success)
			time.Sleep(3*time.Second + c.after)
			if _, n := l.TryAcquireUpTo("k", 100); n != c.want {
				t.Errorf("%d at once, want %d", n, c.want)
			}
		})
	}
}

// A pause of slots admits no call, however many are free. After it one passes, and more as the slots come
// free on average.
func TestNotBeforeOfSlots(t *testing.T) {
	for _, rates := range []int{2, 1} { // one is decided in a shorter way
		row(t, rates, func(t *testing.T) { notBeforeOfSlots(t, rates) })
	}
}

func notBeforeOfSlots(t *testing.T, rates int) {
	l, p := governing(t, Replicas(1))
	limit := l.Stats().Limit
	holdsFor(t, l, 500*time.Millisecond)
	p.pause(t, l, inFlight8, 2, 5*time.Second)
	setLimit(t, l, Limit{Rates: limit.Rates[:rates], InFlight: 8})
	if d := refusedFor(t, l, ReasonInFlight, "k"); d.RetryAfter != 5*time.Second || d.Rule != ctrlRule {
		t.Errorf("refused with %+v, want to wait 5 s for a controller", d)
	}
	if _, n := l.TryAcquireUpTo("k", 9); n != 0 {
		t.Errorf("%d slots at once", n)
	}
	a, b, c, d := asking(t, l, "k"), asking(t, l, "k"), asking(t, l, "k"), asking(t, l, "k")
	e := askingUntil(t, l, 4*time.Second, "k")
	e.refusedAfter(t, 0, ReasonDeadline)
	time.Sleep(6 * time.Second)
	a.admittedAfter(t, 5*time.Second)
	b.admittedAfter(t, 5250*time.Millisecond)
	c.admittedAfter(t, 5500*time.Millisecond)
	d.waits(t)
	a.permit.Release()
	d.admittedAfter(t, 6*time.Second)
}

// An instant that has passed means now, and one that is absurdly far means an hour.
func TestNotBeforeOutOfRange(t *testing.T) {
	for _, c := range []struct {
		name      string
		notBefore time.Duration
		want      time.Duration
	}{
		{"now", time.Minute, 0}, {"past", time.Second, 0}, {"never was", -time.Second, 0},
		{"long past", math.MinInt64, 0},
		{"an hour", 61 * time.Minute, time.Hour}, {"two hours", 2 * time.Hour, time.Hour},
		{"never", math.MaxInt64, time.Hour},
	} {
		row(t, c.name, func(t *testing.T) {
			l, p := governing(t, Replicas(1))
			time.Sleep(time.Minute)
			p.gives(t, l, requests, policy.Pace{Rate: 100, NotBefore: c.notBefore})
			if c.want == 0 {
				took(t, l, "k")
				took(t, l, "k") // the bucket has what it had
				return
			}
			time.Sleep(c.want - 1)
			if d := refusedFor(t, l, ReasonRate, "k"); d.RetryAfter != 1 {
				t.Errorf("wait %v, want 1 ns more", d.RetryAfter)
			}
			time.Sleep(time.Nanosecond)
			took(t, l, "k")
		})
	}
}

// The next answer moves a gate, or ends it; one request may pass then.
func TestGateThatMoves(t *testing.T) {
	for _, c := range []struct {
		name string
		next policy.Pace
		want time.Duration // until one may pass, in turn
	}{
		{"ended", policy.Pace{Rate: 100}, 0},
		{"the same", policy.Pace{Rate: 100, NotBefore: 10 * time.Second}, 9 * time.Second},
		{"sooner", policy.Pace{Rate: 100, NotBefore: 5 * time.Second}, 4 * time.Second},
		{"later", policy.Pace{Rate: 100, NotBefore: 20 * time.Second}, 19 * time.Second},
		{"nonsense is not heeded", policy.Pace{Rate: math.NaN(), NotBefore: 20 * time.Second},
			9 * time.Second},
	} {
		row(t, c.name, func(t *testing.T) {
			l, p := governing(t, Replicas(1))
			out := took(t, l, "k")
			p.gives(t, l, requests, policy.Pace{Rate: 100, NotBefore: 10 * time.Second})
			first, second := asking(t, l, "k"), asking(t, l, "k")
			time.Sleep(time.Second)
			first.waits(t)
			p.says[requests] = c.next
			out.Done(policy.Feedback{}) // a success would tell how long slots are held
			time.Sleep(time.Minute)
			first.admittedAfter(t, time.Second+c.want)
			second.admittedAfter(t, time.Second+c.want+10*time.Millisecond)
		})
	}
}

// New bounds ask the controller again; the pause lasts as long as it answers one.
func TestGateUnderNewBounds(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, p := governing(t, Replicas(1))
		p.pause(t, l, requests, 100, 10*time.Second)
		setReplicas(t, l, 4)
		if d := refusedFor(t, l, ReasonRate, "k"); d.RetryAfter != 10*time.Second {
			t.Errorf("wait %v, want 10 s", d.RetryAfter)
		}
	})
}

// No feedback can come during a pause, so nothing is forgotten for want of it.
func TestGateIsNotForgotten(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, p := governing(t, Replicas(1), MaxKeys(1))
		p.pause(t, l, requests, 100, 30*time.Minute)
		for range 29 {
			time.Sleep(time.Minute)
			refusedFor(t, l, ReasonRate, "k")
			took(t, l, "another").Release()
		}
		time.Sleep(11*time.Minute - 1)
		paces(t, l, "k", 100)
		time.Sleep(time.Nanosecond)
		paces(t, l, "k", 2000)
	})
}

// All controllers of a key are forgotten together, and the key can go.
func TestAllControllersAreForgotten(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, p := governing(t, Replicas(1), MaxKeys(1))
		for _, name := range []string{requests, tokens, inFlight8} {
			p.says[name] = policy.Pace{Rate: 2}
		}
		took(t, l, "k").Done(success)
		time.Sleep(forgetAfter - 1)
		took(t, l, "another").Release()
		g := gateOf(l, "k")
		if g == nil || slotsOf8(g) != 3 { // one more than 2
			t.Fatalf("the key is gone, or its slots are: %+v", g)
		}
		time.Sleep(time.Nanosecond)
		paces(t, l, "k", 2000)
		for i, pc := range g.ext.learned.pacers {
			if r := g.setting.ctrls[i]; pc.ctrl != nil || pc.pace != r.start || pc.heldBack ||
				slotsOf8(g) != 8 {
				t.Errorf("controller %d: %+v, %d slots", i, pc, slotsOf8(g))
			}
		}
		time.Sleep(time.Second)
		took(t, l, "another").Release()
		if gateOf(l, "k") != nil {
			t.Error("a key that has forgotten is still there")
		}
	})
}

// Learned slots that are forgotten wake the callers that wait for one.
func TestForgottenSlotsWakeWaiters(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, p := governing(t, Replicas(1))
		p.gives(t, l, inFlight8, policy.Pace{Rate: 0.5})
		took(t, l, "k")
		c := asking(t, l, "k")
		time.Sleep(forgetAfter)
		c.admittedAfter(t, forgetAfter)
	})
}

// A controller keeps what it has learned through limits that come and go, if it still has something to
// govern.
func TestControllersThroughNewLimits(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, p := governing(t, Replicas(1))
		all := l.Stats().Limit
		for name, rate := range map[string]float64{requests: 500, tokens: 300, inFlight8: 2} {
			p.says[name] = policy.Pace{Rate: rate}
		}
		took(t, l, "k").Done(success)
		rates := func(want ...float64) {
			t.Helper()
			took(t, l, "k").Release()
			time.Sleep(time.Second)
			g := gateOf(l, "k")
			for i, pc := range g.ext.learned.pacers {
				if pc.pace != want[i] {
					t.Errorf("controller %d of %d: %v, want %v", i, len(want), pc.pace, want[i])
				}
			}
		}
		rates(500, 300, 2)
		setLimit(t, l, Limit{Rates: all.Rates})
		rates(500, 300)
		setLimit(t, l, Limit{Rates: all.Rates[:1], InFlight: 8})
		rates(500, 8) // the slots are learned again
		setLimit(t, l, Limit{Rates: []Rate{all.Rates[1], all.Rates[0]}, InFlight: 8})
		rates(500, 10_000, 8)
		setLimit(t, l, Limit{Deny: true})
		setLimit(t, l, Limit{Rates: []Rate{perSecond(100, 100)}, InFlight: 8})
		rates(100, 8)
	})
}

// A key that leaves the overflow gate has learned nothing, but the gate's tokens are its own.
func TestKeyFromAGatedOverflow(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, p := governing(t, Replicas(1), MaxKeys(1))
		busy := took(t, l, "busy")
		p.says[requests], p.says[inFlight8] = policy.Pace{Rate: 50, NotBefore: time.Minute},
			policy.Pace{Rate: 1}
		took(t, l, "late").Done(success)
		busy.Release()
		time.Sleep(time.Second)
		if _, n := l.TryAcquireUpTo("late", 200); n != 1 {
			t.Errorf("%d at once, want the one that passes when a gate ends", n)
		}
		if g := gateOf(l, "late"); g == nil || slotsOf8(g) != 8 || g.ext.learned.due != 0 {
			t.Errorf("the key has a gate %+v, want one of its own that has learned nothing", g)
		}
	})
}

// A pause that a controller names under new bounds is remembered until it ends, as one that follows
// feedback.
func TestGateUnderNewBoundsIsNotForgotten(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, p := governing(t, Replicas(1))
		p.pause(t, l, requests, 100, time.Minute)
		p.says[requests] = policy.Pace{Rate: 100, NotBefore: since(l) + 30*time.Minute}
		setReplicas(t, l, 4)
		refusedFor(t, l, ReasonRate, "k")
		time.Sleep(30*time.Minute - 1)
		refusedFor(t, l, ReasonRate, "k")
		time.Sleep(time.Nanosecond)
		took(t, l, "k")
	})
}

// The end of a pause counts at the first look at what is left, and not at the second.
func TestLeftAfterAPause(t *testing.T) {
	p := pacer{fill: fill{interval: float64(time.Hour), size: 1}, pausedUntil: time.Second}
	for range 2 {
		left, of, paused := p.left(instant{at: 2 * time.Second}, nil)
		if left < 1 || of != 1 || paused != 0 {
			t.Errorf("left %v of %v, paused for %v", left, of, paused)
		}
	}
}
