package policy_test

import (
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// BenchmarkNext is the price of one success: the controller's part of the happy path.
func BenchmarkNext(b *testing.B) {
	quota := policy.Quota{Limit: 100, Remaining: 40, Reset: time.Second}
	for _, c := range []struct {
		name  string
		ctrl  policy.Policy
		paced bool
		quota policy.Quota
	}{
		{"AIMD", policy.AIMD{}, true, policy.Quota{}},
		{"Tracking", policy.Tracking{}, false, policy.Quota{}},
		{"Tracking paced", policy.Tracking{}, true, policy.Quota{}},
		{"Tracking with fields", policy.Tracking{}, true, quota},
	} {
		b.Run(c.name, func(b *testing.B) {
			ctrl := c.ctrl.New(1)
			bounds := policy.Bounds{Share: 1000, Ceiling: 10_000}
			s := policy.Sample{Outcome: policy.Success, Cost: 1, Paced: c.paced, Quota: c.quota}
			ctrl.Next(policy.Sample{}, bounds)
			b.ReportAllocs()
			for b.Loop() {
				s.Now += time.Millisecond
				s.Sent = s.Now - time.Millisecond
				if p := ctrl.Next(s, bounds); !(p.Rate > 0) || p.Rate > bounds.Ceiling {
					b.Fatal(p)
				}
			}
		})
	}
}
