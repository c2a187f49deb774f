package quotient

import (
	"fmt"
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
				t.Errorf("refused with %+v, want to wait 5 s for a law", d)
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
		t.Errorf("refused with %+v, want to wait 5 s for a law", d)
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
				t.Errorf("law %d: %+v, %d slots", i, pc, slotsOf8(g))
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
					t.Errorf("law %d of %d: %v, want %v", i, len(want), pc.pace, want[i])
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

// A lower cost is set against a debt of the controller's bucket, and brings no burst: the bucket has filled
// by itself meanwhile, or was paused.
func TestRefundsOfAController(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t,
			rated(Rate{Name: "tokens", Unit: "tokens", Events: 1000, Per: time.Second, Burst: 1_000_000}),
			Policy(&spyController{next: 100, start: 100}), BeyondShare(), Replicas(1))
		took(t, l, "k", Cost("tokens", 1)).Done(success)
		time.Sleep(time.Second)
		var permits []Permit
		for range 200 {
			permits = append(permits, took(t, l, "k", Cost("tokens", 10)))
			time.Sleep(200 * time.Millisecond)
		}
		n := 0
		for _, p := range permits {
			if err := p.Correct("tokens", 0); err != nil {
				t.Fatal(err)
			}
			if _, d := l.TryAcquire("k", Cost("tokens", 10)); d.OK {
				n += 10
			}
		}
		if n > 10 {
			t.Errorf("%d tokens at one instant from a bucket of 10", n)
		}
	})
}

// Events that have come back by themselves are set against a debt of the controller's bucket, also where
// nothing else comes back.
func TestRefundIntoADebtOfAController(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		rate := Rate{Name: "tokens", Unit: "tokens", Events: 1000, Per: time.Second, Burst: 1_000_000}
		l := limiterOf(t, rated(rate), policyOf(&spyController{next: 100, start: 100}, beyondShare),
			StartPool(Pool{Replicas: 1}))
		took(t, l, "k", Cost("tokens", 1)).Done(success)
		time.Sleep(time.Second)
		early := took(t, l, "k", Cost("tokens", 10)) // all that a tenth of a second brings
		time.Sleep(time.Second)
		took(t, l, "k", Cost("tokens", 50))
		for _, c := range []struct {
			used int
			wait time.Duration
		}{{10, 500}, {4, 440}, {0, 400}} {
			corrects(t, early, c.used)
			if d := refusedFor(t, l, ReasonRate, "k", Cost("tokens", 10)); d.RetryAfter != c.wait*
				time.Millisecond {
				t.Errorf("%d of ten used: retry after %v, want %d ms", c.used, d.RetryAfter, c.wait)
			}
		}
	})
}

func TestRefundAfterAGate(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, p := governing(t, Replicas(1))
		out := took(t, l, "k", Cost("tokens", 900))
		p.pause(t, l, tokens, 5000, 5*time.Second)
		time.Sleep(5 * time.Second)
		if err := out.Correct("tokens", 0); err != nil {
			t.Fatal(err)
		}
		if _, d := l.TryAcquire("k", Cost("tokens", 500)); d.OK {
			t.Error("500 tokens at the end of a gate, at which there is one")
		}
	})
}

// climbs is a controller that allows a hundred times as much after a success.
type climbs struct{}

func (climbs) New(uint64) policy.Controller { return climbs{} }
func (climbs) Next(s policy.Sample, _ policy.Bounds) policy.Pace {
	if s.Outcome == policy.Success {
		return policy.Pace{Rate: 1000}
	}
	return policy.Pace{Rate: 10}
}

// A permit that is corrected after all that was learned has been forgotten leaves no debt.
func TestGiveBackAfterForgetting(t *testing.T) {
	ramp := policy.Ramp{Start: .01, Over: 10 * time.Second}
	for _, ctrl := range []policy.Policy{ramp, climbs{}} {
		for _, unit := range []string{"", "tokens"} {
			row(t, fmt.Sprintf("%T, unit %s", ctrl, unit), func(t *testing.T) {
				r := Rate{Name: "r", Unit: unit, Events: 1000, Per: time.Second, Burst: 1000}
				l := limiterOf(t, Limit{Rates: []Rate{r}, InFlight: 1000}, Policy(ctrl))
				for range 20 { // to the top
					took(t, l, "k", Cost(unit, 1)).Done(policy.Feedback{Outcome: policy.Success})
					time.Sleep(time.Second)
				}
				p := took(t, l, "k", Cost(unit, 1))
				time.Sleep(time.Hour) // a long job
				must(t, p.Correct(unit, 0))
				p.Release()
				if _, d := l.TryAcquire("k", Cost(unit, 1)); !d.OK {
					t.Errorf("refused: %+v", d)
				}
			})
		}
	}
}

// relents is a controller whose pace falls to a fifth, or waits for a time, when it is refused.
type relents struct{ wait time.Duration }

func (p relents) New(uint64) policy.Controller { return p }
func (p relents) Next(s policy.Sample, _ policy.Bounds) policy.Pace {
	pace := policy.Pace{Rate: 100, Saved: time.Second}
	switch {
	case s.Outcome != policy.Throttled:
	case p.wait > 0:
		pace.NotBefore = s.Now + p.wait
	default:
		pace.Rate = 20
	}
	return pace
}

// Events taken before a controller stopped its key, or slowed it down, do not come back as a burst after
// that.
func TestGiveBackAfterRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		ctrl relents
		left int
	}{"a pace that falls": {relents{}, 20}, "a pause": {relents{300 * time.Millisecond}, 1}} {
		row(t, name, func(t *testing.T) {
			l := limiterOf(t, Rates(Rate{Events: 100, Per: time.Second, Burst: 100}), Policy(c.ctrl))
			p := upTo(t, l, "k", 50, 50)
			time.Sleep(time.Second) // they have come back by themselves
			q := upTo(t, l, "k", 1, 1)
			q.Done(policy.Feedback{Outcome: policy.Throttled})
			time.Sleep(c.ctrl.wait)
			upTo(t, l, "k", 100, c.left)
			correct(t, p, 0)
			upTo(t, l, "k", 100, 0)
		})
	}
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
