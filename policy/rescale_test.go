package policy_test

import (
	"testing"

	"github.com/quotient-go/quotient/policy"
)

// A hint that has held for 15 seconds, or was the first, is followed at once; one that flaps, by growth.
func TestHintsThatChange(t *testing.T) {
	for _, c := range []struct {
		name         string
		after, share float64
		without      policy.Rules
		want         float64
	}{
		{"the first change, up", 1, 20, 0, 19.8},
		{"the first change, down", 1, 5, 0, 5},
		{"without the rule, up", 1, 20, policy.RuleRescale, 10},
		{"without the rule, down", 1, 5, policy.RuleRescale, 10},
		{"no share any more", 1, 0, 0, 10},
	} {
		l := born(10, c.without)
		near(t, c.name, l.hint(c.after, c.share), c.want)
	}
	l := born(10, 0)
	l.hint(1, 20)
	near(t, "a second change 14.9 s later", l.hint(14.9, 40), 19.8)
	near(t, "a third 15 s after that", l.hint(15, 80), 79.2)
	near(t, "a first share", func() float64 { l := born(0, 0); return l.hint(1, 40) }(), 5)
}

// The floor of a hint that flaps is reached in two seconds, or as long as it takes to double in two.
func TestBackToTheFloor(t *testing.T) {
	l := born(10, 0)
	l.hint(1, 20)
	l.hint(1, 40)
	within(t, "after a second", l.serveFor(1, 0.05), 25, 28.5)
	within(t, "after 2.2 seconds", l.serveFor(1.2, 0.05), 39.5, 40)
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
	within(t, "after it", l.probe(policy.Success), 5, 11)

	l = born(10, 0) // the hint comes while refusals do, and the blackout that they become does not take it back
	l.serveFor(10, 0.1)
	l.refuse(0.1)
	l.hint(0.01, 5)
	l.darken(t, 0.1)
	within(t, "the share of 5", l.probe(policy.Success), 4.9, 10)
	within(t, "its floor", l.refuse(0.1), 4.9, 10)
}

// Few refusals do not go below the floor; heavy ones do, and no growth is faster below it afterwards.
func TestFloorYieldsToHeavyRefusals(t *testing.T) {
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
	within(t, "a new hint is trusted again", l.serveFor(0.1, 0.1), 9.9, 10)
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
