package policy_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/quotient-go/quotient/policy"
)

// Nothing but refusals is a blackout after 0.4 seconds, or after two intervals between requests if those are
// longer.
func TestBlackoutBegins(t *testing.T) {
	for _, c := range []struct{ share, every, after float64 }{
		{100, 0.1, 0.5}, {10, 0.1, 0.5}, {10, 0.4, 0.8}, {1, 0.5, 2.5}, {0.5, 1, 5}, {0.1, 4, 24},
	} {
		l := born(c.share, 0)
		first := l.now + c.every
		l.darken(t, c.every)
		near(t, fmt.Sprintf("at a share of %v, refused every %v s", c.share, c.every), l.now-first, c.after)
	}
}

func TestNoBlackout(t *testing.T) {
	l := born(10, 0)
	l.refuse(0.1)
	for range 100 { // sent before the first refusal, answered later and later
		l.tell(policy.Sample{Outcome: policy.Throttled, Now: seconds(l.now + 0.1),
			Sent: seconds(0.05), Cost: 1})
	}
	if l.NotBefore != 0 {
		t.Error("refusals of what was sent before the first are a blackout")
	}
	l = born(10, 0)
	for range 100 {
		l.refuse(0.7)
		l.serve(0.05)
	}
	if l.NotBefore != 0 {
		t.Error("refusals with successes between them are a blackout")
	}
	l = born(10, policy.RuleBlackout)
	for range 100 {
		if l.refuse(0.1); l.NotBefore != 0 {
			t.Fatal("there is a blackout without the rule")
		}
	}
}

// A late success of what was sent before the first refusal does not interrupt the refusals, and one of what
// was sent before the last does not end the blackout.
func TestLateSuccess(t *testing.T) {
	l := born(10, 0)
	for range 12 {
		l.refuse(0.1)
		l.tell(policy.Sample{Outcome: policy.Success, Now: seconds(l.now), Sent: 0, Cost: 1, Paced: true})
	}
	if l.gate() <= 0 {
		t.Fatal("successes from before the refusals keep a blackout from beginning")
	}
	gated := l.Pace
	l.tell(policy.Sample{Outcome: policy.Success, Now: seconds(l.now + 0.1), Sent: seconds(0.1), Cost: 1,
		Paced: true})
	if l.Pace != gated {
		t.Errorf("a success from before the blackout changes %+v to %+v", gated, l.Pace)
	}
	if l.probe(policy.Success); l.gate() > 0 {
		t.Error("a probe's success does not end the blackout")
	}
}

// Probes come after half a second and then twice as long each time, up to ten seconds, and a quarter of that
// sooner or later.
func TestProbes(t *testing.T) {
	for _, outcome := range []policy.Outcome{policy.Throttled, policy.Unavailable, policy.Failed} {
		l := born(10, 0)
		l.darken(t, 0.1)
		least, most := math.Inf(1), 0.0
		for k := range 60 {
			mean := min(10, 0.5*math.Pow(2, float64(k)))
			within(t, fmt.Sprintf("probe %d after %v", k, outcome), l.gate(), mean*0.75, mean*1.25)
			least, most = min(least, l.gate()/mean), max(most, l.gate()/mean)
			l.probe(outcome)
		}
		if most-least < 0.4 {
			t.Errorf("probes come at %.2f to %.2f of the mean: too little jitter", least, most)
		}
	}
}

// Controllers of different seeds do not probe at the same instants.
func TestSeedsSpreadProbes(t *testing.T) {
	seen := map[float64]bool{}
	for seed := range uint64(20) {
		l := born(10, 0)
		l.ctrl = policy.Tracking{}.New(seed)
		l.darken(t, 0.1)
		seen[l.gate()] = true
	}
	if len(seen) < 20 {
		t.Errorf("20 controllers have %d first probes", len(seen))
	}
}

// A change of the bounds is no probe that failed.
func TestNewBoundsAreNoProbe(t *testing.T) {
	l := born(10, 0)
	l.darken(t, 0.1)
	gated := l.NotBefore
	l.tell(policy.Sample{Now: gated + 1, Sent: gated + 1})
	if l.NotBefore != gated {
		t.Errorf("it moves the gate from %v to %v", gated, l.NotBefore)
	}
}

// Two refusals that are far apart prove nothing.
func TestTwoRefusalsAreNoBlackout(t *testing.T) {
	l := born(10, 0)
	l.refuse(0.1)
	if l.refuse(5); l.gate() > 0 {
		t.Error("two refusals are a blackout")
	}
	if l.refuse(0.1); l.gate() <= 0 {
		t.Error("three in 5 seconds are none")
	}
}

