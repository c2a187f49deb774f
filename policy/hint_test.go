package policy_test

import (
	"testing"

	"github.com/quotient-go/quotient/policy"
)

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

// Each probe of the share that fails makes the next come later.
func TestPatienceDelaysProbes(t *testing.T) {
	for _, c := range []struct {
		without     policy.Rules
		least, most float64
	}{{0, 2, 8}, {policy.RulePatience, 0.8, 1.2}} {
		l := born(10, c.without)
		first := l.untilProbe()
		for range 4 {
			l.refuse(0.1)
			l.untilProbe()
		}
		l.refuse(0.1)
		within(t, "the time to the sixth probe, to that to the first", l.untilProbe()/first, c.least, c.most)
	}
}
