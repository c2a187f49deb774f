package quotient

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// spyController is a policy and its only controller. It notes its samples and answers what the test sets.
type spyController struct {
	last  policy.Sample
	start float64 // 0: the share
	next  float64 // in answer to feedback; 0: the share
}

func (s *spyController) New(uint64) policy.Controller { return s }

func (s *spyController) Next(x policy.Sample, b policy.Bounds) policy.Pace {
	answer := s.next
	if x.Outcome == policy.Unknown {
		answer = s.start
	} else {
		s.last = x
	}
	if answer == 0 {
		return policy.Pace{Rate: b.Share}
	}
	return policy.Pace{Rate: answer}
}

// panel is a policy of controllers that note their samples and answer what the test sets. It knows the
// controllers by their ceilings.
type panel struct {
	names   map[float64]string
	says    map[string]policy.Pace // the zero value: the ceiling
	samples map[string][]policy.Sample
	bounds  map[string]policy.Bounds
	seeds   []uint64
}

func newPanel(names map[float64]string) *panel {
	return &panel{names: names, says: map[string]policy.Pace{}, samples: map[string][]policy.Sample{},
		bounds: map[string]policy.Bounds{}}
}

type panelController struct {
	*panel
	begun bool
}

func (p *panel) New(seed uint64) policy.Controller {
	p.seeds = append(p.seeds, seed)
	return &panelController{panel: p}
}

func (l *panelController) Next(s policy.Sample, b policy.Bounds) policy.Pace {
	name := l.names[b.Ceiling]
	l.bounds[name] = b
	if !l.begun {
		l.begun = true
		return policy.Pace{Rate: b.Ceiling}
	}
	l.samples[name] = append(l.samples[name], s)
	pace := l.says[name]
	if pace.Rate == 0 {
		pace.Rate = b.Ceiling
	}
	return pace
}

// last returns the latest sample of a controller.
func (p *panel) last(t *testing.T, name string) policy.Sample {
	t.Helper()
	if len(p.samples[name]) == 0 {
		t.Fatalf("the controller of %s has got nothing", name)
	}
	return p.samples[name][len(p.samples[name])-1]
}

const (
	requests  = "requests"
	tokens    = "tokens"
	inFlight8 = "slots"
)

// governing returns a limiter of 2,000 requests and 10,000 tokens a second and of 8 slots, whose controllers
// are a panel.
func governing(t *testing.T, opts ...Option) (*Limiter, *panel) {
	t.Helper()
	p := newPanel(map[float64]string{2000: requests, 10_000: tokens, 8: inFlight8})
	limit := Limit{InFlight: 8, Rates: []Rate{
		perSecond(2000, 4000),
		{Name: "tokens", Unit: "tokens", Events: 10_000, Per: time.Second, Burst: 100_000},
	}}
	return mustNew(t, limit, append(opts, Policy(p), BeyondShare())...), p
}

// gives hands a controller's next answer over, through feedback of a request that is let through.
func (p *panel) gives(t *testing.T, l *Limiter, name string, pace policy.Pace) {
	t.Helper()
	p.says[name] = pace
	took(t, l, "k", Cost("tokens", 1)).Done(policy.Feedback{})
}

func since(l *Limiter) time.Duration { return time.Since(l.base) }

// fickle makes a controller when New checks whether it learns, and none for the keys.
type fickle struct{ asked *int }

func (f fickle) New(uint64) policy.Controller {
	if *f.asked++; *f.asked <= 2 {
		return policy.AIMD{}.New(0)
	}
	return nil
}

// panicky is a controller that cannot bear to be throttled, nor, once begun, a change of its bounds.
type panicky struct{ begun bool }

func (panicky) New(uint64) policy.Controller { return new(panicky) }

func (p *panicky) Next(s policy.Sample, _ policy.Bounds) policy.Pace {
	if s.Outcome == policy.Throttled || p.begun && s.Outcome == policy.Unknown {
		panic("controller")
	}
	p.begun = true
	return policy.Pace{Rate: 1}
}

var (
	throttled = policy.Feedback{Outcome: policy.Throttled}
	success   = policy.Feedback{Outcome: policy.Success}
)

// learning returns a limiter of 20 a second and two replicas under AIMD.
func learning(t *testing.T, c bool, opts ...Option) *Limiter {
	t.Helper()
	return mustNew(t, Rates(perSecond(20, 40)), append(opts, policyOf(policy.AIMD{}, c), Replicas(2))...)
}

