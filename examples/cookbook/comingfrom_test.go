package cookbook

import (
	"context"
	"net/http"
	"net/netip"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/policy"
)

func fromTimeRate() (*quotient.Limiter, error) {
	r := quotient.FromRate(100, 10) // as rate.NewLimiter takes them, now of the fleet
	return quotient.New(quotient.Rates(r), quotient.Replicas(4))
}

func waitForTurn(ctx context.Context, limiter *quotient.Limiter) error {
	permit, err := limiter.Acquire(ctx, "upstream", quotient.Weight(3)) // WaitN(ctx, 3)
	if err != nil {
		return err
	}
	defer permit.Release()
	return nil // the call goes here
}

func fromUber() (*quotient.Limiter, error) {
	return quotient.New(quotient.Rates(quotient.Every(10 * time.Millisecond)))
}

func fromTollbooth(next http.Handler) (http.Handler, error) {
	limiter, err := quotient.New(quotient.Rates(quotient.PerSecond(1)))
	if err != nil {
		return nil, err
	}
	proxies := netip.MustParsePrefix("10.0.0.0/8") // whose X-Forwarded-For is believed
	return httplimit.Middleware(limiter, httplimit.ClientAddr(proxies))(next), nil
}

func fromHTTPRate(next http.Handler) (http.Handler, error) {
	limiter, err := quotient.New(quotient.Rates(quotient.PerMinute(100)))
	if err != nil {
		return nil, err
	}
	send := httplimit.SendFields(httplimit.FieldsXRateLimit)
	return httplimit.Middleware(limiter, httplimit.ClientAddr(), send)(next), nil
}

func fromGoLimiter() (*quotient.Limiter, error) {
	limiter, err := quotient.New(quotient.Rates(quotient.PerMinute(15)))
	if err != nil {
		return nil, err
	}
	more := quotient.Rates(quotient.Rate{Name: "more", Events: 100, Per: time.Minute})
	// store.Set(ctx, "big customer", 100, time.Minute)
	return limiter, limiter.Override("big customer", &more, 0)
}

func take(limiter *quotient.Limiter, key string) (ok bool, retryAfter time.Duration) {
	_, d := limiter.TryAcquire(key)
	return d.OK, d.RetryAfter
}

func fromRedisRate(ctx context.Context, count quotient.Source) (*quotient.Limiter, error) {
	limiter, err := quotient.New(quotient.Rates(quotient.PerMinute(100)),
		quotient.AwaitPool(time.Minute), quotient.Replicas(10))
	if err != nil {
		return nil, err
	}
	go func() { _ = limiter.Follow(ctx, count) }() // poolsize/redis, poolsize/dns: never on a request's path
	return limiter, nil
}

func fromEnvoy() (*quotient.Limiter, error) {
	r := quotient.Rate{Events: 1000, Per: time.Second, Burst: 10_000}
	limiter, err := quotient.New(quotient.Rates(r), quotient.Replicas(4)) // of the fleet
	if err != nil {
		return nil, err
	}
	limiter.SetDryRun(true) // filter_enabled, not yet filter_enforced
	return limiter, nil
}

func fromAWS(base http.RoundTripper) (*http.Client, error) {
	limit := quotient.Rates(quotient.PerSecond(1000)) // more than this is never tried
	limiter, err := quotient.New(limit, quotient.Policy(policy.Tracking{}), quotient.BeyondShare())
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: &httplimit.Transport{Base: base, Limiter: limiter}}, nil
}

func fromThrottled(next http.Handler) (http.Handler, error) {
	limiter, err := quotient.New(quotient.Rates(quotient.Rate{Events: 20, Per: time.Minute, Burst: 6}))
	if err != nil {
		return nil, err
	}
	return httplimit.Middleware(limiter, httplimit.Path())(next), nil
}

func fromUlule(next http.Handler) (http.Handler, error) {
	limiter, err := quotient.New(quotient.Rates(quotient.PerHour(1000)))
	if err != nil {
		return nil, err
	}
	send := httplimit.SendFields(httplimit.FieldsXRateLimit)
	return httplimit.Middleware(limiter, httplimit.ClientAddr(), send)(next), nil
}

func fromFailsafe() (*quotient.Limiter, error) {
	limit := quotient.Limit{Rates: []quotient.Rate{quotient.PerSecond(100)}, InFlight: 10}
	return quotient.New(limit, quotient.MaxWait(time.Second))
}

func get(ctx context.Context, l *quotient.Limiter, f func(context.Context) (string, error)) (string, error) {
	return quotient.Do(ctx, l, "upstream", f)
}

func fromGubernator() (*quotient.Limiter, error) {
	// TryAcquire("account:1")
	return quotient.New(quotient.Rates(quotient.PerSecond(10)), quotient.Replicas(4))
}

func fromNginx(next http.Handler) (http.Handler, error) {
	r := quotient.Rate{Events: 10, Per: time.Second, Burst: 21} // nginx admits one request and 20 more
	limiter, err := quotient.New(quotient.Limit{Rates: []quotient.Rate{r}, InFlight: 5})
	if err != nil {
		return nil, err
	}
	return httplimit.Middleware(limiter, httplimit.ClientAddr())(next), nil
}

func fromCaddy(next http.Handler) (http.Handler, error) {
	limiter, err := quotient.New(quotient.Rates(quotient.Rate{Events: 60, Per: time.Minute, Burst: 20}))
	if err != nil {
		return nil, err
	}
	return httplimit.Middleware(limiter, httplimit.ClientAddr())(next), nil
}
