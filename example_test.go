package quotient_test

import (
	"context"
	"errors"
	"fmt"
	"os"
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

// A limit of 20 requests an hour for each tenant, over four replicas: each admits five.
func Example() {
	l, err := quotient.New(
		quotient.Rates(quotient.Rate{Events: 20, Per: time.Hour, Burst: 20}),
		quotient.Replicas(4),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 6 {
		fmt.Print(l.Allow("tenant-7"), " ")
	}
	fmt.Println(l.Allow("tenant-8"))
	// Output: true true true true true false true
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
	l := limited(quotient.Limit{InFlight: 1})
	p, d := l.TryAcquire("report")
	fmt.Println(d.OK)
	_, d = l.TryAcquire("report")
	fmt.Println(d.OK, d.Reason, d.Rule)
	fmt.Println(errors.Is(&quotient.LimitedError{Key: "report", Decision: d}, quotient.ErrLimited))
	p.Release()
	// Output:
	// true
	// false in_flight in-flight
	// true
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
		fmt.Printf("%v %q\n", d.OK, d.Rule)
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
	l := limited(quotient.Rates(quotient.Rate{Name: "day", Events: 1000, Per: 24 * time.Hour, Aligned: true}),
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

func ExampleSemaphore() {
	var s quotient.Semaphore
	if err := s.Resize(3); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.TryAcquire(2), s.TryAcquire(2))
	s.Resize(1) //nolint:errcheck // in range; no slot is revoked
	fmt.Println(s.Slots())
	s.Release(2)
	fmt.Println(s.Slots())
	// Output:
	// true false
	// 2 1
	// 0 1
}
