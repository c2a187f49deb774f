package cookbook

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
)

// A key gets at once what it gets from the limiter whose limit it was, over one replica or four, and later its rate.
func TestSame(t *testing.T) {
	rows := []struct {
		of            string
		once, quarter int // of one replica, and of one of four
	}{
		{"x/time/rate: NewLimiter(100, 10)", 10, 2}, {"uber-go/ratelimit: New(100)", 1, 1},
		{"failsafe-go: NewBurstyBuilder(100, second)", 100, 25}, {"go-limiter: Tokens: 15, Interval: minute", 15, 3},
		{"httprate: LimitByIP(100, minute)", 100, 25}, {"ulule/limiter: 1000-H", 1000, 250},
		{"redis_rate: PerMinute(100)", 100, 25}, {"gubernator: limit: 10, duration: 1000", 10, 2},
		{"throttled: PerMin(20), MaxBurst: 5", 6, 1}, {"caddy-ratelimit: events 80, window 1m", 20, 5},
		{"Envoy, local, of four: 250 a second, max 2500", 10_000, 2500}, {"nginx: rate=10r/s burst=20 nodelay", 21, 5},
	}
	left := maps.Clone(same)
	for _, c := range rows {
		fake(t, c.of, func(t *testing.T) {
			between(t, "at once", atOnce(limiterOf(t, same[c.of]), "k"), c.once, c.once)
			four := limiterOf(t, same[c.of], quotient.Replicas(4))
			between(t, "of one of four", atOnce(four, "k"), c.quarter, c.quarter)
		})
		delete(left, c.of)
	}
	if len(left) > 0 {
		t.Errorf("not tested: %v", left)
	}
}

// Four Envoys with 250 a second each are 1,000 a second, and so are four processes. A sliding window of 80 a minute and
// the bucket that stands for it have the same first minute.
func TestSameRate(t *testing.T) {
	fake(t, "envoy", func(t *testing.T) {
		l := limiterOf(t, same["Envoy, local, of four: 250 a second, max 2500"], quotient.Replicas(4))
		between(t, "max_tokens", atOnce(l, "k"), 2500, 2500)
		time.Sleep(time.Second)
		between(t, "tokens_per_fill", atOnce(l, "k"), 250, 250)
	})
	fake(t, "caddy", func(t *testing.T) {
		l := limiterOf(t, same["caddy-ratelimit: events 80, window 1m"])
		between(t, "in the first minute", during(l, time.Minute), 79, 80)
	})
}

func TestWaiting(t *testing.T) {
	fake(t, "WaitN", func(t *testing.T) {
		l := limiterOf(t, same["x/time/rate: NewLimiter(100, 10)"], quotient.Replicas(4))
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
}

// X-Forwarded-For counts from a network that the page names, and from no other; the answers have the fields.
func TestLimited(t *testing.T) {
	for peer, want := range map[string]int{"10.1.2.3:1": 3, "192.0.2.1:1": 1} {
		fake(t, peer, func(t *testing.T) {
			h := limited(limiterOf(t, quotient.Rates(quotient.PerHour(1))),
				http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			served := 0
			for _, client := range []string{"203.0.113.1", "203.0.113.2", "203.0.113.3", "203.0.113.1"} {
				w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
				r.RemoteAddr = peer
				r.Header.Set("X-Forwarded-For", client)
				h.ServeHTTP(w, r)
				if w.Code == http.StatusOK {
					served++
				}
				if limit := w.Header().Get("X-RateLimit-Limit"); limit != "1" {
					t.Errorf("X-RateLimit-Limit: %q", limit)
				}
			}
			between(t, "served", served, want, want)
		})
	}
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

// silent is a source that never reports.
type silent struct{}

func (silent) Watch(ctx context.Context, _ func(quotient.Pool, error)) error {
	<-ctx.Done()
	return ctx.Err()
}

// The limiter waits for its first count, and assumes ten replicas when none has come for a minute.
func TestCounted(t *testing.T) {
	for _, c := range []struct {
		source        quotient.Source
		within, after int // a minute, and two seconds later
	}{{four{}, 25, 0}, {silent{}, 0, 10}} {
		fake(t, fmt.Sprintf("%T", c.source), func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			l := made[*quotient.Limiter](t)(fromRedis(ctx, c.source))
			time.Sleep(59 * time.Second)
			between(t, "of 100 within a minute", atOnce(l, "k"), c.within, c.within)
			time.Sleep(2 * time.Second)
			between(t, "of 100 after it", atOnce(l, "k"), c.after, c.after)
		})
	}
}
