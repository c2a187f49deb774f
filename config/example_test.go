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
	f, err := config.Read("testdata/library.toml")
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
