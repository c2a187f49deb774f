package cookbook

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
)

func TestLimiters(t *testing.T) {
	for _, c := range []struct {
		name string
		make func() (*quotient.Limiter, error)
		key  string
		want int
	}{
		{"x/time/rate: a quarter of the burst of 10", fromTimeRate, "k", 2},
		{"uber", fromUber, "k", 1},
		{"go-limiter", fromGoLimiter, "k", 15},
		{"go-limiter, a key of its own", fromGoLimiter, "big customer", 100},
		{"envoy, a dry run", fromEnvoy, "k", 11_000},
		{"gubernator: a quarter of ten", fromGubernator, "account:1", 2},
	} {
		fake(t, c.name, func(t *testing.T) {
			l := made[*quotient.Limiter](t)(c.make())
			between(t, "at once", atOnce(l, c.key), c.want, c.want)
		})
	}
}

// Four Envoys with 250 a second each are 1,000 a second, and so are four processes.
func TestEnvoyFleet(t *testing.T) {
	fake(t, "enforced", func(t *testing.T) {
		l := made[*quotient.Limiter](t)(fromEnvoy())
		l.SetDryRun(false)
		between(t, "max_tokens", atOnce(l, "k"), 2500, 2500)
		time.Sleep(time.Second)
		between(t, "tokens_per_fill", atOnce(l, "k"), 250, 250)
	})
}

func TestWaiting(t *testing.T) {
	fake(t, "WaitN", func(t *testing.T) {
		l := made[*quotient.Limiter](t)(fromTimeRate())
		start := time.Now()
		// 15 events at 25 a second; the first call is above the local burst of 2.5, and owes the rest
		for range 5 {
			if err := waitForTurn(t.Context(), l); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took < 400*time.Millisecond || took > 600*time.Millisecond {
			t.Errorf("15 events took %v", took)
		}
	})
	fake(t, "Take", func(t *testing.T) {
		l := made[*quotient.Limiter](t)(fromUber())
		if ok, _ := take(l, "k"); !ok {
			t.Error("the first ask is refused")
		}
		if ok, wait := take(l, "k"); ok || wait != 10*time.Millisecond {
			t.Errorf("the second ask: %v, %v", ok, wait)
		}
	})
}

func TestHandlers(t *testing.T) {
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for _, c := range []struct {
		name string
		make func(http.Handler) (http.Handler, error)
		want int
	}{
		{"tollbooth", fromTollbooth, 1}, {"httprate", fromHTTPRate, 100}, {"throttled", fromThrottled, 6},
		{"ulule", fromUlule, 1000}, {"nginx", fromNginx, 21}, {"caddy", fromCaddy, 20},
	} {
		fake(t, c.name, func(t *testing.T) {
			h := made[http.Handler](t)(c.make(next))
			served := 0
			for range 1500 {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
				if w.Code == http.StatusOK {
					served++
				} else if w.Code != http.StatusTooManyRequests {
					t.Errorf("status %d", w.Code)
				}
			}
			between(t, "served", served, c.want, c.want)
		})
	}
}

// A sliding window of 80 a minute and the bucket that stands for it: no minute has more than 80.
func TestCaddyWindow(t *testing.T) {
	fake(t, "window", func(t *testing.T) {
		served := 0
		h, err := fromCaddy(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
		if err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		}
		between(t, "served in the first minute", served, 79, 80)
	})
}

// One address has five requests in flight at nginx, and here.
func TestNginxConnections(t *testing.T) {
	fake(t, "in flight", func(t *testing.T) {
		h, err := fromNginx(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			time.Sleep(time.Second)
		}))
		if err != nil {
			t.Fatal(err)
		}
		codes := make(chan int, 7)
		for range cap(codes) {
			go func() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
				codes <- w.Code
			}()
		}
		served := 0
		for range cap(codes) {
			if <-codes == http.StatusOK {
				served++
			}
		}
		between(t, "at a time", served, 5, 5)
	})
}

// A call waits a second at most for its turn, and returns what the function returns.
func TestFailsafe(t *testing.T) {
	fake(t, "failsafe", func(t *testing.T) {
		l := made[*quotient.Limiter](t)(fromFailsafe())
		answer, err := get(t.Context(), l, func(context.Context) (string, error) { return "answer", nil })
		if answer != "answer" || err != nil {
			t.Errorf("%q, %v", answer, err)
		}
		if _, err := l.Acquire(t.Context(), "upstream", quotient.Weight(99)); err == nil {
			t.Error("99 of 10 slots were taken")
		}
		for range 10 {
			if _, err := l.Acquire(t.Context(), "upstream"); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := l.Acquire(ctx, "upstream"); err == nil || time.Since(start) > time.Second {
			t.Errorf("%v after %v, want an error after a second at most", err, time.Since(start))
		}
	})
}

// four is a source that counts four replicas, again and again.
type four struct{}

func (four) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	for ctx.Err() == nil {
		report(quotient.Pool{Replicas: 4}, nil)
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Second):
		}
	}
	return ctx.Err()
}

func TestCounted(t *testing.T) {
	fake(t, "redis_rate", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l := made[*quotient.Limiter](t)(fromRedisRate(ctx, four{}))
		time.Sleep(time.Minute) // it joined with an empty bucket
		between(t, "a quarter of 100 at once", atOnce(l, "k"), 25, 25)
	})
}

func TestAdapts(t *testing.T) {
	fake(t, "aws", func(t *testing.T) {
		asked := 0
		c := made[*http.Client](t)(fromAWS(upstream(func(*http.Request) *http.Response {
			asked++
			return answer(http.StatusTooManyRequests)
		})))
		for start := time.Now(); time.Since(start) < 10*time.Second; {
			call(t, c, "http://h/")
		}
		between(t, "requests in ten seconds to an upstream that refuses all", asked, 1, 30)
	})
}
