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

// draining is a quota of 600 a minute of which all clients together use so many a second, from a minute's
// beginning on.
func draining(used float64) func(float64) policy.Quota {
	return func(now float64) policy.Quota {
		into := math.Mod(now, 60)
		return policy.Quota{Limit: 600, Remaining: max(600-used*into, 0), Reset: seconds(60 - into)}
	}
}

func TestHeadroom(t *testing.T) {
	for _, c := range []struct {
		name        string
		length      float64
		quota       func(float64) policy.Quota
		least, most float64
	}{
		{"without fields", 5, func(float64) policy.Quota { return policy.Quota{} }, 10, 10.3},
		{"before anything is measured", 0.9, leaky(1), 10, 10.01},
		{"half is left", 5, leaky(0.5), 11.4, 16},
		{"a tenth is left", 5, leaky(0.1), 10.05, 12},
		{"a hundredth is left", 5, leaky(0.01), 9, 10},
		{"nothing is left", 5, leaky(0), 8.5, 9.99},
		{"a minute's quota, half of it used", 15, draining(5), 20, 1100},
		{"used just up", 15, draining(10), 9, 11},
		{"used up twice as fast", 15, draining(20), 7.9, 8.1}, // not below .8 of the plateau
		{"used up ten times as fast", 15, draining(100), 7.9, 8.1},
		{"too coarse", 5, func(float64) policy.Quota {
			return policy.Quota{Limit: 4, Remaining: 0, Reset: time.Second}
		}, 10, 10.3},
		{"too far away", 5, func(float64) policy.Quota {
			return policy.Quota{Limit: 1e6, Remaining: 1, Reset: 25 * time.Hour}
		}, 10, 10.3},
		{"no reset", 5, func(float64) policy.Quota { return policy.Quota{Limit: 100, Remaining: 50} },
			11.4, 16},
		{"garbage", 5, func(float64) policy.Quota {
			return policy.Quota{Limit: math.NaN(), Remaining: math.Inf(1), Reset: -1}
		}, 10, 10.3},
	} {
		within(t, c.name, born(10).quoted(c.length, 0.1, c.quota), c.least, c.most)
	}
}

// A new low counts at once; the room that was there before it does not.
func TestNewLowCountsAtOnce(t *testing.T) {
	l := born(10)
	l.quoted(2, 0.1, leaky(0.5))
	grown := l.Rate
	within(t, "at the first answer with nothing left", l.quoted(0.1, 0.1, leaky(0)), grown*0.99, grown)
	within(t, "and with half left just after it", l.quoted(0.1, 0.1, leaky(0.5)), grown*0.99, grown)
}

// When a quota is renewed the measurement of the drain starts again, and what it was before goes on counting
// until then.
func TestDrainOverARenewal(t *testing.T) {
	l := born(10)
	l.now = 50
	l.tell(policy.Sample{Now: seconds(50)})
	l.quoted(8, 0.1, draining(9.9))
	within(t, "six seconds over the renewal", l.quoted(6, 0.1, draining(9.9)), 9, 12)
}

// Another limit is another quota: nothing is known of it at first.
func TestLimitThatChanges(t *testing.T) {
	l := born(10)
	l.quoted(3, 0.1, leaky(0.5))
	grown := l.Rate
	twice := func(float64) policy.Quota {
		return policy.Quota{Limit: 200, Remaining: 100, Reset: time.Second}
	}
	within(t, "0.9 s after the change", l.quoted(0.9, 0.1, twice), grown, grown*1.02)
	within(t, "3 s after it", l.quoted(2.1, 0.1, twice), grown*1.06, grown*1.5)
}

// A quota that claims to be full for ever, and never refuses, is believed ever less: growth comes back.
func TestFullIsNotBelievedForEver(t *testing.T) {
	l := healthy()
	within(t, "nothing is left for 10 s", l.quoted(10, 0.1, leaky(0)), 8, 9)
	within(t, "nothing is left for 4 minutes", l.quoted(230, 0.1, leaky(0)), 12, 1e4)
}

// A refusal that was not foreseen halves the trust, and so the growth that the fields add; one that was
// foreseen restores half of what is missing.
func TestTrust(t *testing.T) {
	gain := func(lefts ...float64) float64 {
		l := born(10)
		for _, left := range lefts {
			l.quoted(2, 0.1, leaky(left))
			l.refuse(0.1)
		}
		l.quoted(2, 0.1, leaky(0.5))
		before := l.Rate
		return l.quoted(1, 0.1, leaky(0.5))/before - 1
	}
	trusted := gain()
	for _, c := range []struct {
		name        string
		lefts       []float64
		least, most float64
	}{
		{"refused at half", []float64{0.5}, 0.4, 0.6},
		{"refused twice at half", []float64{0.5, 0.5}, 0.2, 0.35},
		{"refused at a tenth", []float64{0.1}, 0.95, 1.1},
		{"refused at half, then at nothing", []float64{0.5, 0}, 0.65, 0.95},
	} {
		within(t, c.name, gain(c.lefts...)/trusted, c.least, c.most)
	}
}

// Slow start goes on, whatever the fields claim: only refusals end it.
func TestFieldsInSlowStart(t *testing.T) {
	for _, left := range []float64{0, 0.2, 0.5} {
		near(t, "four seconds of slow start", born(0).quoted(4, 0.1, leaky(left)),
			born(0).serveFor(4, 0.1))
	}
}

// hourly is a quota of so many an hour of which all clients together use so many a second; so much is left at
// first.
func hourly(limit, left, used float64) func(float64) policy.Quota {
	return func(now float64) policy.Quota {
		return policy.Quota{Limit: limit, Remaining: max(left-used*now, 0), Reset: time.Hour - seconds(now)}
	}
}

// Room in an hour's quota says nothing of a second's limit, and moves no rate. Spent evenly it bounds the
// rate; spent fast it does when it would last for less than ten seconds.
func TestSpend(t *testing.T) {
	after := func(spend policy.Spend, quota func(float64) policy.Quota) float64 {
		return lives(policy.Tracking{Spend: spend}, 10).quoted(8, 0.1, quota)
	}
	alone := born(10).serveFor(8, 0.1)
	near(t, "fresh, used fast", after(policy.SpendFast, hourly(5000, 5000, 10)), alone)
	near(t, "half used, used fast", after(policy.SpendFast, hourly(5000, 2500, 10)), alone)
	within(t, "all but used up, used fast", after(policy.SpendFast, hourly(5000, 120, 10)), 7.9, 9)
	within(t, "fresh, used evenly", after(policy.SpendEvenly, hourly(5000, 5000, 10)), 0.5, 4)
	within(t, "plenty, used evenly", after(policy.SpendEvenly, hourly(5e6, 5e6, 10)), 10, 15)
}

// Quotas of several kinds that come by turns are never measured, and move nothing.
func TestFieldsThatAreNeverMeasured(t *testing.T) {
	turns := func(now float64) policy.Quota {
		return policy.Quota{Limit: 100 + math.Mod(math.Round(now*10), 2), Remaining: 50, Reset: time.Second}
	}
	near(t, "40 s of quotas by turns", born(10).quoted(40, 0.1, turns), born(10).serveFor(40, 0.1))
}
