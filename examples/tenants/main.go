// Command tenants shows one limiter that serves tenants with different plans.
//
//	go run ./examples/tenants
//
// Most tenants have the limiter's limit. A customer has a larger one of its own (Override), an abuser none (Deny). Where they share a backend, who
// pays goes first, and nobody starves (Priority). A stricter limit is tried on real traffic before anybody feels it (DryRun), and the operator
// reads why a tenant is where it is (Explain). plans.go is the part to copy. It ends by itself at once; the exit status is 1 when one of these does not hold.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/quotient-go/quotient"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "tenants:", err)
		os.Exit(1)
	}
}

// run shows plans, priorities and a dry run, and returns what did not hold.
func run(ctx context.Context, out io.Writer) error {
	return errors.Join(showPlans(out), showPriorities(ctx, out), showDryRun(out))
}

// showPlans lets each tenant ask more than it may.
func showPlans(out io.Writer) error {
	l, err := newTenants()
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range []struct {
		tenant string
		want   int
	}{{"small.example", freeAtOnce}, {"big.example", bigAtOnce}, {"abuser.example", 0}} {
		got := 0
		for range 2 * bigAtOnce {
			if l.Allow(c.tenant) {
				got++
			}
		}
		if got != c.want {
			errs = append(errs, fmt.Errorf("%s got %d, want %d", c.tenant, got, c.want))
		}
		fmt.Fprintf(out, "%d admitted at once. %s\n", got, indented(l.Explain(c.tenant).String()))
	}
	return errors.Join(errs...)
}

func indented(text string) string {
	return strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ")
}

// showPriorities lets ten tenants wait for a backend with one slot: first five that do not pay, then five that do.
func showPriorities(ctx context.Context, out io.Writer) error {
	backend, err := quotient.New(quotient.Limit{InFlight: 1})
	if err != nil {
		return err
	}
	held, d := backend.TryAcquire("backend")
	if !d.OK {
		return &quotient.LimitedError{Key: "backend", Decision: d}
	}
	var mu sync.Mutex
	var order []byte
	var asking sync.WaitGroup
	for i, plan := range []plan{free, free, free, free, free, paid, paid, paid, paid, paid} {
		asking.Go(func() {
			permit, err := backend.Acquire(ctx, "backend", plan.priority().Ask())
			if err != nil {
				return // the run is over, and its order too short
			}
			mu.Lock()
			order = append(order, plan.name()[0])
			mu.Unlock()
			permit.Release()
		})
		if err := until(ctx, func() bool { return backend.Stats().Waiting == i+1 }); err != nil {
			held.Release()
			asking.Wait()
			return err
		}
	}
	held.Release()
	asking.Wait()
	fmt.Fprintf(out, "waiting: fffffppppp, served: %s (f free, p paid)\n", order)
	return checkOrder(string(order))
}

// checkOrder wants those who pay to be first on the whole, and everybody served.
func checkOrder(order string) error {
	if len(order) != 10 || strings.Count(order[:5], "p") < 4 {
		return fmt.Errorf("served in the order %q", order)
	}
	return nil
}

func until(ctx context.Context, is func() bool) error {
	ticks := time.NewTicker(time.Millisecond)
	defer ticks.Stop()
	for !is() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticks.C:
		}
	}
	return nil
}

// showDryRun tries half the free plan on the traffic, then puts it in force.
func showDryRun(out io.Writer) error {
	half := quotient.Rate{Name: "stricter", Events: freeAtOnce, Per: time.Hour, Burst: freeAtOnce / 2}
	stricter, err := quotient.New(quotient.Rates(half))
	if err != nil {
		return err
	}
	stricter.SetDryRun(true)
	dry := ask(stricter, freeAtOnce)
	s := stricter.Stats()
	would := s.DryRunAdmitted[quotient.ReasonRate]
	stricter.SetDryRun(false)
	after := ask(stricter, freeAtOnce)
	fmt.Fprintf(out, "dry run: %d of %d admitted, %d of them only because it is one; in force: %d\n", dry, freeAtOnce, would, after)
	if dry != freeAtOnce || would != freeAtOnce/2 || after != 0 {
		return fmt.Errorf("dry run: %d admitted, %d would not have been, %d afterwards", dry, would, after)
	}
	return nil
}

func ask(l *quotient.Limiter, n int) (got int) {
	for range n {
		if l.Allow("small.example") {
			got++
		}
	}
	return got
}
