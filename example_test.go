package quotient_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"runtime"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/policy"
)

// limited returns a limiter whose limit is known to be valid.
func limited(limit quotient.Limit, opts ...quotient.Option) *quotient.Limiter {
	l, err := quotient.New(limit, opts...)
	if err != nil {
		panic(err)
	}
	return l
}

// A limit of 1,200 requests a minute for each tenant, over four replicas: each admits 300.
func Example() {
	limiter, err := quotient.New(quotient.Rates(quotient.PerMinute(1200)), quotient.Replicas(4))
	if err != nil {
		log.Fatal(err)
	}
	if !limiter.Allow("tenant-7") {
		fmt.Println("over the limit")
	}
	fmt.Println(limiter.Stats().Rules[0].Share, "a minute here")
	// Output: 300 a minute here
}

// A caller that has to wait does so as long as its context lasts. Here the slot is free at once.
func Example_waiting() {
	limiter := limited(quotient.Limit{InFlight: 1})
	report := func(ctx context.Context) error {
		permit, err := limiter.Acquire(ctx, "report")
		if err != nil {
			return err // a *LimitedError, or that of ctx
		}
		defer permit.Release()
		return nil
	}
	fmt.Println(report(context.Background()))
	// Output: <nil>
}

// A limit of several parts.
func Example_limits() {
	limit := quotient.Limit{
		Rates: []quotient.Rate{
			quotient.PerSecond(10), // a bucket: ten at once, and ten a second
			{Name: "day", Events: 5000, Per: 24 * time.Hour, Kind: quotient.Window}, // from midnight UTC
		},
		InFlight: 20, // slots: permits that are not released yet
	}
	fmt.Println(limit)
	// Output:
	// second: 10 per 1s, day: 5000 per 24h, window, in flight: 20
}

// Nothing is admitted before the first report of the number of replicas.
func Example_replicas() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	limit, source := quotient.Rates(quotient.PerSecond(100)), fleet(5)
	limiter := quotient.Must(quotient.New(limit, quotient.Replicas(10), quotient.AwaitPool(time.Minute)))
	go limiter.Follow(ctx, source)

	_, err := limiter.Acquire(ctx, "upstream") // waits for the report
	fmt.Println(err, limiter.Stats().Rules[0].Share, "a second here")
	// Output: <nil> 20 a second here
}

// A plan is of the call, an override of the key.
func Example_plans() {
	free, paid := quotient.Rates(quotient.PerMinute(10)), quotient.Rates(quotient.PerMinute(600))
	limiter := quotient.Must(quotient.New(free, quotient.Plans(map[string]quotient.Limit{"paid": paid})))
	_, decision := limiter.TryAcquire("customer-7", quotient.Plan("paid"))
	fmt.Println(decision)
	err := limiter.Override("customer-8", &paid, time.Hour)
	fmt.Println(err, limiter.Overrides()["customer-8"].Limit)
	// Output:
	// admitted
	// <nil> minute: 600 per 1m
}

// An upstream that refuses a request and names a time stops the key for so long.
func Example_upstream() {
	limit, ctx := quotient.Rates(quotient.PerSecond(100)), context.Background()
	call := func() error {
		limiter := quotient.Must(quotient.New(limit, quotient.Policy(policy.Tracking{}), quotient.Replicas(10)))
		permit, err := limiter.Acquire(ctx, "api.example.com")
		if err != nil {
			return err
		}
		// send the request, which is refused here
		permit.Done(policy.Feedback{Outcome: policy.Throttled, RetryAfter: 2 * time.Second}) // releases it too
		fmt.Println(limiter.Allow("api.example.com"))
		return nil
	}
	fmt.Println(call())
	// Output:
	// false
	// <nil>
}

// At most two at a time; a third waits until one of them has released.
func ExampleLimiter_Acquire() {
	l := limited(quotient.Limit{InFlight: 2})
	ctx := context.Background()
	first, _ := l.Acquire(ctx, "db")
	second, _ := l.Acquire(ctx, "db")
	done := make(chan bool)
	go func() {
		third, err := l.Acquire(ctx, "db") // waits for its turn
		if err == nil {
			defer third.Release()
		}
		done <- err == nil
	}()
	first.Release()
	fmt.Println(<-done)
	second.Release()
	fmt.Println(l.Stats().InFlight)
	// Output:
	// true
	// 0
}

// A caller that does not wait learns why, and when to come again.
func ExampleLimiter_TryAcquire() {
	limiter := limited(quotient.Rates(quotient.Every(time.Hour)))
	report := func() (comeAgain time.Duration) {
		permit, decision := limiter.TryAcquire("report")
		if !decision.OK {
			return decision.RetryAfter
		}
		defer permit.Release()
		return 0
	}
	fmt.Println(report(), report().Round(time.Minute))
	// Output: 0s 1h0m0s
}

// A reader of batches takes what there is.
func ExampleLimiter_TryAcquireUpTo() {
	l := limited(quotient.Rates(quotient.Rate{Events: 30, Per: time.Hour, Burst: 30}))
	for range 3 {
		p, n := l.TryAcquireUpTo("queue", 20)
		fmt.Println(n)
		p.Release()
	}
	// Output:
	// 20
	// 10
	// 0
}

// A call to a language model costs a request and as many tokens as it turns out to have used.
func ExampleCost() {
	l := limited(quotient.Limit{Rates: []quotient.Rate{
		{Name: "requests", Events: 60, Per: time.Hour, Burst: 60},
		{Name: "tokens", Unit: "tokens", Events: 10_000, Per: time.Hour, Burst: 10_000},
	}})
	p, err := l.Acquire(context.Background(), "model", quotient.Cost("tokens", 4000)) // an estimate
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Release()
	fmt.Println(p.Correct("tokens", 1500)) // what it was
	for k := range l.Keys() {
		fmt.Printf("%.0f requests, %.0f tokens left\n", k.Rules[0].Left, k.Rules[1].Left)
	}
	// Output:
	// <nil>
	// 59 requests, 8500 tokens left
}

