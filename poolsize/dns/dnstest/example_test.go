package dnstest_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/quotient-go/quotient/poolsize/dns/dnstest"
)

// A name with two addresses, then a server that fails.
func Example() {
	s, err := dnstest.New()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	s.Set("web.test", netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"))

	ctx, r := context.Background(), s.Resolver()
	addrs, err := r.LookupNetIP(ctx, "ip4", "web.test.")
	fmt.Println(len(addrs), err)

	s.Fail(dnstest.ServFail)
	addrs, err = r.LookupNetIP(ctx, "ip4", "web.test.")
	fmt.Println(len(addrs), err != nil)
	// Output:
	// 2 <nil>
	// 0 true
}