// paces fails unless the policy lets so many events a second through for the key.
func paces(t *testing.T, l *Limiter, key string, want float64) {
	t.Helper()
	if got := stateOf(t, l, key).pace(); math.Abs(got-want) > want/100 {
		t.Errorf("key %q is paced at %v, want %v", key, got, want)
	}
}

// sends takes a permit, waiting if need be, and hands back what the upstream said a moment later.
func sends(t *testing.T, l *Limiter, key string, f policy.Feedback) {
	t.Helper()
	p, err := l.Acquire(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Millisecond)
	p.Done(f)
}

func TestFeedbackOfAKey(t *testing.T) {
	// A key's use of its pace counts as its use of its limit does.
	row(t, "pace is used", func(t *testing.T) {
		l := learning(t, beyondShare)
		sends(t, l, "k", throttled) // a pace of 5, of which one may come at once
		time.Sleep(time.Second)
		for _, want := range []float64{0, 1} {
			k := stateOf(t, l, "k")
			if ctrl := k.Rules[1]; k.Used != want || ctrl.Burst != 1 || ctrl.Left != 1-want {
				t.Errorf("used %v, want %v; the pace has %v left of %v", k.Used, want, ctrl.Left, ctrl.Burst)
			}
			l.Allow("k") // refused in the end
		}
	})
	row(t, "refusal cuts the rate", func(t *testing.T) {
		l := learning(t, beyondShare)
		sends(t, l, "k", throttled)
		paces(t, l, "k", 5)
		sends(t, l, "k", throttled)
		paces(t, l, "k", 2.5)
		sends(t, l, "other", success)
		paces(t, l, "other", 10)
		stats(t, l, "Throttled", 2)
		start := time.Now()
		for range 11 { // one burst of one event, then the pace
			sends(t, l, "k", policy.Feedback{Outcome: policy.Unavailable})
		}
		if d := time.Since(start); d < 4*time.Second || d > 4500*time.Millisecond {
			t.Errorf("10 events at 2.5 a second took %v", d)
		}
	})
	// Report hands feedback to the policy, and keeps the permit. Feedback after the release counts for nothing.
	row(t, "report keeps the permit", func(t *testing.T) {
		l := mustNew(t, Limit{Rates: []Rate{perSecond(10, 10)}, InFlight: 1}, Policy(policy.AIMD{}))
		p := took(t, l, "k")
		time.Sleep(time.Millisecond)
		p.Report(throttled)
		paces(t, l, "k", 5)
		inFlight(t, l, 1)
		p.Release()
		p.Report(throttled)
		p.Done(throttled)
		paces(t, l, "k", 5)
		stats(t, l, "InFlight", 0, "Throttled", 1, "DoubleReleases", 1)
		Permit{}.Report(throttled)
	})
	// A policy that makes no controller for a key leaves its pace as it starts, also through a change.
	row(t, "policy that makes no controller", func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(20, 40)), Policy(fickle{new(int)}))
		took(t, l, "k").Done(throttled)
		paces(t, l, "k", 20)
		setReplicas(t, l, 2)
		took(t, l, "k")
	})
	// A learned rate that is forgotten after 10 minutes wakes the head.
	row(t, "forget wakes the head", func(t *testing.T) {
		l := mustNew(t, Rates(Rate{Name: "r", Events: 1, Per: time.Minute, Burst: 20}),
			Policy(policy.AIMD{Decrease: 0.02}))
		p := took(t, l, "k")
		time.Sleep(time.Second)
		p.Done(throttled) // one in 50 min from now on
		w := asking(t, l, "k")
		time.Sleep(12 * time.Minute)
		if !w.ended() {
			t.Errorf("still queued 12 min after the last feedback, which was forgotten after 10: %v/s",
				stateOf(t, l, "k").pace())
			w.gaveUp(t)
		}
	})
}

// A key that has learned is not dropped for ten minutes.
func TestLearnedKeysStay(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := learning(t, beyondShare, MaxKeys(1))
		sends(t, l, "learned", throttled)
		for range 9 {
			time.Sleep(time.Minute)
			took(t, l, "another").Release()
			paces(t, l, "learned", 5)
		}
		for range 30 {
			sends(t, l, "learned", success) // feedback keeps it
			time.Sleep(9 * time.Minute)
		}
		paces(t, l, "learned", 5)
		time.Sleep(time.Minute)
		paces(t, l, "learned", 10) // as if never seen
		took(t, l, "another").Release()
		is(t, "a key that has forgotten is still there", gateOf(l, "learned") != nil, false)
	})
}

