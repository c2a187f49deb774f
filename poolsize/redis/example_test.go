package redis_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/quotient-go/quotient"
	poolredis "github.com/quotient-go/quotient/poolsize/redis"
	"github.com/redis/go-redis/v9"
)

// A replica counts itself in, and its limiter follows.
func Example() {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()

	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer client.Close() //nolint:errcheck // nothing is lost

	limit := quotient.Rates(quotient.PerSecond(100))
	limiter, err := quotient.New(limit, quotient.Replicas(10), quotient.HintMaxAge(time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	source := &poolredis.Source{Client: client, Fleet: "web", Period: 10 * time.Millisecond}
	fmt.Println(limiter.Follow(ctx, source)) // in a goroutine of its own, usually
	fmt.Println(limiter.Stats().Pool.Replicas, "replica, and", len(server.Keys()), "keys are left")
	// Output:
	// <nil>
	// 1 replica, and 0 keys are left
}

// A replica that is restarted goes on from the part of its ceiling that it had reached.
func ExampleSource_Left() {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close() //nolint:errcheck // nothing is lost

	before := &poolredis.Source{Client: client, Fleet: "web", ID: "web-0", Period: 10 * time.Millisecond,
		Ceiling: func() float64 { return .75 }}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	before.Watch(ctx, func(quotient.Pool, error) { cancel() }) //nolint:errcheck // the context's end

	after := &poolredis.Source{Client: client, Fleet: "web", ID: "web-0"}
	fmt.Println(after.Left(context.Background())) // for policy.Ramp's Resume
	// Output: 0.75 <nil>
}

// A limiter follows the replicas of the fleet "web".
func ExampleSource() {
	limiter, err := quotient.New(quotient.Rates(quotient.PerSecond(100)), quotient.Replicas(10))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "redis:6379", ContextTimeoutEnabled: true})
	source := &poolredis.Source{Client: client, Fleet: "web"}
	if err := source.Validate(); err != nil {
		log.Fatal(err)
	}
	go limiter.Follow(ctx, source) // logs failures of the store
}
