package quotient

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// holdsFor takes a permit, and reports a success so much later.
func holdsFor(t *testing.T, l *Limiter, d time.Duration) {
	t.Helper()
	permit := took(t, l, "k", Cost("tokens", 1))
	time.Sleep(d)
	permit.Done(success)
}

// A controller of slots spaces admissions as well: so many a second as its slots come free if each is held
// for the usual time.
func TestSlotsArePaced(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, p := governing(t, Replicas(1))
		p.says[inFlight8] = policy.Pace{Rate: 2.5}
		holdsFor(t, l, 500*time.Millisecond) // so 5 a second, and 3 at once
		time.Sleep(time.Second)
		first := took(t, l, "k")
		d := refusedFor(t, l, ReasonInFlight, "k")
		if d.RetryAfter != 200*time.Millisecond || d.Rule != ctrlRule || d.Limit != 8 {
			t.Errorf("refused with %+v, want to wait 200 ms for a controller", d)
		}
		if d := l.Check("k", Cost("tokens", 1)); d.RetryAfter != 200*time.Millisecond {
			t.Errorf("a look: %+v", d)
		}
		askingUntil(t, l, 199*time.Millisecond, "k").refusedAfter(t, 0, ReasonDeadline)
		second, third, fourth := asking(t, l, "k"), asking(t, l, "k"), asking(t, l, "k")
		// its turn is in 800 ms
		askingUntil(t, l, 700*time.Millisecond, "k").refusedAfter(t, 0, ReasonDeadline)
		time.Sleep(500 * time.Millisecond)
		first.Done(success)
		time.Sleep(500 * time.Millisecond)
		second.admittedAfter(t, 200*time.Millisecond)
		third.admittedAfter(t, 400*time.Millisecond)
		fourth.admittedAfter(t, 600*time.Millisecond)
		if s := p.last(t, inFlight8); !s.Paced || s.Cost != 0.5 {
			t.Errorf("the controller got %+v, want that it held back and half a slot second", s)
		}
		if s := p.last(t, requests); s.Paced {
			t.Error("requests count as held back by the slots")
		}
	})
}

// The time that slots are held is that of requests which succeed, smoothed, whatever their weight.
func TestHeldSlots(t *testing.T) {
	type reported struct {
		f      policy.Feedback
		held   time.Duration
		weight int
	}
	ok := func(d time.Duration) reported { return reported{success, d, 1} }
	for _, c := range []struct {
		name     string
		feedback []reported
		want     float64 // seconds
	}{
		{"nothing", nil, 0},
		{"one", []reported{ok(time.Second)}, 1},
		{"a sixteenth of the second", []reported{ok(time.Second), ok(3 * time.Second)}, 1.125},
		{"weights", []reported{{success, time.Second, 2}, {success, 3 * time.Second, 2}}, 1.125},
		{"what failed", []reported{ok(time.Second), {throttled, time.Millisecond, 1},
			{policy.Feedback{Outcome: policy.Failed}, time.Minute, 1},
			{policy.Feedback{}, time.Minute, 1}}, 1},
		{"no time at all", []reported{ok(0), ok(time.Second)}, 1},
	} {
		row(t, c.name, func(t *testing.T) {
			l, p := governing(t, Replicas(1))
			took(t, l, "k").Done(policy.Feedback{})
			for _, x := range c.feedback {
				time.Sleep(time.Minute)
				permit := took(t, l, "k", Weight(x.weight))
				time.Sleep(x.held)
				permit.Done(x.f)
			}
			pc := &gateOf(l, "k").ext.learned.pacers[2]
			if math.Abs(pc.held-c.want) > 1e-12 {
				t.Errorf("held for %v s, want %v", pc.held, c.want)
			}
			if want := min(8/c.want, maxEvents); math.Abs(1e9/pc.interval-want) > 1e-9*want {
				t.Errorf("%v slots a second, want %v", 1e9/pc.interval, want)
			}
			p.says[inFlight8] = policy.Pace{Rate: 0.25}
			took(t, l, "k", Cost("tokens", 1)).Done(policy.Feedback{})
			if want := min(0.25/c.want, maxEvents); math.Abs(1e9/pc.interval-want) > 1e-9*want {
				t.Errorf("%v slots a second, want %v", 1e9/pc.interval, want)
			}
			time.Sleep(forgetAfter)
			took(t, l, "k").Release()
			if pc.held != 0 || 1e9/pc.interval != maxEvents || pc.pace != 8 {
				t.Errorf("not forgotten: %+v", pc)
			}
		})
	}
}