// nonsense is what no controller may answer.
var nonsense = []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1}

// A controller that answers nonsense to feedback changes nothing.
func TestControllerThatAnswersNonsense(t *testing.T) {
	for _, x := range nonsense {
		row(t, x, func(t *testing.T) {
			p := policyOf(&spyController{next: x}, beyondShare)
			l := mustNew(t, Rates(perSecond(20, 40)), p, Replicas(2))
			for range 5 {
				sends(t, l, "k", success)
			}
			paces(t, l, "k", 10)
		})
	}
}

func TestPolicyIsValidated(t *testing.T) {
	bad := errors.New("hourly.bad: true")
	_, err := New(Limit{}, Policy(hourly{bad: bad}))
	if !errors.Is(err, bad) {
		t.Errorf("got %v", err)
	}
	_, err = New(Limit{}, Policy(policy.Ramp{Start: 2}))
	says(t, err, "quotient: Policy", "Ramp.Start", "2")
}

// A controller that panics at feedback keeps no lock and no slot that is given back; the panic is handed on.
func TestPanickingController(t *testing.T) {
	for name, c := range map[string]struct {
		hand func(Permit)
		held int
	}{
		"Report": {func(p Permit) { p.Report(throttled) }, 1},
		"Done":   {func(p Permit) { p.Done(throttled) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := mustNew(t, Limit{InFlight: 1, Rates: []Rate{PerSecond(10)}}, Policy(panicky{}))
			p := took(t, l, "k")
			panics(t, func() { c.hand(p) })
			if !l.shard("k").mu.TryLock() {
				t.Fatal("the shard's lock is still held: every later ask of the shard hangs")
			}
			l.shard("k").mu.Unlock()
			inFlight(t, l, c.held)
		})
	}
}

// A controller that panics at a change of the pool is dropped: the next caller has nothing to do with it.
func TestControllerThatPanicsAtAChange(t *testing.T) {
	for name, ask := range map[string]func(*Limiter){
		"Allow":          func(l *Limiter) { l.Allow("k") },
		"TryAcquire":     func(l *Limiter) { l.TryAcquire("k") },
		"TryAcquireUpTo": func(l *Limiter) { l.TryAcquireUpTo("k", 1) },
		"Acquire":        func(l *Limiter) { _, _ = l.Acquire(context.Background(), "k") },
		"Check":          func(l *Limiter) { l.Check("k") },
	} {
		row(t, name, func(t *testing.T) {
			l := mustNew(t, Rates(perSecond(10, 20)), Policy(panicky{}))
			took(t, l, "k").Done(success)
			setReplicas(t, l, 2)
			ask(l)
			paces(t, l, "k", 1) // where a new controller starts
			if pc := &gateOf(l, "k").ext.learned.pacers[0]; pc.ctrl != nil {
				t.Error("the controller is still there")
			}
		})
	}
}

// holdsBack makes a controller hold a call back.
func holdsBack(t *testing.T, l *Limiter, p *panel, name string) {
	t.Helper()
	p.gives(t, l, name, policy.Pace{Rate: 1})
	time.Sleep(10 * time.Second)
	keep := []Permit{took(t, l, "k", Cost("tokens", 1))}
	if name == inFlight8 { // one more than learned is in flight
		keep = append(keep, took(t, l, "k", Cost("tokens", 1)))
	}
	d := refusedFor(t, l, l.Check("k", Cost("tokens", 1)).Reason, "k", Cost("tokens", 1))
	if d.Rule != ctrlRule {
		t.Fatalf("refused by %q, want the controller of %s", d.Rule, name)
	}
	for _, permit := range keep {
		permit.Release()
	}
	delete(p.says, name)
	time.Sleep(10 * time.Second)
}

func quota(unit string, limit, left float64) policy.Quota {
	return policy.Quota{Unit: unit, Limit: limit, Remaining: left, Reset: time.Minute}
}

