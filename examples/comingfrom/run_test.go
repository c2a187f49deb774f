package comingfrom

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/quotient-go/quotient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// atOnce is how many events a key gets before it has to wait.
func atOnce(l *quotient.Limiter, key string) (n int) {
	for n < 11_000 && l.Allow(key) {
		n++
	}
	return n
}

func inFakeTime(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// made is what a function of the page made.
func made[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
		return v
	}
}

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
		inFakeTime(t, c.name, func(t *testing.T) {
			l := made[*quotient.Limiter](t)(c.make())
			if got := atOnce(l, c.key); got != c.want {
				t.Errorf("%d at once, want %d", got, c.want)
			}
		})
	}
}

// Four Envoys with 250 a second each are 1,000 a second, and so are four processes.
func TestEnvoyFleet(t *testing.T) {
	inFakeTime(t, "enforced", func(t *testing.T) {
		l := made[*quotient.Limiter](t)(fromEnvoy())
		l.SetDryRun(false)
		if got := atOnce(l, "k"); got != 2500 {
			t.Errorf("%d at once, want the 2,500 of max_tokens", got)
		}
		time.Sleep(time.Second)
		if got := atOnce(l, "k"); got != 250 {
			t.Errorf("%d after a second, want the 250 of tokens_per_fill", got)
		}
	})
}

func TestWaiting(t *testing.T) {
	inFakeTime(t, "WaitN", func(t *testing.T) {
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
	inFakeTime(t, "Take", func(t *testing.T) {
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
		inFakeTime(t, c.name, func(t *testing.T) {
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
			if served != c.want {
				t.Errorf("%d served, want %d", served, c.want)
			}
		})
	}
}

// A sliding window of 80 a minute and the bucket that stands for it: no minute has more than 80.
func TestCaddyWindow(t *testing.T) {
	inFakeTime(t, "window", func(t *testing.T) {
		served := 0
		h, err := fromCaddy(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
		if err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		}
		if served < 79 || served > 80 {
			t.Errorf("%d served in the first minute, want 80", served)
		}
	})
}

// One address has five requests in flight at nginx, and here.
func TestNginxConnections(t *testing.T) {
	inFakeTime(t, "in flight", func(t *testing.T) {
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
		if served != 5 {
			t.Errorf("%d at a time, want 5", served)
		}
	})
}

// A call waits a second at most for its turn, and returns what the function returns.
func TestFailsafe(t *testing.T) {
	inFakeTime(t, "failsafe", func(t *testing.T) {
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
	inFakeTime(t, "redis_rate", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l := made[*quotient.Limiter](t)(fromRedisRate(ctx, four{}))
		time.Sleep(time.Minute) // it joined with an empty bucket
		if got := atOnce(l, "k"); got != 25 {
			t.Errorf("%d at once, want a quarter of 100", got)
		}
	})
}

// refuses is an upstream that refuses everything.
type refuses struct{ asked int }

func (r *refuses) RoundTrip(*http.Request) (*http.Response, error) {
	r.asked++
	w := httptest.NewRecorder()
	w.WriteHeader(http.StatusTooManyRequests)
	return w.Result(), nil
}

func TestAdapts(t *testing.T) {
	inFakeTime(t, "aws", func(t *testing.T) {
		var upstream refuses
		c := made[*http.Client](t)(fromAWS(&upstream))
		for start := time.Now(); time.Since(start) < 10*time.Second; {
			resp, err := c.Get("http://h/")
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
		}
		if upstream.asked > 30 {
			t.Errorf("%d requests in ten seconds to an upstream that refuses all", upstream.asked)
		}
	})
}
