package gossip_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/poolsize/gossip"
)

// A replica finds the others, and its limiter follows. Here it is the only one.
func Example() {
	source, err := gossip.New(gossip.Config{
		Bind: "127.0.0.1:0", // ":7946" and a KeyFile in production
		// JoinDNS: "web-headless.default.svc.cluster.local.:7946",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	limiter, err := quotient.New(quotient.Rates(quotient.PerSecond(100)), quotient.Replicas(10),
		quotient.HintMaxAge(time.Minute), quotient.Demand(100, 2*time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	fmt.Println(limiter.Follow(ctx, source)) // in a goroutine of its own, usually
	fmt.Println(limiter.Stats().Pool.Replicas, "replica")
	// Output:
	// <nil>
	// 1 replica
}

// Replicas count together what each of them has seen. Events added before Watch count as well.
func ExampleSource_Counters() {
	source, err := gossip.New(gossip.Config{Bind: "127.0.0.1:0", Interval: 10 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	source.Counters().Add("logins", 3)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	source.Watch(ctx, func(p quotient.Pool, _ error) { //nolint:errcheck // the context's end
		sum, age := source.Counters().Sum("logins")
		fmt.Println(sum, "logins in a fleet of", p.Replicas, "known to be complete:", age < time.Second)
		cancel()
	})
	// Output: 3 logins in a fleet of 1 known to be complete: true
}

func talk(ctx context.Context) (*quotient.Limiter, error) {
	fleet, err := gossip.New(gossip.Config{
		Bind: ":7946", JoinDNS: "api-headless.prod.svc.cluster.local.:7946",
		KeyFile: "/etc/quotient/gossip.key",
	})
	if err != nil {
		return nil, err
	}
	limiter, err := quotient.New(quotient.Rates(quotient.PerSecond(1000)), quotient.Replicas(10),
		quotient.Demand(100, 2*time.Second)) // at most 100 keys; reports expire after 2 s
	if err != nil {
		return nil, err
	}
	go limiter.Follow(ctx, fleet) // what fails goes to slog.Default, or to the limiter's Logger
	return limiter, nil
}

// The page about gossip shows the function above, to the letter.
func TestPageShowsTheExample(t *testing.T) {
	if _, err := talk(t.Context()); err == nil || !strings.Contains(err.Error(), "gossip.key") {
		t.Errorf("without the key file: %v", err)
	}
	page, err := os.ReadFile("../../docs/gossip.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(page), "```go\n")
	shown, _, _ = strings.Cut(shown, "```")
	if shown == "" || !strings.Contains(string(source), shown) {
		t.Errorf("docs/gossip.md shows what is not in example_test.go:\n%s", shown)
	}
}
