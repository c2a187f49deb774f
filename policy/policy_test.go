package policy_test

import (
	"fmt"
	"math"
	"testing"
	"time"
	"unsafe"

	"github.com/quotient-go/quotient/policy"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestOutcomeNames(t *testing.T) {
	for o, want := range map[policy.Outcome]string{
		policy.Unknown: "unknown", policy.Success: "success", policy.Throttled: "throttled",
		policy.Unavailable: "unavailable", policy.Failed: "failed", 5: "invalid", 255: "invalid",
	} {
		if got := o.String(); got != want {
			t.Errorf("outcome %d: %q, want %q", o, got, want)
		}
	}
}

func TestFixedLearnsNothing(t *testing.T) {
	wrong(t, (policy.Fixed{}).New(1) != nil, "got a controller")
}

// A pace has four words, which are returned in registers: a fifth costs each answer 22 ns.
func TestPaceIsFourWords(t *testing.T) {
	if n := unsafe.Sizeof(policy.Pace{}); n > 32 {
		t.Errorf("a pace has %d bytes", n)
	}
}

// A pace that probes has a time between probes above 0, and nothing saved up.
func TestProbing(t *testing.T) {
	for every, want := range map[time.Duration]time.Duration{
		0: 0, -time.Second: 0, math.MinInt64: 0, 1: 1, time.Second: time.Second, math.MaxInt64: math.MaxInt64,
	} {
		p := policy.Pace{Rate: 3, NotBefore: 5, Until: 7, Saved: time.Second}.Probing(every)
		if want := (policy.Pace{Rate: 3, NotBefore: 5, Until: 7, Saved: -want}); p != want ||
			p.Probe() != -want.Saved {
			t.Errorf("Probing(%v): %+v, a probe in %v, want %+v", every, p, p.Probe(), want)
		}
	}
	if d := (policy.Pace{Saved: math.MinInt64}).Probe(); d != 0 {
		t.Errorf("a probe in %v", d)
	}
}

// No controller starts a goroutine.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// When the clock goes back, all that lies ahead goes with it.
func TestClockThatGoesBack(t *testing.T) {
	l := born(10)
	l.now = 7200
	l.tell(policy.Sample{Now: seconds(7200)})
	l.serveFor(10, 0.1)
	l.darken(t, 0.1)
	gate := l.gate()
	l.tell(policy.Sample{Now: seconds(l.now - 7000)})
	near(t, "the gate after the clock went back", l.gate(), gate)
	if l.probe(policy.Success); l.gate() > 0 {
		t.Error("a success does not end the blackout")
	}

	l = born(0)
	l.tell(policy.Sample{Now: seconds(7200)})
	l.refuse(0.1)
	l.tell(policy.Sample{})
	cut := l.serve(0.1)
	near(t, "the cut by a refusal on the new clock", l.refuse(0.1), cut*0.7)
}

// costing is the answer to a request that cost so much.
func (l *life) costing(after, cost float64, o policy.Outcome) float64 {
	at := seconds(l.now + after)
	return l.tell(policy.Sample{Outcome: o, Now: at, Sent: at - seconds(rtt), Cost: cost, Paced: true})
}

// Without a share the controller starts at five requests a second, whatever the first of them turns out to
// cost: tokens, or for slots the seconds that it held one.
func TestFirstCost(t *testing.T) {
	for _, cost := range []float64{1, 100, 0.2, 2000} {
		l := born(0)
		within(t, "after the first request of a cost", l.costing(0.1, cost, policy.Success)/cost, 5, 5.4)
		cut := l.costing(0.1, cost, policy.Throttled)
		within(t, "after a cost twice that", l.costing(0.1, 2*cost, policy.Success)/cut, 1, 1.05)
	}
	l := born(0)
	l.costing(0.001, 1, policy.Success)
	within(t, "in slow start a dearer second request counts", l.costing(0.02, 100, policy.Success), 500, 600)
	l = born(200)
	within(t, "a share is in events already", l.costing(0.1, 100, policy.Success), 200, 201)
}

// The cost of requests decides what is slow: controllers of ten requests a second behave the same, whatever
// these cost.
func TestCostsScale(t *testing.T) {
	one, hundred, slots := born(10), born(1000), born(2)
	for i := range 1000 {
		o := policy.Success
		if i%50 == 49 || i > 700 && i < 720 {
			o = policy.Throttled
		}
		want := one.costing(0.1, 1, o)
		near(t, "with requests of 100 tokens", hundred.costing(0.1, 100, o)/100, want)
		near(t, "with slots that are held for 0.2 seconds", slots.costing(0.1, 0.2, o)/0.2, want)
		near(t, "its gate", hundred.gate(), one.gate())
	}
}

// An invalid cost leaves the last one in force.
func TestCostsThatAreNone(t *testing.T) {
	for _, cost := range []float64{0, -1, math.NaN(), math.Inf(1), 1e13, 1e-10} {
		l := born(0)
		want := l.costing(0.1, 100, policy.Success) * (1 + 0.1*math.Ln2)
		near(t, "after a cost that is none", l.costing(0.1, cost, policy.Success), want)
	}
}

// answered is one sample in seconds, and the rate that is wanted after it.
type answered struct {
	outcome   policy.Outcome
	now, sent float64
	paced     bool
	want      float64
}

func (h answered) sample() policy.Sample {
	at := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	return policy.Sample{Outcome: h.outcome, Now: at(h.now), Sent: at(h.sent), Paced: h.paced}
}

func TestAIMD(t *testing.T) {
	const unknown, success, throttled = policy.Unknown, policy.Success, policy.Throttled
	inf := math.Inf(1)
	for _, c := range []struct {
		name   string
		ctrl   policy.AIMD
		bounds policy.Bounds
		rows   []answered
	}{
		{"starts at the share", policy.AIMD{}, policy.Bounds{Share: 20, Ceiling: 100},
			[]answered{{unknown, 0, 0, false, 20}}},
		{"starts at 5 where no share is known", policy.AIMD{}, policy.Bounds{Ceiling: inf},
			[]answered{{unknown, 0, 0, false, 5}}},
		{"never above the ceiling", policy.AIMD{}, policy.Bounds{Ceiling: 3},
			[]answered{{unknown, 0, 0, false, 3}}},
		{"halves and climbs by a twentieth of the share", policy.AIMD{},
			policy.Bounds{Share: 20, Ceiling: 40}, []answered{
				{unknown, 0, 0, false, 20}, {throttled, 1, 0.5, false, 10},
				{success, 2, 1.5, true, 11}, {success, 2.5, 2, true, 11.5},
			}},
		{"grows only when it held back", policy.AIMD{}, policy.Bounds{Share: 20, Ceiling: 40}, []answered{
			{unknown, 0, 0, false, 20}, {success, 1, 0, false, 20}, {success, 2, 0, true, 21},
			{success, 3, 0, false, 21},
		}},
		{"grows to the ceiling", policy.AIMD{Increase: 30}, policy.Bounds{Share: 20, Ceiling: 40}, []answered{
			{unknown, 0, 0, false, 20}, {success, 0.5, 0, true, 35}, {success, 1, 0, true, 40},
		}},
		{"a pause brings one second's growth", policy.AIMD{Increase: 2},
			policy.Bounds{Share: 20, Ceiling: 400}, []answered{
				{unknown, 0, 0, false, 20}, {success, 3600, 0, true, 22},
			}},
		{"grows by one where no share is known", policy.AIMD{}, policy.Bounds{Ceiling: inf}, []answered{
			{unknown, 0, 0, false, 5}, {success, 1, 0, true, 6},
		}},
		{"its own factors", policy.AIMD{Increase: 4, Decrease: 0.75}, policy.Bounds{Share: 20, Ceiling: 40},
			[]answered{
				{unknown, 0, 0, false, 20}, {throttled, 1, 0.5, false, 15}, {success, 1.5, 1, true, 17},
			}},
		{"factors that are none", policy.AIMD{Increase: inf, Decrease: 1},
			policy.Bounds{Share: 20, Ceiling: 40}, []answered{
				{unknown, 0, 0, false, 20}, {throttled, 1, 0.5, false, 10}, {success, 2, 1, true, 11},
			}},
		{"one cut for one round", policy.AIMD{}, policy.Bounds{Share: 20, Ceiling: 40}, []answered{
			{unknown, 0, 0, false, 20}, {throttled, 1, 0.5, false, 10},
			{throttled, 1.1, 0.6, false, 10}, {throttled, 1.2, 0.9, false, 10}, {throttled, 2, 1, false, 5},
			{success, 3, 2, true, 6},
		}},
		{"other outcomes say nothing of the rate", policy.AIMD{}, policy.Bounds{Share: 20, Ceiling: 40},
			[]answered{
				{unknown, 0, 0, false, 20}, {policy.Unavailable, 1, 0, true, 20},
				{policy.Failed, 2, 0, true, 20},
				{9, 3, 0, true, 20},
			}},
		{"never below a tenth, however high the share", policy.AIMD{Decrease: 0.01},
			policy.Bounds{Share: 20, Ceiling: 40}, []answered{
				{unknown, 0, 0, false, 20}, {throttled, 1, 0.5, false, 0.2}, {throttled, 2, 1.5, false, 0.1},
			}},
		{"never below a tenth where no share is known", policy.AIMD{Decrease: 0.01},
			policy.Bounds{Ceiling: inf}, []answered{
				{unknown, 0, 0, false, 5}, {throttled, 1, 0.5, false, 0.1}, {throttled, 2, 1.5, false, 0.1},
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctrl := c.ctrl.New(1)
			for i, h := range c.rows {
				if got := ctrl.Next(h.sample(), c.bounds).Rate; math.Abs(got-h.want) > 1e-9 {
					t.Errorf("row %d, %+v: got %v", i, h, got)
				}
			}
		})
	}
}

// New bounds count from the next sample on, whatever it says.
func TestAIMDUnderNewBounds(t *testing.T) {
	ctrl := policy.AIMD{}.New(1)
	for _, c := range []struct{ share, ceiling, want float64 }{
		{20, 20, 20}, {5, 5, 5}, {20, 20, 5}, {1000, 1000, 5},
	} {
		got := ctrl.Next(policy.Sample{}, policy.Bounds{Share: c.share, Ceiling: c.ceiling}).Rate
		wrong(t, got != c.want, "%+v: got %v", c, got)
	}
}

func TestControllersOfAPolicyAreApart(t *testing.T) {
	p, b := policy.AIMD{}, policy.Bounds{Share: 10, Ceiling: 10}
	one, other := p.New(1), p.New(1)
	one.Next(policy.Sample{}, b)
	one.Next(answered{outcome: policy.Throttled, now: 1}.sample(), b)
	if got := other.Next(policy.Sample{}, b).Rate; got != 10 {
		t.Errorf("got %v, want 10", got)
	}
}

// number draws anything that a float64 can be.
func number(name string) func(*rapid.T) float64 {
	return func(t *rapid.T) float64 {
		return rapid.OneOf(rapid.SampledFrom(odd), rapid.Float64(), rapid.Float64Range(0, 100)).Draw(t, name)
	}
}

// Whatever samples a controller gets, it answers a rate: finite, positive, and not above the ceiling.
func TestPropertyAIMDAnswersARate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctrl := policy.AIMD{Increase: number("increase")(t), Decrease: number("decrease")(t)}.New(1)
		for range rapid.IntRange(1, 30).Draw(t, "samples") {
			b := garbageBounds(t)
			got := ctrl.Next(garbage(t), b).Rate
			if !(got > 0) || math.IsInf(got, 1) || b.Ceiling > 0 && got > b.Ceiling {
				t.Fatalf("bounds %+v: got %v", b, got)
			}
		}
	})
}

func ExampleAIMD() {
	ctrl := policy.AIMD{Increase: 1}.New(1)
	bounds := policy.Bounds{Share: 10, Ceiling: 20}
	fmt.Println("start:", ctrl.Next(policy.Sample{}, bounds).Rate)
	refused := policy.Sample{Outcome: policy.Throttled, Now: time.Second, Sent: 900 * time.Millisecond}
	fmt.Println("after a 429:", ctrl.Next(refused, bounds).Rate)
	served := policy.Sample{Outcome: policy.Success, Now: 2 * time.Second, Sent: 1900 * time.Millisecond,
		Paced: true}
	fmt.Println("a second later:", ctrl.Next(served, bounds).Rate)
	// Output:
	// start: 10
	// after a 429: 5
	// a second later: 6
}
