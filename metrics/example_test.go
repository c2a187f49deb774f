package metrics_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/lease"
	"github.com/quotient-go/quotient/metrics"
)

// One collector serves all limiters of a registry.
func Example() {
	var limiters quotient.Registry
	collector := metrics.New(&limiters)
	limit := quotient.Rates(quotient.PerMinute(2))
	api, err := limiters.Limiter("api", limit, collector.Observe("api"))
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
	show(prom, `quotient_requests_total{limiter="api",outcome="admitted"`)
	show(prom, `quotient_requests_total{limiter="api",outcome="refused",reason="rate"`)
	// Output:
	// quotient_requests_total{limiter="api",outcome="admitted",reason="none"} 2
	// quotient_requests_total{limiter="api",outcome="refused",reason="rate"} 3
}

// show prints the lines of a scrape that begin so.
func show(prom *prometheus.Registry, front string) {
	w := httptest.NewRecorder()
	promhttp.HandlerFor(prom, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, front) {
			fmt.Print(line)
		}
	}
}

// An existing limiter needs no registry.
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

// File shows the file that the limiters are configured by, beside them.
func ExampleFile() {
	state := func() metrics.FileState { // in a program: metrics.FileState(config.State())
		return metrics.FileState{Loaded: time.Unix(1e9, 0), Reloads: 3,
			Differs: []string{"api: limit, override /x"}}
	}
	prom := prometheus.NewRegistry()
	prom.MustRegister(metrics.New(new(quotient.Registry)), metrics.File(state))

	show(prom, "quotient_config_")
	// Output:
	// quotient_config_differs 1
	// quotient_config_last_load_timestamp_seconds 1e+09
	// quotient_config_last_reload_successful 1
	// quotient_config_reloads_total{outcome="applied"} 3
	// quotient_config_reloads_total{outcome="failed"} 0
}

// A lease server at its start.
func ExampleNewLeases() {
	c := lease.Config{Semaphores: map[string]lease.Semaphore{"gpu": {Max: 2}}}
	server, err := lease.NewServer(c, lease.ServerOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	prom := prometheus.NewRegistry()
	prom.MustRegister(metrics.NewLeases(server.Stats))

	show(prom, "quotient_lease_leads")
	show(prom, "throttle_")
	// Output:
	// quotient_lease_leads 1
	// throttle_acquired{semaphore="gpu"} 0
	// throttle_longest_pending_sec{semaphore="gpu"} 0
	// throttle_max{semaphore="gpu"} 2
	// throttle_num_404 0
	// throttle_pending{semaphore="gpu"} 0
}
