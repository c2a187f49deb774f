package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/httplimit"
)

// A client tries again, within bounds: each attempt passes its gate, each retry takes from its budget.
type client struct {
	base     http.RoundTripper
	gate     *quotient.Limiter // what the upstream allows
	budget   *quotient.Limiter // of retries: without, an upstream that is ill gets several times as many requests
	attempts int
}

// The longest random pause, after the first attempt and in the end.
const firstPause, lastPause = 50 * time.Millisecond, 2 * time.Second

var errGivenUp = errors.New("given up")

// get asks until it is answered, until the attempts or the budget are used up, or until ctx ends.
func (c *client) get(ctx context.Context, url string) error {
	for attempt := 1; ; attempt++ {
		told, err := c.try(ctx, url)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil || errors.Is(err, quotient.ErrLimited):
			return err // our own limiter refused: the caller that still wants the answer tries again, not a loop
		case attempt == c.attempts:
			return fmt.Errorf("%w after %d attempts: %w", errGivenUp, attempt, err)
		case !c.budget.Allow("retries"):
			return fmt.Errorf("%w: too many retries: %w", errGivenUp, err)
		}
		// A random pause: clients that failed together do not come back together.
		select {
		case <-time.After(max(told, rand.N(min(lastPause, firstPause<<min(attempt, 10))))):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// try is one attempt. It returns for how long the upstream asks us to stay away, if it does.
func (c *client) try(ctx context.Context, url string) (told time.Duration, err error) {
	permit, err := c.gate.Acquire(ctx, "api")
	if err != nil {
		return 0, err
	}
	defer permit.Release()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := c.base.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20)); err != nil || resp.StatusCode < 400 {
		return 0, err
	}
	told, _ = httplimit.RetryAfter(resp.Header, time.Now())
	return told, errors.New(resp.Status)
}
