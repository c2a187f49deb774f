package redis

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// BenchmarkSync measures one sync, round trip included, in fleets of several sizes.
func BenchmarkSync(b *testing.B) {
	srv := start(b)
	c := clientOf(b, srv, nil)
	for _, n := range []int{1, 100, 1000, mostProcessors} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			must(b, c.FlushAll(b.Context()).Err())
			zs := make([]redis.Z, n)
			for i := range zs {
				zs[i] = redis.Z{Score: float64(time.Now().Add(longestExpiry - time.Minute).UnixMilli()),
					Member: fmt.Sprint(i)}
			}
			for part := range slices.Chunk(zs, 10_000) {
				must(b, c.ZAdd(b.Context(), "{quotient:f}:deadlines", part...).Err())
				must(b, c.ZAdd(b.Context(), "{quotient:f}:sizes", part...).Err())
			}
			s, err := source(c, "a").complete()
			must(b, err)
			st := s.store("0")
			for b.Loop() {
				if _, err := st.sync(b.Context(), n, ""); err != nil {
					b.Fatal(err)
				}
			}
			if n == mostProcessors {
				return
			}
			b.Run("weights", func(b *testing.B) { // of two, three and four
				total := 0
				for i := range zs {
					zs[i] = redis.Z{Member: fmt.Sprintf("%04d%d", 2+i%3, i)}
					total += 2 + i%3
				}
				must(b, c.ZAdd(b.Context(), st.weights, zs...).Err())
				for i := range zs {
					zs[i] = redis.Z{Score: float64(total), Member: fmt.Sprint(i)}
				}
				must(b, c.ZAdd(b.Context(), st.sizes, zs...).Err())
				last := s.store("999"[:len(fmt.Sprint(n-1))])
				last.weight = 2 + (n-1)%3
				for b.Loop() {
					a, err := last.sync(b.Context(), total, "")
					if err != nil || n > 1 && !a.agreed {
						b.Fatal(a, err)
					}
				}
			})
		})
	}
}
