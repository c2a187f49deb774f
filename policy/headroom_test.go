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

// settled is a controller at a share of 10, whose plateau is 10 too.
func settled(without policy.Rules) *life { return born(10, without) }

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
		within(t, c.name, settled(0).quoted(c.length, 0.1, c.quota), c.least, c.most)
		within(t, c.name+", without the rule",
			settled(policy.RuleHeadroom).quoted(min(c.length, 5), 0.1, c.quota), 10, 10.3)
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
	twice := func(float64) policy.Quota {
		return policy.Quota{Limit: 200, Remaining: 100, Reset: time.Second}
	}
	within(t, "0.9 s after the change", l.quoted(0.9, 0.1, twice), grown, grown*1.02)
	within(t, "3 s after it", l.quoted(2.1, 0.1, twice), grown*1.06, grown*1.5)
}

// A quota that claims to be full for ever, and never refuses, is believed ever less: growth comes back.
func TestFullIsNotBelievedForEver(t *testing.T) {
	l := settled(policy.RuleFloor)
	within(t, "nothing is left for 10 s", l.quoted(10, 0.1, leaky(0)), 8.5, 9.2)
	within(t, "nothing is left for 4 minutes", l.quoted(230, 0.1, leaky(0)), 12, 1e4)
	l = settled(policy.RuleFloor | policy.RuleDoubt)
	within(t, "without the rule", l.quoted(600, 0.1, leaky(0)), 7.9, 8.1)
}

// A refusal that was not foreseen halves the trust, and so the growth that the fields add; one that was
// foreseen restores half of what is missing.
func TestTrust(t *testing.T) {
	gain := func(without policy.Rules, lefts ...float64) float64 {
		l := settled(without | policy.RuleFloor | policy.RuleReturn)
		for _, left := range lefts {
			l.quoted(2, 0.1, leaky(left))
			l.refuse(0.1)
		}
		l.quoted(2, 0.1, leaky(0.5))
		before := l.Rate
		return l.quoted(1, 0.1, leaky(0.5))/before - 1
	}
	trusted := gain(0)
	for _, c := range []struct {
		name        string
		without     policy.Rules
		lefts       []float64
		least, most float64
	}{
		{"refused at half", 0, []float64{0.5}, 0.4, 0.6},
		{"refused twice at half", 0, []float64{0.5, 0.5}, 0.2, 0.35},
		{"refused at a tenth", 0, []float64{0.1}, 0.95, 1.1},
		{"refused at half, then at nothing", 0, []float64{0.5, 0}, 0.65, 0.95},
		{"refused at half, without the rule", policy.RuleDoubt, []float64{0.5}, 0.95, 1.05},
		{"without headroom", policy.RuleHeadroom, nil, -0.01, 0.05},
	} {
		within(t, c.name, gain(c.without, c.lefts...)/trusted, c.least, c.most)
	}
}

// Slow start goes on, whatever the fields claim: only refusals end it.
func TestFieldsInSlowStart(t *testing.T) {
	for _, left := range []float64{0, 0.2, 0.5} {
		near(t, "four seconds of slow start", born(0, 0).quoted(4, 0.1, leaky(left)),
			born(0, 0).serveFor(4, 0.1))
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
		l := settled(policy.RuleFloor)
		l.ctrl = policy.Tracking{Spend: spend, Without: policy.RuleFloor}.New(1)
		l.Pace = l.ctrl.Next(policy.Sample{}, l.bounds)
		return l.quoted(8, 0.1, quota)
	}
	alone := settled(policy.RuleFloor).serveFor(8, 0.1)
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
	near(t, "40 s of quotas by turns", settled(0).quoted(40, 0.1, turns), settled(0).serveFor(40, 0.1))
}

func TestSlowStart(t *testing.T) {
	l := born(0, 0)
	near(t, "the start without a share", l.Rate, 5)
	within(t, "after a second of success", l.serveFor(1, 0.05), 9.5, 10)
	within(t, "after another", l.serveFor(1, 0.05), 18, 20)
	before := l.Rate
	near(t, "after a second without an answer, the most for one success", l.serve(1), before*1.19)
	near(t, "the refusal that ends it", l.refuse(0.05), before*1.19*0.7)
	ended := l.Rate
	within(t, "after a second more", l.serveFor(1, 0.05), ended, ended*1.01)

	near(t, "the start at a share", born(10, 0).Rate, 10)
	within(t, "with a share there is no slow start", born(10, 0).serveFor(1, 0.05), 10, 10.1)
}

// A controller that has come down to the least rate has nothing to lose, and starts over, with a share or
// without one.
func TestSlowStartFromTheLeastRate(t *testing.T) {
	for _, share := range []float64{0, 10} {
		l := born(share, policy.RuleBlackout)
		l.serve(0.1)
		for range 200 {
			l.refuse(0.1)
		}
		near(t, "refused for 20 seconds", l.Rate, 0.02)
		within(t, "three seconds of success later", l.serveFor(3, 0.05), 0.14, 0.162)
	}
}