// Before the first success only the number of slots counts.
func TestSlotsAreNotPacedBeforeASuccess(t *testing.T) {
	for name, opt := range map[string]Option{
		"start": Replicas(1),
		"join":  together(Replicas(1), StartEmpty()),
	} {
		row(t, name, func(t *testing.T) {
			l, p := governing(t, opt)
			time.Sleep(time.Second)
			p.says[inFlight8] = policy.Pace{Rate: 5}
			for range 3 {
				if permit, n := l.TryAcquireUpTo("k", 8); n != 8 {
					t.Errorf("%d at once before any feedback", n)
				} else {
					permit.Release()
				}
			}
			took(t, l, "k").Done(throttled)
			if _, n := l.TryAcquireUpTo("k", 8); n != 6 {
				t.Errorf("%d at once, want 6", n)
			}
		})
	}
}

// A success is dated by the latest instant of its key, everything else by the clock; no controller sees time
// go back.
func TestHowFeedbackIsDated(t *testing.T) {
	slow := policy.Feedback{Outcome: policy.Success, RetryAfter: time.Second}
	for _, c := range []struct {
		name string
		f    policy.Feedback
		then func(t *testing.T, l *Limiter) // in the second second of three
		want time.Duration
	}{
		{"success", success, nil, time.Second},
		{"success with quotas", policy.Feedback{Outcome: policy.Success,
			Quotas: [4]policy.Quota{{Limit: 10, Remaining: 1}}}, nil, 3 * time.Second},
		{"success after an admission", success, func(t *testing.T, l *Limiter) { took(t, l, "k") },
			2 * time.Second},
		{"success after other feedback", success,
			func(t *testing.T, l *Limiter) { took(t, l, "k").Done(throttled) }, 2 * time.Second},
		{"success after a change", success, func(t *testing.T, l *Limiter) { setReplicas(t, l, 3) },
			2 * time.Second},
		{"success after that of another key", success,
			func(t *testing.T, l *Limiter) { took(t, l, "other").Done(throttled) }, time.Second},
		{"a time to wait", slow, nil, 3 * time.Second},
		{"throttled", throttled, nil, 3 * time.Second},
		{"unavailable", policy.Feedback{Outcome: policy.Unavailable}, nil, 3 * time.Second},
		{"failed", policy.Feedback{Outcome: policy.Failed}, nil, 3 * time.Second},
		{"unknown", policy.Feedback{}, nil, 3 * time.Second},
	} {
		for _, slots := range []int{0, 8} {
			row(t, fmt.Sprint(c.name, ", slots: ", slots), func(t *testing.T) {
				p := &panel{
					names: map[float64]string{2000: requests, 8: inFlight8}, says: map[string]policy.Pace{},
					samples: map[string][]policy.Sample{}, bounds: map[string]policy.Bounds{},
				}
				l := limiterOf(t, Limit{Rates: []Rate{perSecond(2000, 4000)}, InFlight: slots}, Policy(p),
					BeyondShare(), few)
				time.Sleep(time.Second)
				permit := took(t, l, "k")
				time.Sleep(time.Second)
				if c.then != nil {
					c.then(t, l)
				}
				time.Sleep(time.Second)
				permit.Done(c.f)
				want := c.want
				if slots > 0 {
					want = 3 * time.Second
				}
				if s := p.last(t, requests); s.Now != want || s.Sent != time.Second ||
					s.Outcome != c.f.Outcome {
					t.Errorf("got %+v, want it dated %v", s, want)
				}
			})
		}
	}
}

// A look that has ended a gate is not undone by a success that is dated before it.
func TestSuccessDatedBeforeALook(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		ctrl := new(noted)
		l := limiterOf(t, rated(perSecond(2000, 4000)), Policy(ctrl), BeyondShare())
		early := took(t, l, "k")
		ctrl.pace = policy.Pace{Rate: 100, NotBefore: since(l) + 5*time.Second}
		took(t, l, "k").Done(throttled)
		time.Sleep(7 * time.Second)
		if d := l.Check("k"); !d.OK {
			t.Errorf("2 s after the end of a gate: %+v", d)
		}
		ctrl.pace = policy.Pace{Rate: 1}
		early.Done(success)
		took(t, l, "k")
	})
}

// noted is a policy whose controller answers what the test sets, at first the ceiling.
type noted struct{ pace policy.Pace }

func (n *noted) New(uint64) policy.Controller { return n }

