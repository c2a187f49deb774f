// Command tenants shows one limiter that serves tenants with different plans.
//
//	go run ./examples/tenants
//
// A plan is a class of tenants with one limit for each of them: free, paid, internal. A call names its plan
// (Plan), and a plan's limit changes at once for all its tenants (SetPlan). A tenant that changes its plan
// keeps what it has used. One customer has more than its plan (Override), and an abuser is refused (Deny).
// Where tenants share a backend, paying ones go first, and no tenant starves (Priority). A stricter plan is
// tried on real traffic before it refuses any request (dry run). Explain shows why a tenant waits.
//
// plans.go is the part to copy. The program ends by itself at once. The exit status is 1 when one of these
// does not hold.
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

// run shows plans, changes of them, priorities and a dry run, and returns what did not hold.
func run(ctx context.Context, out io.Writer) error {
	return errors.Join(showPlans(out), showChanges(out), showPriorities(ctx, out), showDryRun(out))
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
	}{
		{"small.example", freeAtOnce}, {"shop.example", paidAtOnce}, {"reports", internalInFlight},
		{"big.example", bigAtOnce}, {"abuser.example", 0},
	} {
		got := admitted(l, c.tenant, planOf(c.tenant))
		errs = append(errs, wants(c.tenant, got, c.want))
		fmt.Fprintf(out, "%d admitted at once. %s\n", got, indented(l.Explain(c.tenant).String()))
	}
	errs = append(errs, wants("a call without a plan", admitted(l, "small.example", ""), 0))
	return errors.Join(errs...)
}

// admitted calls in a plan until a request is refused, and returns how many were at work by then.
func admitted(l *quotient.Limiter, tenant, plan string) int {
	var permits []quotient.Permit
	for len(permits) < 2*bigAtOnce {
		permit, d := l.TryAcquire(tenant, quotient.Plan(plan))
		if !d.OK {
			break
		}
		permits = append(permits, permit)
	}
	for _, permit := range permits {
		permit.Release()
	}
	return len(permits)
}

func wants(what string, got, want int) error {
	if got != want {
		return fmt.Errorf("%s got %d, want %d", what, got, want)
	}
	return nil
}

// showChanges moves a tenant between plans, and halves a plan.
func showChanges(out io.Writer) error {
	l, err := newTenants()
	if err != nil {
		return err
	}
	const mover, other = "mover.example", "other.example"
	before := admitted(l, mover, free)
	upgraded := admitted(l, mover, paid)
	back := admitted(l, mover, free)
	half := perHour(paidAtOnce / 2)
	if err := l.SetPlan(paid, &half); err != nil {
		return err
	}
	halved := admitted(l, other, paid)
	fmt.Fprintf(out, "moved from free to paid: %d, then %d more, and back in free %d; paid halved: %d\n",
		before, upgraded, back, halved)
	return errors.Join(
		wants("free", before, freeAtOnce), wants("after the upgrade", upgraded, paidAtOnce-freeAtOnce),
		wants("back in free", back, 0), wants("the halved plan", halved, paidAtOnce/2))
}

func indented(text string) string {
	return strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ")
}

// showPriorities lets ten tenants wait for a backend with one slot: first five in free, then five in paid.
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
	for i, plan := range []string{free, free, free, free, free, paid, paid, paid, paid, paid} {
		asking.Go(func() {
			permit, err := backend.Acquire(ctx, "backend", priority(plan).Option())
			if err != nil {
				return // the run is over, and its order too short
			}
			mu.Lock()
			order = append(order, plan[0])
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

// checkOrder wants those that pay to be first on the whole, and all served.
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
	plans := quotient.Plans(map[string]quotient.Limit{free: perHour(freeAtOnce / 2)})
	stricter, err := quotient.New(quotient.Limit{Deny: true}, plans)
	if err != nil {
		return err
	}
	stricter.SetDryRun(true)
	dry := ask(stricter, freeAtOnce)
	would := stricter.Stats().DryRunAdmitted[quotient.ReasonRate]
	stricter.SetDryRun(false)
	after := ask(stricter, freeAtOnce)
	fmt.Fprintf(out, "dry run: %d of %d admitted, %d of them only because it is one; in force: %d\n",
		dry, freeAtOnce, would, after)
	if dry != freeAtOnce || would != freeAtOnce/2 || after != 0 {
		return fmt.Errorf("dry run: %d admitted, %d would not have been, %d afterwards", dry, would, after)
	}
	return nil
}

// ask asks n times, whatever becomes of it.
func ask(l *quotient.Limiter, n int) (got int) {
	for range n {
		if permit, d := request(l, "small.example"); d.OK {
			got++
			permit.Release()
		}
	}
	return got
}
