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

// waitsForController fails unless a call is refused for a controller, which lets it through so long from now.
func waitsForController(t *testing.T, l *Limiter, reason Reason, d time.Duration, opts ...CallOption) {
	t.Helper()
	got := refusedFor(t, l, reason, "k", opts...)
	is(t, "retry after", got.RetryAfter, d)
	is(t, "rule", got.Rule, ctrlRule)
}

// Nothing passes before the instant that a controller names, one request at it, and more at its rate.
func TestNotBefore(t *testing.T) {
	for _, name := range []string{requests, tokens} {
		row(t, name, func(t *testing.T) {
			l, p := governing(t, Replicas(1))
			time.Sleep(time.Minute)
			p.pause(t, l, name, 10, 5*time.Second)
			one := Cost("tokens", 1)
			waitsForController(t, l, ReasonRate, 5*time.Second, one)
			a, b, c := asking(t, l, "k", one), asking(t, l, "k", one), asking(t, l, "k", one)
			time.Sleep(time.Minute)
			a.admittedAfter(t, 5000*ms)
			b.admittedAfter(t, 5100*ms)
			c.admittedAfter(t, 5200*ms)
		})
	}
}

// Nothing accrues during a pause, nor does a full bucket survive it.
func TestNothingAccruesBehindAGate(t *testing.T) {
	for after, want := range map[time.Duration]int{ // the end of the gate
		-1: 0, 0: 1, 9 * ms: 1, 10 * ms: 2, 50 * ms: 6, time.Minute: 10,
	} {
		row(t, after, func(t *testing.T) {
			l, p := governing(t, Replicas(1))
			setLimit(t, l, Rates(perSecond(2000, 4000)))
			time.Sleep(time.Minute)
			p.pause(t, l, requests, 100, 3*time.Second)
			time.Sleep(3*time.Second + after)
			upTo(t, l, "k", 100, want)
		})
	}
}

// A pause of slots admits no call, however many are free. After it one passes, and more as the slots come
// free on average.
func TestNotBeforeOfSlots(t *testing.T) {
	for _, rates := range []int{2, 1} { // one is decided in a shorter way
		row(t, rates, func(t *testing.T) {
			l, p := governing(t, Replicas(1))
			limit := l.Stats().Limit
			holdsFor(t, l, 500*ms)
			p.pause(t, l, inFlight8, 2, 5*time.Second)
			setLimit(t, l, Limit{Rates: limit.Rates[:rates], InFlight: 8})
			waitsForController(t, l, ReasonInFlight, 5*time.Second)
			upTo(t, l, "k", 9, 0)
			a, b, c, d := asking(t, l, "k"), asking(t, l, "k"), asking(t, l, "k"), asking(t, l, "k")
			askingUntil(t, l, 4*time.Second, "k").refusedAfter(t, 0, ReasonDeadline)
			time.Sleep(6 * time.Second)
			a.admittedAfter(t, 5000*ms)
			b.admittedAfter(t, 5250*ms)
			c.admittedAfter(t, 5500*ms)
			d.waits(t)
			a.permit.Release()
			d.admittedAfter(t, 6*time.Second)
		})
	}
}

