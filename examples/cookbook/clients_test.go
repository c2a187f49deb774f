package cookbook

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/policy"
)

func learn(base http.RoundTripper) *http.Client {
	most := quotient.Rates(quotient.PerSecond(100)) // more than this is never tried
	limiter := quotient.Must(quotient.New(most, quotient.Policy(policy.Tracking{}), quotient.BeyondShare()))
	return &http.Client{Transport: &httplimit.Transport{Base: base, Limiter: limiter}}
}

func github(base http.RoundTripper) *http.Client {
	limit := quotient.Limit{Rates: []quotient.Rate{quotient.PerHour(5000)}, InFlight: 100}
	limiter := quotient.Must(quotient.New(limit, quotient.Replicas(4), quotient.Policy(policy.Tracking{})))
	return &http.Client{Transport: &httplimit.Transport{Base: base, Limiter: limiter}}
}

func retry(ctx context.Context, budget *quotient.Limiter, attempt func() (time.Duration, error)) error {
	for {
		wait, err := attempt() // through an httplimit.Transport, or after an Acquire of its own
		if err == nil || errors.Is(err, quotient.ErrLimited) || !budget.Allow("retries") {
			return err
		}
		select {
		case <-time.After(wait + rand.N(time.Second)): // what Retry-After says, and not all together
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func readBatch(limiter *quotient.Limiter, read func(most int) int) (int, error) {
	permit, most := limiter.TryAcquireUpTo("queue", 50)
	if most == 0 {
		return 0, nil // there is room for nothing now
	}
	defer permit.Release()
	n := read(most)
	return n, permit.Correct("", n) // what was not needed counts for the next batch
}

func thumbnail(ctx context.Context, limiter *quotient.Limiter, picture []byte) ([]byte, error) {
	return quotient.Do(ctx, limiter, "thumbnails", func(ctx context.Context) ([]byte, error) {
		return shrink(ctx, picture)
	})
}

func work(ctx context.Context, limiter *quotient.Limiter, jobs <-chan func()) error {
	var running sync.WaitGroup
	defer running.Wait()
	for job := range jobs {
		permit, err := limiter.Acquire(ctx, "jobs") // waits for a turn, and for a free slot
		if err != nil {
			return err
		}
		running.Go(func() { defer permit.Release(); job() })
	}
	return nil
}

func inTheBackground(ctx context.Context, limiter *quotient.Limiter) (quotient.Permit, error) {
	return limiter.Acquire(ctx, "model-a", quotient.PriorityLow.Option()) // PriorityNormal goes first
}

// shrink stands for work that takes a processor.
func shrink(_ context.Context, picture []byte) ([]byte, error) { return picture[:len(picture)/2], nil }
