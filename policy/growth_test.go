package policy_test

import (
	"testing"

	"github.com/quotient-go/quotient/policy"
)

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
		least := max(0.02, share/50)
		near(t, "refused for 20 seconds", l.Rate, least)
		within(t, "three seconds of success later", l.serveFor(3, 0.05), 7*least, 8.1*least)
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

// Cuts end at a fiftieth of the share, or at 20 requests in a thousand seconds.
func TestLeastRate(t *testing.T) {
	for _, c := range []struct{ share, least float64 }{{0, .02}, {10, .2}, {0.1, .02}} {
		l := born(c.share, policy.RuleBlackout)
		l.serve(0.1)
		for range 2000 {
			l.refuse(0.1)
		}
		near(t, "after 2000 refusals", l.Rate, c.least)
	}
}
