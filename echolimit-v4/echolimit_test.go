package echolimit_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"go.uber.org/goleak"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/echolimit-v4"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/internal/adaptertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAdapter(t *testing.T) {
	adaptertest.Run(t, adaptertest.Adapter{
		Router: router,
		MadeUp: "OTHER /items/:id", TooMany: echo.NewHTTPError(429, "slow"),
		Mistakes: []func(*quotient.Limiter){
			func(*quotient.Limiter) { echolimit.Middleware(nil, echolimit.Route()) },
			func(l *quotient.Limiter) { echolimit.Middleware(l, nil) },
			func(*quotient.Limiter) { echolimit.Request(nil) },
		},
	})
}

func router(_ testing.TB, r adaptertest.Route) http.Handler {
	e := echo.New()
	e.Logger.SetOutput(io.Discard)
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			err := next(c)
			r.Seen(c.Response().Status, err)
			return err
		}
	})
	if r.OnError != nil {
		e.HTTPErrorHandler = func(_ error, c echo.Context) { r.OnError(c.Response()) }
	}
	if r.Recover {
		e.Use(middleware.Recover())
	}
	var ofRoute []echo.MiddlewareFunc
	if r.ByToken {
		byToken := echolimit.Request(httplimit.Header("X-Tenant"))
		ofRoute = append(ofRoute, echolimit.Middleware(r.Limiter, byToken, r.Options...))
	} else {
		e.Use(echolimit.Middleware(r.Limiter, echolimit.Route(), r.Options...))
	}
	e.Add(r.Method, r.Path, func(c echo.Context) error { r.Handle(c.Response(), c.Request()); return r.Fails },
		ofRoute...)
	return e
}