func (n *noted) Next(_ policy.Sample, b policy.Bounds) policy.Pace {
	if n.pace.Rate == 0 {
		return policy.Pace{Rate: b.Ceiling}
	}
	return n.pace
}

// A sweep forgets nothing of a key with permits that are out: what they bring is dated by the key, not by the
// sweep.
func TestSweepsForgetNothingOfWhoIsOut(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := learning(t, beyondShare, MaxKeys(1))
		out := took(t, l, "k")
		sends(t, l, "k", throttled)
		time.Sleep(forgetAfter)
		took(t, l, "another").Release()
		if g := gateOf(l, "k"); g == nil || g.ext.learned.due == 0 {
			t.Error("a sweep has forgotten it")
		}
		out.Done(success)
		time.Sleep(time.Second)
		took(t, l, "another").Release()
		if gateOf(l, "k") != nil {
			t.Error("nothing is forgotten at last")
		}
	})
}

// The next call after ten minutes finds all forgotten, also where it is decided in the shortest way.
func TestNextCallForgets(t *testing.T) {
	for _, slots := range []int{0, 8} {
		row(t, slots, func(t *testing.T) {
			l := limiterOf(t, Limit{Rates: []Rate{perSecond(1000, 1000)}, InFlight: slots},
				Policy(policy.AIMD{}))
			took(t, l, "k") // and kept: no sweep drops the key
			sends(t, l, "k", throttled)
			time.Sleep(forgetAfter + time.Second)
			took(t, l, "k")
			if pc := &gateOf(l, "k").ext.learned.pacers[0]; pc.ctrl != nil || pc.pace != 1000 {
				t.Errorf("a pace of %v is still learned", pc.pace)
			}
		})
	}
}

// A controller has held back a batch only if it would have let fewer through than the rates and the slots
// do.
func TestUpToNotesTheControllerThatHeldBack(t *testing.T) {
	for name, c := range map[string]struct {
		rate     Rate
		requests float64 // that the controller of requests has room for, and slots
		slots    int
		paced    []bool // of both controllers
	}{
		"the window is used up": {Rate{Events: 1, Per: time.Minute, Aligned: true}, 3, 2,
			[]bool{false, false}},
		"the controller of slots is least": {perSecond(1000, 1000), 9, 2, []bool{false, true}},
		"that of requests first":           {perSecond(1000, 1000), 3, 2, []bool{true, true}},
		"that of requests alone":           {perSecond(1000, 1000), 3, 8, []bool{true, false}},
		"none of them":                     {perSecond(1000, 1000), 9, 8, []bool{false, false}},
	} {
		row(t, name, func(t *testing.T) {
			l := limiterOf(t, Limit{Rates: []Rate{c.rate}, InFlight: 10}, Policy(policy.AIMD{}))
			took(t, l, "k").Done(success) // it has learned something
			x := gateOf(l, "k").ext.learned
			for i, room := range []float64{c.requests, 100} {
				x.pacers[i].bucket = bucket{tokens: room, last: since(l)}
				x.pacers[i].fill = fill{interval: 1e9, size: room}
				x.pacers[i].heldBack = false
			}
			x.slots = c.slots
			l.TryAcquireUpTo("k", 6)
			var paced []bool
			for i := range x.pacers {
				paced = append(paced, x.pacers[i].heldBack)
			}
			if !slices.Equal(paced, c.paced) {
				t.Errorf("the controllers held back: %v, want %v", paced, c.paced)
			}
		})
	}
}

// The slots that a controller has learned bound also a call that one bucket could decide on.
func TestLearnedSlotsOfPlainCalls(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		p := &panel{
			names:   map[float64]string{2000: requests, 8: inFlight8},
			says:    map[string]policy.Pace{inFlight8: {Rate: 1}},
			samples: map[string][]policy.Sample{}, bounds: map[string]policy.Bounds{},
		}
		l := limiterOf(t, Limit{InFlight: 8, Rates: []Rate{perSecond(2000, 4000)}}, Replicas(1), Policy(p),
			BeyondShare())
		took(t, l, "k").Done(success)
		first := took(t, l, "k")
		took(t, l, "k")
		time.Sleep(time.Second)
		refusedFor(t, l, ReasonInFlight, "k")
		if d := l.Check("k"); d.OK || d.Rule != ctrlRule {
			t.Errorf("a look: %+v, want the rule of a controller", d)
		}
		first.Release()
		took(t, l, "k")
		refusedFor(t, l, ReasonInFlight, "k")
	})
}
