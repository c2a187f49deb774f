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
func newService(proxies ...netip.Prefix) *service {
	perMinute := quotient.Rate{Name: "client", Events: 10, Per: time.Minute, Burst: clientBurst}
	clients := quotient.Must(quotient.New(quotient.Rates(perMinute)))
	routes := quotient.Must(quotient.New(quotient.Limit{InFlight: 100}))
	if err := routes.Override(export, &quotient.Limit{InFlight: exportSlots}, 0); err != nil { // this route is dear
		panic(err) // like quotient.Must: it stands in the program
	}
	api := http.NewServeMux()
	api.HandleFunc("GET /items/{id}", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "item "+r.PathValue("id")+"\n")
	})
	api.HandleFunc(export, exporting)

	draining, drain := context.WithCancel(context.Background())
	perRoute := httplimit.Middleware(routes, httplimit.Pattern(api),
		httplimit.Wait(30*time.Second), httplimit.Drain(draining))
	perClient := httplimit.Middleware(clients, httplimit.ClientAddr(proxies...),
		httplimit.SendFields(httplimit.FieldsDraft11))
	root := http.NewServeMux()
	root.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {}) // outside of both
	root.Handle("/", perClient(perRoute(api)))
	return &service{clients, routes, root, drain}
}

// exporting takes a while.
func exporting(w http.ResponseWriter, r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-time.After(500 * time.Millisecond):
		_, _ = io.WriteString(w, "export "+r.PathValue("id")+"\n")
	}
}
