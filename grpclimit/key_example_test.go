package grpclimit_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/quotient-go/quotient/grpclimit"
)

// Each method has a quota of its own.
func ExampleFullMethod() {
	key := grpclimit.FullMethod()
	fmt.Println(key(grpclimit.Call{Context: context.Background(), Method: "/shop.Items/Get"}))
	// Output: /shop.Items/Get
}

// A client of several servers has a quota for each connection's target.
func ExampleTarget() {
	key := grpclimit.Target()
	call := grpclimit.Call{
		Context: context.Background(), Method: "/shop.Items/Get", Target: "dns:///items.example:443",
	}
	fmt.Println(key(call))
	// Output: dns:///items.example:443
}

// On a server each tenant has a quota of its own. Check the field before the limiter sees it: a client can
// invent others.
func ExampleMetadata() {
	key := grpclimit.Metadata("x-tenant")
	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("X-Tenant", "acme"))
	fmt.Println(key(grpclimit.Call{Context: ctx, Method: "/shop.Items/Get"}))
	// Output: acme
}

// All addresses of an IPv6 network of 64 bits share one quota.
func ExamplePeer() {
	key := grpclimit.Peer()
	for _, addr := range []string{"[2001:db8::1]:5000", "[2001:db8::2]:5001"} {
		from := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))
		ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: from})
		fmt.Println(key(grpclimit.Call{Context: ctx, Method: "/shop.Items/Get"}))
	}
	// Output:
	// 2001:db8::/64
	// 2001:db8::/64
}
