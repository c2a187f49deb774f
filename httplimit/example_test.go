package httplimit_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/policy"
)

// A server admits ten requests a second for each API key, a client sends at most five a second to each host.
func Example() {
	api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })

	perKey := quotient.Must(quotient.New(quotient.Rates(quotient.PerSecond(10))))
	handler := httplimit.Middleware(perKey, httplimit.Credential("X-API-Key"))(api)

	perHost := quotient.Must(quotient.New(quotient.Rates(quotient.PerSecond(5))))
	client := &http.Client{Transport: &httplimit.Transport{Limiter: perHost}}

	server := httptest.NewServer(handler)
	defer server.Close()
	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	// Output: 200 OK
}

// A client of a limit that learns from the answers. Here it is the client that refuses, since its limit denies all.
func Example_client() {
	limit, url := quotient.Limit{Deny: true}, "http://api.example.com/"
	get := func() error {
		limiter := quotient.Must(quotient.New(limit, quotient.Policy(policy.Tracking{}), quotient.Replicas(4)))
		client := &http.Client{Transport: &httplimit.Transport{Limiter: limiter}}
		resp, err := client.Get(url)
		if errors.Is(err, quotient.ErrLimited) {
			return err // our own limit
		}
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}
	fmt.Println(get())
	// Output: Get "http://api.example.com/": quotient: "api.example.com" refused: denied
}

// Each path may be asked for twice a minute. The third request is refused, and the answer says when to come
// back.
func ExampleMiddleware() {
	limit := quotient.Rates(quotient.Rate{Name: "minute", Events: 2, Per: time.Minute, Burst: 2})
	limiter := quotient.Must(quotient.New(limit))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
	server := httptest.NewServer(httplimit.Middleware(limiter, httplimit.Path())(mux))
	defer server.Close()

	for _, path := range []string{"/hello", "/hello", "/hello", "/other"} {
		resp, err := http.Get(server.URL + path)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s %d %q\n", path, resp.StatusCode, resp.Header.Get("Retry-After"))
		_ = resp.Body.Close()
	}
	// Output:
	// /hello 200 ""
	// /hello 200 ""
	// /hello 429 "30"
	// /other 404 ""
}

// A request is given up after 10 ms, but its handler works on. It keeps its slot until it is done, because
// TimeoutHandler is around Middleware.
func ExampleMiddleware_timeoutHandler() {
	done := make(chan struct{})
	slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-done })

	limiter := quotient.Must(quotient.New(quotient.Limit{InFlight: 1}))
	slots := httplimit.Middleware(limiter, httplimit.Constant("reports"))
	handler := http.TimeoutHandler(slots(slow), 10*time.Millisecond, "too slow")

	for range 3 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/report", nil))
		fmt.Println(w.Code)
	}
	close(done)
	// Output:
	// 503
	// 429
	// 429
}

// A request over the limit waits for its turn, for a second at most. Here that is the second of two, which
// come at once under a limit of one each 50 ms.
func ExampleWait() {
	limiter := quotient.Must(quotient.New(quotient.Rates(quotient.Every(50 * time.Millisecond))))
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
	patient := httplimit.Middleware(limiter, httplimit.Path(), httplimit.Wait(time.Second))(hello)
	for range 2 {
		w := httptest.NewRecorder()
		patient.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/hello", nil))
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 200 hello
	// 200 hello
}

// Every request of the client waits for its turn: here one each 10 ms, and no
// more than 4 at a time.
func ExampleTransport() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "hello")
	}))
	defer server.Close()

	rates := []quotient.Rate{quotient.Every(10 * time.Millisecond)}
	limiter := quotient.Must(quotient.New(quotient.Limit{Rates: rates, InFlight: 4}))
	client := &http.Client{Transport: &httplimit.Transport{Limiter: limiter}}
	start := time.Now()
	for range 3 {
		resp, err := client.Get(server.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		text, _ := io.ReadAll(resp.Body) // at its end the body gives the slot back
		_ = resp.Body.Close()
		fmt.Println(string(text))
	}
	fmt.Println("in 20 ms or more:", time.Since(start) >= 20*time.Millisecond)
	// Output:
	// hello
	// hello
	// hello
	// in 20 ms or more: true
}

// Behind a load balancer the client's address is the one that the balancer saw.
func ExampleClientAddr() {
	key := httplimit.ClientAddr(netip.MustParsePrefix("10.0.0.0/8"))
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.1.2.3:4567"
	r.Header.Set("X-Forwarded-For", "1.1.1.1, 203.0.113.7") // the client wrote the first itself
	fmt.Println(key(r))
	// Output: 203.0.113.7
}

func ExamplePath() {
	for _, target := range []string{"/Items/42", "//items/./42/", "/%69tems;v=1/42?page=2"} {
		fmt.Println(httplimit.Path()(httptest.NewRequest("GET", target, nil)))
	}
	// Output:
	// /items/42
	// /items/42
	// /items/42
}

// A middleware round a ServeMux knows the route before the mux has chosen it.
func ExamplePattern() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /items/{id}", func(http.ResponseWriter, *http.Request) {})
	key := httplimit.Pattern(mux)
	fmt.Println(key(httptest.NewRequest("GET", "/items/42", nil)))
	fmt.Println(key(httptest.NewRequest("GET", "/nothing", nil)))
	// Output:
	// GET /items/{id}
	// (unmatched)
}

