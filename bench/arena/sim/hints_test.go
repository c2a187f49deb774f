package sim

import (
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// Four equal clients of 100 requests a second start with 1.5 to 4 times their share. After two minutes they
// are served equally: nine tenths in each run, and more in the mean.
func TestHintTooHighLeavesClientsEqual(t *testing.T) {
	const seeds = 20
	for _, kind := range []Kind{TokenBucket, GCRA} {
		for _, times := range []float64{1.5, 2, 4} {
			d := times * rate100 / 4
			s := equal("", "", rate100, 4, d, always(d))
			mean := 0.0
			for seed := range uint64(seeds) {
				r := Play(s, kind, NoFields, pacing(policy.Tracking{}), seed, 0)
				fair := r.Fair(2*time.Minute, s.Length)
				if mean += fair / seeds; fair < .9 {
					t.Errorf("%s, %v shares, seed %d: Jain's index is %.3f", kind, times, seed, fair)
				}
			}
			if mean < .97 {
				t.Errorf("%s, %v shares: the mean of Jain's index is %.3f", kind, times, mean)
			}
		}
	}
}
