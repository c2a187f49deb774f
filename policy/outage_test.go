package policy_test

import (
	"testing"

	"github.com/quotient-go/quotient/policy"
)

// In an outage there is at most one probe a second on the mean, whatever the outcome, and the rate is as
// before after it.
func TestOutage(t *testing.T) {
	for _, o := range []policy.Outcome{policy.Unavailable, policy.Failed} {
		l := born(10, 0)
		before := l.serveFor(5, 0.1)
		for range 12 {
			l.answer(0.1, o)
		}
		if l.gate() <= 0 {
			t.Fatalf("%s: twelve in a row are no outage", o)
		}
		begin, probes := l.now, 0
		for ; l.now < begin+60; probes++ {
			l.probe(o)
		}
		within(t, o.String()+": probes in a minute", float64(probes), 25, 60)
		near(t, o.String()+": the rate after it", l.probe(policy.Success), before)
	}
}

// A few failures among successes change nothing, nor do failures during a run of refusals.
func TestFailuresThatAreNoOutage(t *testing.T) {
	l := born(10, 0)
	for i := range 200 {
		o := policy.Failed
		if i%10 == 0 {
			o = policy.Success
		}
		if l.answer(0.05, o); l.gate() > 0 {
			t.Fatalf("nine failures of ten are an outage at %v s", l.now)
		}
	}
}

// A refusal in an outage turns it into a blackout, which probes more seldom.
func TestOutageThatBecomesABlackout(t *testing.T) {
	l := born(10, 0)
	for l.gate() <= 0 {
		l.answer(0.1, policy.Unavailable)
	}
	for range 8 {
		l.probe(policy.Throttled)
	}
	within(t, "the wait after eight refused probes", l.gate(), 7, 13)
}