// A request sent before the gate opened proves nothing about the probe.
func TestLateRefusalIsNoProbe(t *testing.T) {
	l := born(10, 0)
	l.darken(t, 0.1)
	for _, o := range []policy.Outcome{policy.Throttled, policy.Unavailable, policy.Failed} {
		gated := l.NotBefore
		l.tell(policy.Sample{Outcome: o, Now: gated, Sent: gated - 1, Cost: 1})
		if l.NotBefore != gated {
			t.Errorf("a late %v moves the gate from %v to %v", o, gated, l.NotBefore)
		}
	}
}

// The requests served since the last blackout, divided by the time that they took, are the rate after it.
// With all that a window of ten seconds serves, one cycle is enough.
func TestRateAfterABlackout(t *testing.T) {
	l := born(10, policy.RuleFloor)
	l.serveFor(4, 0.1)
	l.darken(t, 0.1)
	for l.NotBefore < seconds(10) {
		l.probe(policy.Throttled)
	}
	rate := l.probe(policy.Success)
	near(t, "41 requests by the time", rate, 41/l.now)
	second := l.now
	l.serveFor(3, 0.1)
	l.darken(t, 0.1)
	near(t, "31 requests since then", l.probe(policy.Success), 31/(l.now-second))
}

// Where little was asked for, little was served: that proves little, and the controller goes by the rate
// that it had.
func TestLittleDemandProvesLittle(t *testing.T) {
	l := born(10, policy.RuleFloor)
	for range 20 {
		at := seconds(l.now + 1)
		l.tell(policy.Sample{Outcome: policy.Success, Now: at, Sent: at - seconds(rtt), Cost: 1})
	}
	l.darken(t, 0.1)
	near(t, "20 requests in 20 seconds, none held back", l.probe(policy.Success), 7)
}

// A blackout takes back the cuts that it began with.
func TestBlackoutRestores(t *testing.T) {
	after := func(without policy.Rules) float64 {
		l := born(10, without)
		l.serveFor(8, 0.1)
		l.darken(t, 0.1)
		return l.probe(policy.Success)
	}
	near(t, "the share is still trusted", after(0), 9.9)
	within(t, "and without the rule is not", after(policy.RuleRestore), 1, 9)
}

// A floor is trusted on if half of it was served, and goes down to what was served if less.
func TestFloorAfterABlackout(t *testing.T) {
	l := born(10, 0)
	l.serveFor(2, 0.1)
	l.darken(t, 0.1)
	for l.NotBefore < seconds(20) {
		l.probe(policy.Throttled)
	}
	rate := l.probe(policy.Success)
	near(t, "a tenth of the share was served", rate, 21/l.now)
	within(t, "and four seconds later", l.serveFor(4, 0.1), rate, rate*1.1)
}

// gainAfterBlackout is the growth in so many seconds after a second blackout that ended 20 seconds after the
// first.
func gainAfterBlackout(t *testing.T, length float64, without policy.Rules) float64 {
	t.Helper()
	l := born(0, without|policy.RuleSlowStart|policy.RuleServed)
	before := 0.0
	for range 2 {
		end := l.now + 20
		l.serveFor(10, 0.1)
		l.darken(t, 0.1)
		for l.NotBefore < seconds(end) {
			l.probe(policy.Throttled)
		}
		before = l.probe(policy.Success)
	}
	return l.serveFor(length, 0.1) / before
}

// Growth after a blackout takes as long as the upstream's window, for three of its cycles.
func TestCycleSlowsGrowthDown(t *testing.T) {
	within(t, "12 s after a blackout, at a cycle of 20 s", gainAfterBlackout(t, 12, 0), 1.001, 1.02)
	within(t, "without the rule", gainAfterBlackout(t, 12, policy.RuleCycle), 1.2, 1.5)
}

// Behind a gate the rate is what is expected when it opens. Should a probe never be answered, further ones
// follow at the least rate.
func TestRateBehindTheGate(t *testing.T) {
	for _, c := range []struct{ share, least float64 }{{10, 0.2}, {0.1, 0.02}, {1000, 1}, {1e12, 1}} {
		l := born(c.share, 0).darken(t, 1)
		near(t, "the rate behind a gate", l.Rate, c.share)
		near(t, "probes a second", 1/l.Probe().Seconds(), c.least)
	}
}

// A controller counts units, and its probes are requests.
func TestProbesAreRequests(t *testing.T) {
	for _, cost := range []float64{1, 0.01, 500} {
		l := born(0, 0)
		for range 20 {
			at := seconds(l.now + 1)
			l.tell(policy.Sample{Outcome: policy.Throttled, Now: at, Sent: at - seconds(rtt), Cost: cost,
				Paced: true})
		}
		near(t, fmt.Sprintf("the time between probes at a cost of %v", cost), l.Probe().Seconds(), 50)
	}
}
