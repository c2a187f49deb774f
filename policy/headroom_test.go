package policy_test

import (
	"math"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// leaky is a quota that is renewed each second, always with the same part left.
func leaky(left float64) func(float64) policy.Quota {
	return func(float64) policy.Quota {
		return policy.Quota{Limit: 100, Remaining: 100 * left, Reset: time.Second}
	}
}

// draining is a quota of 600 a minute of which all clients together use so many a second, from a minute's beginning on.
func draining(used float64) func(float64) policy.Quota {
	return func(now float64) policy.Quota {
		into := math.Mod(now, 60)
		return policy.Quota{Limit: 600, Remaining: max(600-used*into, 0), Reset: seconds(60 - into)}
	}
}

// settled is a law at a share of 10, whose plateau is 10 too.
func settled(without policy.Rules) *life { return born(10, without) }

func TestHeadroom(t *testing.T) {
	for _, c := range []struct {
		name        string
		length      float64
		quota       func(float64) policy.Quota
		least, most float64
	}{
		{"without fields", 5, func(float64) policy.Quota { return policy.Quota{} }, 10, 10.3},
		{"before anything is measured", 0.9, leaky(1), 10, 10},
		{"half is left", 5, leaky(0.5), 13, 20},
		{"a tenth is left", 5, leaky(0.1), 10.1, 12},
		{"a hundredth is left", 5, leaky(0.01), 9, 10},
		{"nothing is left", 5, leaky(0), 8.5, 9.99},
		{"a minute's quota, half of it used", 15, draining(5), 20, 110},
		{"used just up", 15, draining(10), 9, 11},
		{"used up twice as fast", 15, draining(20), 7.9, 8.1}, // not below .8 of the plateau
		{"used up ten times as fast", 15, draining(100), 7.9, 8.1},
		{"too coarse", 5, func(float64) policy.Quota { return policy.Quota{Limit: 4, Remaining: 0, Reset: time.Second} }, 10, 10.3},
		{"too far away", 5, func(float64) policy.Quota {
			return policy.Quota{Limit: 1e6, Remaining: 1, Reset: 25 * time.Hour}
		}, 10, 10.3},
		{"no reset", 5, func(float64) policy.Quota { return policy.Quota{Limit: 100, Remaining: 50} }, 13, 20},
		{"garbage", 5, func(float64) policy.Quota {
			return policy.Quota{Limit: math.NaN(), Remaining: math.Inf(1), Reset: -1}
		}, 10, 10.3},
	} {
		within(t, c.name, settled(0).quoted(c.length, 0.1, c.quota), c.least, c.most)
		within(t, c.name+", without the rule", settled(policy.RuleHeadroom).quoted(min(c.length, 5), 0.1, c.quota), 10, 10.3)
	}
}

// A new low counts at once; the room that was there before it does not.
func TestNewLowCountsAtOnce(t *testing.T) {
	l := settled(0)
	l.quoted(2, 0.1, leaky(0.5))
	grown := l.Rate
	within(t, "at the first answer with nothing left", l.quoted(0.1, 0.1, leaky(0)), grown*0.99, grown)
	within(t, "and with half left just after it", l.quoted(0.1, 0.1, leaky(0.5)), grown*0.99, grown)
}

// When a quota is renewed the measurement of the drain starts again, and what it was before goes on counting
// until then.
func TestDrainOverARenewal(t *testing.T) {
	l := settled(0)
	l.now = 50
	l.tell(policy.Sample{Now: seconds(50)})
	l.quoted(8, 0.1, draining(9.9))
	within(t, "six seconds over the renewal", l.quoted(6, 0.1, draining(9.9)), 9, 12)
}

// Another limit is another quota: nothing is known of it at first.
func TestLimitThatChanges(t *testing.T) {
	l := settled(0)
	l.quoted(3, 0.1, leaky(0.5))
	grown := l.Rate
	twice := func(float64) policy.Quota { return policy.Quota{Limit: 200, Remaining: 100, Reset: time.Second} }
	near(t, "0.9 s after the change", l.quoted(0.9, 0.1, twice), grown)
	within(t, "3 s after it", l.quoted(2.1, 0.1, twice), grown*1.1, grown*1.5)
}

// Six periods without a refusal, "full" is no longer believed.
func TestFullIsNotBelievedForEver(t *testing.T) {
	l := settled(0)
	within(t, "nothing is left for 47 s", l.quoted(47, 0.1, leaky(0)), 7.9, 8.5)
	full := l.Rate
	within(t, "nothing is left for 68 s", l.quoted(21, 0.1, leaky(0)), full*1.1, full*4)
}

// Refusals that come while fields report room make the law ignore the fields for two minutes.
func TestDoubtfulFields(t *testing.T) {
	contradict := func(without policy.Rules) *life {
		l := settled(without)
		l.quoted(3, 0.1, leaky(0.5))
		for range 3 {
			at := seconds(l.now + 0.1)
			l.tell(policy.Sample{Outcome: policy.Throttled, Now: at, Sent: at - seconds(rtt), Cost: 1, Paced: true, Quota: leaky(0.5)(0)})
		}
		return l
	}
	l := contradict(policy.RuleSlowStart)
	low := l.Rate
	within(t, "half a second after it", l.quoted(0.5, 0.1, leaky(0.5)), low, low*1.02)
	l = contradict(policy.RuleDoubt)
	low = l.Rate
	within(t, "without the rule", l.quoted(0.5, 0.1, leaky(0.5)), low*1.04, low*1.1)

}

// The doubt ends after two minutes. (A refusal in between keeps "full" believable.)
func TestDoubtEnds(t *testing.T) {
	l := settled(0)
	idle := func(length float64) float64 {
		for end := l.now + length; l.now < end-0.05; {
			at := seconds(l.now + 0.1)
			l.tell(policy.Sample{Outcome: policy.Success, Now: at, Sent: at - seconds(rtt), Cost: 1, Quota: leaky(0)(0)})
		}
		return l.Rate
	}
	at := seconds(0.1)
	l.tell(policy.Sample{Outcome: policy.Throttled, Now: at, Sent: at - seconds(rtt), Cost: 1, Quota: leaky(0.5)(0)})
	doubted := l.Rate
	near(t, "115 s of answers that tell of nothing left", idle(115), doubted)
	cut := l.refuse(0.1)
	near(t, "up to two minutes", idle(4.5), cut)
	within(t, "five seconds later", idle(5.5), cut*0.9, cut*0.99)
}

// With plenty of room slow start goes on; with less the fields take over.
func TestFieldsInSlowStart(t *testing.T) {
	within(t, "four seconds with half left", born(0, 0).quoted(4, 0.1, leaky(0.5)), 60, 80)
	l := born(0, 0)
	l.quoted(2, 0.1, leaky(0.5))
	before := l.Rate
	within(t, "a second with a fifth left", l.quoted(1, 0.1, leaky(0.2))/before, 1.01, 1.1)
}

// Quotas of several kinds that come by turns are never measured: after 20 seconds the law grows by itself.
func TestFieldsThatAreNeverMeasured(t *testing.T) {
	turns := func(now float64) policy.Quota {
		return policy.Quota{Limit: 100 + math.Mod(math.Round(now*10), 2), Remaining: 50, Reset: time.Second}
	}
	l := settled(0)
	near(t, "20 s of quotas by turns", l.quoted(20, 0.1, turns), 10)
	within(t, "20 s more", l.quoted(20, 0.1, turns), 12, 200)
}
