package echolimit_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/labstack/echo/v5"

	"github.com/quotient-go/quotient/echolimit"
)

// A connection that is taken over holds the permit until it is closed.
func TestHijack(t *testing.T) {
	for name, take := range map[string]func(http.ResponseWriter) (io.Closer, error){
		"direct": func(w http.ResponseWriter) (io.Closer, error) {
			conn, _, err := w.(http.Hijacker).Hijack()
			return conn, err
		},
		"controller": func(w http.ResponseWriter) (io.Closer, error) {
			rc := http.NewResponseController(w)
			if err := rc.SetReadDeadline(time.Now().Add(soon)); err != nil {
				return nil, err
			}
			conn, _, err := rc.Hijack()
			return conn, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := learners(t)["learning"]
			router, conns := newEcho(), make(chan io.Closer, 1)
			router.GET("/", func(c *echo.Context) error {
				conn, err := take(c.Response())
				if err != nil {
					panic(err)
				}
				conns <- conn
				return nil
			}, echolimit.Middleware(l, echolimit.Route()))
			url, client := serve(t, router)
			failed := make(chan error)
			go func() {
				resp, err := client.Get(url)
				if err == nil {
					_ = resp.Body.Close()
				}
				failed <- err
			}()
			conn := <-conns
			if n := l.Stats().InFlight; n != 1 {
				t.Errorf("in flight %d, want 1 until the connection is closed", n)
			}
			_ = conn.Close()
			if err := <-failed; err == nil {
				t.Error("the client got an answer over a connection that was closed")
			}
			idle(t, l)
		})
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
	for kind, l := range learners(t) {
		router := newEcho()
		router.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c *echo.Context) error {
				own := c.Response()
				defer c.SetResponse(own)
				c.SetResponse(odd{own, nil})
				return next(c)
			}
		}, echolimit.Middleware(l, echolimit.Route()))
		router.GET("/", func(c *echo.Context) error { return c.String(http.StatusOK, "fine") })
		router.GET("/error", func(*echo.Context) error {
			return echo.NewHTTPError(http.StatusConflict, "no")
		})
		for path, want := range map[string]int{"/": http.StatusOK, "/error": http.StatusConflict} {
			w := httptest.NewRecorder()
			router.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
			if w.Code != want {
				t.Errorf("%s, %s: status %d, want %d", kind, path, w.Code, want)
			}
		}
		idle(t, l)
	}
}
