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

// TestFleetCountsTogether has three services share 300 an hour by gossip on loopback, of which one has eight times the
// load of each other. What they admit is within 2 % of that, and within bound 14 of docs/bounds.md: when one admits, no
// more is beyond 300 than the others have admitted in twice a report's delay.
func TestFleetCountsTogether(t *testing.T) {
	t.Parallel()
	const (
		limit    = 300
		replicas = 3
		rounds   = 50
		every    = 400 * time.Millisecond // so slow that 2 % are more than a second of the two others
		delay    = 2 * time.Second        // of a report at most: see Limiters
	)
	sets := newFleet(t, replicas, limit)
	if left := time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)); left < 2*rounds*every {
		<-time.After(left) // the next window: one that ends amid the load would count twice
	}
	var admitted [replicas][rounds]int
	total := 0
	ask := func(i, round int) {
		r, err := sets[i].service.ShouldRateLimit(t.Context(), requestOf(t, "d: k=a"))
		tested.Must(t, err)
		if r.OverallCode != ratelimit.RateLimitResponse_OK {
			return
		}
		admitted[i][round]++
		total++
		bound := limit
		for j, in := range admitted {
			for k := round; j != i && k >= max(0, round-int(2*delay/every)); k-- { // no time in which nothing ran
				bound += in[k]
			}
		}
		tested.Not(t, total > bound, "%d are above bound 14, %d", total, bound)
	}
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for round := range rounds {
		for range 8 {
			ask(0, round)
		}
		ask(1, round)
		ask(2, round)
		<-ticks.C
	}
	t.Logf("%d of %d", total, limit)
	tested.Not(t, total < limit*98/100 || total > limit*102/100, "%d of %d", total, limit)
}

// newFleet starts services that are joined by gossip, and waits until each knows all.
func newFleet(t *testing.T, replicas, limit int) []*set {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, replicas)
	sets, join := make([]*set, replicas), []string(nil)
	for i := range sets {
		src, err := gossip.New(gossip.Config{Name: fmt.Sprint(i), Bind: "127.0.0.1:0", Join: join,
			Interval: 50 * time.Millisecond, Rejoin: 100 * time.Millisecond})
		tested.Must(t, err)
		sets[i] = newSet(t, src, "counted-window", "", fmt.Sprintf(
			"domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: hour, requests_per_unit: %d}}\n", limit))
		go func() { ended <- sets[i].config.Watch(ctx) }()
		tested.Until(t, "it listens", func() bool { return src.Stats().Address != "" })
		join = []string{src.Stats().Address}
	}
	t.Cleanup(func() {
		cancel()
		for range sets {
			tested.Is(t, "Watch", tested.Event(t, ended), nil)
		}
	})
	for _, s := range sets {
		tested.Until(t, "all are known", func() bool {
			l, _ := s.reg.Get("d.k")
			return l.Stats().Pool.Replicas == replicas
		})
	}
	return sets
}
