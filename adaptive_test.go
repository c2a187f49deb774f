package quotient

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/internal/meter"
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

// answers is a policy and its only controller, which needs no memory.
type answers func(policy.Sample, policy.Bounds) policy.Pace

func (f answers) New(uint64) policy.Controller { return f }

func (f answers) Next(s policy.Sample, b policy.Bounds) policy.Pace { return f(s, b) }

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
	wrong(t, !errors.Is(err, bad), "got %v", err)
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
			wrong(t, gateOf(l, "k").ext.learned.pacers[0].ctrl != nil, "the controller is still there")
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
	if d.Rule.Name != ctrlRule {
		t.Fatalf("refused by %q, want the controller of %s", d.Rule.Name, name)
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
		want   string // of a request that takes tokens, but for the last ones
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
		{"a quota of tokens, and no token was taken", nil, quotas{q("tokens", 10_000, 0)}, requests},
		{"tokens held back, and no token was taken", []string{tokens}, quotas{}, requests},
	} {
		row(t, c.name, func(t *testing.T) {
			l, p := governing(t, Replicas(1))
			for _, name := range c.held {
				holdsBack(t, l, p, name)
			}
			cost := 1
			if strings.HasSuffix(c.name, "no token was taken") {
				cost = 0
			}
			took(t, l, "k", Cost("tokens", cost)).Done(policy.Feedback{
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
	inFakeTime(t, func(t *testing.T) {
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

func TestSeveralControllers(t *testing.T) {
	// A rule that held back before the first feedback is not noted: the key may have been dropped and made again
	// since.
	row(t, "nothing is noted before the first feedback", func(t *testing.T) {
		l, p := governing(t, Replicas(1))
		permit := took(t, l, "k", Cost("tokens", 1000))
		if d := refusedFor(t, l, ReasonRate, "k", Cost("tokens", 1000)); d.Rule.Name != ctrlRule {
			t.Fatalf("refused by %q, want a controller", d.Rule.Name)
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
		if d.Rule.Name != ctrlRule || d.Limit != 8 || d.Share != 8 {
			t.Errorf("got %+v, want the rule of a controller", d)
		}
		held[3].Done(success)
		is(t, "an ask that the learned slots refused counts", p.last(t, inFlight8).Paced, true)
		is(t, "for the controller of slots alone", p.last(t, requests).Paced, false)
		held[4].Done(success)
		is(t, "it counts once", p.last(t, inFlight8).Paced, false)
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

func TestBoundsOfTheControllers(t *testing.T) {
	limit := Limit{InFlight: 9, Rates: []Rate{
		perSecond(20, 40), {Name: "hour", Events: 3600, Per: time.Hour},
		{Name: "window", Unit: "tokens", Events: 600, Per: time.Minute, Kind: Window},
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
			for _, ls := range l.newest().ctrls {
				got = append(got, [2]float64{ls.bounds.Share, ls.bounds.Ceiling})
			}
			wrong(t, !slices.Equal(got, c.want), "got %+v, want %+v", got, c.want)
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
			s := &l.shards[0]
			return testing.AllocsPerRun(100, func() { newGate("", s.unseen(0), s.latest, 1) })
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

// A call and its feedback allocate nothing: what goes to a controller stays on the stack.
func TestFeedbackAllocatesNothing(t *testing.T) {
	plenty := Rate{Name: "second", Events: 1e9, Per: time.Second, Burst: 1 << 30}
	tokens := Rate{Name: "tokens", Unit: "tokens", Events: 1e9, Per: time.Second, Burst: 1 << 30}
	still := answers(func(_ policy.Sample, b policy.Bounds) policy.Pace { return policy.Pace{Rate: b.Ceiling} })
	for _, limit := range []Limit{Rates(plenty), {Rates: []Rate{plenty}, InFlight: 100}, Rates(plenty, tokens)} {
		var opts []CallOption
		if len(limit.Rates) > 1 {
			opts = append(opts, Cost("tokens", 100))
		}
		for _, f := range []policy.Feedback{success, throttled, {Outcome: policy.Failed}} {
			l := mustNew(t, limit, Policy(still))
			once := func() { took(t, l, "k", opts...).Done(f) }
			once() // the controller begins, and the first block of permits is made
			is(t, []any{limit, f.Outcome}, testing.AllocsPerRun(100, once), 0)
		}
	}
}

// holdsFor takes a permit, and reports a success so much later.
func holdsFor(t *testing.T, l *Limiter, d time.Duration) {
	t.Helper()
	permit := took(t, l, "k", Cost("tokens", 1))
	time.Sleep(d)
	permit.Done(success)
}

// The time that slots are held is that of requests which succeed, smoothed, whatever their weight.
func TestHeldSlots(t *testing.T) {
	type reported struct {
		f      policy.Feedback
		held   time.Duration
		weight int
	}
	ok := func(d time.Duration) reported { return reported{success, d, 1} }
	failed, unknown := policy.Feedback{Outcome: policy.Failed}, policy.Feedback{}
	for _, c := range []struct {
		name     string
		feedback []reported
		want     float64 // seconds
	}{
		{"nothing", nil, 0},
		{"one", []reported{ok(time.Second)}, 1},
		{"a sixteenth of the second", []reported{ok(time.Second), ok(3 * time.Second)}, 1.125},
		{"weights", []reported{{success, time.Second, 2}, {success, 3 * time.Second, 2}}, 1.125},
		{"what failed", []reported{ok(time.Second), {throttled, 1, 1}, {failed, time.Minute, 1},
			{unknown, time.Minute, 1}}, 1},
		{"no time at all", []reported{ok(0), ok(time.Second)}, 1},
	} {
		row(t, c.name, func(t *testing.T) {
			l, p := governing(t, Replicas(1))
			took(t, l, "k").Done(policy.Feedback{})
			for _, x := range c.feedback {
				time.Sleep(time.Minute)
				permit := took(t, l, "k", Weight(x.weight))
				time.Sleep(x.held)
				if permit.Done(x.f); x.f == success {
					is(t, "slot seconds", p.last(t, inFlight8).Cost, x.held.Seconds()*float64(x.weight))
				}
			}
			pc := &gateOf(l, "k").ext.learned.pacers[2]
			wrong(t, math.Abs(pc.held-c.want) > 1e-12, "held for %v s, want %v", pc.held, c.want)
			upTo(t, l, "k", 20, 8).Release() // the mean time paces nothing while the controller allows all slots
			p.says[inFlight8] = policy.Pace{Rate: 0.25}
			took(t, l, "k", Cost("tokens", 1)).Done(policy.Feedback{})
			want := min(0.25/c.want, maxEvents)
			wrong(t, math.Abs(1e9/pc.Interval-want) > 1e-9*want, "%v slots a second, want %v", 1e9/pc.Interval, want)
			time.Sleep(forgetAfter)
			took(t, l, "k").Release()
			wrong(t, pc.held != 0 || 1e9/pc.Interval != maxEvents || pc.pace != 8, "not forgotten: %+v", pc)
		})
	}
}

// A success is dated by the latest instant of its key, everything else by the clock; no controller sees time
// go back.
func TestHowFeedbackIsDated(t *testing.T) {
	type feedback = policy.Feedback
	quotas := [4]policy.Quota{{Limit: 10, Remaining: 1}}
	nothing := func(*testing.T, *Limiter) {}
	admits := func(t *testing.T, l *Limiter) { took(t, l, "k") }
	throttles := func(key string) func(*testing.T, *Limiter) {
		return func(t *testing.T, l *Limiter) { took(t, l, key).Done(throttled) }
	}
	changes := func(t *testing.T, l *Limiter) { setReplicas(t, l, 3) }
	for _, c := range []struct {
		name string
		f    policy.Feedback
		then func(t *testing.T, l *Limiter) // in the second second of three
		want time.Duration                  // in seconds
	}{
		{"success", success, nothing, 1},
		{"success with quotas", feedback{Outcome: policy.Success, Quotas: quotas}, nothing, 3},
		{"success after an admission", success, admits, 2},
		{"success after other feedback", success, throttles("k"), 2},
		{"success after a change", success, changes, 2},
		{"success after that of another key", success, throttles("other"), 1},
		{"a time to wait", feedback{Outcome: policy.Success, RetryAfter: time.Second}, nothing, 3},
		{"throttled", throttled, nothing, 3},
		{"unavailable", feedback{Outcome: policy.Unavailable}, nothing, 3},
		{"failed", feedback{Outcome: policy.Failed}, nothing, 3},
		{"unknown", feedback{}, nothing, 3},
	} {
		for _, slots := range []int{0, 8} {
			row(t, fmt.Sprint(c.name, ", slots: ", slots), func(t *testing.T) {
				p := newPanel(map[float64]string{2000: requests, 8: inFlight8})
				l := mustNew(t, Limit{Rates: []Rate{perSecond(2000, 4000)}, InFlight: slots}, Policy(p),
					BeyondShare(), few)
				time.Sleep(time.Second)
				permit := took(t, l, "k")
				time.Sleep(time.Second)
				c.then(t, l)
				time.Sleep(time.Second)
				permit.Done(c.f)
				want := c.want * time.Second
				if slots > 0 {
					want = 3 * time.Second
				}
				s := p.last(t, requests)
				if s.Now != want || s.Sent != time.Second || s.Outcome != c.f.Outcome {
					t.Errorf("got %+v, want it dated %v", s, want)
				}
			})
		}
	}
}

func TestFeedbackIsInOrder(t *testing.T) {
	// A look that has ended a gate is not undone by a success that is dated before it.
	row(t, "success dated before a look", func(t *testing.T) {
		p := newPanel(map[float64]string{2000: requests})
		l := mustNew(t, Rates(perSecond(2000, 4000)), Policy(p), BeyondShare())
		early := took(t, l, "k")
		p.says[requests] = policy.Pace{Rate: 100, NotBefore: since(l) + 5*time.Second}
		took(t, l, "k").Done(throttled)
		time.Sleep(7 * time.Second)
		if d := l.Check("k"); !d.OK {
			t.Errorf("2 s after the end of a gate: %+v", d)
		}
		p.says[requests] = policy.Pace{Rate: 1}
		early.Done(success)
		took(t, l, "k")
	})
	// A sweep forgets nothing of a key with permits that are out: what they bring is dated by the key, not by the
	// sweep.
	row(t, "sweeps forget nothing of who is out", func(t *testing.T) {
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
		is(t, "nothing is forgotten at last", gateOf(l, "k") != nil, false)
	})
	// A probe that is given up unused lets the next one go at once. A permit that is corrected after its answer
	// gives nothing back: it has taken no more than one event.
	row(t, "probes given back", func(t *testing.T) {
		l, p := probing(t, requests)
		setLimit(t, l, Limit{Rates: l.Stats().Limit.Rates})
		time.Sleep(5 * time.Second)
		probe := took(t, l, "k", Weight(4))
		correct(t, probe, 0)
		probe = took(t, l, "k", Weight(4))
		refusedFor(t, l, ReasonRate, "k")
		p.says[requests] = policy.Pace{Rate: 200}
		time.Sleep(time.Millisecond)
		probe.Report(success)
		correct(t, probe, 0)
		upTo(t, l, "k", 8, 0)
	})
}

// The next call after ten minutes finds all forgotten, also where it is decided in the shortest way.
func TestNextCallForgets(t *testing.T) {
	for _, slots := range []int{0, 8} {
		row(t, slots, func(t *testing.T) {
			l := mustNew(t, Limit{Rates: []Rate{perSecond(1000, 1000)}, InFlight: slots},
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
	window, rate := aligned(1, time.Minute), perSecond(1000, 1000)
	for name, c := range map[string]struct {
		rate     Rate
		requests float64 // that the controller of requests has room for, and slots
		slots    int
		paced    []bool // of both controllers
	}{
		"the window is used up":            {window, 3, 2, []bool{false, false}},
		"the controller of slots is least": {rate, 9, 2, []bool{false, true}},
		"that of requests first":           {rate, 3, 2, []bool{true, true}},
		"that of requests alone":           {rate, 3, 8, []bool{true, false}},
		"none of them":                     {rate, 9, 8, []bool{false, false}},
	} {
		row(t, name, func(t *testing.T) {
			l := mustNew(t, Limit{Rates: []Rate{c.rate}, InFlight: 10}, Policy(policy.AIMD{}))
			took(t, l, "k").Done(success) // it has learned something
			x := gateOf(l, "k").ext.learned
			for i, room := range []float64{c.requests, 100} {
				x.pacers[i].Bucket = meter.Bucket{Tokens: room, Last: since(l)}
				x.pacers[i].Fill = meter.Fill{Interval: 1e9, Size: room}
				x.pacers[i].heldBack = false
			}
			x.slots = c.slots
			l.TryAcquireUpTo("k", 6)
			var paced []bool
			for i := range x.pacers {
				paced = append(paced, x.pacers[i].heldBack)
			}
			wrong(t, !slices.Equal(paced, c.paced), "the controllers held back: %v, want %v", paced, c.paced)
		})
	}
}

// probing is a limiter with a controller that has paused for five seconds, with 2 events or slots a second
// after that, and a probe each 50 seconds until then.
func probing(t *testing.T, name string, opts ...Option) (*Limiter, *panel) {
	t.Helper()
	l, p := governing(t, append(opts, Replicas(1))...)
	holdsFor(t, l, time.Second)
	p.gives(t, l, name, policy.Pace{Rate: 2, NotBefore: since(l) + 5*time.Second}.Probing(50*time.Second))
	return l, p
}

// Turns behind a pause are computed from its end and the pace that is expected then, not from the time
// between two probes.
func TestTurnsBehindAPause(t *testing.T) {
	for _, c := range []struct {
		ahead  int           // callers that wait
		slept  time.Duration // seconds since the pause began
		out    bool          // then a probe is sent
		weight int
		turn   time.Duration // known then
	}{
		{0, 0, false, 1, 5 * time.Second},
		{0, 3, false, 1, 2 * time.Second},
		{0, 0, false, 3, 5 * time.Second}, // a probe is one request, whatever its weight
		{4, 0, false, 1, 7 * time.Second},
		{4, 1, false, 1, 6 * time.Second},
		{0, 5, true, 1, 500 * time.Millisecond},
		{2, 5, true, 1, 1500 * time.Millisecond},
		{0, 9, true, 1, 500 * time.Millisecond},
	} {
		for _, name := range []string{requests, tokens, inFlight8} {
			row(t, fmt.Sprintf("%s %+v", name, c), func(t *testing.T) {
				l, _ := probing(t, name)
				opts := []CallOption{Cost("tokens", c.weight), Weight(c.weight)}
				time.Sleep(c.slept * time.Second)
				if c.out {
					took(t, l, "k", Cost("tokens", 1))
				}
				for range c.ahead {
					asking(t, l, "k", Cost("tokens", 1)).waits(t)
				}
				late := askingUntil(t, l, c.turn-time.Millisecond, "k", opts...)
				refused := late.refusedAfter(t, 0, ReasonDeadline).Decision
				l.forgetPromises()
				for _, d := range []Decision{refused, l.Check("k", opts...), l.Explain("k", opts...).Next} {
					wrong(t, d.OK || d.RetryAfter != c.turn, "%v, want a retry after %v", d, c.turn)
				}
				askingUntil(t, l, c.turn, "k", opts...).waits(t)
			})
		}
	}
}

// MaxWait counts as a deadline does: from the end of the pause.
func TestMaxWaitBehindAPause(t *testing.T) {
	for _, c := range []struct {
		maxWait time.Duration
		waits   int // callers, before one is refused
	}{{4 * time.Second, 0}, {5 * time.Second, 1}, {6 * time.Second, 3}, {30 * time.Second, 51}} {
		for _, name := range []string{requests, tokens, inFlight8} {
			row(t, fmt.Sprint(name, c.maxWait), func(t *testing.T) {
				l, _ := probing(t, name, MaxWait(c.maxWait))
				for range c.waits {
					asking(t, l, "k", Cost("tokens", 1)).waits(t)
				}
				want := 5*time.Second + time.Duration(c.waits)*500*time.Millisecond
				e := asking(t, l, "k", Cost("tokens", 1)).refusedAfter(t, 0, ReasonWait)
				is(t, "retry after", e.RetryAfter, want)
			})
		}
	}
}

// Until a probe is answered nothing but probes passes. That is one request at the end of the pause, and then
// one in each Probe, whatever it costs or weighs, and however many wait.
func TestSingleProbes(t *testing.T) {
	for _, name := range []string{requests, tokens, inFlight8} {
		row(t, name, func(t *testing.T) {
			l, _ := probing(t, name)
			opts := []CallOption{Cost("tokens", 2), Weight(2)}
			if name == inFlight8 { // of which there are three
				opts = nil
			}
			a, b, c := asking(t, l, "k", opts...), asking(t, l, "k", opts...), asking(t, l, "k", opts...)
			time.Sleep(5 * time.Second)
			a.admittedAfter(t, 5*time.Second)
			fired := l.counted().Fired
			time.Sleep(49 * time.Second)
			b.waits(t)
			if n := l.counted().Fired - fired; n > 0 {
				t.Errorf("timers have fired %d times for nothing", n)
			}
			upTo(t, l, "other", 1, 1, opts...)
			time.Sleep(time.Minute)
			b.admittedAfter(t, 55*time.Second)
			c.admittedAfter(t, 105*time.Second)
			reasons := map[string]Reason{requests: ReasonRate, tokens: ReasonRate, inFlight8: ReasonInFlight}
			refusedFor(t, l, reasons[name], "k", opts...)
			time.Sleep(50 * time.Second)
			a.permit.Release()
			if name != tokens { // of which a batch takes none
				upTo(t, l, "k", 5, 1)
			}
		})
	}
}

// A Probe below 0 means no probes, and one above an hour is an hour.
func TestProbeOutOfRange(t *testing.T) {
	for _, c := range [][2]time.Duration{{-time.Second, 0}, {1, 1}, {2 * time.Hour, time.Hour}} {
		probe, want := c[0], c[1]
		row(t, probe, func(t *testing.T) {
			l, p := governing(t, Replicas(1))
			p.gives(t, l, requests, policy.Pace{Rate: 100}.Probing(probe))
			is(t, "one request in", gateOf(l, "k").ext.learned.pacers[0].probe, want)
		})
	}
}

// rampFleet is a limit of ten a second for one replica, under a ramp from a tenth of it.
func rampFleet(t *testing.T, r policy.Ramp, opts ...Option) *Limiter {
	r.Start = 0.1
	return mustNew(t, Rates(PerSecond(10)), append(opts, Policy(r))...)
}

func TestRampOfALimiter(t *testing.T) {
	// What two replicas cannot share in whole tokens is not lost. Under the
	// start of one a second each replica admits one every other second, and a few more as the pace rises.
	row(t, "keeps fractions", func(t *testing.T) {
		pool := Replicas(2)
		ramp := policy.Ramp{Mode: policy.RampScheduled, Over: time.Hour}
		a, b := rampFleet(t, ramp, pool), rampFleet(t, ramp, pool)
		got := 0
		for range 21 {
			_, n := a.TryAcquireUpTo("k", 10)
			_, m := b.TryAcquireUpTo("k", 10)
			got += n + m
			time.Sleep(time.Second)
		}
		if got != 22 { // one a second, and one that each may start with
			t.Errorf("%d of 22 in 21 seconds", got)
		}
	})
	// A change of the pool moves the rate at once, and leaves the ramp where
	// it stands.
	row(t, "follows the pool", func(t *testing.T) {
		l := rampFleet(t, policy.Ramp{Mode: policy.RampRelaxed, Over: 9 * time.Second})
		for n := range 5 {
			upTo(t, l, "k", 100, n+1)
			time.Sleep(time.Second)
		}
		setReplicas(t, l, 2)
		upTo(t, l, "k", 100, 3) // six tenths of five
		setReplicas(t, l, 1)
		upTo(t, l, "k", 100, 0) // a raise brings nothing to a bucket that is not full
		time.Sleep(time.Second)
		upTo(t, l, "k", 100, 7) // one that was is filled up
		time.Sleep(time.Second)
		upTo(t, l, "k", 100, 8)
	})
	// A reader who takes everything once a second leaves nothing over by
	// the controller's count, although the pace has risen meanwhile.
	row(t, "go back climbs steeply", func(t *testing.T) {
		l := rampFleet(t, policy.Ramp{Mode: policy.RampGoBack, Over: 2 * time.Second})
		for _, want := range []int{1, 5, 10, 10} {
			upTo(t, l, "k", 100, want)
			time.Sleep(time.Second)
		}
	})
	// A waiter need not wait as long as the first pace would have it.
	row(t, "wakes waiters", func(t *testing.T) {
		l := rampFleet(t, policy.Ramp{Mode: policy.RampScheduled, Over: 9 * time.Second})
		upTo(t, l, "k", 1, 1)
		calls := []*call{asking(t, l, "k"), asking(t, l, "k"), asking(t, l, "k"), asking(t, l, "k")}
		time.Sleep(10 * time.Second)
		for i, after := range []time.Duration{1000, 1000, 1500, 2000} {
			calls[i].admittedAfter(t, after*time.Millisecond)
		}
	})
	// A key in use stays where its ramp stands, even without feedback.
	// A key that was idle for long starts again.
	row(t, "is forgotten with its key", func(t *testing.T) {
		l := rampFleet(t, policy.Ramp{Mode: policy.RampRelaxed, Over: time.Second})
		upTo(t, l, "k", 100, 1)
		for range 3 {
			time.Sleep(forgetAfter - time.Second)
			upTo(t, l, "k", 100, 10)
		}
		time.Sleep(forgetAfter)
		upTo(t, l, "k", 100, 1)
	})
}

// A reader that takes all there is once a second gets the pace of each second that begins. That holds for
// every pace: a bucket that is full but for rounding is full.
func TestRampOfAReaderOnceASecond(t *testing.T) {
	for per := 1; per <= 400; per++ {
		inFakeTime(t, func(t *testing.T) {
			rate := Rate{Events: float64(per), Per: time.Second, Burst: 100 * per}
			ramp := policy.Ramp{Mode: policy.RampRelaxed, Start: .2, Over: 5 * time.Second}
			l := mustNew(t, Rates(rate), Policy(ramp))
			got, want := 0, 0.0
			for i := range 6 {
				_, n := l.TryAcquireUpTo("k", 1000)
				got += n
				want += max(1, float64(per)*min(1, .2+.8*float64(i)/5))
				time.Sleep(time.Second)
			}
			wrong(t, float64(got) < want-6, "%d a second: %d events in six seconds, want %.0f", per, got, want)
		})
	}
}

// hourly is a policy whose controllers want to be called again every second, whatever the feedback. It
// allows one part more of the ceiling each time, and notes its samples.
type hourly struct {
	parts   float64
	samples *[]policy.Sample
	panics  *bool
	bad     error
}

func (h hourly) New(uint64) policy.Controller { return &hourlyController{hourly: h} }
func (h hourly) Validate() error              { return h.bad }

type hourlyController struct {
	hourly
	n float64
}

func (l *hourlyController) Next(s policy.Sample, b policy.Bounds) policy.Pace {
	if l.panics != nil && *l.panics {
		panic("broken")
	}
	if l.n++; l.samples != nil && s.Now > 0 {
		*l.samples = append(*l.samples, s)
	}
	return policy.Pace{
		Rate: b.Ceiling * min(1, l.n/l.parts), Saved: time.Second,
		Until: s.Now.Truncate(time.Second) + time.Second,
	}
}

// hundred is a rate of 100 a second with a burst of as many.
var hundred = Rates(perSecond(100, 100))

func TestPacesExpire(t *testing.T) {
	// The first call starts a controller whose pace expires. The first call after the expiry asks it again,
	// without any feedback. Its sample has what was taken and given back, and whether it has held a call back.
	row(t, "controllers are consulted again", func(t *testing.T) {
		var samples []policy.Sample
		l := mustNew(t, hundred, Policy(hourly{parts: 10, samples: &samples}))
		time.Sleep(1500 * time.Millisecond)
		p := upTo(t, l, "k", 100, 10) // an untouched key has saved up a second's events at the start
		upTo(t, l, "k", 1, 0)
		correct(t, p, 4)
		p.Release()
		time.Sleep(400 * time.Millisecond)
		upTo(t, l, "k", 3, 3).Release()
		time.Sleep(200 * time.Millisecond) // 2.1 s
		l.Allow("k")
		first := policy.Sample{Now: 1500 * time.Millisecond, Sent: 1500 * time.Millisecond}
		then := policy.Sample{Now: 2 * time.Second, Sent: 2 * time.Second, Taken: 7, Paced: true}
		if want := []policy.Sample{first, first, then}; len(samples) < 3 || !slices.Equal(samples[:3], want) {
			t.Errorf("got %+v, want %+v", samples, want)
		}
	})
	// A controller that panics when it is called again is dropped: the caller has nothing to do with it, and no
	// lock is kept.
	row(t, "consulted controller that panics", func(t *testing.T) {
		panics := false
		l := mustNew(t, Rates(Rate{Events: 10, Per: time.Second, Burst: 10}),
			Policy(hourly{parts: 1, panics: &panics}))
		l.Allow("k")
		panics = true
		time.Sleep(2 * time.Second)
		for range 2 {
			is(t, "admitted", l.Allow("k"), true)
		}
	})
	// A turn that comes sooner than the present pace says is not refused for its deadline.
	row(t, "deadline under a pace that rises", func(t *testing.T) {
		l := mustNew(t, Rates(Rate{Events: 1000, Per: time.Second, Burst: 1000}),
			Policy(policy.Ramp{Start: .001, Over: 10 * time.Second}))
		l.Allow("k")
		for range 20 { // at 1/s they would take twenty seconds
			asking(t, l, "k")
		}
		c := askingUntil(t, l, 10*time.Second, "k")
		time.Sleep(5 * time.Second)
		wrong(t, !c.ended() || c.err != nil, "ended %v: %v", c.ended(), c.err)
	})
	// A controller that is always out of date is called at most a thousand times a second.
	row(t, "pace that is always out of date", func(t *testing.T) {
		asked := new(atomic.Int64)
		l := mustNew(t, Rates(PerSecond(1)), Policy(answers(func(policy.Sample, policy.Bounds) policy.Pace {
			asked.Add(1)
			return policy.Pace{Rate: 1e-3, Until: 1}
		})))
		l.Allow("k")
		c := asking(t, l, "k")
		asked.Store(0)
		if time.Sleep(100 * time.Microsecond); asked.Load() > 1 {
			t.Errorf("asked %d times in .1 ms", asked.Load())
		} else if time.Sleep(10 * time.Millisecond); asked.Load() < 5 || asked.Load() > 15 {
			t.Errorf("asked %d times in 10 ms", asked.Load())
		}
		c.cancel()
		time.Sleep(time.Second)
	})
	// Check says what TryAcquire would, also under a controller with a clock, and neither it nor a look at the
	// keys keeps one.
	row(t, "looks under a clock", func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 100}, Policy(policy.Ramp{Start: .01, Over: 10 * time.Second}))
		took(t, l, "k").Release()
		time.Sleep(time.Minute)
		is(t, "Check", l.Check("k", Weight(50)), Decision{OK: true})
		for range 15 {
			time.Sleep(time.Minute)
			l.Check("k")
			for range l.Keys() {
			}
		}
		is(t, "remembered because of a look, until", gateOf(l, "k").ext.learned.due, 0)
	})
}

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
	is(t, "rule", got.Rule.Name, ctrlRule)
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

// Events taken before a controller stopped its key, or slowed it down, do not come back as a burst after
// that.
func TestGiveBackAfterRefusals(t *testing.T) {
	for wait, left := range map[time.Duration]int{0: 20, 300 * ms: 1} { // a pace that falls, a pause
		row(t, wait, func(t *testing.T) {
			l := mustNew(t, Rates(aHundred(100)), Policy(answers(func(s policy.Sample, _ policy.Bounds) policy.Pace {
				switch {
				case s.Outcome != policy.Throttled:
					return policy.Pace{Rate: 100, Saved: time.Second}
				case wait > 0:
					return policy.Pace{Rate: 100, Saved: time.Second, NotBefore: s.Now + wait}
				}
				return policy.Pace{Rate: 20, Saved: time.Second}
			})))
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
