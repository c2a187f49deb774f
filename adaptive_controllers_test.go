package quotient

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// panel is a policy of controllers that note their samples and answer what the test sets. It knows the
// controllers by their ceilings.
type panel struct {
	names   map[float64]string
	says    map[string]policy.Pace // the zero value: the ceiling
	samples map[string][]policy.Sample
	bounds  map[string]policy.Bounds
	seeds   []uint64
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
	p := &panel{
		names: map[float64]string{2000: requests, 10_000: tokens, 8: inFlight8},
		says:  map[string]policy.Pace{}, samples: map[string][]policy.Sample{},
		bounds: map[string]policy.Bounds{},
	}
	limit := Limit{InFlight: 8, Rates: []Rate{
		perSecond(2000, 4000),
		{Name: "tokens", Unit: "tokens", Events: 10_000, Per: time.Second, Burst: 100_000},
	}}
	return limiterOf(t, limit, append(opts, Policy(p), BeyondShare())...), p
}

// gives hands a controller's next answer over, through feedback of a request that is let through.
func (p *panel) gives(t *testing.T, l *Limiter, name string, pace policy.Pace) {
	t.Helper()
	p.says[name] = pace
	took(t, l, "k", Cost("tokens", 1)).Done(policy.Feedback{})
}

func since(l *Limiter) time.Duration { return time.Since(l.base) }

