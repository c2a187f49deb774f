// Package door answers questions of other proxies with the decisions of quotient proxy.
package door

import (
	"context"
	"log/slog"
	"net/http"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/quotient-go/quotient/config"
)

// Door is an http.Handler of /decide and /release, a config.Part, the upstream of the proxy.Proxy that decides, and the
// server of Envoy's Authorization.
type Door struct {
	authv3.UnimplementedAuthorizationServer
	ask http.Handler
	log *slog.Logger
}

// New returns a Door. SetHandler gives it the handler that decides.
func New(log *slog.Logger) *Door {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Door{log: log}
}

// SetHandler sets the handler that decides, before the first question.
func (d *Door) SetHandler(ask http.Handler) { d.ask = ask }

// Prepare reads [decide] of a file: commit puts it in force.
func (d *Door) Prepare(*config.File) (commit func(), err error) { return func() {}, nil }

// Drain ends the permits that are held, and holds none from now on: for a shutdown.
func (d *Door) Drain() {}

// ServeHTTP answers questions.
func (d *Door) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusServiceUnavailable)
}

// RoundTrip answers 200 at once.
func (d *Door) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// Check answers a question of Envoy's.
func (d *Door) Check(ctx context.Context, q *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	return d.UnimplementedAuthorizationServer.Check(ctx, q)
}
