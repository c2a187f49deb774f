package httplimit_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/quotient-go/quotient/httplimit"
)

// The feedback of an answer can be handed to a permit by hand, for clients that have no http.RoundTripper.
func ExampleProfile_Feedback() {
	h := http.Header{}
	h.Set("X-RateLimit-Limit-Tokens", "150000")
	h.Set("X-RateLimit-Remaining-Tokens", "0")
	h.Set("X-RateLimit-Reset-Tokens", "6m0s")

	f, garbage := httplimit.ProfileFor("api.openai.com").Feedback(http.StatusTooManyRequests, h, time.Now())
	fmt.Println(f.Outcome, f.RetryAfter, garbage)
	q := f.Quotas[0]
	fmt.Println(q.Unit, q.Remaining, q.Limit, q.Reset) // permit.Done(f) tells the policy
	// Output:
	// throttled 6m0s 0
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
