package config_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
)

// A program reads its limits from a file and follows it. File has what the file sets of plans and waits.
func Example() {
	const path = "testdata/library.toml"
	f, err := config.Read(path)
	if err != nil {
		log.Fatal(err) // every line that is wrong, with a hint
	}
	var limiters quotient.Registry
	c, err := config.New(f, &limiters, config.Logger(slog.Default()))
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	go c.Watch(ctx) // follows the file

	tenants, _ := limiters.Get("tenants")
	fmt.Println(tenants.Stats().Limit)
	fmt.Println(tenants.Allow("acme"))
	fmt.Println(c.State().Differs)
	// Output:
	// second: 100 per 1s, burst 200, tokens: 90000 tokens per 1m
	// true
	// []
}

// A flag goes before what the file says.
func ExampleAdjust() {
	replicas := 5 // by a flag
	f, err := config.Parse("quotient.toml", []byte("[pool]\nreplicas = 4\n[limiters.api]\nin-flight = 10\n"))
	if err != nil {
		log.Fatal(err)
	}
	var limiters quotient.Registry
	c, err := config.New(f, &limiters, config.Adjust(func(f *config.File) error {
		f.Pool.Replicas = replicas // of a flag
		return nil
	}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(f.Pool.Replicas, c.File().Pool.Replicas)
	// Output: 4 5
}
