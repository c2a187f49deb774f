package policy_test

import (
	"math"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// When the clock goes back, all that lies ahead goes with it.
func TestClockThatGoesBack(t *testing.T) {
	l := born(10, 0)
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

	l = born(0, policy.RuleSlowStart)
	l.tell(policy.Sample{Now: seconds(7200)})
	l.refuse(0.1)
	l.tell(policy.Sample{})
	cut := l.serve(0.1)
	near(t, "the cut by a refusal on the new clock", l.refuse(0.1), cut*0.88)
}

// Numbers that are none are ignored one by one: the rate stays finite and within its bounds, and the
// controller goes on as it was.
func TestNumbersThatAreNone(t *testing.T) {
	for _, x := range odd {
		for _, s := range []policy.Sample{
			{Outcome: policy.Success, Paced: true, Cost: x},
			{Outcome: policy.Success, Paced: true, Cost: 1,
				Quota: policy.Quota{Limit: x, Remaining: 5, Reset: time.Second}},
			{Outcome: policy.Success, Paced: true, Cost: 1,
				Quota: policy.Quota{Limit: 10, Remaining: x, Reset: math.MinInt64}},
			{Outcome: policy.Throttled, Cost: x, RetryAfter: math.MinInt64},
			{Outcome: policy.Throttled, Cost: 1, RetryAfter: math.MaxInt64,
				Quota: policy.Quota{Limit: x, Remaining: x, Reset: -1}},
		} {
			for _, b := range []policy.Bounds{
				{Share: 10, Ceiling: x},
				{Share: x, Ceiling: 10},
				{Share: x, Ceiling: x},
				{Ceiling: math.Inf(1)},
			} {
				l := born(10, 0)
				l.bounds = b
				for range 50 {
					s.Now, s.Sent = seconds(l.now+0.1), seconds(l.now+0.05)
					l.tell(s)
				}
				if !(l.Rate > 0) || math.IsInf(l.Rate, 1) || b.Ceiling > 0 && l.Rate > b.Ceiling {
					t.Errorf("%+v under %+v: the pace is %+v", s, b, l.Pace)
				}
			}
		}
	}
}

// Instants at the ends of time do not wrap around.
func TestInstantsAtTheEndsOfTime(t *testing.T) {
	for _, o := range []policy.Outcome{policy.Success, policy.Throttled, policy.Failed} {
		l := born(10, 0)
		for _, at := range []time.Duration{math.MaxInt64, math.MinInt64, 0, math.MinInt64, math.MaxInt64,
			math.MaxInt64} {
			l.tell(policy.Sample{Outcome: o, Now: at, Sent: -at, Cost: 1, RetryAfter: math.MaxInt64})
			within(t, "at the ends of time", l.Rate, 0.02, 100)
		}
	}
}
