package metrics_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/metrics"
)

// One collector serves all limiters of a registry.
func Example() {
	var limiters quotient.Registry
	collector := metrics.New(&limiters)
	limit := quotient.Rates(quotient.PerMinute(2))
	api, err := limiters.Limiter("api", limit, collector.Observe())
	if err != nil {
		fmt.Println(err)
		return
	}
	prom := prometheus.NewRegistry()
	prom.MustRegister(collector)
	http.Handle("/metrics", promhttp.HandlerFor(prom, promhttp.HandlerOpts{}))

	for range 5 {
		api.Allow("alice")
	}
	w := httptest.NewRecorder()
	http.DefaultServeMux.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "quotient_requests_total") && !strings.HasSuffix(line, " 0\n") {
			fmt.Print(line)
		}
	}
	// Output:
	// quotient_requests_total{limiter="api",outcome="admitted",reason="none"} 2
	// quotient_requests_total{limiter="api",outcome="refused",reason="rate"} 3
}

// Of serves a limiter that is there already.
func ExampleOf() {
	limiter, err := quotient.New(quotient.Limit{InFlight: 10})
	if err != nil {
		fmt.Println(err)
		return
	}
	collector, err := metrics.Of("jobs", limiter)
	if err != nil {
		fmt.Println(err)
		return
	}
	prometheus.NewRegistry().MustRegister(collector)
}
