// Package bench measures the module beside github.com/mholt/caddy-ratelimit, in one process:
//
//	cd caddyquotient/bench && GOWORK=off go test -bench . -cpu 2
package bench

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	caddyrl "github.com/mholt/caddy-ratelimit"

	"github.com/quotient-go/quotient/caddyquotient"
)

// handlers are both modules with one limit for each tenant. Neither logs a refusal.
func handlers(b *testing.B, limit int, per time.Duration) map[string]caddyhttp.MiddlewareHandler {
	ctx, err := caddy.ProvisionContext(&caddy.Config{
		Admin:   &caddy.AdminConfig{Disabled: true},
		Logging: &caddy.Logging{Logs: map[string]*caddy.CustomLog{"default": {BaseLog: caddy.BaseLog{Level: "ERROR"}}}},
	})
	if err != nil {
		b.Fatal(err)
	}
	const key = "{http.vars.tenant}"
	zone := fmt.Sprint(limit, "-", per)
	ours := &caddyquotient.Handler{Zone: zone, Key: key, MaxKeys: 1 << 20, Fields: "off",
		Limit: caddyquotient.Limit{Rates: []caddyquotient.Rate{{Events: float64(limit), Per: caddy.Duration(per)}}}}
	theirs := &caddyrl.Handler{RateLimits: map[string]*caddyrl.RateLimit{
		zone: {Key: key, Window: caddy.Duration(per), MaxEvents: limit}}}
	for _, h := range []interface {
		caddy.Provisioner
		caddy.CleanerUpper
	}{ours, theirs} {
		if err := h.Provision(ctx); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { h.Cleanup() }) //nolint:errcheck // the process ends
	}
	return map[string]caddyhttp.MiddlewareHandler{"quotient": ours, "caddy-ratelimit": theirs}
}

// request is one as Caddy hands it to a module.
func request() *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	repl := caddy.NewReplacer()
	return caddyhttp.PrepareRequest(r.WithContext(context.WithValue(r.Context(), caddy.ReplacerCtxKey, repl)),
		repl, httptest.NewRecorder(), &caddyhttp.Server{})
}

// nowhere is a client that keeps no answer.
type nowhere http.Header

func (n nowhere) Header() http.Header         { return http.Header(n) }
func (n nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (n nowhere) WriteHeader(int)             {}

var next = caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil })

// BenchmarkHandler is one request, from as many goroutines as there are processors.
func BenchmarkHandler(b *testing.B) {
	for _, c := range []struct {
		name        string
		keys, limit int
		per         time.Duration
	}{
		{"admitted", 1, 10_000, time.Millisecond},
		{"admitted", 100_000, 100, time.Millisecond},
		{"refused", 1, 100, time.Hour},
	} {
		for name, h := range handlers(b, c.limit, c.per) {
			b.Run(fmt.Sprintf("%s/keys=%d/%s", c.name, c.keys, name), func(b *testing.B) { run(b, h, c.keys) })
		}
	}
}

func run(b *testing.B, h caddyhttp.MiddlewareHandler, keys int) {
	tenants := make([]string, keys)
	for i := range tenants {
		tenants[i] = fmt.Sprint("tenant-", i)
	}
	w, r := nowhere{}, request()
	for _, tenant := range tenants { // none is new later
		caddyhttp.SetVar(r.Context(), "tenant", tenant)
		h.ServeHTTP(w, r, next) //nolint:errcheck // a refusal is one
	}
	var turn atomic.Int64
	b.ReportAllocs()
	before := processor()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		w, r := nowhere{}, request()
		for i := int(turn.Add(1)) * 7919; pb.Next(); i += 31 {
			caddyhttp.SetVar(r.Context(), "tenant", tenants[i%keys])
			h.ServeHTTP(w, r, next) //nolint:errcheck // a refusal is one
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
	b.ReportMetric(float64(processor()-before)/float64(b.N), "cpu-ns/op")
}

// processor is the processor time of this process, which other programs change less than the time of the clock.
func processor() time.Duration {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkMemory is what a key takes that has sent one request.
func BenchmarkMemory(b *testing.B) {
	const keys = 20_000
	for _, limit := range []int{100, 1000} {
		for name, h := range handlers(b, limit, time.Hour) {
			b.Run(fmt.Sprintf("limit=%d/%s", limit, name), func(b *testing.B) {
				var before, after runtime.MemStats
				b.ReportMetric(0, "ns/op")
				w, r := nowhere{}, request()
				runtime.GC()
				runtime.ReadMemStats(&before)
				for i := range keys {
					caddyhttp.SetVar(r.Context(), "tenant", fmt.Sprint(name, limit, b.N, i))
					h.ServeHTTP(w, r, next) //nolint:errcheck // a refusal is one
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/keys, "B/key")
			})
		}
	}
}
