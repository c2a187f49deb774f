package policy_test

import (
	"testing"

	"github.com/quotient-go/quotient/policy"
)

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

// brownout refuses every other request for some seconds.
func (l *life) brownout(length float64) {
	for end := l.now + length; l.now < end; {
		l.refuse(1 / l.Rate)
		l.serve(1 / l.Rate)
	}
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
	for l.Rate < 4*low && l.now < 200 {
		l.serve(0.1)
	}
	within(t, "a return", l.Rate, 4*low, 6*low)
	if back := l.refuse(0.1); back > 2*low {
		t.Errorf("a refusal of it leaves %v of %v", back, 4*low)
	}
}

// While half of all requests are refused whatever the rate, a trial ends the cuts, and growth goes as far as
// the level.
func TestCutsThatChangeNothing(t *testing.T) {
	l := healthy(0)
	l.brownout(55)
	within(t, "within a minute", l.Rate, 2.5, 10)
	l.brownout(120)
	within(t, "after three minutes", l.Rate, 0.8, 10)
	l.serveFor(20, 0.1)
	within(t, "20 seconds after it", l.Rate, 7, 15)
}

// A limit that has fallen to four tenths is found, and the trial does not stop the cuts above it.
func TestTrialOfALimitThatHasFallen(t *testing.T) {
	l := healthy(0)
	due := 0.0
	for end := l.now + 30; l.now < end; {
		if due += 4 / l.Rate; due >= 1 {
			due--
			l.serve(1 / l.Rate)
		} else {
			l.refuse(1 / l.Rate)
		}
	}
	within(t, "half a minute after a fall to 4 a second", l.Rate, 2.5, 4.8)
}