// A refusal is attributed to one controller; the others see only that time has passed.
func TestRefusalsAreAttributed(t *testing.T) {
	type quotas = [4]policy.Quota
	q := quota
	for _, c := range []struct {
		name   string
		held   []string // the controllers that held calls back, in this order
		quotas quotas
		want   string
	}{
		{"requests, if nothing is known", nil, quotas{}, requests},
		{"who held back", []string{tokens}, quotas{}, tokens},
		{"slots that held back", []string{inFlight8}, quotas{}, inFlight8},
		{"who held back last", []string{inFlight8, tokens, requests}, quotas{}, requests},
		{"who held back last of two", []string{requests, inFlight8}, quotas{}, inFlight8},
		{"the quota nearest to its end", nil, quotas{q("", 100, 50), q("tokens", 10_000, 900)}, tokens},
		{"whoever held back", []string{tokens}, quotas{q("tokens", 1000, 1000), q("", 100, 1)}, requests},
		{"the only quota", []string{inFlight8}, quotas{3: q("tokens", 1000, 1000)}, tokens},
		{"requests of two at their end", nil, quotas{q("tokens", 1000, 0), q("", 100, 0)}, requests},
		{"quotas of what is not governed", []string{tokens}, quotas{q("bytes", 10, 0)}, tokens},
		{"quotas that are none", []string{tokens},
			quotas{q("", -1, 0), q("", 10, math.NaN()), q("", math.Inf(1), 1)}, tokens},
	} {
		row(t, c.name, func(t *testing.T) {
			l, p := governing(t, Replicas(1))
			for _, name := range c.held {
				holdsBack(t, l, p, name)
			}
			took(t, l, "k", Cost("tokens", 1)).Done(policy.Feedback{
				Outcome: policy.Throttled, RetryAfter: time.Second, Quotas: c.quotas,
			})
			for _, name := range []string{requests, tokens, inFlight8} {
				s, want := p.last(t, name), policy.Sample{RetryAfter: time.Second} // a pause is the whole key's
				if name == c.want {
					want.Outcome = policy.Throttled
				}
				if s.Outcome != want.Outcome || s.RetryAfter != want.RetryAfter || s.Now != since(l) {
					t.Errorf("%s got %+v, want %v", name, s, want.Outcome)
				}
			}
			stats(t, l, "Throttled", 1)
		})
	}
}

// A pause is announced to a client, and stops its key whatever was refused: also calls that take none of it.
func TestPauseIsTheKeys(t *testing.T) {
	row(t, "tokens", func(t *testing.T) {
		tokens := Rate{Unit: "tokens", Events: 1000, Per: time.Second}
		l := mustNew(t, Limit{Rates: []Rate{perSecond(100, 100), tokens}, InFlight: 5}, Policy(policy.Tracking{}))
		took(t, l, "k", Cost("tokens", 1)).Done(policy.Feedback{Outcome: policy.Throttled, RetryAfter: time.Minute,
			Quotas: [policy.MaxQuotas]policy.Quota{{Unit: "tokens", Limit: 1000}}})
		if _, d := l.TryAcquire("k"); d.OK || d.RetryAfter < time.Minute {
			t.Errorf("a call without tokens: %+v", d)
		}
		time.Sleep(67 * time.Second)
		took(t, l, "k").Done(success)
	})
}

// Paced is each controller's own, and ends when the controller has got it.
func TestPacedIsEachControllersOwn(t *testing.T) {
	for _, name := range []string{requests, tokens, inFlight8} {
		row(t, name, func(t *testing.T) {
			l, p := governing(t, Replicas(1))
			holdsBack(t, l, p, name)
			for _, want := range []bool{true, false} {
				took(t, l, "k", Cost("tokens", 1)).Done(success)
				time.Sleep(time.Second)
				for _, other := range []string{requests, tokens, inFlight8} {
					if got := p.last(t, other).Paced; got != (want && other == name) {
						t.Errorf("%s: paced %v though %s held back", other, got, name)
					}
				}
			}
		})
	}
}

