package main

import (
	"context"
	"io"
	"net/http"
	"net/netip"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/httplimit"
)

// A service is a handler under two limits: one for each client, one for each route.
type service struct {
	clients, routes *quotient.Limiter
	handler         http.Handler
	drain           context.CancelFunc // ends the waits; what is admitted goes on
}

// The limits, over the fleet.
const (
	clientBurst = 10 // at once, then ten a minute
	exportSlots = 1
)

const export = "GET /export/{id}"

// newService puts the limits round the routes. Proxies are the networks whose X-Forwarded-For is believed.
func newService(proxies ...netip.Prefix) (*service, error) {
	clients, err := quotient.New(quotient.Rates(quotient.Rate{Name: "client", Events: 10, Per: time.Minute, Burst: clientBurst}))
	if err != nil {
		return nil, err
	}
	routes, err := quotient.New(quotient.Limit{InFlight: 100})
	if err != nil {
		return nil, err
	}
	one := quotient.Limit{InFlight: exportSlots}
	if err := routes.Override(export, &one); err != nil { // this route is dear
		return nil, err
	}
	api := http.NewServeMux()
	api.HandleFunc("GET /items/{id}", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "item "+r.PathValue("id")+"\n") })
	api.HandleFunc(export, exporting)

	perRoute := httplimit.Middleware(routes, httplimit.Pattern(api), httplimit.Wait(30*time.Second))
	perClient := httplimit.Middleware(clients, httplimit.ClientAddr(proxies...), httplimit.SendFields(httplimit.FieldsDraft11))
	draining, drain := context.WithCancel(context.Background())
	root := http.NewServeMux()
	root.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") }) // outside of both
	root.Handle("/", perClient(waitUntil(draining, perRoute(ownContext(api)))))
	return &service{clients, routes, root, drain}, nil
}

// exporting takes a while.
func exporting(w http.ResponseWriter, r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-time.After(500 * time.Millisecond):
		_, _ = io.WriteString(w, "export "+r.PathValue("id")+"\n")
	}
}

type beforeWait struct{}

// waitUntil ends the contexts of requests when draining ends: those that wait for their turn are then answered with 503. ownContext gives
// the others their contexts back.
func waitUntil(draining context.Context, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(context.WithValue(r.Context(), beforeWait{}, r.Context()))
		defer cancel()
		defer context.AfterFunc(draining, cancel)()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// ownContext goes behind the limiter whose waits waitUntil ends.
func ownContext(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ctx, ok := r.Context().Value(beforeWait{}).(context.Context); ok {
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}
