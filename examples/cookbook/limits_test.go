// Package cookbook holds the code of docs/cookbook.md and of docs/coming-from.md, to the letter, and the recipes that the
// cookbook only names, and shows that all do what is said of them.
package cookbook

import (
	"context"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/policy"
)

func twoAtOnce() (*quotient.Limiter, error) {
	return quotient.New(quotient.Rates(quotient.PerSecond(10), quotient.PerHour(1000)))
}

func oneEveryThreeSeconds() (*quotient.Limiter, error) {
	return quotient.New(quotient.Rates(quotient.Every(3 * time.Second)))
}

// All 100 may come in the last second of one minute, and 100 more in the next second.
func fromTheFullMinute() (*quotient.Limiter, error) {
	return quotient.New(quotient.Rates(quotient.Rate{Events: 100, Per: time.Minute, Kind: quotient.Window}))
}

// For a day that begins at another hour take a zone whose midnight that is: Etc/GMT+6 is 6 hours behind UTC.
func fromMidnight() (*quotient.Limiter, error) {
	return quotient.New(quotient.Rates(quotient.Rate{
		Events: 1000, Per: 24 * time.Hour, Kind: quotient.Window, Zone: "America/Los_Angeles",
	}))
}

func twentyInFlight() (*quotient.Limiter, error) {
	limit := quotient.Limit{Rates: []quotient.Rate{quotient.PerSecond(100)}, InFlight: 20}
	return quotient.New(limit, quotient.MaxHold(time.Minute)) // a forgotten permit comes back after a minute
}

func tokens() (*quotient.Limiter, error) {
	requests := quotient.PerSecond(5)
	used := quotient.Rate{Unit: "tokens", Events: 60_000, Per: time.Minute, Burst: 10_000}
	return quotient.New(quotient.Rates(requests, used))
}

func ask(ctx context.Context, limiter *quotient.Limiter, text string) error {
	permit, err := limiter.Acquire(ctx, "model-a", quotient.Cost("tokens", len(text)/4)) // an estimate
	if err != nil {
		return err
	}
	defer permit.Release()
	used, err := complete(ctx, text)
	if err != nil {
		return err
	}
	return permit.Correct("tokens", used) // what was over the estimate is repaid before the next admission
}

func boundedWaits() (*quotient.Limiter, error) {
	return quotient.New(quotient.Rates(quotient.PerSecond(100)),
		quotient.MaxWait(2*time.Second), // a turn that comes later is refused at once
		quotient.MaxWaiting(50, 1000))   // at most 50 wait for one key, 1,000 for all
}

// Each key starts at a tenth of the limit, and has all of it after a minute of use: for caches that are cold.
func openGradually() (*quotient.Limiter, error) {
	opening := policy.Ramp{Start: 0.1, Over: time.Minute}
	return quotient.New(quotient.Rates(quotient.PerSecond(100)), quotient.Policy(opening))
}

// complete stands for a call of a language model; it returns how many tokens were used.
func complete(_ context.Context, text string) (int, error) { return len(text) / 3, nil }