func TestSeveralControllers(t *testing.T) {
	// A rule that held back before the first feedback is not noted: the key may have been dropped and made again
	// since.
	row(t, "nothing is noted before the first feedback", func(t *testing.T) {
		l, p := governing(t, Replicas(1))
		permit := took(t, l, "k", Cost("tokens", 1000))
		if d := refusedFor(t, l, ReasonRate, "k", Cost("tokens", 1000)); d.Rule != ctrlRule {
			t.Fatalf("refused by %q, want a controller", d.Rule)
		}
		permit.Done(throttled)
		is(t, requests, p.last(t, requests).Outcome, policy.Throttled)
		if s := p.last(t, tokens); s.Outcome != policy.Unknown || s.Paced {
			t.Errorf("tokens: got %+v", s)
		}
	})
	// With all that can be governed at once each controller governs its own.
	row(t, "five controllers", func(t *testing.T) {
		limit := Limit{InFlight: 8, Rates: []Rate{perSecond(2000, 4000)}}
		for _, unit := range []string{"a", "b", "c"} {
			limit.Rates = append(limit.Rates, Rate{Name: unit, Unit: unit, Events: 1000, Per: time.Second})
		}
		l := mustNew(t, limit, Policy(policy.AIMD{}))
		f := throttled
		f.Quotas[0] = policy.Quota{Unit: "b", Limit: 10}
		took(t, l, "k", Cost("b", 10)).Done(f)
		for i, want := range []float64{2000, 1000, 500, 1000, 8} {
			is(t, i, gateOf(l, "k").ext.learned.pacers[i].pace, want)
		}
	})
	// Each controller sees what it governs: its quota, its cost, its own hold.
	row(t, "each controller sees its own", func(t *testing.T) {
		l, p := governing(t, Replicas(2))
		time.Sleep(time.Second)
		permit := took(t, l, "k", Weight(2), Cost("tokens", 300))
		time.Sleep(1500 * time.Millisecond)
		must(t, permit.Correct("tokens", 200))
		q := quota
		quotas := [4]policy.Quota{q("bytes", 9, 9), q("tokens", 0, 5), q("tokens", 1000, 50), q("", 20, 1)}
		permit.Done(policy.Feedback{Outcome: policy.Unavailable, RetryAfter: 3 * time.Second, Quotas: quotas})
		for name, want := range map[string]policy.Sample{
			requests:  {Cost: 2, Taken: 2, Quota: q("", 20, 1)},
			tokens:    {Cost: 200, Taken: 200, Quota: q("tokens", 1000, 50)},
			inFlight8: {}, // only what succeeds tells for how long a slot is held
		} {
			want.Outcome, want.RetryAfter = policy.Unavailable, 3*time.Second
			want.Now, want.Sent = 2500*time.Millisecond, time.Second
			is(t, name, p.last(t, name), want)
		}
		is(t, "bounds of slots", p.bounds[inFlight8], policy.Bounds{Share: 4, Ceiling: 8})
	})
	// Looking does not count as holding back, and what the limit itself refuses does not either.
	row(t, "only controllers are paced", func(t *testing.T) {
		l, p := governing(t, Replicas(1))
		var held []Permit
		for range 8 {
			held = append(held, took(t, l, "k"))
		}
		refusedFor(t, l, ReasonInFlight, "k") // all 8 of the limit
		held[0].Done(success)
		is(t, "the slots of the limit count as the controller's", p.last(t, inFlight8).Paced, false)
		p.says[inFlight8] = policy.Pace{Rate: 3}
		held[1].Done(success)
		l.Check("k")
		held[2].Done(success)
		is(t, "a look counts as an ask that was held back", p.last(t, inFlight8).Paced, false)
		d := refusedFor(t, l, ReasonInFlight, "k")
		if d.Rule != ctrlRule || d.Limit != 8 || d.Share != 8 {
			t.Errorf("got %+v, want the rule of a controller", d)
		}
		held[3].Done(success)
		is(t, "an ask that the learned slots refused counts", p.last(t, inFlight8).Paced, true)
	})
	// A new pool or limit bounds every controller again, of keys that have learned and of those that have not.
	row(t, "new bounds reach every controller", func(t *testing.T) {
		limit := func(x float64) Limit {
			return Limit{InFlight: int(8 * x), Rates: []Rate{
				perSecond(2000*x, 4000),
				{Name: "tokens", Unit: "tokens", Events: 10_000 * x, Per: time.Second},
			}}
		}
		l := mustNew(t, limit(1), Policy(policy.AIMD{}), Replicas(1))
		out := took(t, l, "learned")
		took(t, l, "learned").Done(success)
		took(t, l, "new").Release()
		are := func(x float64) {
			t.Helper()
			for range l.Keys() { // brings all up to date
			}
			for _, k := range []string{"learned", "new"} {
				g := gateOf(l, k)
				for i, want := range []float64{2000 * x, 10_000 * x, 8 * x} {
					is(t, []any{k, "controller", i}, g.ext.learned.pacers[i].pace, want)
				}
				is(t, []any{k, "slots"}, slotsOf8(g), max(1, int(8*x)))
			}
		}
		are(1)
		setReplicas(t, l, 4)
		are(0.25)
		setLimit(t, l, limit(0.5))
		are(0.125)
		out.Done(success)
		are(0.125)
	})
	row(t, "learned slots that grow wake waiters", func(t *testing.T) {
		l, p := governing(t, Replicas(1))
		p.gives(t, l, inFlight8, policy.Pace{Rate: 1})
		a, b := took(t, l, "k"), took(t, l, "k")
		c, d := asking(t, l, "k"), asking(t, l, "k")
		c.waits(t)
		p.says[inFlight8] = policy.Pace{Rate: 2}
		a.Report(success)
		c.admittedAfter(t, 0)
		d.waits(t)
		p.says[inFlight8] = policy.Pace{Rate: 0.5}
		b.Done(success) // no permit loses a slot, and none is free before two are given back
		d.waits(t)
		a.Release()
		d.waits(t)
		c.permit.Release()
		d.admittedAfter(t, 0)
		is(t, "who waits for learned slots counts as held back", p.last(t, inFlight8).Paced, true)
	})
	// More than the learned slots, but not than the limit, passes when nothing is in flight: it would wait for
	// ever else.
	row(t, "call above the learned slots", func(t *testing.T) {
		l, p := governing(t, Replicas(1))
		p.gives(t, l, inFlight8, policy.Pace{Rate: 2})
		one := took(t, l, "k")
		five := asking(t, l, "k", Weight(5))
		five.waits(t)
		one.Release()
		five.admittedAfter(t, 0)
		refusedFor(t, l, ReasonInFlight, "k")
		five.permit.Release()
		refusedFor(t, l, ReasonTooLarge, "k", Weight(9))
	})
}

