package policy_test

import (
	"testing"

	"github.com/quotient-go/quotient/policy"
)

func TestOutcomeNames(t *testing.T) {
	for o, want := range map[policy.Outcome]string{
		policy.Unknown: "unknown", policy.Success: "success", policy.Throttled: "throttled",
		policy.Unavailable: "unavailable", policy.Failed: "failed", 5: "invalid", 255: "invalid",
	} {
		if got := o.String(); got != want {
			t.Errorf("outcome %d: %q, want %q", o, got, want)
		}
	}
}

func TestZeroFeedbackSaysNothing(t *testing.T) {
	if f := (policy.Feedback{}); f.Outcome != policy.Unknown || f.RetryAfter != 0 {
		t.Errorf("got %+v", f)
	}
}

func TestFixedLearnsNothing(t *testing.T) {
	if law := (policy.Fixed{}).New(1); law != nil {
		t.Errorf("got the law %v", law)
	}
}
