package quotient_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/quotient-go/quotient"
)

// A registry makes each limiter once, with the options that all share.
func ExampleRegistry() {
	limiters := &quotient.Registry{Options: []quotient.Option{quotient.Replicas(4)}}
	for range 2 { // two places of a program name the same limiter
		l, err := limiters.Limiter("login", quotient.Rates(quotient.PerMinute(20)))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(l.Allow("203.0.113.7"))
	}
	l, _ := limiters.Get("login")
	fmt.Println(l.Stats().Admitted, "admitted;", l.Stats().Limit)
	// Output:
	// true
	// true
	// 2 admitted; minute: 20 per 1m
}

// One customer may run two exports at a time, the others one.
func ExampleLimiter_Override() {
	l := limited(quotient.Limit{InFlight: 1})
	if err := l.Override("customer-7", &quotient.Limit{InFlight: 2}); err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		_, seven := l.TryAcquire("customer-7")
		_, eight := l.TryAcquire("customer-8")
		fmt.Println(seven.OK, eight.OK)
	}
	_ = l.Override("customer-7", nil) // back to the limiter's limit
	// Output:
	// true true
	// true false
	// false false
}

// Each request names the plan of its customer. A key that changes its plan keeps what it has used.
func ExamplePlans() {
	l := limited(quotient.Limit{Deny: true}, // a request without a plan is refused
		quotient.Plans(map[string]quotient.Limit{
			"free": quotient.Rates(quotient.Rate{Events: 1, Per: time.Hour, Burst: 1}),
			"paid": quotient.Rates(quotient.Rate{Events: 3, Per: time.Hour, Burst: 3}),
		}))
	for _, plan := range []string{"free", "free", "paid", "paid", "paid", ""} {
		_, d := l.TryAcquire("customer-7", quotient.Plan(plan))
		fmt.Printf("%q %v\n", plan, d.OK)
	}
	// Output:
	// "free" true
	// "free" false
	// "paid" true
	// "paid" true
	// "paid" false
	// "" false
}

// fleet is a Source of one's own. It reports the number of replicas once.
type fleet int

func (f fleet) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	report(quotient.Pool{Replicas: int(f)}, nil)
	<-ctx.Done()
	return ctx.Err()
}

// A limiter follows a source of the replica count until the context ends.
func ExampleLimiter_Follow() {
	l := limited(quotient.Rates(quotient.PerSecond(100)), quotient.AwaitPool(),
		quotient.HintMaxAge(time.Minute))
	ctx, cancel := context.WithCancel(context.Background())
	followed := make(chan error)
	go func() { followed <- l.Follow(ctx, fleet(5)) }()

	p, err := l.Acquire(ctx, "upstream") // AwaitPool: waits for the first report
	fmt.Println(err, l.Stats().Pool.Replicas, l.Stats().Rules[0].Share)
	p.Release()

	cancel()
	fmt.Println(<-followed)
	// Output:
	// <nil> 5 20
	// <nil>
}

// A person's request passes the batch jobs that wait before it.
func ExamplePriority() {
	l := limited(quotient.Limit{InFlight: 1})
	ctx := context.Background()
	busy, _ := l.Acquire(ctx, "db")
	served := make(chan quotient.Priority)
	for i, class := range []quotient.Priority{quotient.PriorityLow, quotient.PriorityHigh} {
		go func() {
			p, err := l.Acquire(ctx, "db", class.Option())
			if err == nil {
				served <- class
				p.Release()
			}
		}()
		for l.Stats().Waiting < i+1 {
			runtime.Gosched()
		}
	}
	busy.Release()
	fmt.Println(<-served)
	fmt.Println(<-served)
	// Output:
	// high
	// low
}

// A dry run shows what a new limit would refuse, and refuses nothing.
func ExampleLimiter_SetDryRun() {
	l := limited(quotient.Rates(quotient.Rate{Events: 2, Per: time.Hour, Burst: 2}))
	l.SetDryRun(true)
	for range 5 {
		l.Allow("tenant-7")
	}
	s := l.Stats()
	fmt.Println(s.Admitted, "admitted;", s.DryRunAdmitted[quotient.ReasonRate], "of them over the limit")
	// Output: 5 admitted; 3 of them over the limit
}

// Explain takes nothing. It returns how the next request of a key would fare, and why.
func ExampleLimiter_Explain() {
	l := limited(quotient.Limit{InFlight: 2})
	p, _ := l.TryAcquire("report", quotient.Weight(2))
	defer p.Release()
	e := l.Explain("report")
	fmt.Println(e.Next.OK, e.Next.Reason, e.InFlight, "held;", e.Limit)
	// Output: false in_flight 2 held; in flight: 2
}

// The error of a refused request carries the decision.
func ExampleLimitedError() {
	l := limited(quotient.Rates(quotient.Rate{Events: 1, Per: time.Hour, Burst: 1}),
		quotient.MaxWait(time.Second))
	l.Allow("mail")
	_, err := l.Acquire(context.Background(), "mail") // its turn is an hour away
	var refused *quotient.LimitedError
	if errors.As(err, &refused) {
		fmt.Println(refused.Key, refused.Reason, refused.RetryAfter.Round(time.Minute))
	}
	fmt.Println(errors.Is(err, quotient.ErrLimited))
	// Output:
	// mail max_wait 1h0m0s
	// true
}

// A request that needs two limiters takes from both or from neither.
func ExampleTryAcquireAll() {
	tenants := limited(quotient.Rates(quotient.PerMinute(60)))
	exports := limited(quotient.Limit{InFlight: 1})
	claims := []quotient.Claim{{Limiter: tenants, Key: "tenant-7"}, {Limiter: exports, Key: "/export"}}
	first, _, d := quotient.TryAcquireAll(nil, claims...)
	fmt.Println(d.OK)
	_, refused, d := quotient.TryAcquireAll(nil, claims...)
	fmt.Println(d.OK, d.Reason, claims[refused].Key)
	first.Release()
	// Output:
	// true
	// false in_flight /export
}

// The replica count is set by hand for an hour. It overrides all hints until then.
func ExampleLimiter_SetPool() {
	l := limited(quotient.Rates(quotient.PerSecond(100)))
	if err := l.SetPool(quotient.Pool{Replicas: 8}, time.Hour); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(l.Stats().Rules[0].Share)
	fmt.Println(l.SetPool(quotient.Pool{Replicas: 0}, time.Hour))
	// Output:
	// 12.5
	// quotient: Pool.Replicas: 0 is not between 1 and 1000000
}