// A refusal of a request that took no tokens is not the controller of tokens' business, whatever the answer
// says of tokens.
func TestRefusalOfWhatWasTaken(t *testing.T) {
	held := policy.Feedback{Outcome: policy.Throttled, RetryAfter: time.Minute}
	spent := held
	spent.Quotas[0] = policy.Quota{Limit: 6000, Remaining: 5000, Reset: time.Second}
	spent.Quotas[1] = policy.Quota{Unit: "tokens", Limit: 60000, Reset: time.Minute}
	for name, f := range map[string]policy.Feedback{"quotas": spent, "held back last": held} {
		row(t, name, func(t *testing.T) {
			tokens := Rate{Name: "tokens", Unit: "tokens", Events: 1000, Per: time.Second, Burst: 100_000}
			l := mustNew(t, Rates(perSecond(100, 100), tokens), Policy(policy.Tracking{}), BeyondShare(),
				Replicas(1))
			took(t, l, "k").Done(success)
			took(t, l, "k", Cost("tokens", 5000)).Done(success)
			refusedFor(t, l, ReasonRate, "k", Cost("tokens", 5000)) // the controller of tokens holds one back
			time.Sleep(10 * time.Second)
			n := 0
			for range 30_000 {
				time.Sleep(time.Millisecond)
				if p, d := l.TryAcquire("k"); d.OK {
					n++
					p.Done(f)
				}
			}
			if n > 200 {
				t.Errorf("%d requests in 30 s though each answer said to wait for a minute", n)
			}
		})
	}
}