func TestBoundsOfTheControllers(t *testing.T) {
	limit := Limit{InFlight: 9, Rates: []Rate{
		perSecond(20, 40), {Name: "hour", Events: 3600, Per: time.Hour},
		{Name: "window", Unit: "tokens", Events: 600, Per: time.Minute, Aligned: true},
		{Name: "bytes", Unit: "bytes", Events: 500, Per: time.Second},
		{Name: "more bytes", Unit: "bytes", Events: 100, Per: time.Second},
	}}
	two, inf := Replicas(2), math.Inf(1)
	type b = policy.Bounds
	for _, c := range []struct {
		name    string
		limit   Limit
		ceiling bool
		opts    []Option
		want    []b // requests, tokens, bytes, slots
	}{
		{"shares", limit, withinShare, []Option{two},
			[]b{{Share: 0.5, Ceiling: 0.5}, {Share: 5, Ceiling: 5}, {Share: 50, Ceiling: 50},
				{Share: 4.5, Ceiling: 4}}},
		{"the limit", limit, beyondShare, []Option{two},
			[]b{{Share: 0.5, Ceiling: 1}, {Share: 5, Ceiling: 10}, {Share: 50, Ceiling: 100},
				{Share: 4.5, Ceiling: 9}}},
		{"the remainder", limit, withinShare, []Option{StartPool(Pool{Replicas: 2, Ordinal: 1, Fixed: true})},
			[]b{{Share: 0.5, Ceiling: 0.5}, {Share: 5, Ceiling: 5}, {Share: 50, Ceiling: 50},
				{Share: 4.5, Ceiling: 5}}},
		{"no pool was reported: the limit", limit, beyondShare, nil,
			[]b{{Ceiling: 1}, {Ceiling: 10}, {Ceiling: 100}, {Ceiling: 9}}},
		{"no pool was reported: shares", limit, withinShare, nil,
			[]b{{Share: 1, Ceiling: 1}, {Share: 10, Ceiling: 10}, {Share: 100, Ceiling: 100},
				{Share: 9, Ceiling: 9}}},
		{"no slot", Limit{InFlight: 1}, withinShare, []Option{two}, []b{{Ceiling: inf}}},
		{"at least one", Limit{InFlight: 1}, withinShare, []Option{two, AtLeastOne()},
			[]b{{Ceiling: inf}, {Share: 0.5, Ceiling: 1}}},
		{"no limit", Limit{}, beyondShare, nil, []b{{Ceiling: inf}}},
		{"Fixed", limit, beyondShare, []Option{two, Policy(policy.Fixed{}), BeyondShare()}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := limiterOf(t, c.limit, append([]Option{policyOf(policy.AIMD{}, c.ceiling)}, c.opts...)...)
			var got []b
			for _, ls := range l.shards[0].setting.ctrls {
				got = append(got, ls.bounds)
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
	share := func(t *testing.T, l *Limiter, want float64) {
		t.Helper()
		time.Sleep(time.Second)
		took(t, l, "k").Done(success)
		if got := l.newest().ctrls[0].bounds; got.Share != want || got.Ceiling != 20 {
			t.Errorf("bounds %+v, want a share of %v", got, want)
		}
	}
	open := func(t *testing.T, opts ...Option) *Limiter {
		return limiterOf(t, rated(perSecond(20, 40)), append(opts, Policy(policy.AIMD{}), BeyondShare())...)
	}
	row(t, "configured", func(t *testing.T) {
		share(t, open(t, Replicas(1)), 20)
		share(t, open(t, Replicas(4)), 5)
		l := open(t, Replicas(4), StartEmpty())
		share(t, l, 5)
	})
	row(t, "set", func(t *testing.T) {
		l := open(t)
		share(t, l, 0)
		paces(t, l, "k", 5) // where a controller starts that knows no share
		setReplicas(t, l, 1)
		share(t, l, 20)
	})
	for _, configured := range []bool{false, true} {
		row(t, fmt.Sprint("followed, configured: ", configured), func(t *testing.T) {
			opts, before := []Option{HintMaxAge(time.Minute), HoldDown(0)}, 0.0
			if configured {
				opts, before = append(opts, Replicas(1)), 20
			}
			l := open(t, opts...)
			src := following(t, l)
			share(t, l, before)
			src.saysPool(Pool{Replicas: 1})
			share(t, l, 20)
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			share(t, l, before)
			src.saysPool(Pool{Replicas: 2})
			share(t, l, 10)
			src.cancel()
		})
	}
}

// Each controller sees what it governs: its quota, its cost, its own hold.
func TestEachControllerSeesItsOwn(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, p := governing(t, Replicas(2))
		time.Sleep(time.Second)
		permit := took(t, l, "k", Weight(2), Cost("tokens", 300))
		time.Sleep(1500 * time.Millisecond)
		if err := permit.Correct("tokens", 200); err != nil {
			t.Fatal(err)
		}
		q := func(unit string, limit, left float64) policy.Quota {
			return policy.Quota{Unit: unit, Limit: limit, Remaining: left, Reset: time.Minute}
		}
		permit.Done(policy.Feedback{Outcome: policy.Unavailable, RetryAfter: 3 * time.Second,
			Quotas: [4]policy.Quota{
				q("bytes", 9, 9), q("tokens", 0, 5), q("tokens", 1000, 50), q("", 20, 1),
			}})
		for name, want := range map[string]policy.Sample{
			requests:  {Cost: 2, Taken: 2, Quota: q("", 20, 1)},
			tokens:    {Cost: 200, Taken: 200, Quota: q("tokens", 1000, 50)},
			inFlight8: {}, // only what succeeds tells for how long a slot is held
		} {
			want.Outcome, want.RetryAfter = policy.Unavailable, 3*time.Second
			want.Now, want.Sent = 2500*time.Millisecond, time.Second
			if got := p.last(t, name); got != want {
				t.Errorf("%s: got %+v, want %+v", name, got, want)
			}
		}
		if got, want := p.bounds[inFlight8], (policy.Bounds{Share: 4, Ceiling: 8}); got != want {
			t.Errorf("slots: bounds %+v, want %+v", got, want)
		}
	})
}

// Looking does not count as holding back, and what the limit itself refuses does not either.
func TestOnlyControllersArePaced(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, p := governing(t, Replicas(1))
		var held []Permit
		for range 8 {
			held = append(held, took(t, l, "k"))
		}
		refusedFor(t, l, ReasonInFlight, "k") // all 8 of the limit
		held[0].Done(success)
		if p.last(t, inFlight8).Paced {
			t.Error("the slots of the limit count as the controller's")
		}
		p.says[inFlight8] = policy.Pace{Rate: 3}
		held[1].Done(success)
		l.Check("k")
		held[2].Done(success)
		if p.last(t, inFlight8).Paced {
			t.Error("a look counts as an ask that was held back")
		}
		d := refusedFor(t, l, ReasonInFlight, "k")
		if d.Rule != ctrlRule || d.Limit != 8 || d.Share != 8 {
			t.Errorf("got %+v, want the rule of a controller", d)
		}
		held[3].Done(success)
		if !p.last(t, inFlight8).Paced {
			t.Error("an ask that the learned slots refused does not count")
		}
	})
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
			_, n := l.TryAcquireUpTo("k", 20)
			if n != c.want {
				t.Errorf("%d at once, want %d", n, c.want)
			}
		})
	}
}

