// Package cmdline is what the commands of quotient share: where they print, how they end, and how they put some things
// into words.
package cmdline

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// Streams are stdout and stderr.
type Streams struct{ Out, Err io.Writer }

// UsageError is that of a command line that makes no sense.
type UsageError struct{ text string }

func (e UsageError) Error() string { return e.text }

// Usagef returns a UsageError.
func Usagef(format string, args ...any) error { return UsageError{fmt.Sprintf(format, args...)} }

// UntilSignal returns a context that ends with the first signal. By then the next one has its usual effect.
func UntilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
		case <-ctx.Done():
		}
		signal.Stop(signals)
		cancel()
	}()
	return ctx, cancel
}

// Count is "1 pod" or "2 pods".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Short is a duration with three digits at most.
func Short(d time.Duration) string {
	for unit := time.Nanosecond; ; unit *= 10 {
		if d < 1000*unit || unit > math.MaxInt64/10000 {
			return d.Round(unit).String()
		}
	}
}

// SortedKeys are the keys of a map in order.
func SortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