// Each answer shows a client where it stands.
func ExampleSendFields() {
	rates := []quotient.Rate{{Name: "minute", Events: 100, Per: time.Minute, Burst: 100}}
	l := quotient.Must(quotient.New(quotient.Limit{Rates: rates, InFlight: 10}))
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello")
	})
	h := httplimit.Middleware(l, httplimit.ClientAddr(), httplimit.SendFields(httplimit.FieldsDraft11))(hello)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	fmt.Println(w.Header().Get("RateLimit-Policy"))
	fmt.Println(w.Header().Get("RateLimit"))
	// Output:
	// "minute";q=100;w=60, "in-flight";q=10;qu="concurrent-requests"
	// "minute";r=99;t=1, "in-flight";r=9
}

// A client of several APIs has a quota for each host.
func ExampleHost() {
	key := httplimit.Host()
	fmt.Println(key(httptest.NewRequest("GET", "https://API.Example.com:443/v1/items", nil)))
	// Output: api.example.com
}

// A token has a quota of its own, and is not shown. Check it before the limiter sees it: a client can invent
// others.
func ExampleCredential() {
	key := httplimit.Credential("Authorization")
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Authorization", "BEARER  abc")
	fmt.Println(key(r))
	fmt.Println(httplimit.CredentialKey("Bearer abc"))
	// Output:
	// credential:46e38e9ce4c432c3ca84636e27ba6242
	// credential:46e38e9ce4c432c3ca84636e27ba6242
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

// The feedback of an answer can be handed to a permit by hand, for clients that have no http.RoundTripper.
func ExampleProfile_Feedback() {
	h := http.Header{}
	h.Set("X-RateLimit-Limit-Tokens", "150000")
	h.Set("X-RateLimit-Remaining-Tokens", "0")
	h.Set("X-RateLimit-Reset-Tokens", "6m0s")

	f, garbage := httplimit.ProfileFor("api.openai.com").Feedback(http.StatusTooManyRequests, h, time.Now())
	fmt.Println(f.Outcome, f.RetryAfter, garbage)
	q := f.Quotas[0]                                   // all of it is there again in six minutes, and the first token much sooner
	fmt.Println(q.Unit, q.Remaining, q.Limit, q.Reset) // permit.Done(f) tells the policy
	// Output:
	// throttled 2.4ms 0
	// tokens 0 150000 6m0s
}

// An upstream of your own has fields of its own, and a host of your own may speak as a known one.
func ExampleProfile() {
	credits := &httplimit.Profile{
		Throttled: []int{420},
		Quotas: []httplimit.Fields{{Unit: "credits", Used: "X-Credits",
			ResetAfter: "X-Credits-Renewed-In"}},
	}
	transport := &httplimit.Transport{Profile: func(host string) *httplimit.Profile {
		switch host {
		case "reports.internal":
			return credits
		case "git.internal":
			return httplimit.ProfileFor("github.com")
		}
		return nil // as ProfileFor says
	}}

	h := http.Header{"X-Credits": {"700/1000"}, "X-Credits-Renewed-In": {"90"}}
	f, _ := transport.Profile("reports.internal").Feedback(420, h, time.Now())
	q := f.Quotas[0]
	fmt.Println(f.Outcome, q.Unit, q.Remaining, q.Limit, q.Reset)
	// Output: throttled credits 300 1000 1m30s
}

// Shopify's GraphQL API refuses with 200, and says in the body how many points are missing. A refusal is short;
// what PeekBody cuts off is no JSON.
func ExampleProfile_judge() {
	graphQL := &httplimit.Profile{Judge: func(resp *http.Response) (policy.Feedback, bool) {
		var said struct {
			Errors     []struct{ Extensions struct{ Code string } }
			Extensions struct {
				Cost struct {
					RequestedQueryCost float64
					ThrottleStatus     struct{ CurrentlyAvailable, RestoreRate float64 }
				}
			}
		}
		text := httplimit.PeekBody(resp, 2048)
		if json.Unmarshal(text, &said) != nil || len(said.Errors) == 0 || said.Errors[0].Extensions.Code != "THROTTLED" {
			return policy.Feedback{}, false
		}
		cost := said.Extensions.Cost
		wait := (cost.RequestedQueryCost - cost.ThrottleStatus.CurrentlyAvailable) / max(cost.ThrottleStatus.RestoreRate, 1)
		return policy.Feedback{
			Outcome: policy.Throttled, RetryAfter: time.Duration(wait * float64(time.Second)),
		}, true
	}}

	const refusal = `{"errors": [{"message": "Throttled", "extensions": {"code": "THROTTLED"}}], "extensions": {"cost": {
		"requestedQueryCost": 752, "throttleStatus": {"currentlyAvailable": 666, "restoreRate": 50.0}}}}`
	for _, text := range []string{refusal, `{"data": {"shop": {"name": "acme"}}}`} {
		resp := &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(text))}
		f, _ := graphQL.FeedbackOf(resp)
		left, _ := io.ReadAll(resp.Body)
		fmt.Println(f.Outcome, f.RetryAfter, string(left) == text)
	}
	// Output:
	// throttled 1.72s true
	// success 0s true
}
