package quotient

import "testing"

// BenchmarkSlot is one slot taken and given back; with a cost, also of what is corrected.
func BenchmarkSlot(b *testing.B) {
	for _, c := range []struct {
		name  string
		limit Limit
		opts  []CallOption
	}{
		{"slots", Limit{InFlight: 100}, nil},
		{"rate and slots", doneLimits()[1].limit, nil},
		{"requests and tokens", doneLimits()[2].limit, doneLimits()[2].opts},
	} {
		b.Run(c.name, func(b *testing.B) {
			l := limiterOf(b, c.limit)
			b.ReportAllocs()
			for b.Loop() {
				p, err := l.Acquire(b.Context(), "k", c.opts...)
				if err != nil {
					b.Fatal(err)
				}
				p.Release()
			}
		})
	}
}