func TestBoundsOfTheControllers(t *testing.T) {
	limit := Limit{InFlight: 9, Rates: []Rate{
		perSecond(20, 40), {Name: "hour", Events: 3600, Per: time.Hour},
		{Name: "window", Unit: "tokens", Events: 600, Per: time.Minute, Aligned: true},
		{Name: "bytes", Unit: "bytes", Events: 500, Per: time.Second},
		{Name: "more bytes", Unit: "bytes", Events: 100, Per: time.Second},
	}}
	two, inf, none := Replicas(2), math.Inf(1), together()
	type pairs = [][2]float64 // a share and a ceiling
	first := StartPool(Pool{Replicas: 2, Ordinal: 1, Fixed: true})
	for _, c := range []struct {
		name    string
		limit   Limit
		ceiling bool
		opt     Option
		want    pairs // requests, tokens, bytes, slots
	}{
		{"shares", limit, withinShare, two, pairs{{.5, .5}, {5, 5}, {50, 50}, {4.5, 4}}},
		{"the limit", limit, beyondShare, two, pairs{{.5, 1}, {5, 10}, {50, 100}, {4.5, 9}}},
		{"the remainder", limit, withinShare, first, pairs{{.5, .5}, {5, 5}, {50, 50}, {4.5, 5}}},
		{"no pool: the limit", limit, beyondShare, none, pairs{{0, 1}, {0, 10}, {0, 100}, {0, 9}}},
		{"no pool: shares", limit, withinShare, none, pairs{{1, 1}, {10, 10}, {100, 100}, {9, 9}}},
		{"no slot", Limit{InFlight: 1}, withinShare, two, pairs{{0, inf}}},
		{"at least one", Limit{InFlight: 1}, withinShare, together(two, AtLeastOne()),
			pairs{{0, inf}, {.5, 1}}},
		{"no limit", Limit{}, beyondShare, none, pairs{{0, inf}}},
		{"Fixed", limit, beyondShare, together(two, Policy(policy.Fixed{})), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := mustNew(t, c.limit, policyOf(policy.AIMD{}, c.ceiling), c.opt)
			var got pairs
			for _, ls := range l.shards[0].setting.ctrls {
				got = append(got, [2]float64{ls.bounds.Share, ls.bounds.Ceiling})
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// The size of the pool is known as soon as a source or SetPool gives it, and no more when that source has
// been silent.
func TestShareIsUnknownUntilThePoolIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		opt    Option
		before float64
	}{"nothing configured": {together(), 0}, "configured": {Replicas(1), 20}} {
		row(t, name, func(t *testing.T) {
			l := mustNew(t, Rates(perSecond(20, 40)), c.opt, Policy(policy.AIMD{}), BeyondShare(),
				HintMaxAge(time.Minute), HoldDown(0))
			share := func(want float64) {
				t.Helper()
				time.Sleep(time.Second)
				took(t, l, "k").Done(success)
				is(t, "bounds", l.newest().ctrls[0].bounds, policy.Bounds{Share: want, Ceiling: 20})
			}
			share(c.before)
			must(t, l.SetPool(Pool{Replicas: 4}, time.Minute))
			share(5)
			time.Sleep(time.Minute) // what was said for a time is no word after it
			share(c.before)
			src := following(t, l)
			share(c.before)
			src.says(1)
			share(20)
			time.Sleep(2 * time.Minute)
			share(c.before)
			src.says(2)
			share(10)
			setReplicas(t, l, 1)
			share(20)
		})
	}
}

// A controller of slots sets their number: one more than whole ones, and never more than the limit or the
// share.
func TestLearnedSlots(t *testing.T) {
	for _, c := range []struct {
		says float64
		want int
	}{{3, 4}, {3.99, 4}, {1, 2}, {0.99, 1}, {0.2, 1}, {1e-300, 1}, {7, 8}, {7.5, 8}, {8, 8}, {1e9, 8},
		{math.MaxFloat64, 8}, {math.NaN(), 8}, {-3, 8}, {math.Inf(1), 8}} {
		row(t, c.says, func(t *testing.T) {
			l, p := governing(t, Replicas(2))
			p.gives(t, l, inFlight8, policy.Pace{Rate: c.says})
			upTo(t, l, "k", 20, c.want)
		})
	}
}

// A replica with no slot stays without, whatever a controller says.
func TestReplicaWithoutSlotsUnderAController(t *testing.T) {
	l := mustNew(t, Limit{InFlight: 1}, Policy(&spyController{start: 50, next: 50}), Replicas(2))
	refusedFor(t, l, ReasonShare, "k")
	setReplicas(t, l, 1)
	took(t, l, "k").Done(success)
	setReplicas(t, l, 2)
	refusedFor(t, l, ReasonShare, "k")
}

// Controllers differ by limiter, by key and by what they govern, in what they do at random.
func TestSeedsOfTheControllers(t *testing.T) {
	seen := map[uint64]bool{}
	for range 4 {
		l, p := governing(t)
		p.seeds = nil
		for i := range 50 {
			took(t, l, key(i)).Done(success)
		}
		if len(p.seeds) != 150 {
			t.Fatalf("%d controllers for 50 keys", len(p.seeds))
		}
		for _, seed := range p.seeds {
			if seen[seed] {
				t.Fatalf("the seed %x is given twice", seed)
			}
			seen[seed] = true
		}
	}
}

// A key of a limit without slots and units costs at most one allocation more under a policy that learns.
func TestLearningCostsOneAllocationAKey(t *testing.T) {
	for _, limit := range []Limit{
		Rates(perSecond(5, 5)),
		{InFlight: 5},
		{Rates: []Rate{perSecond(5, 5)}, InFlight: 5},
		{Rates: []Rate{tokensPerMinute(60, 60)}, InFlight: 5},
	} {
		allocs := func(p policy.Policy) float64 {
			l := mustNew(t, limit, Policy(p))
			l.shards[0].start(l, l.shards[0].setting)
			s := &l.shards[0]
			return testing.AllocsPerRun(100, func() { newGate("", s.untouched, s.latest, 1) })
		}
		if more := allocs(policy.AIMD{}) - allocs(policy.Fixed{}); more > 1 {
			t.Errorf("%+v: %v allocations more", limit, more)
		}
	}
}

// upstream is a token bucket of 100 a second. At the start it owes what others have taken.
type upstream struct {
	mu              sync.Mutex
	tokens          float64
	last            time.Time
	served, refused int
}

func (u *upstream) answer() policy.Feedback {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	u.tokens, u.last = min(100, u.tokens+100*now.Sub(u.last).Seconds()), now
	if u.tokens < 1 {
		u.refused++
		return throttled
	}
	u.tokens--
	u.served++
	return success
}

// starts sends 200 requests a second to an upstream from the start, and returns what has become of them.
func starts(t *testing.T, limit Limit, owes float64, seconds int) *upstream {
	t.Helper()
	l := mustNew(t, limit, Policy(policy.Tracking{}), BeyondShare(), few)
	u := &upstream{tokens: -owes, last: time.Now()}
	random := rand.New(rand.NewPCG(1, 1))
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(seconds)*time.Second)
	defer cancel()
	for range 200 * seconds {
		time.Sleep(5 * time.Millisecond)
		half := time.Duration(10+random.IntN(30)) * time.Millisecond
		go func() {
			p, err := l.Acquire(ctx, "k")
			if err != nil {
				return
			}
			time.Sleep(half)
			f := u.answer()
			time.Sleep(half)
			p.Done(f)
		}()
	}
	cancel()
	time.Sleep(time.Second)
	synctest.Wait()
	return u
}

// A limit that others have used up when a key starts says nothing about the rate at which it may go on. With
// slots and without, a refusal before anything was served costs no more than the time until then.
func TestStartAgainstAnEmptyBucket(t *testing.T) {
	both := func(slots int) Limit { return Limit{Rates: []Rate{perSecond(100, 100)}, InFlight: slots} }
	for _, c := range []struct {
		owes             float64 // for 10 ms each
		seconds, atLeast int
	}{{0, 3, 40}, {5, 3, 35}, {50, 3, 20}, {5, 10, 500}, {100, 10, 400}, {200, 10, 225}} {
		for name, limit := range map[string]Limit{
			"rate": both(0), "slots": {InFlight: 20}, "both": both(20), "few slots": both(6),
		} {
			row(t, fmt.Sprint(name, c), func(t *testing.T) {
				u := starts(t, limit, c.owes, c.seconds)
				if u.served < c.atLeast || u.refused > u.served/10+8 {
					t.Errorf("served %d, refused %d, want at least %d served", u.served, u.refused, c.atLeast)
				}
			})
		}
	}
}

// still is a policy whose controllers cost nothing, so that what is left is what the limiter does for them.
type still struct{}

func (s still) New(uint64) policy.Controller { return s }

func (still) Next(_ policy.Sample, b policy.Bounds) policy.Pace { return policy.Pace{Rate: b.Ceiling} }

// doneLimit is a limit under which no caller waits.
type doneLimit struct {
	name  string
	limit Limit
	opts  []CallOption
}

func doneLimits() []doneLimit {
	plenty := Rate{Name: "second", Events: 1e9, Per: time.Second, Burst: 1 << 30}
	tokens := Rate{Name: "tokens", Unit: "tokens", Events: 1e9, Per: time.Second, Burst: 1 << 30}
	return []doneLimit{
		{"rate", Rates(plenty), nil},
		{"rate and slots", Limit{Rates: []Rate{plenty}, InFlight: 100}, nil},
		{"requests and tokens", Rates(plenty, tokens), []CallOption{Cost("tokens", 100)}},
	}
}

// A call and its feedback allocate nothing: what goes to a controller stays on the stack.
func TestFeedbackAllocatesNothing(t *testing.T) {
	for _, c := range doneLimits() {
		for _, f := range []policy.Feedback{success, throttled, {Outcome: policy.Failed}} {
			l := mustNew(t, c.limit, Policy(still{}))
			once := func() { took(t, l, "k", c.opts...).Done(f) }
			once() // the controller begins, and the first block of permits is made
			is(t, []any{c.name, f.Outcome}, testing.AllocsPerRun(100, once), 0)
		}
	}
}
