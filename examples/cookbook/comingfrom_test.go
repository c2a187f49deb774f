package cookbook

import (
	"context"
	"net/http"
	"net/netip"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/httplimit"
)

var same = map[string]quotient.Limit{
	"x/time/rate: NewLimiter(100, 10)":              quotient.Rates(quotient.FromRate(100, 10)),
	"uber-go/ratelimit: New(100)":                   quotient.Rates(quotient.Every(10 * time.Millisecond)),
	"failsafe-go: NewBurstyBuilder(100, second)":    quotient.Rates(quotient.PerSecond(100)),
	"go-limiter: Tokens: 15, Interval: minute":      quotient.Rates(quotient.PerMinute(15)),
	"httprate: LimitByIP(100, minute)":              quotient.Rates(quotient.PerMinute(100)),
	"ulule/limiter: 1000-H":                         quotient.Rates(quotient.PerHour(1000)),
	"redis_rate: PerMinute(100)":                    quotient.Rates(quotient.PerMinute(100)),
	"gubernator: limit: 10, duration: 1000":         quotient.Rates(quotient.PerSecond(10)),
	"throttled: PerMin(20), MaxBurst: 5":            rate(20, time.Minute, 6),  // 5 are additional
	"caddy-ratelimit: events 80, window 1m":         rate(60, time.Minute, 20), // 80 in any minute
	"Envoy, local, of four: 250 a second, max 2500": rate(1000, time.Second, 10_000),
	"nginx: rate=10r/s burst=20 nodelay":            rate(10, time.Second, 21), // one, and 20 more
}

func rate(events float64, per time.Duration, burst int) quotient.Limit {
	return quotient.Rates(quotient.Rate{Events: events, Per: per, Burst: burst})
}

func waitForTurn(ctx context.Context, limiter *quotient.Limiter) error {
	permit, err := limiter.Acquire(ctx, "upstream", quotient.Weight(3)) // WaitN(ctx, 3)
	if err != nil {
		return err
	}
	defer permit.Release()
	return nil // the call goes here
}

func limited(limiter *quotient.Limiter, next http.Handler) http.Handler {
	proxies := netip.MustParsePrefix("10.0.0.0/8") // whose X-Forwarded-For is believed
	fields := httplimit.SendFields(httplimit.FieldsXRateLimit)
	return httplimit.Middleware(limiter, httplimit.ClientAddr(proxies), fields)(next)
}

func fromRedis(ctx context.Context, count quotient.Source) (*quotient.Limiter, error) {
	limiter, err := quotient.New(quotient.Rates(quotient.PerMinute(100)),
		quotient.AwaitPool(time.Minute), quotient.Replicas(10))
	if err != nil {
		return nil, err
	}
	go func() { _ = limiter.Follow(ctx, count) }() // poolsize/redis, poolsize/dns: never on a request's path
	return limiter, nil
}