// An instant that has passed means now, and one that is absurdly far means an hour.
func TestNotBeforeOutOfRange(t *testing.T) {
	for name, c := range map[string]struct{ notBefore, want time.Duration }{
		"now": {time.Minute, 0}, "past": {time.Second, 0}, "never was": {-time.Second, 0},
		"long past": {math.MinInt64, 0}, "an hour": {61 * time.Minute, time.Hour},
		"two hours": {2 * time.Hour, time.Hour}, "never": {math.MaxInt64, time.Hour},
	} {
		row(t, name, func(t *testing.T) {
			l, p := governing(t, Replicas(1))
			time.Sleep(time.Minute)
			p.gives(t, l, requests, policy.Pace{Rate: 100, NotBefore: c.notBefore})
			if c.want == 0 {
				took(t, l, "k")
				took(t, l, "k") // the bucket has what it had
				return
			}
			time.Sleep(c.want - 1)
			waitsForController(t, l, ReasonRate, 1)
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
		{"not by nonsense", policy.Pace{Rate: math.NaN(), NotBefore: 20 * time.Second}, 9 * time.Second},
	} {
		row(t, c.name, func(t *testing.T) {
			l, p := governing(t, Replicas(1))
			out := took(t, l, "k")
			p.pause(t, l, requests, 100, 10*time.Second)
			first, second := asking(t, l, "k"), asking(t, l, "k")
			time.Sleep(time.Second)
			first.waits(t)
			p.says[requests] = c.next
			out.Done(policy.Feedback{}) // a success would tell how long slots are held
			time.Sleep(time.Minute)
			first.admittedAfter(t, time.Second+c.want)
			second.admittedAfter(t, time.Second+c.want+10*ms)
		})
	}
}

func TestWhatIsLearned(t *testing.T) {
	// No feedback can come during a pause.
	row(t, "is asked again under new bounds, and its pause is kept until it ends", func(t *testing.T) {
		l, p := governing(t, Replicas(1))
		p.pause(t, l, requests, 100, 10*time.Second)
		setReplicas(t, l, 4)
		waitsForController(t, l, ReasonRate, 10*time.Second)
		p.says[requests] = policy.Pace{Rate: 100, NotBefore: since(l) + 30*time.Minute}
		setReplicas(t, l, 2)
		waitsForController(t, l, ReasonRate, 30*time.Minute)
		time.Sleep(30*time.Minute - 1)
		refusedFor(t, l, ReasonRate, "k")
		time.Sleep(time.Nanosecond)
		took(t, l, "k")
	})
	row(t, "is not forgotten for want of feedback during a pause", func(t *testing.T) {
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
	row(t, "is forgotten of all controllers together, and the key can go", func(t *testing.T) {
		l, p := governing(t, Replicas(1), MaxKeys(1))
		for _, name := range []string{requests, tokens, inFlight8} {
			p.says[name] = policy.Pace{Rate: 2}.Probing(time.Minute)
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
				pc.probe != 0 || slotsOf8(g) != 8 {
				t.Errorf("controller %d: %+v, %d slots", i, pc, slotsOf8(g))
			}
		}
		time.Sleep(time.Second)
		took(t, l, "another").Release()
		is(t, "a key that has forgotten is still there", gateOf(l, "k") != nil, false)
	})
	row(t, "wakes waiters when its slots are forgotten", func(t *testing.T) {
		l, p := governing(t, Replicas(1))
		p.gives(t, l, inFlight8, policy.Pace{Rate: 0.5})
		took(t, l, "k")
		c := asking(t, l, "k")
		time.Sleep(forgetAfter)
		c.admittedAfter(t, forgetAfter)
	})
	row(t, "stays through limits that come and go, where there is something to govern", func(t *testing.T) {
		l, p := governing(t, Replicas(1))
		rates := l.Stats().Limit.Rates
		for name, rate := range map[string]float64{requests: 500, tokens: 300, inFlight8: 2} {
			p.says[name] = policy.Pace{Rate: rate}
		}
		took(t, l, "k").Done(success)
		for _, c := range []struct {
			limit Limit
			want  string // paces
		}{
			{l.Stats().Limit, "[500 300 2]"},
			{Limit{Rates: rates}, "[500 300]"},
			{Limit{Rates: rates[:1], InFlight: 8}, "[500 8]"}, // the slots are learned again
			{Limit{Rates: []Rate{rates[1], rates[0]}, InFlight: 8}, "[500 10000 8]"},
			{Limit{Deny: true}, ""},
			{Limit{Rates: []Rate{perSecond(100, 100)}, InFlight: 8}, "[100 8]"},
		} {
			if setLimit(t, l, c.limit); c.limit.Deny {
				continue
			}
			took(t, l, "k").Release()
			time.Sleep(time.Second)
			var got []float64
			for _, pc := range gateOf(l, "k").ext.learned.pacers {
				got = append(got, pc.pace)
			}
			is(t, c.limit, fmt.Sprint(got), c.want)
		}
	})
	row(t, "does not leave the overflow gate with a key, and tokens do", func(t *testing.T) {
		l, p := governing(t, Replicas(1), MaxKeys(1))
		busy := took(t, l, "busy")
		p.says[requests] = policy.Pace{Rate: 50, NotBefore: time.Minute}
		p.says[inFlight8] = policy.Pace{Rate: 1}
		took(t, l, "late").Done(success)
		busy.Release()
		time.Sleep(time.Second)
		upTo(t, l, "late", 200, 1) // the one that passes when a gate ends
		if g := gateOf(l, "late"); g == nil || slotsOf8(g) != 8 || g.ext.learned.due != 0 {
			t.Errorf("the key has a gate %+v, want one of its own that has learned nothing", g)
		}
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

// atAHundred is a limiter of many tokens whose controller allows 100 a second: a bucket of 10.
func atAHundred(t *testing.T) *Limiter {
	spy := Policy(&spyController{next: 100, start: 100})
	l := mustNew(t, tokenLimit(1000, 1_000_000), spy, BeyondShare())
	took(t, l, "k", Cost("tokens", 1)).Done(success)
	time.Sleep(time.Second)
	return l
}

// What comes back is set against a debt of the controller's bucket, and brings no burst: the bucket has
// filled by itself meanwhile, or was paused.
func TestRefundsOfAController(t *testing.T) {
	row(t, "of many permits", func(t *testing.T) {
		l := atAHundred(t)
		var permits []Permit
		for range 200 {
			permits = append(permits, took(t, l, "k", Cost("tokens", 10)))
			time.Sleep(200 * ms)
		}
		n := 0
		for _, p := range permits {
			corrects(t, p, 0)
			if _, d := l.TryAcquire("k", Cost("tokens", 10)); d.OK {
				n += 10
			}
		}
		if n > 10 {
			t.Errorf("%d tokens at one instant from a bucket of 10", n)
		}
	})
	row(t, "into a debt", func(t *testing.T) {
		l := atAHundred(t)
		early := took(t, l, "k", Cost("tokens", 10)) // all that a tenth of a second brings
		time.Sleep(time.Second)
		took(t, l, "k", Cost("tokens", 50))
		for _, c := range []struct {
			used int
			wait time.Duration
		}{{30, 700 * ms}, {10, 500 * ms}, {4, 440 * ms}, {0, 400 * ms}} {
			corrects(t, early, c.used)
			is(t, c.used, refusedFor(t, l, ReasonRate, "k", Cost("tokens", 10)).RetryAfter, c.wait)
		}
		took(t, l, "k") // a request without tokens
	})
	row(t, "after a gate", func(t *testing.T) {
		l, p := governing(t, Replicas(1))
		out := took(t, l, "k", Cost("tokens", 900))
		p.pause(t, l, tokens, 5000, 5*time.Second)
		time.Sleep(5 * time.Second)
		corrects(t, out, 0)
		refuses(t, l, "k", Cost("tokens", 500)) // there is one
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
				l := mustNew(t, Limit{Rates: []Rate{r}, InFlight: 1000}, Policy(ctrl))
				for range 20 { // to the top
					took(t, l, "k", Cost(unit, 1)).Done(success)
					time.Sleep(time.Second)
				}
				p := took(t, l, "k", Cost(unit, 1))
				time.Sleep(time.Hour) // a long job
				must(t, p.Correct(unit, 0))
				p.Release()
				took(t, l, "k", Cost(unit, 1))
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
	for wait, left := range map[time.Duration]int{0: 20, 300 * ms: 1} { // a pace that falls, a pause
		row(t, wait, func(t *testing.T) {
			l := mustNew(t, Rates(aHundred(100)), Policy(relents{wait}))
			p := upTo(t, l, "k", 50, 50)
			time.Sleep(time.Second) // they have come back by themselves
			upTo(t, l, "k", 1, 1).Done(policy.Feedback{Outcome: policy.Throttled})
			time.Sleep(wait)
			upTo(t, l, "k", 100, left)
			correct(t, p, 0)
			upTo(t, l, "k", 100, 0)
		})
	}
}
