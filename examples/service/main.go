// Command service is a whole service with limits: two plans of tenants, slots for each route, RateLimit fields,
// metrics, the operator's page behind a token, a count of replicas from DNS, and an end in order.
//
//	ADMIN_TOKEN=0123456789abcdef go run ./examples/service
//	curl -i -H 'X-API-Key: key-of-ann' localhost:8080/hello     # ten at once, then 429
//	curl -s localhost:8080/metrics | grep quotient_requests
//
// The page is at http://localhost:9091. With -service NAME, a headless Service, the limits are those of all
// its pods together; without it those of this process. It serves until it is interrupted. limits.go is the part
// to copy.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/poolsize/dns"
)

func main() {
	addr := flag.String("addr", "localhost:8080", "address of the API, of /metrics and of the probes")
	operator := flag.String("operator", "localhost:9091", "address of the operator's page")
	name := flag.String("service", "", "headless Service whose pods share the limits, such as api.prod.svc.cluster.local.")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var pods quotient.Source
	if *name != "" {
		pods = &dns.Source{Name: *name, Uncapped: true}
	}
	if err := run(ctx, *addr, *operator, os.Getenv("ADMIN_TOKEN"), pods); err != nil {
		log.Fatal("service: ", err)
	}
}

// run serves the API and the operator's page until ctx ends, or one of them does. No pods is one process.
func run(ctx context.Context, addr, operator, token string, pods quotient.Source) error {
	var pool []quotient.Option
	if pods != nil {
		pool = follows()
	}
	api := http.NewServeMux()
	api.HandleFunc("GET /hello", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello, %s\n", tenantOf(r).name)
	})
	limiters, throttled, collector := limits(api, pool)
	page, err := admin.New(limiters, admin.Token(token))
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)

	root := http.NewServeMux()
	root.Handle("/", authenticate(throttled)) // what follows is not limited
	root.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	root.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) { ready(w, limiters) })
	server := &http.Server{Addr: addr, Handler: root, ReadHeaderTimeout: 5 * time.Second}

	return together(ctx,
		func(ctx context.Context) error { return serve(ctx, server) },
		func(ctx context.Context) error { return page.ListenAndServe(ctx, operator) },
		func(ctx context.Context) error { return follow(ctx, limiters, pods) })
}

// together runs all until ctx ends or one of them does, which ends the others.
func together(ctx context.Context, all ...func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, len(all))
	for _, f := range all {
		go func() {
			defer stop()
			ended <- f(ctx)
		}()
	}
	var errs []error
	for range all {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// serve serves until ctx ends, and then finishes what has been admitted.
func serve(ctx context.Context, server *http.Server) error {
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		stopped <- server.Shutdown(grace)
	})
	if err := server.ListenAndServe(); stop() { // the end was not asked for
		return err
	}
	return <-stopped
}

// follow has all limiters follow a count of pods, if there is one, until ctx ends.
func follow(ctx context.Context, limiters *quotient.Registry, pods quotient.Source) error {
	if pods == nil {
		<-ctx.Done()
		return nil
	}
	return limiters.Follow(ctx, pods)
}

// ready answers 503 while a limiter waits for the first count of pods, and would refuse everything.
func ready(w http.ResponseWriter, limiters *quotient.Registry) {
	for name, l := range limiters.All() {
		if l.Stats().Pool.Source == "awaited" {
			http.Error(w, name+" awaits the number of replicas", http.StatusServiceUnavailable)
			return
		}
	}
}
