package cookbook

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/quotient-go/quotient"
)

// A change affects waiting callers at once, and never adds tokens. A rate keeps its state by its Name and Unit.
func change(limiter *quotient.Limiter, perSecond float64) error {
	return limiter.SetLimit(quotient.Rates(quotient.PerSecond(perSecond)))
}

// An override goes before any plan. Set it on every replica, as quotient ctl does.
func customers(limiter *quotient.Limiter) error {
	more := quotient.Rates(quotient.PerSecond(500))
	if err := limiter.Override("big.example", &more, 10*time.Minute); err != nil {
		return err
	}
	return limiter.Override("abuser.example", &quotient.Limit{Deny: true}, 0)
}

// A stricter limit on trial. Keep the old limiter in force meanwhile.
func dryRun(stricter quotient.Limit) (*quotient.Limiter, error) {
	limiter, err := quotient.New(stricter, quotient.Logger(slog.Default()))
	if err != nil {
		return nil, err
	}
	limiter.SetDryRun(true) // admits all; Stats().DryRunAdmitted counts what it would have stopped
	return limiter, nil
}

func why(w io.Writer, limiter *quotient.Limiter, key string) {
	fmt.Fprintln(w, limiter.Explain(key)) // each rule, what is left, who waits, and for how long
	for k := range limiter.Keys() {
		if k.Waiting > 0 || k.Used > 0.9 {
			fmt.Fprintf(w, "%s: %d wait, %.0f %% used\n", k.Key, k.Waiting, 100*k.Used)
		}
	}
}
