package rls

import (
	"context"
	"fmt"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/quotient-go/quotient/internal/tested"
	"github.com/quotient-go/quotient/poolsize/gossip"
)

// TestFleetCountsTogether has three services share 300 a minute by gossip on loopback, of which one has eight times the
// load of each other. What they admit is within 2 % of that, and within bound 14 of docs/bounds.md: when one admits, no
// more is beyond 300 than the others have admitted in twice a report's delay.
func TestFleetCountsTogether(t *testing.T) {
	t.Parallel()
	const (
		limit    = 300
		replicas = 3
		spell    = 20 * time.Second // of the load: so slow that 2 % are more than a second of the two others
		delay    = 2 * time.Second  // of a report at most: see Limiters
	)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, replicas)
	sets, join := make([]*set, replicas), []string(nil)
	for i := range sets {
		src, err := gossip.New(gossip.Config{Name: fmt.Sprint(i), Bind: "127.0.0.1:0", Join: join,
			Interval: 50 * time.Millisecond, Rejoin: 100 * time.Millisecond})
		tested.Must(t, err)
		sets[i] = newSet(t, src, "counted-window", "", fmt.Sprintf(
			"domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: minute, requests_per_unit: %d}}\n", limit))
		go func() { ended <- sets[i].config.Watch(ctx) }()
		tested.Until(t, "it listens", func() bool { return src.Stats().Address != "" })
		join = []string{src.Stats().Address}
	}
	defer func() {
		cancel()
		for range sets {
			tested.Is(t, "Watch", tested.Event(t, ended), nil)
		}
	}()
	for _, s := range sets {
		tested.Until(t, "all are known", func() bool {
			l, _ := s.reg.Get("d.k")
			return l.Stats().Pool.Replicas == replicas
		})
	}
	if left := time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)); left < spell+5*time.Second {
		<-time.After(left) // the next window: one that ends amid the load would count twice
	}
	var admitted [replicas][]time.Time
	total := 0
	ask := func(i int) {
		r, err := sets[i].service.ShouldRateLimit(ctx, requestOf(t, "d: k=a"))
		tested.Must(t, err)
		if r.OverallCode != ratelimit.RateLimitResponse_OK {
			return
		}
		admitted[i] = append(admitted[i], time.Now())
		total++
		bound := limit
		for j, times := range admitted {
			for k := len(times) - 1; j != i && k >= 0 && time.Since(times[k]) <= 2*delay; k-- {
				bound++
			}
		}
		tested.Not(t, total > bound, "%d are above bound 14, %d", total, bound)
	}
	ticks := time.NewTicker(spell / 50)
	defer ticks.Stop()
	for began := time.Now(); time.Since(began) < spell; <-ticks.C {
		for range 8 {
			ask(0)
		}
		ask(1)
		ask(2)
	}
	t.Logf("%d of %d: %d, %d and %d", total, limit, len(admitted[0]), len(admitted[1]), len(admitted[2]))
	tested.Not(t, total < limit*98/100 || total > limit*102/100, "%d of %d", total, limit)
}
