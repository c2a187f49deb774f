// Command decorator throttles a plain function that a pool of workers calls: at most one call every n
// seconds, over all workers.
//
//	go run ./examples/decorator
//
// Each worker has a limiter of its own, as a separate process would have, and knows its ordinal. First all
// workers wait for their turns. Then they skip calls for which there is no room, and try again a little
// later. throttle.go is the part to copy. The program ends by itself after four seconds. The exit status is 1
// when there were more calls than one per interval.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/quotient-go/quotient"
)

const (
	workers  = 4
	interval = 200 * time.Millisecond // between two calls of the pool; in real life some seconds
	lasts    = 2 * time.Second        // each half
)

func main() {
	fmt.Println("Look at the calls in two seconds: four workers that know nothing of each other share one call every 200 ms.")
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "decorator:", err)
		os.Exit(1)
	}
}

// run shows both forms and returns an error if the pool called too often.
func run(ctx context.Context, out io.Writer) error {
	return errors.Join(half(ctx, out, "waiting", wait), half(ctx, out, "skipping", skip))
}

// half lets the pool work in one way.
func half(ctx context.Context, out io.Writer, name string, work func(context.Context, *quotient.Limiter, *api)) error {
	ctx, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	var upstream api
	var pool sync.WaitGroup
	start := time.Now()
	for i := range workers {
		limiter, err := quotient.New(quotient.Rates(quotient.Every(interval)),
			quotient.StartPool(quotient.Pool{Replicas: workers, Ordinal: i + 1, Fixed: true}))
		if err != nil {
			return err
		}
		pool.Go(func() { work(ctx, limiter, &upstream) })
	}
	pool.Wait()
	fmt.Fprintf(out, "%-8s  %d workers, %d calls in %v, one every %v allowed; skipped %d times\n",
		name, workers, len(upstream.calls), lasts, interval, upstream.skipped)
	return upstream.check(time.Since(start))
}

// wait calls as often as it is let, until the time is over, or no turn comes before that.
func wait(ctx context.Context, l *quotient.Limiter, a *api) {
	throttled := Waiting(l, "token", a.get)
	for {
		if _, err := throttled(ctx, "/things"); err != nil {
			return
		}
	}
}

// skip tries every now and then.
func skip(ctx context.Context, l *quotient.Limiter, a *api) {
	throttled := Skipping(l, "token", a.get)
	ticks := time.NewTicker(5 * time.Millisecond)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		if _, called, _ := throttled(ctx, "/things"); !called {
			a.skip()
		}
	}
}

// api is what the pool must not call too often.
type api struct {
	mu      sync.Mutex
	calls   []time.Time
	skipped int
}

func (a *api) get(_ context.Context, path string) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, time.Now())
	return "the answer to " + path, nil
}

func (a *api) skip() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.skipped++
}

// check returns an error if there were more calls than the interval allows in that time, or hardly any.
func (a *api) check(took time.Duration) error {
	most := int(took/interval) + 2 // one at each end
	if n := len(a.calls); n > most || n < most/2 {
		return fmt.Errorf("%d calls in %v, want %d to %d", n, took, most/2, most)
	}
	return nil
}
