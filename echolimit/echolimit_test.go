package echolimit_test

import (
	"log/slog"
	"net/http"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
	"go.uber.org/goleak"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/echolimit"
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

func newEcho() *echo.Echo {
	e := echo.New()
	e.Logger = slog.New(slog.DiscardHandler)
	return e
}

// response is echo's own response of a request, whatever stands around it.
func response(t testing.TB, c *echo.Context) *echo.Response {
	t.Helper()
	r, err := echo.UnwrapResponse(c.Response())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func router(t testing.TB, r adaptertest.Route) http.Handler {
	e := newEcho()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			err := next(c)
			r.Seen(response(t, c).Status, err)
			return err
		}
	})
	if r.OnError != nil {
		e.HTTPErrorHandler = func(c *echo.Context, _ error) { r.OnError(c.Response()) }
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
	e.Add(r.Method, r.Path, func(c *echo.Context) error { r.Handle(c.Response(), c.Request()); return r.Fails },
		ofRoute...)
	return e
}

// odd is a writer of another middleware. Values of its type cannot be compared.
type odd struct {
	http.ResponseWriter
	notes []string
}

func (w odd) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A middleware in front may have put a writer of its own into the context, of whatever type.
func TestWriterOfAnotherMiddleware(t *testing.T) {
	for kind, l := range adaptertest.Learners(t) {
		e := newEcho()
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c *echo.Context) error {
				own := c.Response()
				defer c.SetResponse(own)
				c.SetResponse(odd{own, nil})
				return next(c)
			}
		}, echolimit.Middleware(l, echolimit.Route()))
		e.GET("/", func(c *echo.Context) error { return c.String(http.StatusOK, "fine") })
		e.GET("/error", func(*echo.Context) error { return echo.NewHTTPError(http.StatusConflict, "no") })
		for path, want := range map[string]int{"/": http.StatusOK, "/error": http.StatusConflict} {
			if w := adaptertest.Ask(e, "GET", path); w.Code != want {
				t.Errorf("%s, %s: status %d, want %d", kind, path, w.Code, want)
			}
		}
		adaptertest.Idle(t, l)
	}
}
