package quotient

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// doneLimits are limits under which no caller waits.
func doneLimits() []doneLimit {
	plenty := Rate{Name: "second", Events: 1e9, Per: time.Second, Burst: 1 << 30}
	tokens := Rate{Name: "tokens", Unit: "tokens", Events: 1e9, Per: time.Second, Burst: 1 << 30}
	return []doneLimit{
		{"rate", rated(plenty), nil},
		{"rate and slots", Limit{Rates: []Rate{plenty}, InFlight: 100}, nil},
		{"requests and tokens", rated(plenty, tokens), []CallOption{Cost("tokens", 100)}},
	}
}

type doneLimit struct {
	name  string
	limit Limit
	opts  []CallOption
}

// run takes n permits and hands feedback back.
func (c *doneLimit) run(b *testing.B, l *Limiter, n int) {
	for range n {
		p, err := l.Acquire(b.Context(), "k", c.opts...)
		if err != nil {
			b.Fatal(err)
		}
		p.Done(success)
	}
}

// BenchmarkDone is one admission and its feedback.
func BenchmarkDone(b *testing.B) {
	for _, c := range doneLimits() {
		for _, p := range []policy.Policy{policy.Fixed{}, policy.AIMD{}, policy.Tracking{}} {
			b.Run(fmt.Sprintf("%s/%T", c.name, p), func(b *testing.B) {
				l := limiterOf(b, c.limit, Policy(p))
				b.ReportAllocs()
				b.ResetTimer()
				c.run(b, l, b.N)
			})
		}
	}
}

// still is a policy whose controllers cost nothing, so that what is left is what the limiter does for them.
type still struct{}

func (s still) New(uint64) policy.Controller { return s }

func (still) Next(_ policy.Sample, b policy.Bounds) policy.Pace { return policy.Pace{Rate: b.Ceiling} }

// BenchmarkLearning compares policies with Fixed: they take turns, since machines are not quiet, and the
// least of all turns counts. Run it with -benchtime 25x or more.
func BenchmarkLearning(b *testing.B) {
	const turn = 20_000
	policies := []policy.Policy{policy.Fixed{}, still{}, policy.AIMD{}, policy.Tracking{}}
	units := []string{"fixed-ns", "still-ns", "aimd-ns", "tracking-ns"}
	for _, c := range doneLimits() {
		b.Run(c.name, func(b *testing.B) {
			least := make([]time.Duration, len(policies))
			var limiters []*Limiter
			for _, p := range policies {
				limiters = append(limiters, limiterOf(b, c.limit, Policy(p)))
			}
			for n := range b.N {
				for i, l := range limiters {
					start := time.Now()
					c.run(b, l, turn)
					if d := time.Since(start); n == 0 || d < least[i] {
						least[i] = d
					}
				}
			}
			for i, d := range least {
				b.ReportMetric(float64(d)/turn, units[i])
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
