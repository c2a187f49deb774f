package policy_test

import (
	"math"
	"testing"
	"time"
	"unsafe"

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

func TestZeroFeedbackIsNoInformation(t *testing.T) {
	if f := (policy.Feedback{}); f.Outcome != policy.Unknown || f.RetryAfter != 0 {
		t.Errorf("got %+v", f)
	}
}

func TestFixedLearnsNothing(t *testing.T) {
	if ctrl := (policy.Fixed{}).New(1); ctrl != nil {
		t.Errorf("got the controller %v", ctrl)
	}
}

// A pace has four words, which are returned in registers: a fifth costs each answer 22 ns.
func TestPaceIsFourWords(t *testing.T) {
	if n := unsafe.Sizeof(policy.Pace{}); n > 32 {
		t.Errorf("a pace has %d bytes", n)
	}
}

// A pace that probes has a time between probes above 0, and nothing saved up.
func TestProbing(t *testing.T) {
	for every, want := range map[time.Duration]time.Duration{
		0: 0, -time.Second: 0, math.MinInt64: 0, 1: 1, time.Second: time.Second, math.MaxInt64: math.MaxInt64,
	} {
		p := policy.Pace{Rate: 3, NotBefore: 5, Until: 7, Saved: time.Second}.Probing(every)
		if want := (policy.Pace{Rate: 3, NotBefore: 5, Until: 7, Saved: -want}); p != want ||
			p.Probe() != -want.Saved {
			t.Errorf("Probing(%v): %+v, a probe in %v, want %+v", every, p, p.Probe(), want)
		}
	}
	if d := (policy.Pace{Saved: math.MinInt64}).Probe(); d != 0 {
		t.Errorf("a probe in %v", d)
	}
}
