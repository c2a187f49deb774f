package policy_test

import (
	"testing"

	"github.com/quotient-go/quotient/policy"
)

func TestSlowStart(t *testing.T) {
	l := born(0)
	near(t, "the start without a share", l.Rate, 5)
	within(t, "after a second of success", l.serveFor(1, 0.05), 9.5, 10)
	within(t, "after another", l.serveFor(1, 0.05), 18, 20)
	before := l.Rate
	near(t, "after a second without an answer, the most for one success", l.serve(1), before*1.19)
	near(t, "the refusal that ends it", l.refuse(0.05), before*1.19*0.7)
	ended := l.Rate
	within(t, "after a second more", l.serveFor(1, 0.05), ended, ended*1.01)

	near(t, "the start at a share", born(10).Rate, 10)
	within(t, "with a share there is no slow start", born(10).serveFor(1, 0.05), 10, 10.1)
}

// A controller that has come down to the least rate has nothing to lose, and starts over, with a share or
// without one.
func TestSlowStartFromTheLeastRate(t *testing.T) {
	for _, share := range []float64{0, 10} {
		l := born(share).starve(500)
		near(t, "refused until the least rate", l.Rate, 0.02)
		within(t, "three seconds of success later", l.serveFor(3, 0.05), 0.14, 0.162)
	}
}

// A limit that others have used up when a controller begins says nothing about the rate. Refusals before the
// first success, and a blackout that begins with them, leave it as it was. Slow start goes on.
func TestRefusedBeforeAnythingWasServed(t *testing.T) {
	for _, share := range []float64{0, 10} {
		start := born(share).Rate
		l := born(share)
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
	l := born(400)
	for range 400 {
		l.refuse(0.003)
		l.serve(0.001)
	}
	wrong(t, l.Rate > 300, "half of all requests are refused for 1.6 s, and the rate is %v", l.Rate)
}

// cutAt brings a controller without a share to a plateau, and then to one refusal. It is served at less than
// its pace, so that what was served does not stop the cut.
func cutAt(t *testing.T) (l *life, before float64) {
	t.Helper()
	l = grown(policy.Tracking{})
	before = l.serveFor(10, 0.5)
	near(t, "the cut", l.refuse(0.05), before*0.88)
	return l, before
}

// The controller comes back to four tenths of the cut below where it was, rests there, and then grows as the
// cube of the time.
func TestReturnRestAndProbe(t *testing.T) {
	l, before := cutAt(t)
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
	l := born(10)
	l.serveFor(60, 0.05)
	before := l.Rate
	within(t, "six seconds later", l.serveFor(6, 0.05)/before, 1.9, 2)
	before = l.Rate
	near(t, "one success after a second without any", l.serve(1), before*1.044)
}

// An unused rate proves nothing.
func TestGrowsOnlyWhenPaced(t *testing.T) {
	l := born(10)
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
	one, many := born(10), born(10)
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
		l := born(10)
		for range 100 {
			near(t, o.String(), l.answer(0.1, o), 10)
		}
	}
}

// A request that was sent before the cut says nothing about the rate since, whether it succeeds or not.
func TestOneCutForOneRound(t *testing.T) {
	l, _ := cutAt(t)
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
		near(t, "after 2000 refusals", born(share).starve(2000).Rate, 0.02)
	}
}

// starve refuses n requests. Every fourth succeeds, since else it were a blackout.
func (l *life) starve(n int) *life {
	for i := range n {
		if i%3 == 0 {
			l.serve(0.05)
		}
		l.refuse(0.05)
	}
	return l
}

// A cut keeps .95 of what was served lately, but takes 3 % at least.
func TestCutKeepsWhatIsServed(t *testing.T) {
	l := grown(policy.Tracking{})
	before := l.serveFor(10, 0.05)
	near(t, "more was served than the rate", l.refuse(0.05), before*0.97)
}

// healthy is a controller without a share that has held ten requests a second for two minutes: one that
// probes beyond is refused.
func healthy() *life {
	l := born(0)
	for l.now < 120 {
		if l.serve(1 / l.Rate); l.Rate > 10 {
			l.refuse(1 / l.Rate)
		}
	}
	return l
}

// fall refuses nine of ten requests until the rate is one a second.
func (l *life) fall() *life {
	for l.Rate > 1 {
		for range 9 {
			l.refuse(1 / l.Rate)
		}
		l.serve(1 / l.Rate)
	}
	return l
}

// A limit that fell and came back is used again at once; one that stays low is not asked for ever.
func TestReturnToTheLevel(t *testing.T) {
	l := healthy().fall()
	within(t, "after the fall", l.Rate, 0.15, 3)
	l.serveFor(8, 0.1)
	within(t, "eight seconds after it", l.Rate, 7, 12)
}

// A return that is refused goes back to where it began.
func TestReturnThatIsRefused(t *testing.T) {
	l := healthy().fall()
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
		l := born(10)
		near(t, "the rate at once", l.hint(20, c.share), 10)
		within(t, "2.2 seconds later", l.serveFor(2.2, 0.05), c.least, c.most)
	}
	l := grown(policy.Tracking{})
	near(t, "the rate at once, when there was no share", l.Rate, l.hint(1, 20))
	within(t, "5.6 seconds later", l.serveFor(5.6, 0.05), 19.5, 20)
}

// A source that flaps is as good as none.
func TestHintsThatFlap(t *testing.T) {
	l := born(10)
	l.hint(1, 20)
	l.hint(14, 40)
	before := l.serveFor(1, 0.05)
	near(t, "a cut below all that was hinted", l.refuse(0.05), before*0.88)
	within(t, "two seconds later", l.serveFor(2, 0.05), before*0.88, before)
}

// In a blackout there is no rate to scale; the floor is that of the new share.
func TestHintInABlackout(t *testing.T) {
	l := born(10)
	l.serveFor(10, 0.1)
	l.darken(t, 0.1)
	least := l.Rate
	if l.hint(0.01, 20); l.Rate > 2*least || l.gate() <= 0 {
		t.Errorf("a hint ends the blackout: %+v", l.Pace)
	}
	near(t, "after it, the floor: what was served was under another share", l.probe(policy.Success), 19.8)

	// the hint comes while refusals do, and the blackout that they become does not take it back
	l = born(10)
	l.serveFor(10, 0.1)
	l.refuse(0.1)
	l.hint(0.01, 5)
	l.darken(t, 0.1)
	within(t, "the share of 5", l.probe(policy.Success), 4.9, 10)
	within(t, "its floor", l.refuse(0.1), 4.9, 10)
}

// Few refusals do not go below the floor. Many do, and then there is none to come back to.
func TestFloorIsLost(t *testing.T) {
	l := born(10)
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

// Each probe above the share that fails makes the next one come later.
func TestProbesOfTheShareComeLater(t *testing.T) {
	l := born(10)
	first := l.untilProbe()
	l.refuse(0.1)
	l.untilProbe()
	l.refuse(0.1)
	within(t, "the third probe, in times of the first", l.untilProbe()/first, 1.5, 3)
}

// untilProbe is how many seconds of success it takes to come a twentieth above a share of 10.
func (l *life) untilProbe() (s float64) {
	for ; l.Rate < 10.5 && s < 1000; s += 0.1 {
		l.serve(0.1)
	}
	return s
}
