package cost

import (
	"fmt"
	"net/http"
	"time"

	"github.com/didip/tollbooth/v8"
	"github.com/go-chi/httprate"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ululelimiter "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/httplimit"
)

// httpKeys is how many keys the requests carry, each in the header tenantHeader.
const (
	httpKeys     = 100
	tenantHeader = "X-Tenant"
)

// nopWriter discards the response and counts how often the handler behind the middleware was reached.
type nopWriter struct {
	header http.Header
	served int
}

func (w *nopWriter) Header() http.Header         { return w.header }
func (w *nopWriter) Write(b []byte) (int, error) { return len(b), nil }
func (w *nopWriter) WriteHeader(int)             {}

func serve(w http.ResponseWriter, _ *http.Request) { w.(*nopWriter).served++ }

// tenant is the key of a request, for all that take a function.
func tenant(r *http.Request) string { return r.Header[tenantHeader][0] }

// requests returns one request for each tenant, and each with a client address of its own.
func requests() (all []*http.Request) {
	for i, key := range makeKeys("tenant-", httpKeys) {
		r := must(http.NewRequest(http.MethodGet, "http://example.com/items", nil))
		r.Header.Set(tenantHeader, key)
		r.RemoteAddr = fmt.Sprintf("192.0.2.%d:4711", i)
		all = append(all, r)
	}
	return all
}

// middlewarePeers wrap a handler. All limit by the tenant's key but tollbooth, which limits by client
// address; there are as many addresses as keys.
func middlewarePeers() []named[func(http.Handler) http.Handler] {
	l := must(quotient.New(generousLimit()))
	toll := tollbooth.NewLimiter(1/generous.per.Seconds(), nil).SetBurst(generous.burst)
	gcra := newThrottled(generous)
	thr := throttled.HTTPRateLimiterCtx{RateLimiter: gcra, VaryBy: varyByTenant{}}
	store := ululememory.NewStoreWithOptions(ululelimiter.StoreOptions{CleanUpInterval: time.Hour})
	ulule := stdlib.NewMiddleware(
		ululelimiter.New(store, ululelimiter.Rate{Period: generous.per, Limit: int64(generous.burst)}),
		stdlib.WithKeyGetter(tenant))
	byTenant := func(r *http.Request) (string, error) { return tenant(r), nil }
	return []named[func(http.Handler) http.Handler]{
		{"bare", func(h http.Handler) http.Handler { return h }},
		{"tollbooth", tollbooth.HTTPMiddleware(toll)},
		{"httprate", httprate.LimitBy(generous.burst, generous.per, byTenant)},
		{"throttled", thr.RateLimit},
		{"ulule", ulule.Handler},
		{"quotient", httplimit.Middleware(l, tenant)},
		{"quotient-wait", httplimit.Middleware(l, tenant, httplimit.Wait(time.Second))},
		{"quotient-ratelimit-fields", httplimit.Middleware(l, tenant, httplimit.SendFields(httplimit.FieldsDraft11))},
		{"quotient-x-ratelimit-fields", httplimit.Middleware(l, tenant, httplimit.SendFields(httplimit.FieldsXRateLimit))},
	}
}

type named[T any] struct {
	name string
	it   T
}

type varyByTenant struct{}

func (varyByTenant) Key(r *http.Request) string { return tenant(r) }

func generousLimit() quotient.Limit {
	return quotient.Rates(quotient.Rate{Events: 1, Per: generous.per, Burst: generous.burst})
}

type nopTripper struct{ header http.Header }

func (t nopTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: t.header, Body: http.NoBody, Request: r}, nil
}

// transportPeers send requests to a RoundTripper that does nothing, one of them under a rate and slots.
func transportPeers() []named[http.RoundTripper] {
	limit := generousLimit()
	limit.InFlight = 1000
	l := must(quotient.New(limit))
	base := nopTripper{header: http.Header{}}
	return []named[http.RoundTripper]{
		{"bare", base},
		{"quotient", &httplimit.Transport{Base: base, Limiter: l, Key: tenant}},
	}
}

// newThrottled bounds the period: throttled keeps burst times period as nanoseconds in an int64.
func newThrottled(q quota) *throttled.GCRARateLimiterCtx {
	store := must(memstore.NewCtx(65536))
	period := min(q.per, time.Duration((1<<61)/q.burst))
	l := must(throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate:  throttled.PerDuration(1, period),
		MaxBurst: q.burst - 1,
	}))
	l.SetMaxCASAttemptsLimit(1 << 20) // its default of 10 gives up under contention
	return l
}
