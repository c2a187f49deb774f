package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/quotient-go/quotient/httplimit"
)

// A client of several APIs has a quota for each host.
func ExampleHost() {
	key := httplimit.Host()
	fmt.Println(key(httptest.NewRequest("GET", "https://API.Example.com:443/v1/items", nil)))
	// Output: api.example.com
}

// An API key in a header has a quota of its own. Check the key before the limiter sees it: a client can
// invent others.
func ExampleHeader() {
	key := httplimit.Header("X-Api-Key")
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-Api-Key", "k-1234")
	fmt.Println(key(r))
	// Output: k-1234
}

// All requests share one quota.
func ExampleConstant() {
	key := httplimit.Constant("upstream")
	fmt.Println(key(httptest.NewRequest("GET", "/a", nil)))
	fmt.Println(key(httptest.NewRequest("POST", "/b", nil)))
	// Output:
	// upstream
	// upstream
}

// Each method of a route has a quota of its own.
func ExampleMethodPattern() {
	mux := http.NewServeMux()
	mux.HandleFunc("/items/{id}", func(http.ResponseWriter, *http.Request) {})
	key := httplimit.MethodPattern(mux)
	fmt.Println(key(httptest.NewRequest("GET", "/items/42", nil)))
	fmt.Println(key(httptest.NewRequest("DELETE", "/items/42", nil)))
	// Output:
	// GET /items/{id}
	// DELETE /items/{id}
}

// Behind a proxy that sets X-Real-IP, an IPv6 client counts by its /56 network.
func ExampleClientAddrConfig() {
	key, err := httplimit.ClientAddrConfig{
		Trusted:  []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		Header:   "X-Real-IP",
		IPv6Bits: 56,
	}.KeyFunc()
	if err != nil {
		fmt.Println(err)
		return
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.1.2.3:4567"
	r.Header.Set("X-Real-IP", "2001:db8:1:2ff::7")
	fmt.Println(key(r))
	// Output: 2001:db8:1:200::/56
}
