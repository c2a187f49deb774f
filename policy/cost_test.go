package policy_test

import (
	"math"
	"testing"

	"github.com/quotient-go/quotient/policy"
)

// costing is the answer to a request that cost so much.
func (l *life) costing(after, cost float64, o policy.Outcome) float64 {
	at := seconds(l.now + after)
	return l.tell(policy.Sample{Outcome: o, Now: at, Sent: at - seconds(rtt), Cost: cost, Paced: true})
}

// Without a share the controller starts at five requests a second, whatever the first of them turns out to
// cost: tokens, or for slots the seconds that it held one.
func TestFirstCost(t *testing.T) {
	for _, cost := range []float64{1, 100, 0.2, 2000} {
		l := born(0, policy.RuleSlowStart)
		within(t, "after the first request of a cost", l.costing(0.1, cost, policy.Success)/cost, 5, 5.01)
		within(t, "after a cost twice that", l.costing(0.1, 2*cost, policy.Success)/cost, 5, 5.01)
	}
	l := born(0, 0)
	l.costing(0.001, 1, policy.Success)
	within(t, "in slow start a dearer second request counts", l.costing(0.02, 100, policy.Success), 500, 600)
	l = born(200, 0)
	within(t, "a share is in events already", l.costing(0.1, 100, policy.Success), 200, 201)
}

// The cost of requests decides what is slow: controllers of ten requests a second behave the same, whatever
// these cost.
func TestCostsScale(t *testing.T) {
	one, hundred, slots := born(10, 0), born(1000, 0), born(2, 0)
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
		l := born(0, policy.RuleSlowStart)
		l.costing(0.1, 100, policy.Success)
		before := l.Rate
		within(t, "after a cost that is none", l.costing(0.1, cost, policy.Success), before, before*1.001)
	}
}