func TestLearnedSlotsThatGrowWakeWaiters(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
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
		if !p.last(t, inFlight8).Paced {
			t.Error("who waits for learned slots does not count as held back")
		}
	})
}

// More than the learned slots, but not than the limit, passes when nothing is in flight: it would wait for
// ever else.
func TestCallAboveTheLearnedSlots(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
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

// A replica with no slot stays without, whatever a controller says.
func TestReplicaWithoutSlotsUnderAController(t *testing.T) {
	l := limiterOf(t, Limit{InFlight: 1}, Policy(&spyController{start: 50, next: 50}), Replicas(2))
	refusedFor(t, l, ReasonShare, "k")
	setReplicas(t, l, 1)
	took(t, l, "k").Done(success)
	setReplicas(t, l, 2)
	refusedFor(t, l, ReasonShare, "k")
}

// Costs that are put right are put right for the controller's bucket as well.
func TestCorrectRepacesTokens(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, p := governing(t, Replicas(1))
		p.gives(t, l, tokens, policy.Pace{Rate: 100})
		time.Sleep(time.Minute)
		permit := took(t, l, "k", Cost("tokens", 10))
		if err := permit.Correct("tokens", 210); err != nil {
			t.Fatal(err)
		}
		d := refusedFor(t, l, ReasonRate, "k", Cost("tokens", 10))
		if d.RetryAfter != 2100*time.Millisecond {
			t.Errorf("wait %v, want 2.1 s: 200 tokens are owed at 100 a second", d.RetryAfter)
		}
		if err := permit.Correct("tokens", 110); err != nil {
			t.Fatal(err)
		}
		if d := l.Check("k", Cost("tokens", 10)); d.RetryAfter != 1100*time.Millisecond {
			t.Errorf("wait %v, want 1.1 s", d.RetryAfter)
		}
		if d := l.Check("k"); !d.OK {
			t.Errorf("a request without tokens: %+v", d)
		}
	})
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
		rated(perSecond(5, 5)),
		{InFlight: 5},
		{Rates: []Rate{perSecond(5, 5)}, InFlight: 5},
		{Rates: []Rate{tokensPerMinute(60, 60)}, InFlight: 5},
	} {
		allocs := func(p policy.Policy) float64 {
			l := limiterOf(t, limit, Policy(p))
			l.shards[0].start(l, l.shards[0].setting)
			s := &l.shards[0]
			return testing.AllocsPerRun(100, func() { newGate("", s.untouched, s.latest, 1) })
		}
		if more := allocs(policy.AIMD{}) - allocs(policy.Fixed{}); more > 1 {
			t.Errorf("%+v: %v allocations more", limit, more)
		}
	}
}

// A new pool or limit bounds every controller again, of keys that have learned and of those that have not.
func TestNewBoundsReachEveryController(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		limit := func(x float64) Limit {
			return Limit{InFlight: int(8 * x), Rates: []Rate{
				perSecond(2000*x, 4000),
				{Name: "tokens", Unit: "tokens", Events: 10_000 * x, Per: time.Second},
			}}
		}
		l := limiterOf(t, limit(1), Policy(policy.AIMD{}), Replicas(1))
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
					if got := g.ext.learned.pacers[i].pace; got != want {
						t.Errorf("key %q, controller %d: a pace of %v, want %v", k, i, got, want)
					}
				}
				if want, got := max(1, int(8*x)), min(g.ext.learned.slots, g.setting.slots); got != want {
					t.Errorf("key %q: %d slots, want %d", k, got, want)
				}
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
}
