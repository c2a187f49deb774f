package httplimit_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/policy"
)

// recovers is an upstream that refuses all with a Retry-After for some seconds.
type recovers struct{ at time.Time }

func (u recovers) RoundTrip(*http.Request) (*http.Response, error) {
	time.Sleep(10 * time.Millisecond)
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}
	if time.Now().Before(u.at) {
		resp.StatusCode = http.StatusTooManyRequests
		resp.Header.Set("Retry-After", "5")
	}
	return resp, nil
}

// After a Retry-After of five seconds clients with a time-out of half a minute wait. One whose time-out ends
// before is refused at once, and gets the end of the pause.
func TestTransportWaitsForAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := quotient.New(quotient.Rates(quotient.PerSecond(100)), quotient.Policy(policy.Tracking{}),
			quotient.BeyondShare())
		if err != nil {
			t.Fatal(err)
		}
		rt := &httplimit.Transport{Base: recovers{time.Now().Add(5 * time.Second)}, Limiter: l}
		get := func(timeout time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.example/", http.NoBody)
			if err != nil {
				return err
			}
			resp, err := rt.RoundTrip(req)
			if err != nil {
				return err
			}
			return resp.Body.Close()
		}
		for range 3 {
			if err := get(time.Minute); err != nil {
				t.Fatal(err)
			}
			time.Sleep(500 * time.Millisecond)
		}
		var limited *quotient.LimitedError
		if err := get(3 * time.Second); !errors.As(err, &limited) ||
			limited.Reason != quotient.ReasonDeadline ||
			limited.RetryAfter < 4*time.Second || limited.RetryAfter > 6*time.Second {
			t.Errorf("%v, want to be refused at once until the end of the pause", err)
		}
		done := make(chan error, 3)
		for range cap(done) {
			go func() { done <- get(30 * time.Second) }()
		}
		for range cap(done) {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}