// A limit that others have used up when a controller begins says nothing about the rate. Refusals before the
// first success, and a blackout that begins with them, leave it as it was. Slow start goes on.
func TestRefusedBeforeAnythingWasServed(t *testing.T) {
	for _, share := range []float64{0, 10} {
		start := born(share, 0).Rate
		l := born(share, 0)
		for range 4 {
			near(t, "the rate after a refusal", l.refuse(0.1), start)
		}
		l.darken(t, 0.1)
		l.probe(policy.Throttled)
		near(t, "the rate after the first success", l.probe(policy.Success), start)
		if share == 0 {
			within(t, "three seconds of success later", l.serveFor(3, 0.05), 7*start, 8.1*start)
		}
		if served := l.Rate; l.refuse(0.1) >= served*0.995 {
			t.Errorf("a refusal after that leaves %v of %v", l.Rate, served)
		}
	}
}

// A success that follows closely upon refusals ends the start too, or at a high rate the controller would
// never cut.
func TestFirstSuccessAmongManyRefusals(t *testing.T) {
	l := born(400, 0)
	for range 400 {
		l.refuse(0.003)
		l.serve(0.001)
	}
	if l.Rate > 300 {
		t.Errorf("half of all requests are refused for 1.6 s, and the rate is %v", l.Rate)
	}
}

// cutAt brings a controller without a share to a plateau: many successes, and then one refusal.
func cutAt(t *testing.T, without policy.Rules) (l *life, before float64) {
	t.Helper()
	l = born(0, without|policy.RuleSlowStart|policy.RuleServed) // more is served than the rate
	l.serveFor(10, 0.05)
	before = l.Rate
	near(t, "the cut", l.refuse(0.05), before*0.88)
	return l, before
}

// The controller comes back to four tenths of the cut below where it was, rests there, and then grows as the
// cube of the time.
func TestReturnRestAndProbe(t *testing.T) {
	l, before := cutAt(t, 0)
	top := before * (1 - 0.4*0.12)
	within(t, "2.4 s after the cut", l.serveFor(2.4, 0.05), before*.92, top)
	within(t, "4.8 s after it", l.serveFor(2.4, 0.05), before*.94, top*1.01)
	within(t, "8 s after it", l.serveFor(3.2, 0.05), top, before)
	last, gained := l.Rate, 0.0
	for range 3 {
		l.serveFor(2, 0.05)
		if gain := l.Rate/last - 1; gain < 1.4*gained {
			t.Errorf("in two seconds the rate gains %.3f after %.3f: it must grow ever faster", gain, gained)
		} else {
			last, gained = l.Rate, gain
		}
	}
}

// However long nothing was refused, a rate does not double in less than six seconds, nor grow by more than a
// twenty-third for one success.
func TestGrowthIsBounded(t *testing.T) {
	l := born(10, 0)
	l.serveFor(60, 0.05)
	before := l.Rate
	within(t, "six seconds later", l.serveFor(6, 0.05)/before, 1.9, 2)
	before = l.Rate
	near(t, "one success after a second without any", l.serve(1), before*1.044)
}

// An unused rate proves nothing.
func TestGrowsOnlyWhenPaced(t *testing.T) {
	l := born(10, 0)
	for range 1000 {
		at := seconds(l.now + 0.1)
		l.tell(policy.Sample{Outcome: policy.Success, Now: at, Sent: at - seconds(rtt), Cost: 1})
	}
	near(t, "after a hundred seconds in which nothing was held back", l.Rate, 10)
	within(t, "after twenty in which requests were", l.serveFor(20, 0.1), 11, 100)
}

// A success that follows within ten milliseconds is only counted. The next step grows if any of them was
// paced.
func TestStepsAreCoarse(t *testing.T) {
	one, many := born(10, 0), born(10, 0)
	one.serveFor(20, 0.01)
	for i := range 20_000 {
		at := seconds(many.now + 0.001)
		before := many.Rate
		many.tell(policy.Sample{Outcome: policy.Success, Now: at, Sent: at - seconds(rtt), Cost: 1,
			Paced: i%10 == 3})
		if i%10 != 0 && many.Rate != before {
			t.Fatalf("the rate grows at %v", at)
		}
	}
	within(t, "ten successes in ten milliseconds, to one", many.Rate/one.Rate, 0.95, 1)
}

// No other outcome raises a rate, nor lowers it.
func TestOutcomesWithoutInformation(t *testing.T) {
	for _, o := range []policy.Outcome{policy.Unknown, 9} {
		l := born(10, 0)
		for range 100 {
			near(t, o.String(), l.answer(0.1, o), 10)
		}
	}
}

// A request that was sent before the cut says nothing about the rate since, whether it succeeds or not.
func TestOneCutForOneRound(t *testing.T) {
	l, _ := cutAt(t, 0)
	cut, at := l.Rate, seconds(l.now)
	for i := range 10 {
		late := policy.Sample{Outcome: policy.Throttled, Now: at + seconds(0.02*float64(i+1)), Sent: at - 1,
			Cost: 1, Paced: true}
		if i%2 == 1 {
			late.Outcome = policy.Success
		}
		near(t, "an answer to a request from before the cut", l.tell(late), cut)
	}
	if l.refuse(0.1); l.Rate >= cut*0.99 {
		t.Errorf("the refusal of one sent after the cut leaves %v of %v", l.Rate, cut)
	}
}

