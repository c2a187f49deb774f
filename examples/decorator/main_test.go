package main

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/quotient-go/quotient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		if err := run(t.Context(), &out); err != nil {
			t.Error(err)
		}
		if !regexp.MustCompile(`^waiting   4 workers, 1[01] calls .* skipped 0 times\nskipping  4 workers, 1[01] calls .* skipped 1\d{3} times\n$`).Match(out.Bytes()) {
			t.Error(out.String())
		}
	})
}

// Workers that know their ordinals take turns: two calls of the pool are nine tenths of an interval apart at
// the least.
func TestCallsAreSpaced(t *testing.T) {
	for name, work := range map[string]func(context.Context, *quotient.Limiter, *api){"wait": wait,
		"skip": skip} {
		synctest.Test(t, func(t *testing.T) {
			var a api
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for i := range workers {
				l, err := quotient.New(quotient.Rates(quotient.Every(interval)),
					quotient.StartPool(quotient.Pool{Replicas: workers, Ordinal: i + 1, Fixed: true}))
				if err != nil {
					t.Fatal(err)
				}
				go work(ctx, l, &a)
			}
			<-ctx.Done()
			synctest.Wait()
			for i := 1; i < len(a.calls); i++ {
				if gap := a.calls[i].Sub(a.calls[i-1]); gap < interval*9/10 {
					t.Errorf("%s: calls %d and %d are %v apart", name, i, i+1, gap)
				}
			}
			if len(a.calls) < 290 {
				t.Errorf("%s: %d calls in a minute, 300 allowed", name, len(a.calls))
			}
		})
	}
}

func TestSkippingPassesErrorsOn(t *testing.T) {
	l, err := quotient.New(quotient.Limit{InFlight: 1})
	if err != nil {
		t.Fatal(err)
	}
	want := errors.New("broken")
	f := Skipping(l, "k", func(ctx context.Context, inner int) (int, error) { return inner, want })
	for range 2 { // the slot is free again after an error
		if out, called, err := f(t.Context(), 7); out != 7 || !called || !errors.Is(err, want) {
			t.Errorf("got %v, %v, %v", out, called, err)
		}
	}
	held, _ := l.TryAcquire("k")
	defer held.Release()
	if out, called, err := f(t.Context(), 7); out != 0 || called || err != nil {
		t.Errorf("got %v, %v, %v while the slot is taken", out, called, err)
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		calls int
		want  bool
	}{{12, true}, {13, false}, {6, true}, {5, false}, {0, false}} {
		a := api{calls: make([]time.Time, c.calls)}
		if err := a.check(2 * time.Second); (err == nil) != c.want {
			t.Errorf("%d calls: %v", c.calls, err)
		}
	}
}
