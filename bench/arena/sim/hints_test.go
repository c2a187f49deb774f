package sim

import (
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// Four equal clients of 100 requests a second that are given twice their share are served equally after two minutes.
func TestHintTooHighLeavesClientsEqual(t *testing.T) {
	for _, kind := range []Kind{TokenBucket, GCRA} {
		s := equal("", "", rate100, 4, rate100/2, always(rate100/2))
		mean := 0.0
		for seed := range uint64(10) {
			r := Play(s, kind, NoFields, pacing(policy.Tracking{}), seed, 0)
			fair := r.Fair(2*time.Minute, s.Length)
			if mean += fair / 10; fair < .94 {
				t.Errorf("%s, seed %d: Jain's index is %.3f", kind, seed, fair)
			}
		}
		if mean < .97 {
			t.Errorf("%s: the mean of Jain's index is %.3f", kind, mean)
		}
	}
}
