package echolimit_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
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
		MadeUp: "OTHER /items/:id",
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

// after is a middleware that looks at a request that is over.
func after(look func(*echo.Context, error)) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			err := next(c)
			look(c, err)
			return err
		}
	}
}

func router(t testing.TB, r adaptertest.Route) http.Handler {
	e := newEcho()
	if r.Seen != nil {
		e.Use(after(func(c *echo.Context, _ error) { r.Seen(response(t, c).Status) }))
	}
	if r.Recover {
		e.Use(middleware.Recover())
	}
	var ofRoute []echo.MiddlewareFunc
	if r.ByToken {
		byToken := echolimit.Request(httplimit.Header("Token"))
		ofRoute = append(ofRoute, echolimit.Middleware(r.Limiter, byToken, r.Options...))
	} else {
		e.Use(echolimit.Middleware(r.Limiter, echolimit.Route(), r.Options...))
	}
	e.Add(r.Method, r.Path, func(c *echo.Context) error { r.Handle(c.Response(), c.Request()); return nil },
		ofRoute...)
	return e
}

// The policy reads the status that is written, also of an error that echo answers.
func TestFeedback(t *testing.T) {
	tooMany := echo.NewHTTPError(429, "slow")
	flush := func(c *echo.Context) error { c.Response().(http.Flusher).Flush(); return tooMany }
	for name, tt := range map[string]struct {
		handle    echo.HandlerFunc
		throttled uint64
		status    int
	}{
		"nothing":                {func(*echo.Context) error { return nil }, 0, 200},
		"json":                   {func(c *echo.Context) error { return c.JSON(429, "slow") }, 1, 429},
		"error":                  {func(*echo.Context) error { return tooMany }, 1, 429},
		"a bug":                  {func(*echo.Context) error { return io.ErrUnexpectedEOF }, 0, 500},
		"error after the answer": {func(c *echo.Context) error { _ = c.String(200, "fine"); return tooMany }, 0, 200},
		"flushed":                {flush, 0, 200},
	} {
		for kind, l := range adaptertest.Learners(t) {
			e := newEcho()
			var heard error
			e.Use(after(func(_ *echo.Context, err error) { heard = err }))
			e.GET("/", tt.handle, echolimit.Middleware(l, echolimit.Route()))
			w := adaptertest.Ask(e, "GET", "/")
			if got := l.Stats().Throttled; kind == "learning" && got != tt.throttled {
				t.Errorf("%s: throttled %d, want %d", name, got, tt.throttled)
			}
			c := e.NewContext(httptest.NewRequest("GET", "/", nil), httptest.NewRecorder())
			want := tt.handle(c)
			if kind == "learning" && !response(t, c).Committed {
				want = nil // it was answered
			}
			if w.Code != tt.status || heard != want {
				t.Errorf("%s, %s: status %d, error %v; want %d, %v", name, kind, w.Code, heard, tt.status, want)
			}
			adaptertest.Idle(t, l)
		}
	}
}

// One error is one call of echo's error handler, also of one that does not look whether an answer has begun,
// and one answer. A logger in front sees its status.
func TestOneErrorOneAnswer(t *testing.T) {
	for kind, l := range adaptertest.Learners(t) {
		e, called, seen := newEcho(), 0, 0
		e.HTTPErrorHandler = func(c *echo.Context, _ error) {
			called++
			_ = c.String(http.StatusBadGateway, "sorry")
		}
		e.Use(after(func(c *echo.Context, _ error) { seen = response(t, c).Status }))
		e.GET("/", func(*echo.Context) error { return io.ErrUnexpectedEOF },
			echolimit.Middleware(l, echolimit.Route()))
		w := adaptertest.Ask(e, "GET", "/")
		if called != 1 || w.Code != http.StatusBadGateway || w.Body.String() != "sorry" {
			t.Errorf("%s: called %d times, status %d, body %q", kind, called, w.Code, w.Body)
		}
		if kind == "learning" && seen != http.StatusBadGateway { // else it is answered later
			t.Errorf("the logger sees %d", seen)
		}
		adaptertest.Idle(t, l)
	}
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