// One call stands for several requests.
func ExampleWeight() {
	l := limited(quotient.Rates(quotient.Rate{Events: 10, Per: time.Hour, Burst: 10}))
	for range 3 {
		_, d := l.TryAcquire("export", quotient.Weight(4))
		fmt.Println(d.OK)
	}
	// Output:
	// true
	// true
	// false
}

// All rates must have room, or nothing is taken from any.
func ExampleLimit() {
	l := limited(quotient.Limit{
		Rates: []quotient.Rate{
			quotient.PerSecond(100),
			quotient.PerHour(1000),
			{Name: "day", Events: 2, Per: 24 * time.Hour},
		},
		InFlight: 10,
	})
	for range 3 {
		_, d := l.TryAcquire("api")
		fmt.Printf("%v %q\n", d.OK, d.Rule.Name)
	}
	// Output:
	// true ""
	// true ""
	// false "day"
}

// One request every hour, evenly paced: nothing is saved up.
func ExampleEvery() {
	l := limited(quotient.Rates(quotient.Every(time.Hour)), quotient.MaxWaiting(0, 0))
	fmt.Println(l.Allow("crawler"), l.Allow("crawler"))
	// Output: true false
}

// A quota that an upstream counts by the wall clock: 1,000 in each day, from midnight UTC.
func ExampleRate_aligned() {
	l := limited(quotient.Rates(quotient.Rate{Name: "day", Events: 1000, Per: 24 * time.Hour, Kind: quotient.Window}),
		quotient.StartPool(quotient.Pool{Replicas: 3, Ordinal: 2, Fixed: true}))
	_, n := l.TryAcquireUpTo("partner", 10_000)
	fmt.Println(n == 333 || n == 334) // over the three replicas exactly 1,000 a day
	// Output: true
}

func ExampleDo() {
	l := limited(quotient.Limit{InFlight: 4})
	page, err := quotient.Do(context.Background(), l, "example.com", func(context.Context) (string, error) {
		return "hello", nil
	})
	fmt.Println(page, err)
	// Output: hello <nil>
}

// The environment has the number of replicas, and the ordinal of this one.
func ExampleEnv() {
	os.Setenv("QUOTIENT_REPLICAS", "4") //nolint:errcheck // an example
	os.Setenv("QUOTIENT_ORDINAL", "0")  //nolint:errcheck // a StatefulSet counts from 0
	defer os.Unsetenv("QUOTIENT_REPLICAS")
	defer os.Unsetenv("QUOTIENT_ORDINAL")

	l := limited(quotient.Limit{InFlight: 10})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- l.Follow(ctx, quotient.Env()) }()
	for l.Stats().Pool.Reports == 0 {
		time.Sleep(time.Millisecond)
	}
	fmt.Printf("%+v\n", l.Stats().Pool.Pool)
	_, n := l.TryAcquireUpTo("k", 10)
	fmt.Println(n)
	cancel()
	fmt.Println(<-done)
	// Output:
	// {Replicas:4 Ordinal:1 Fixed:true Weight:0}
	// 3
	// <nil>
}

// A limit may be changed at any time; waiters feel it at once.
func ExampleLimiter_SetLimit() {
	l := limited(quotient.Limit{InFlight: 1})
	fmt.Println(l.SetLimit(quotient.Limit{InFlight: -1}))
	fmt.Println(l.SetLimit(quotient.Limit{InFlight: 5}), l.Stats().Limit.InFlight)
	// Output:
	// quotient: Limit.InFlight: -1 is not between 0 and 1073741824
	// <nil> 5
}

// A policy that learns from what the upstream answers.
func ExamplePolicy() {
	l := limited(quotient.Rates(quotient.PerSecond(100)), quotient.Policy(policy.AIMD{}),
		quotient.BeyondShare(), quotient.Replicas(10))
	p, _ := l.TryAcquire("api.example.com")
	p.Done(policy.Feedback{Outcome: policy.Throttled})
	for k := range l.Keys() {
		fmt.Println(k.Key, k.Rules[1].Pace, "a second")
	}
	// Output: api.example.com 5 a second
}

// A program whose upstream does not speak HTTP tells the policy what it was answered.
func ExamplePermit_Done() {
	l := limited(quotient.Limit{}, quotient.Policy(policy.Tracking{}), quotient.BeyondShare())
	permit, _ := l.TryAcquire("mail.example.com")
	permit.Done(policy.Feedback{
		Outcome:    policy.Throttled, // 429, RESOURCE_EXHAUSTED
		RetryAfter: 2 * time.Second,
		Quotas:     [policy.MaxQuotas]policy.Quota{{Limit: 100, Remaining: 0, Reset: time.Minute}},
	})
	fmt.Println(l.Check("mail.example.com").OK)
	// Output: false
}

// A registry makes each limiter once, with the options that all share.
func ExampleRegistry() {
	limiters := &quotient.Registry{Options: func(string) []quotient.Option {
		return []quotient.Option{quotient.Replicas(4)}
	}}
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
	if err := l.Override("customer-7", &quotient.Limit{InFlight: 2}, 0); err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		_, seven := l.TryAcquire("customer-7")
		_, eight := l.TryAcquire("customer-8")
		fmt.Println(seven.OK, eight.OK)
	}
	_ = l.Override("customer-7", nil, 0) // back to the limiter's limit
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
	l := limited(quotient.Rates(quotient.PerSecond(100)), quotient.AwaitPool(time.Minute))
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
