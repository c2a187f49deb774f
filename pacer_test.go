package quotient

import (
	"math"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// shut hands over a pace of so many events a second that starts so long from now.
func (p *panel) shut(t *testing.T, l *Limiter, name string, rate float64, d time.Duration) {
	t.Helper()
	p.gives(t, l, name, policy.Pace{Rate: rate, NotBefore: since(l) + d})
}

// Nothing passes before the instant that a law names, one request at it, and more at its rate.
func TestNotBefore(t *testing.T) {
	for _, name := range []string{requests, tokens} {
		row(t, name, func(t *testing.T) {
			l, p := governing(t, StartPool(Pool{Replicas: 1}))
			time.Sleep(time.Minute)
			p.shut(t, l, name, 10, 5*time.Second)
			if d := refusedFor(t, l, ReasonRate, "k", Cost("tokens", 1)); d.RetryAfter != 5*time.Second || d.Rule != lawRule {
				t.Errorf("refused with %+v, want to wait 5 s for a law", d)
			}
			a, b, c := asking(t, l, "k", Cost("tokens", 1)), asking(t, l, "k", Cost("tokens", 1)), asking(t, l, "k", Cost("tokens", 1))
			time.Sleep(5*time.Second - 1)
			a.waits(t)
			time.Sleep(time.Second)
			a.admittedAfter(t, 5*time.Second)
			b.admittedAfter(t, 5100*time.Millisecond)
			c.admittedAfter(t, 5200*time.Millisecond)
		})
	}
}

// Nothing accrues while a gate is shut, nor does a full bucket survive it.
func TestNothingAccruesBehindAGate(t *testing.T) {
	for _, c := range []struct {
		after time.Duration // the end of the gate
		want  int
	}{{-1, 0}, {0, 1}, {9 * time.Millisecond, 1}, {10 * time.Millisecond, 2}, {50 * time.Millisecond, 6}, {time.Minute, 10}} {
		row(t, c.after, func(t *testing.T) {
			l, p := governing(t, StartPool(Pool{Replicas: 1}))
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

// A gate before slots lets nobody through, however many are free; then one, and more as the slots come free on average.
func TestNotBeforeOfSlots(t *testing.T) {
	for _, rates := range []int{2, 1} { // one is decided in a shorter way
		row(t, rates, func(t *testing.T) { notBeforeOfSlots(t, rates) })
	}
}

func notBeforeOfSlots(t *testing.T, rates int) {
	l, p := governing(t, StartPool(Pool{Replicas: 1}))
	limit := l.Limit()
	holdsFor(t, l, 500*time.Millisecond)
	p.shut(t, l, inFlight8, 2, 5*time.Second)
	setLimit(t, l, Limit{Rates: limit.Rates[:rates], InFlight: 8})
	if d := refusedFor(t, l, ReasonInFlight, "k"); d.RetryAfter != 5*time.Second || d.Rule != lawRule {
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
		{"now", time.Minute, 0}, {"past", time.Second, 0}, {"never was", -time.Second, 0}, {"long past", math.MinInt64, 0},
		{"an hour", 61 * time.Minute, time.Hour}, {"two hours", 2 * time.Hour, time.Hour}, {"never", math.MaxInt64, time.Hour},
	} {
		row(t, c.name, func(t *testing.T) {
			l, p := governing(t, StartPool(Pool{Replicas: 1}))
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
		{"nonsense is not heeded", policy.Pace{Rate: math.NaN(), NotBefore: 20 * time.Second}, 9 * time.Second},
	} {
		row(t, c.name, func(t *testing.T) {
			l, p := governing(t, StartPool(Pool{Replicas: 1}))
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

// New bounds ask the law anew; the gate stays while it says so.
func TestGateUnderNewBounds(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, p := governing(t, StartPool(Pool{Replicas: 1}))
		p.shut(t, l, requests, 100, 10*time.Second)
		setReplicas(t, l, 4)
		if d := refusedFor(t, l, ReasonRate, "k"); d.RetryAfter != 10*time.Second {
			t.Errorf("wait %v, want 10 s", d.RetryAfter)
		}
	})
}

// Nothing can be heard while a gate is shut, so that nothing is forgotten for it.
func TestGateIsNotForgotten(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, p := governing(t, StartPool(Pool{Replicas: 1}), MaxKeys(1))
		p.shut(t, l, requests, 100, 30*time.Minute)
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

// All laws of a key are forgotten together, and the key can go.
func TestAllLawsAreForgotten(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, p := governing(t, StartPool(Pool{Replicas: 1}), MaxKeys(1))
		for _, name := range []string{requests, tokens, inFlight8} {
			p.says[name] = policy.Pace{Rate: 2}
		}
		took(t, l, "k").Done(success)
		time.Sleep(forgetAfter - 1)
		took(t, l, "another").Release()
		g := gateOf(l, "k")
		if g == nil || g.size != 3 { // one more than 2
			t.Fatalf("the key is gone, or its slots are: %+v", g)
		}
		time.Sleep(time.Nanosecond)
		paces(t, l, "k", 2000)
		for i, pc := range g.more.learned.pacers {
			if ls := g.setting.laws[i]; pc.law != nil || pc.pace != ls.start || pc.paced || g.size != 8 {
				t.Errorf("law %d: %+v, %d slots", i, pc, g.size)
			}
		}
		time.Sleep(time.Second)
		took(t, l, "another").Release()
		if gateOf(l, "k") != nil {
			t.Error("a key that has forgotten is still there")
		}
	})
}

// Learned slots that are forgotten wake who waits for one.
func TestForgottenSlotsWakeWaiters(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, p := governing(t, StartPool(Pool{Replicas: 1}))
		p.gives(t, l, inFlight8, policy.Pace{Rate: 0.5})
		took(t, l, "k")
		c := asking(t, l, "k")
		time.Sleep(forgetAfter)
		c.admittedAfter(t, forgetAfter)
	})
}

// A law keeps what it has learned through limits that come and go, if it still has something to govern.
func TestLawsThroughNewLimits(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, p := governing(t, StartPool(Pool{Replicas: 1}))
		all := l.Limit()
		for name, rate := range map[string]float64{requests: 500, tokens: 300, inFlight8: 2} {
			p.says[name] = policy.Pace{Rate: rate}
		}
		took(t, l, "k").Done(success)
		rates := func(want ...float64) {
			t.Helper()
			took(t, l, "k").Release()
			time.Sleep(time.Second)
			g := gateOf(l, "k")
			for i, pc := range g.more.learned.pacers {
				if pc.pace != want[i] {
					t.Errorf("law %d of %d: %v, want %v", i, len(want), pc.pace, want[i])
				}
			}
		}
		rates(500, 300, 2)
		setLimit(t, l, Limit{Rates: all.Rates})
		rates(500, 300)
		setLimit(t, l, Limit{Rates: all.Rates[:1], InFlight: 8})
		rates(500, 8) // the slots are learned anew
		setLimit(t, l, Limit{Rates: []Rate{all.Rates[1], all.Rates[0]}, InFlight: 8})
		rates(500, 10_000, 8)
		setLimit(t, l, Deny())
		setLimit(t, l, Limit{Rates: []Rate{perSecond(100, 100)}, InFlight: 8})
		rates(100, 8)
	})
}

// A key that leaves the overflow gate has learned nothing, but the gate's tokens are its own.
func TestKeyFromAGatedOverflow(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, p := governing(t, StartPool(Pool{Replicas: 1}), MaxKeys(1))
		busy := took(t, l, "busy")
		p.says[requests], p.says[inFlight8] = policy.Pace{Rate: 50, NotBefore: time.Minute}, policy.Pace{Rate: 1}
		took(t, l, "late").Done(success)
		busy.Release()
		time.Sleep(time.Second)
		if _, n := l.TryAcquireUpTo("late", 200); n != 1 {
			t.Errorf("%d at once, want the one that passes when a gate ends", n)
		}
		if g := gateOf(l, "late"); g == nil || g.size != 8 || g.more.learned.due != 0 {
			t.Errorf("the key has a gate %+v, want one of its own that has learned nothing", g)
		}
	})
}

// What a request has cost less is set against a debt of the law's bucket, and brings no burst: the bucket has filled by
// itself meanwhile, or was shut.
func TestRefundsOfALaw(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Rate{Name: "tokens", Unit: "tokens", Events: 1000, Per: time.Second, Burst: 1_000_000}),
			Policy(&spyLaw{next: 100, start: 100}, CeilingLimit), StartPool(Pool{Replicas: 1}))
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

func TestRefundAfterAGate(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, p := governing(t, StartPool(Pool{Replicas: 1}))
		out := took(t, l, "k", Cost("tokens", 900))
		p.shut(t, l, tokens, 5000, 5*time.Second)
		time.Sleep(5 * time.Second)
		if err := out.Correct("tokens", 0); err != nil {
			t.Fatal(err)
		}
		if _, d := l.TryAcquire("k", Cost("tokens", 500)); d.OK {
			t.Error("500 tokens at the end of a gate, at which there is one")
		}
	})
}

