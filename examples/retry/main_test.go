package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/quotient-go/quotient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// direct hands requests to a handler without a network.
type direct struct{ http.Handler }

func (d direct) RoundTrip(req *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	d.ServeHTTP(w, req)
	return w.Result(), nil
}

func TestRun(t *testing.T) {
	for _, bypass := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			u := &upstream{start: time.Now()}
			if err := run(t.Context(), &out, direct{u}, "http://h/", u, bypass); err != nil {
				t.Errorf("bypass %v: %v\n%s", bypass, err, out.String())
			}
		})
	}
}

// answers are the statuses of one attempt after the other; the last one stays.
type answers struct {
	statuses   []int
	retryAfter string
	asked      []time.Time
}

func (a *answers) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	status := a.statuses[min(len(a.asked), len(a.statuses)-1)]
	a.asked = append(a.asked, time.Now())
	w.Header().Set("Retry-After", a.retryAfter)
	w.WriteHeader(status)
}

func TestGet(t *testing.T) {
	for name, c := range map[string]struct {
		statuses   []int
		retryAfter string
		budget     int
		attempts   int
		want       error
		atLeast    time.Duration
	}{
		"at once":      {[]int{200}, "", 10, 1, nil, 0},
		"Retry-After":  {[]int{503, 429, 200}, "3", 10, 3, nil, 6 * time.Second},
		"attempts end": {[]int{500}, "", 10, 4, errGivenUp, 0},
		"budget ends":  {[]int{500}, "", 1, 2, errGivenUp, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &answers{statuses: c.statuses, retryAfter: c.retryAfter}
				cl := newClient(direct{a})
				cl.budget = quotient.Must(quotient.New(
					quotient.Rates(quotient.Rate{Events: 1, Per: time.Hour, Burst: c.budget})))
				start := time.Now()
				if err := cl.get(t.Context(), "http://h/"); !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v", err, c.want)
				}
				if len(a.asked) != c.attempts || time.Since(start) < c.atLeast {
					t.Errorf("%d attempts in %v, want %d in at least %v", len(a.asked), time.Since(start),
						c.attempts, c.atLeast)
				}
				if got := cl.gate.Stats().Admitted; got != uint64(c.attempts) {
					t.Errorf("%d of %d attempts passed the limiter", got, c.attempts)
				}
			})
		})
	}
}

// A limiter that refuses is not called again in a loop, and a context that ends ends a pause.
func TestGetStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answers{statuses: []int{503}, retryAfter: "3600"}
		c := newClient(direct{a})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := c.get(ctx, "http://h/"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if err := c.gate.SetLimit(quotient.Limit{Deny: true}); err != nil {
			t.Fatal(err)
		}
		if err := c.get(t.Context(), "http://h/"); !errors.Is(err, quotient.ErrLimited) || len(a.asked) != 1 {
			t.Errorf("got %v after %d requests", err, len(a.asked))
		}
	})
}
