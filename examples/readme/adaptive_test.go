package readme

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/examples/readme/api"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/policy"
)

// The code of docs/adaptive.md, to the letter.

func follow(most quotient.Limit, spend policy.Spend) *http.Client {
	tracking := quotient.Policy(policy.Tracking{Spend: spend})
	limiter := quotient.Must(quotient.New(most, tracking, quotient.BeyondShare()))
	return &http.Client{Transport: &httplimit.Transport{Limiter: limiter}} // a key for each host
}

func gitHub() *http.Client { // 15 reads a second are 900 points a minute; a write costs 5
	return follow(quotient.Limit{Rates: []quotient.Rate{quotient.PerSecond(15)}, InFlight: 100},
		policy.SpendFast)
}

var salesforce = &httplimit.Profile{Judge: func(resp *http.Response) (policy.Feedback, bool) {
	refused := resp.StatusCode == http.StatusForbidden &&
		bytes.Contains(httplimit.PeekBody(resp, 1024), []byte(`"REQUEST_LIMIT_EXCEEDED"`))
	return policy.Feedback{Outcome: policy.Throttled}, refused
}}

func TestSalesforce(t *testing.T) {
	for text, want := range map[string]policy.Outcome{
		`[{"message": "m", "errorCode": "REQUEST_LIMIT_EXCEEDED"}]`: policy.Throttled,
		`[{"message": "m", "errorCode": "INSUFFICIENT_ACCESS"}]`:    policy.Success,
	} {
		resp := &http.Response{StatusCode: http.StatusForbidden, Body: io.NopCloser(strings.NewReader(text))}
		if f, _ := salesforce.FeedbackOf(resp); f.Outcome != want {
			t.Errorf("%s: %v, want %v", text, f.Outcome, want)
		}
	}
}

// Each recipe, and the client of the README, gets half at least of an upstream that takes twenty a second and says
// nothing else.
func TestAdaptiveRecipes(t *testing.T) {
	ceiling := func(most quotient.Limit) func() *http.Client {
		return func() *http.Client { return follow(most, policy.SpendFast) }
	}
	openAI := ceiling(quotient.Rates(quotient.PerSecond(200)))
	stripe := ceiling(quotient.Limit{Rates: []quotient.Rate{quotient.PerSecond(100)}, InFlight: 20})
	apiGateway, nginx := ceiling(quotient.Rates(quotient.PerSecond(10_000))), ceiling(quotient.Limit{})
	for name, recipe := range map[string]func() *http.Client{
		"GitHub": gitHub, "OpenAI": openAI, "Stripe": stripe, "API Gateway": apiGateway, "nginx": nginx,
		"README.md": api.Client,
	} {
		synctest.Test(t, func(t *testing.T) {
			theirs := quotient.Must(quotient.New(quotient.Rates(quotient.PerSecond(20))))
			c := recipe()
			c.Transport.(*httplimit.Transport).Base = answers(func() int {
				time.Sleep(5 * time.Millisecond)
				if theirs.Allow("all") {
					return http.StatusOK
				}
				return http.StatusTooManyRequests
			})
			served := 0
			for end := time.Now().Add(time.Minute); time.Now().Before(end); {
				resp, err := c.Get("http://api.example.com/")
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				_ = resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
					served++
				}
			}
			if served < 600 || served > 1220 {
				t.Errorf("%s: %d served in a minute", name, served)
			}
		})
	}
}

// answers is an upstream in memory.
type answers func() int

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a(), Header: http.Header{}, Request: r,
		Body: io.NopCloser(strings.NewReader(""))}, nil
}
