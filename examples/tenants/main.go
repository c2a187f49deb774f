// Command tenants shows one limiter that serves tenants with different plans.
//
//	go run ./examples/tenants
//
// A plan is a class of tenants with one limit for each of them: free, paid, internal. A call names its plan (Plan),
// and a plan's limit changes at once for all its tenants (SetPlan). A tenant that changes its plan keeps what it has
// used. One customer has more than its plan (Override), and an abuser is refused (Deny). Where tenants share a
// backend, paying ones go first, and no tenant starves (Priority). Explain shows why a tenant waits.
//
// newTenants is the part to copy. The program ends by itself at once. The exit status is 1 when one of these
// does not hold.
package main

import (
	"cmp"
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
	fmt.Println("Look at what each plan admits at once, at Explain, which says why the next request waits, at a tenant\n" +
		"that changes its plan, and at who is served first.")
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "tenants:", err)
		os.Exit(1)
	}
}

// run shows plans, changes of them and priorities, and returns what did not hold.
func run(ctx context.Context, out io.Writer) error {
	return errors.Join(showPlans(out), showChanges(out), showPriorities(ctx, out))
}

// showPlans lets each tenant ask more than it may.
func showPlans(out io.Writer) error {
	l, errs := newTenants(), []error{}
	for _, c := range []struct {
		tenant string
		want   int
	}{
		{"small.example", freeAtOnce}, {"shop.example", paidAtOnce}, {"reports", internalInFlight},
		{"big.example", bigAtOnce}, {"abuser.example", 0},
	} {
		got := admitted(l, c.tenant, planOf(c.tenant))
		errs = append(errs, wants(c.tenant, got, c.want))
		fmt.Fprintf(out, "%d admitted at once. %s\n", got, strings.ReplaceAll(l.Explain(c.tenant).String(), "\n", "\n    "))
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
	if got == want {
		return nil
	}
	return fmt.Errorf("%s got %d, want %d", what, got, want)
}

// showChanges moves a tenant between plans, and halves a plan.
func showChanges(out io.Writer) error {
	l := newTenants()
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

// showPriorities lets ten tenants wait for a backend with one slot: first five in free, then five in paid.
func showPriorities(ctx context.Context, out io.Writer) error {
	backend := quotient.Must(quotient.New(quotient.Limit{InFlight: 1}))
	held, _ := backend.TryAcquire("backend")
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
		for backend.Stats().Waiting <= i && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}
	held.Release()
	asking.Wait()
	fmt.Fprintf(out, "waiting: fffffppppp, served: %s (f free, p paid)\n", order)
	return cmp.Or(ctx.Err(), checkOrder(string(order)))
}

// checkOrder wants those that pay to be first on the whole, and all served.
func checkOrder(order string) error {
	if len(order) != 10 || strings.Count(order[:5], "p") < 4 {
		return fmt.Errorf("served in the order %q", order)
	}
	return nil
}

// The plans that a tenant may be in.
const (
	free     = "free"
	paid     = "paid"
	internal = "internal" // jobs of our own
)

// Each tenant may do this much over the fleet: requests at once, and then in an hour; internal ones, in flight.
const (
	freeAtOnce       = 10
	paidAtOnce       = 100
	internalInFlight = 25
	bigAtOnce        = 300 // one customer has more than its plan
)

// planOf is the plan of a tenant. A program asks its database, or what a login has shown: never a field that
// clients write.
func planOf(tenant string) string {
	switch tenant {
	case "shop.example", "big.example", "abuser.example":
		return paid
	case "reports":
		return internal
	}
	return free
}

// newTenants makes the limiter of all tenants. A call that names no plan is refused. Plans and overrides are
// set in every replica, from the same configuration.
func newTenants() *quotient.Limiter {
	l := quotient.Must(quotient.New(quotient.Limit{Deny: true}, quotient.Plans(map[string]quotient.Limit{
		free: perHour(freeAtOnce), paid: perHour(paidAtOnce), internal: {InFlight: internalInFlight},
	})))
	big, none := perHour(bigAtOnce), quotient.Limit{Deny: true}
	if err := errors.Join(l.Override("big.example", &big, 0), l.Override("abuser.example", &none, 0)); err != nil {
		panic(err) // like quotient.Must: both stand in the program
	}
	return l
}

// perHour is a limit of n an hour, all at once if need be.
func perHour(n int) quotient.Limit { return quotient.Rates(quotient.PerHour(float64(n))) }

// priority is the class of a plan where tenants wait for the same backend.
func priority(plan string) quotient.Priority {
	switch plan {
	case paid:
		return quotient.PriorityHigh
	case internal:
		return quotient.PriorityLow
	}
	return quotient.PriorityNormal
}
