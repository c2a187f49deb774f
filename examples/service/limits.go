package main

import (
	"context"
	"crypto/subtle"
	"log/slog"
	"net/http"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/metrics"
)

// limits returns the limiters of the service, the throttled API, and the collector that shows the limiters.
// Each tenant has the rates of its plan, and each route of the API 20 slots for all tenants together.
func limits(api *http.ServeMux, pool []quotient.Option) (*quotient.Registry, http.Handler, *metrics.Collector) {
	limiters := new(quotient.Registry)
	collector := metrics.New(limiters)
	limiters.Options = func(name string) []quotient.Option {
		return append(pool[:len(pool):len(pool)], quotient.Logger(slog.Default()), collector.Observe(name))
	}

	noPlan := quotient.Limit{Deny: true} // for a tenant whose plan does not exist
	tenants := quotient.Must(limiters.Limiter("tenants", noPlan, quotient.Plans(map[string]quotient.Limit{
		"free": quotient.Rates(quotient.PerSecond(10), quotient.PerHour(1000)),
		"paid": quotient.Rates(quotient.PerSecond(100), quotient.PerHour(100_000)),
	})))
	routes := quotient.Must(limiters.Limiter("routes", quotient.Limit{InFlight: 20}, quotient.AtLeastOne()))

	throttle := httplimit.Middleware(tenants, func(r *http.Request) string { return tenantOf(r).name },
		httplimit.PlanBy(func(r *http.Request) string { return tenantOf(r).plan }),
		httplimit.Also(routes, httplimit.Pattern(api)),
		httplimit.SendFields(httplimit.FieldsDraft11))
	return limiters, throttle(api), collector
}

// follows are the options of a service that follows a count of its replicas. There are never more than most.
func follows(most int) []quotient.Option {
	return []quotient.Option{
		quotient.AwaitPool(time.Minute), // admit nothing before the first count; a minute after the last
		quotient.Replicas(most),         // assume the most
		quotient.HoldDown(time.Minute),  // apply a lower count a minute later
	}
}

// tenant is a customer of the API.
type tenant struct{ key, name, plan string }

// customers stand for your database. Names and plans come from there: a client that may choose its name or
// its plan has as many limits as it likes. The plan of eve does not exist.
var customers = []tenant{
	{"key-of-ann", "ann", "free"},
	{"key-of-bob", "bob", "paid"},
	{"key-of-eve", "eve", "gold"},
}

type tenantKey struct{}

func tenantOf(r *http.Request) tenant {
	t, _ := r.Context().Value(tenantKey{}).(tenant)
	return t
}

// authenticate lets customers pass, each with its tenant in the request's context.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, c := range customers {
			if subtle.ConstantTimeCompare([]byte(c.key), []byte(r.Header.Get("X-API-Key"))) == 1 {
				next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tenantKey{}, c)))
				return
			}
		}
		http.Error(w, "no customer has this X-API-Key", http.StatusUnauthorized)
	})
}
