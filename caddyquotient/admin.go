package caddyquotient

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"

	"github.com/quotient-go/quotient/admin"
)

func init() { caddy.RegisterModule(new(Admin)) }

// Admin serves the page and the API of package admin for all zones, under /quotient/ of Caddy's admin endpoint: who
// may load a configuration may change limits. A reload leaves what it changes, but for what the file changes too.
type Admin struct{ page http.Handler }

// CaddyModule returns the name of the module, admin.api.quotient.
func (*Admin) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admin.api.quotient", New: func() caddy.Module { return new(Admin) }}
}

// Provision makes the page. Caddy calls it.
func (a *Admin) Provision(ctx caddy.Context) error {
	page, err := admin.New(&limiters, admin.BehindAuthentication(), admin.Logger(ctx.Slogger()))
	a.page = http.StripPrefix("/quotient", page)
	return err
}

// Routes returns the route of the page.
func (a *Admin) Routes() []caddy.AdminRoute {
	return []caddy.AdminRoute{{Pattern: "/quotient/", Handler: caddy.AdminHandlerFunc(
		func(w http.ResponseWriter, r *http.Request) error {
			a.page.ServeHTTP(w, r)
			return nil
		})}}
}

var _ caddy.AdminRouter = (*Admin)(nil)
