// Command service is a whole service with limits. It has two plans of tenants, slots for each route, RateLimit
// fields, metrics, the operator's page behind a token, a count of replicas from DNS, and an end in order.
//
//	go run ./examples/service
//	curl -i -H 'X-API-Key: key-of-ann' localhost:8080/hello     # ten at once, then 429
//	curl -s localhost:8080/metrics | grep quotient_requests
//
// The page is at http://localhost:9091, and its token is in the log, unless ADMIN_TOKEN has one. With -service NAME, a
// headless Service, the limits are those of all its pods together; without it those of this process. It serves until it
// is interrupted. limits.go is the part to copy.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/poolsize/dns"
)

func main() {
	var c config
	flag.StringVar(&c.addr, "addr", "localhost:8080", "address of the API, of /metrics and of /ready")
	flag.StringVar(&c.operator, "operator", "localhost:9091", "address of the operator's page")
	name := flag.String("service", "", "headless Service with publishNotReadyAddresses, whose pods share the limits,\n"+
		"such as api.prod.svc.cluster.local.")
	flag.IntVar(&c.most, "most", 10, "most pods that there may be: the autoscaler's maxReplicas")
	flag.DurationVar(&c.listed, "listed", 0, "how long a pod is sent requests after SIGTERM; in Kubernetes 5s")
	flag.Parse()
	if c.token = os.Getenv("ADMIN_TOKEN"); c.token == "" {
		c.token = rand.Text()
		log.Println("ADMIN_TOKEN is not set, so the page's token is", c.token)
	}
	log.Printf("look at http://%s/hello with X-API-Key: key-of-ann, at /metrics beside it, and at the page, http://%s", c.addr, c.operator)
	if *name != "" {
		c.pods = &dns.Source{Name: *name, Uncapped: true}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, c); err != nil {
		log.Fatal("service: ", err)
	}
}

type config struct {
	addr, operator, token string
	pods                  quotient.Source // nil: this process is all there is
	most                  int
	listed                time.Duration
}

// run serves the API and the operator's page until ctx ends, or one of them fails.
func run(ctx context.Context, c config) error {
	var pool []quotient.Option
	if c.pods != nil {
		if c.most < 1 { // quotient.Must is for what stands in the program
			return fmt.Errorf("-most is %d, want at least 1", c.most)
		}
		pool = follows(c.most)
	}
	api := http.NewServeMux()
	api.HandleFunc("GET /hello", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello, %s\n", tenantOf(r).name)
	})
	limiters, throttled, collector := limits(api, pool)
	page, err := admin.New(limiters, admin.Token(c.token))
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)

	root := http.NewServeMux()
	root.Handle("/", authenticate(throttled)) // what follows is not limited
	root.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	root.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if err := errors.Join(ctx.Err(), limiters.Ready()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	server := &http.Server{Addr: c.addr, Handler: root, ReadHeaderTimeout: 5 * time.Second}
	operated := func(ctx context.Context) error { return page.ListenAndServe(ctx, c.operator) }
	if c.pods == nil {
		return serve(ctx, server, c.listed, operated)
	}
	return serve(ctx, server, c.listed, operated, func(ctx context.Context) error { return limiters.Follow(ctx, c.pods) })
}

// serve serves until ctx ends or a part fails. It goes on for as long as the pod is listed, and finishes what has
// been admitted. Then the other parts end.
func serve(ctx context.Context, server *http.Server, listed time.Duration, parts ...func(context.Context) error) error {
	behind, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error)
	go func() { ended <- server.ListenAndServe() }()
	for _, run := range parts {
		go func() { ended <- run(behind) }()
	}
	var errs []error
	select {
	case <-ctx.Done():
		time.Sleep(listed)
	case err := <-ended:
		errs = append(errs, err)
	}
	grace, cancel := context.WithTimeout(behind, 10*time.Second)
	defer cancel()
	err := server.Shutdown(grace)
	stop()
	for len(errs) <= len(parts) {
		errs = append(errs, <-ended)
	}
	errs = slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, http.ErrServerClosed) })
	return errors.Join(append(errs, err)...)
}
