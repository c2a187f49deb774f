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
	"github.com/quotient-go/quotient/lease"
	"github.com/quotient-go/quotient/policy"
)

func learn(base http.RoundTripper) *http.Client {
	most := quotient.Rates(quotient.PerSecond(100)) // more than this is never tried
	limiter := quotient.Must(quotient.New(most, quotient.Policy(policy.Tracking{}), quotient.BeyondShare()))
	return &http.Client{Transport: &httplimit.Transport{Base: base, Limiter: limiter}}
}

// GitHub counts 5,000 requests in each hour for each user, allows 100 in flight, and refuses with 403 or 429. Four
// replicas share a token, so each sends one every 2.9 seconds. If other programs use up the hour's quota, the callers of
// each replica get about eight refusals until the hour ends. For several tokens set Transport.Key to a function that
// names the user and not the token, because errors print the key.
func github(base http.RoundTripper) *http.Client {
	limit := quotient.Limit{Rates: []quotient.Rate{quotient.PerHour(5000)}, InFlight: 100}
	limiter := quotient.Must(quotient.New(limit, quotient.Replicas(4), quotient.Policy(policy.Tracking{})))
	return &http.Client{Transport: &httplimit.Transport{Base: base, Limiter: limiter}}
}

// Requests and tokens have a limit a minute each, and both follow what the answers announce.
func openAI() (*quotient.Limiter, error) {
	requests := quotient.Rate{Name: "requests", Events: 500, Per: time.Minute}
	used := quotient.Rate{Name: "tokens", Unit: "tokens", Events: 30_000, Per: time.Minute}
	return quotient.New(quotient.Rates(requests, used), quotient.Policy(policy.Tracking{}),
		quotient.BeyondShare())
}

// A completion sends a text to the API, and returns the answer and how many tokens it used.
type completion func(ctx context.Context, text string) (resp *http.Response, tokens int, err error)

func prompt(ctx context.Context, limiter *quotient.Limiter, text string, send completion) error {
	permit, err := limiter.Acquire(ctx, "gpt", quotient.Cost("tokens", len(text)/4+500)) // an estimate
	if err != nil {
		return err
	}
	feedback := policy.Feedback{Outcome: policy.Failed} // unless an answer comes
	defer func() { permit.Done(feedback) }()
	resp, tokens, err := send(ctx, text)
	if err != nil {
		return err
	}
	feedback, _ = httplimit.ProfileFor("api.openai.com").Feedback(resp.StatusCode, resp.Header, time.Now())
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return permit.Correct("tokens", tokens)
}

func onSchedule(ctx context.Context, c *lease.Client, job func(context.Context, uint64) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	giveUp := time.AfterFunc(time.Second, cancel) // then Lock fails: it is held, or no server answers
	held, err := c.Lock(ctx, "nightly", 1)
	if err != nil {
		return err
	}
	giveUp.Stop()
	defer func() { _ = held.Unlock(context.WithoutCancel(ctx)) }()
	// send the token with each write; the context ends with the lease
	return job(held.Context(), held.Token())
}

func retry(ctx context.Context, budget *quotient.Limiter, attempt func() (time.Duration, error)) error {
	for {
		wait, err := attempt() // through an httplimit.Transport, or after an Acquire of its own
		if err == nil || errors.Is(err, quotient.ErrLimited) || !budget.Allow("retries") {
			return err
		}
		select {
		case <-time.After(wait + rand.N(time.Second)): // Retry-After, and some jitter
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// A reader takes up to 50, and gives back the rest.
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
