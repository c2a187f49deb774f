package cookbook

import (
	"net/http"
	"strings"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/httplimit"
)

func limitEachKey(api http.Handler) (http.Handler, error) {
	limiter, err := quotient.New(quotient.Rates(quotient.PerSecond(10)), quotient.Replicas(4))
	if err != nil {
		return nil, err
	}
	throttled := httplimit.Middleware(limiter, httplimit.Credential("X-API-Key"))
	return throttled(api), nil
}

func twoPlans() (*quotient.Limiter, error) {
	anonymous := quotient.Rates(quotient.PerMinute(10)) // for requests without a plan
	return quotient.New(anonymous, quotient.Plans(map[string]quotient.Limit{
		"free": quotient.Rates(quotient.PerMinute(60)),
		"paid": {Rates: []quotient.Rate{quotient.PerMinute(6000)}, InFlight: 200},
	}))
}

func forCustomer(limiter *quotient.Limiter, customer, plan string) (quotient.Permit, quotient.Decision) {
	return limiter.TryAcquire(customer, quotient.Plan(plan)) // an unknown plan is refused
}

func halveFree(limiter *quotient.Limiter) error {
	half := quotient.Rates(quotient.PerMinute(30))
	return limiter.SetPlan("free", &half) // at once, for all its keys
}

func tellClients(limiter *quotient.Limiter, api http.Handler) http.Handler {
	fields := httplimit.SendFields(httplimit.FieldsDraft11)
	return httplimit.Middleware(limiter, httplimit.Credential("X-API-Key"), fields)(api)
}

func payingFirst(limiter *quotient.Limiter, pays func(*http.Request) bool, api http.Handler) http.Handler {
	first := httplimit.PriorityBy(func(r *http.Request) quotient.Priority {
		if pays(r) {
			return quotient.PriorityHigh
		}
		return quotient.PriorityNormal
	})
	return httplimit.Middleware(limiter, httplimit.Constant("api"), first,
		httplimit.Wait(httplimit.Forever))(api)
}

func tenantLimits() (tenants, routes *quotient.Limiter, err error) {
	paid := quotient.Rates(quotient.PerSecond(100))
	plans := quotient.Plans(map[string]quotient.Limit{"paid": paid})
	if tenants, err = quotient.New(quotient.Rates(quotient.PerSecond(10)), plans); err != nil {
		return nil, nil, err
	}
	routes, err = quotient.New(quotient.Limit{InFlight: 20})
	return tenants, routes, err
}

func tenantsAndRoutes(tenants, routes *quotient.Limiter, mux *http.ServeMux) http.Handler {
	plan := httplimit.PlanBy(func(r *http.Request) string { return r.Header.Get("X-Plan") })
	slots := httplimit.Also(routes, httplimit.Pattern(mux))
	return httplimit.Middleware(tenants, httplimit.Header("X-Tenant"), plan, slots)(mux)
}

// Each address gets 20 attempts at once, then one every 15 seconds. Each account gets five from all addresses together,
// then one a minute.
func loginLimits() (addresses, accounts *quotient.Limiter, err error) {
	perAddress := quotient.Rates(quotient.Rate{Events: 20, Per: 5 * time.Minute})
	if addresses, err = quotient.New(perAddress); err != nil {
		return nil, nil, err
	}
	accounts, err = quotient.New(quotient.Rates(quotient.Rate{Events: 5, Per: 5 * time.Minute}))
	return addresses, accounts, err
}

func guard(addresses, accounts *quotient.Limiter, login http.Handler) http.Handler {
	account := func(r *http.Request) string {
		return strings.ToLower(strings.TrimSpace(r.PostForm.Get("account"))) // as your login compares them
	}
	throttle := httplimit.Middleware(addresses, httplimit.ClientAddr(), httplimit.Also(accounts, account))
	throttled := throttle(login)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 4096)
		if err := r.ParseForm(); err != nil {
			http.Error(w, "this is no form", http.StatusBadRequest)
			return
		}
		throttled.ServeHTTP(w, r)
	})
}
