package dns_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/poolsize/dns"
	"github.com/quotient-go/quotient/poolsize/dns/dnstest"
)

// A limiter that follows a headless Service of Kubernetes. The server stands in for the cluster's. Without
// Resolver the machine's name servers are used, and without Own the machine's addresses count as this
// replica's.
func Example() {
	s, err := dnstest.New()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	own, other := netip.MustParseAddr("10.0.0.10"), netip.MustParseAddr("10.0.0.11")
	s.Set("web.default.svc.cluster.local", own, other)
	src := &dns.Source{Name: "web.default.svc.cluster.local.", Resolver: s.Resolver(), Own: []netip.Addr{own}}

	l, err := quotient.New(quotient.Rates(quotient.PerSecond(100)))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- l.Follow(ctx, src) }()

	for range time.Tick(time.Millisecond) { // requests are limited all the while
		if l.Stats().Pool.Replicas == 2 {
			break
		}
	}
	fmt.Println(l.Stats().Rules[0].Share)
	cancel()
	fmt.Println(<-ended)
	// Output:
	// 50
	// <nil>
}

// This replica's address stands second in the list of four.
func ExampleSource_Watch() {
	s, err := dnstest.New()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	s.Set("web.test", netip.MustParseAddr("10.0.0.10"), netip.MustParseAddr("10.0.0.11"),
		netip.MustParseAddr("10.0.0.12"), netip.MustParseAddr("10.0.0.13"))

	ctx, cancel := context.WithCancel(context.Background())
	src := dns.Source{Name: "web.test.", Resolver: s.Resolver(),
		Own: []netip.Addr{netip.MustParseAddr("10.0.0.11")}}
	err = src.Watch(ctx, func(p quotient.Pool, err error) {
		fmt.Println(p.Replicas, p.Ordinal, err)
		cancel()
	})
	fmt.Println(err)
	// Output:
	// 4 2 <nil>
	// context canceled
}

// docs/pool-size.md shows this function.
func followDNS(ctx context.Context) (*quotient.Limiter, error) {
	pods := &dns.Source{Name: "api-replicas.prod.svc.cluster.local.", Uncapped: true} // a headless Service
	if err := pods.Validate(); err != nil {
		return nil, err
	}
	limiter, err := quotient.New(quotient.Rates(quotient.PerSecond(1000)),
		quotient.Replicas(10), quotient.AwaitPool(time.Minute))
	if err != nil {
		return nil, err
	}
	go limiter.Follow(ctx, pods) // failed look-ups go to slog.Default, or to the limiter's Logger
	return limiter, nil
}

// TestFollowDNS checks that the function of the page makes a limiter that admits nothing before the first
// report.
func TestFollowDNS(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	limiter, err := followDNS(ctx)
	if err != nil || limiter.Allow("key") {
		t.Errorf("error %v, or a request was admitted", err)
	}
}

// A limiter follows the addresses of a headless Service of Kubernetes, which lists all its pods.
func ExampleSource() {
	limiter, err := quotient.New(quotient.Rates(quotient.PerSecond(100)), quotient.Replicas(10))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	source := &dns.Source{Name: "api-replicas.prod.svc.cluster.local.", Uncapped: true}
	if err := source.Validate(); err != nil {
		log.Fatal(err)
	}
	go limiter.Follow(ctx, source) // logs failed look-ups
}
