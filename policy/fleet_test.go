package policy_test

import (
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// Interface: the controller speaks.
var _ policy.Reporter = policy.Tracking{}.New(1).(policy.Reporter)

// A controller reports its pace while that holds requests back, and then its use, which fades.
func TestSay(t *testing.T) {
	ctrl := policy.Tracking{}.New(1).(policy.Reporter)
	b := policy.Bounds{Share: 10, Ceiling: 100}
	if w := ctrl.Report(0); w != (policy.Report{}) {
		t.Errorf("before the start it says %+v", w)
	}
	ctrl.Next(policy.Sample{}, b)
	now := time.Duration(0)
	var p policy.Pace
	for range 100 {
		now += 100 * time.Millisecond
		p = ctrl.Next(policy.Sample{Outcome: policy.Success, Now: now, Sent: now - 50*time.Millisecond,
			Cost: 1, Paced: true}, b)
	}
	if w := ctrl.Report(now); !w.Wanting || w.Rate != p.Rate || w.Refused != 0 {
		t.Errorf("held back at a pace of %v it says %+v", p.Rate, w)
	}
	if w := ctrl.Report(now + 1100*time.Millisecond); w.Wanting || w.Rate < 5 || w.Rate > 10 {
		t.Errorf("1.1 s after it used 10 a second it says %+v", w)
	}
	if w := ctrl.Report(now + time.Minute); w.Wanting || w.Rate > 1 {
		t.Errorf("a minute after it used 10 a second it says %+v", w)
	}
}