// A permit that is corrected after all that was learned has been forgotten leaves no debt.
func TestGiveBackAfterForgetting(t *testing.T) {
	for _, unit := range []string{"", "tokens"} {
		row(t, "unit "+unit, func(t *testing.T) {
			l := limiterOf(t, Limit{Rates: []Rate{{Name: "r", Unit: unit, Events: 1000, Per: time.Second, Burst: 1000}}, InFlight: 1000},
				Policy(policy.Ramp{Start: .01, Over: 10 * time.Second}, CeilingShare))
			for range 20 { // to the top of the ramp
				took(t, l, "k", Cost(unit, 1)).Release()
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

// relents is a law whose pace falls to a fifth, or waits for a time, when it is refused.
type relents struct{ wait time.Duration }

func (p relents) New(uint64) policy.Law { return p }
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

// What was taken before a law stopped its key, or slowed it down, does not come back as a burst after that.
func TestGiveBackAfterRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		law  relents
		left int
	}{"a pace that falls": {relents{}, 20}, "a pause": {relents{300 * time.Millisecond}, 1}} {
		row(t, name, func(t *testing.T) {
			l := limiterOf(t, Limit{Rates: []Rate{{Events: 100, Per: time.Second, Burst: 100}}}, Policy(c.law, CeilingShare))
			p := upTo(t, l, "k", 50, 50)
			time.Sleep(time.Second) // they have come back by themselves
			q := upTo(t, l, "k", 1, 1)
			q.Done(policy.Feedback{Outcome: policy.Throttled})
			time.Sleep(c.law.wait)
			upTo(t, l, "k", 100, c.left)
			correct(t, p, 0)
			upTo(t, l, "k", 100, 0)
		})
	}
}