// Cuts end at 20 requests in a thousand seconds, whatever the share was.
func TestLeastRate(t *testing.T) {
	for _, share := range []float64{0, .1, 10, 5000} {
		l := born(share, policy.RuleBlackout)
		l.serve(0.1)
		for range 2000 {
			l.refuse(0.1)
		}
		near(t, "after 2000 refusals", l.Rate, 0.02)
	}
}

// healthy is a controller without a share that has held ten requests a second for two minutes: one that
// probes beyond is refused.
func healthy(without policy.Rules) *life {
	l := born(0, without|policy.RuleSlowStart)
	for l.now < 120 {
		if l.serve(1 / l.Rate); l.Rate > 10 {
			l.refuse(1 / l.Rate)
		}
	}
	return l
}

// fall refuses nine of ten requests for half a minute.
func (l *life) fall() *life {
	for end := l.now + 30; l.now < end; {
		for range 9 {
			l.refuse(1 / l.Rate)
		}
		l.serve(1 / l.Rate)
	}
	return l
}

// A limit that fell and came back is used again at once; one that stays low is not asked for ever.
func TestReturnToTheLevel(t *testing.T) {
	l := healthy(0).fall()
	within(t, "after the fall", l.Rate, 0.15, 3)
	l.serveFor(8, 0.1)
	within(t, "eight seconds after it", l.Rate, 7, 12)
}

// A return that is refused goes back to where it began.
func TestReturnThatIsRefused(t *testing.T) {
	l := healthy(0).fall()
	low := l.Rate
	for l.Rate < 4*low && l.now < 400 {
		l.serve(0.1)
	}
	within(t, "a return", l.Rate, 4*low, 6*low)
	if back := l.refuse(0.1); back > 2*low {
		t.Errorf("a refusal of it leaves %v of %v", back, 4*low)
	}
}

// A hint changes no rate at once. A rate below its floor is there in two seconds, or as long as it takes to
// double in two; one above it stays until it is refused.
func TestHintsThatChange(t *testing.T) {
	for _, c := range []struct {
		share, least, most float64
	}{{20, 19.5, 20}, {40, 21, 21.5}, {5, 10, 10.1}, {0, 10, 10.1}} {
		l := born(10, 0)
		near(t, "the rate at once", l.hint(20, c.share), 10)
		within(t, "2.2 seconds later", l.serveFor(2.2, 0.05), c.least, c.most)
	}
	l := born(0, policy.RuleSlowStart)
	near(t, "the rate at once, when there was no share", l.hint(1, 20), 5)
	within(t, "4.4 seconds later", l.serveFor(4.4, 0.05), 19.5, 20)
}

// A source that flaps is as good as none.
func TestHintsThatFlap(t *testing.T) {
	l := born(10, 0)
	l.hint(1, 20)
	l.hint(14, 40)
	before := l.serveFor(1, 0.05)
	near(t, "a cut below all that was hinted", l.refuse(0.05), before*0.88)
	within(t, "two seconds later", l.serveFor(2, 0.05), before*0.88, before)
}

// In a blackout there is no rate to scale; the floor is that of the new share.
func TestHintInABlackout(t *testing.T) {
	l := born(10, 0)
	l.serveFor(10, 0.1)
	l.darken(t, 0.1)
	least := l.Rate
	if l.hint(0.01, 20); l.Rate > 2*least || l.gate() <= 0 {
		t.Errorf("a hint ends the blackout: %+v", l.Pace)
	}
	near(t, "after it, the floor: what was served was under another share", l.probe(policy.Success), 19.8)

	// the hint comes while refusals do, and the blackout that they become does not take it back
	l = born(10, 0)
	l.serveFor(10, 0.1)
	l.refuse(0.1)
	l.hint(0.01, 5)
	l.darken(t, 0.1)
	within(t, "the share of 5", l.probe(policy.Success), 4.9, 10)
	within(t, "its floor", l.refuse(0.1), 4.9, 10)
}

// Few refusals do not go below the floor. Many do, and then there is none to come back to.
func TestFloorIsLost(t *testing.T) {
	l := born(10, 0)
	l.serveFor(8, 0.1)
	l.refuse(0.1)
	within(t, "after one refusal among eighty answers", l.Rate, 9.9, 10.5)
	for range 10 {
		l.serveFor(0.3, 0.1)
		l.refuse(0.1)
	}
	within(t, "when a quarter is refused", l.Rate, 1, 7)
	low := l.Rate
	within(t, "two seconds later", l.serveFor(2, 0.1), low, low*1.3)
	l.hint(20, 10.001)
	within(t, "two seconds after another hint", l.serveFor(2, 0.1), 9.5, 10)
}

// untilProbe is how many seconds of success it takes to come a twentieth above a share of 10.
func (l *life) untilProbe() (s float64) {
	for ; l.Rate < 10.5 && s < 1000; s += 0.1 {
		l.serve(0.1)
	}
	return s
}
