package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// direct hands requests to a handler without a network.
type direct struct{ http.Handler }

func (d direct) RoundTrip(req *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	d.ServeHTTP(w, req)
	return w.Result(), nil
}

// TestRun: clients without any hint use up what is scarce. Clients that each keep the limits of the account are
// refused three times of four, and of an API that gives half of what it should too little is used: the verdict
// reports it, the proof that it can fail.
func TestRun(t *testing.T) {
	half := quotient.Rates(quotient.Rate{Name: "requests", Events: 50, Per: minute},
		quotient.Rate{Name: "tokens", Unit: "tokens", Events: 10_000, Per: minute})
	for _, row := range []struct {
		policy policy.Policy
		gives  quotient.Limit
		broken int
	}{{policy.Tracking{}, account, 0}, {policy.Fixed{}, account, 2}, {policy.Tracking{}, half, 2}} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			upstream := &api{limits: quotient.Must(quotient.New(row.gives))}
			err := run(&out, upstream, "http://h/", direct{upstream}, row.policy)
			if got := strings.Count(fmt.Sprint(err), "% used"); got != row.broken || strings.Count(out.String(), "\n") != 2 {
				t.Errorf("%T: %v, want %d that do not hold\n%s", row.policy, err, row.broken, out.String())
			}
		})
	}
}

// TestAPIReportsItsLimits holds the fields of an answer and of a refusal.
func TestAPIReportsItsLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &api{limits: quotient.Must(quotient.New(account))}
		long := `{"prompt":"` + strings.Repeat("text", 18_000) + `","max_tokens":0}`
		for i, row := range []struct {
			body, left, reset string
			status            int
		}{
			{long, "2400", "880ms", http.StatusOK},
			{long, "2400", "880ms", http.StatusTooManyRequests},
		} {
			w := httptest.NewRecorder()
			upstream.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(row.body)))
			left, reset := w.Header().Get("x-ratelimit-remaining-tokens"), w.Header().Get("x-ratelimit-reset-tokens")
			if w.Code != row.status || left != row.left || reset != row.reset {
				t.Errorf("row %d: %d, %s left, %s", i, w.Code, left, reset)
			}
		}
	})
}

// TestClientPutsTheCostRight: a prompt's estimate of 200 tokens is replaced by the cost in the answer. A refusal
// and an answer without sense are errors, and give the slot back.
func TestClientPutsTheCostRight(t *testing.T) {
	for _, row := range []struct {
		status, used int
		body         string
		ok           bool
	}{
		{http.StatusOK, 50, `{"total_tokens":50}`, true}, {http.StatusOK, 500, `{"total_tokens":500}`, true},
		{http.StatusTooManyRequests, 200, "{}", false}, {http.StatusBadRequest, 200, "{}", false},
		{http.StatusOK, 200, "{", false},
	} {
		synctest.Test(t, func(t *testing.T) { // the buckets do not fill meanwhile
			answers := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(row.status)
				fmt.Fprint(w, row.body)
			})
			c := &client{newLimiter(policy.Tracking{}), &http.Client{Transport: direct{answers}}, "http://h/"}
			if _, err := c.complete(t.Context(), prompt{strings.Repeat("text", 100), 200}); (err == nil) != row.ok {
				t.Errorf("%+v: %v", row, err)
			}
			s := c.limiter.Stats()
			if throttled := row.status == http.StatusTooManyRequests; s.InFlight != 0 || (s.Throttled == 1) != throttled {
				t.Errorf("%+v: %d in flight, %d throttled", row, s.InFlight, s.Throttled)
			}
			if left := c.limiter.Explain("model-a").Rules[1].Left; left != 20_000-float64(row.used) {
				t.Errorf("%+v: %v tokens are left", row, left)
			}
		})
	}
}
