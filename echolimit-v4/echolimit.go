package echolimit

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/httplimit"
)

// KeyFunc returns the key that a request is limited by, as httplimit.KeyFunc does for an http.Request. Keys
// of more than 256 bytes are hashed.
type KeyFunc func(echo.Context) string

// unmatched is the key of all requests that no route takes, as in httplimit.
const unmatched = "(unmatched)"

// Route returns a KeyFunc that limits by method and route, such as "GET /items/:id", for all values of the
// parameters. All requests without a route share one key. All requests under echo.Echo.Pre share it too,
// since that runs before the routes. Methods that are not in RFC 9110 or RFC 5789 count as one, "OTHER",
// since echo also returns the route for a method that the route does not accept.
func Route() KeyFunc {
	return func(c echo.Context) string {
		if c.Path() == "" {
			return unmatched
		}
		return methodPattern(&http.Request{Method: c.Request().Method, URL: c.Request().URL, Pattern: c.Path()})
	}
}

var methodPattern = httplimit.MethodPattern(nil)

// Request returns a KeyFunc that limits by the key of the http.Request, with a function such as
// httplimit.ClientAddr. httplimit.Pattern knows only the routes of net/http's ServeMux: use Route for those
// of echo. Request panics if key is nil.
func Request(key httplimit.KeyFunc) KeyFunc {
	if key == nil {
		panic("echolimit: Request: the key function is nil")
	}
	return func(c echo.Context) string { return key(c.Request()) }
}

// Middleware puts l in front of a handler: of one route, of a group, or, by echo.Echo.Use, of all. It
// answers a refused request, returns no error, and does not call the handler. Middleware in front of the
// limiter sees the status. The permit is released when the handler has returned or panicked.
//
// An error of the handler is returned unchanged, with one exception: the limiter's policy learns, or the
// request asks for another protocol. The handler then sees another echo.Response. Its error is answered
// (echo.Context.Error) and not returned, unless an answer has begun. The policy learns from that answer,
// and echo's error handler must answer only once. A logging middleware in front sees the status that was
// sent. To see the error, put it behind the limiter.
//
// The returned handlers are safe for use by many goroutines. Middleware panics if l or key is nil.
func Middleware(l *quotient.Limiter, key KeyFunc, opts ...httplimit.Option) echo.MiddlewareFunc {
	serve := httplimit.Around(l, opts...)
	if key == nil {
		panic("echolimit: Middleware: the key function is nil")
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			h := &handler{c: c, next: next}
			serve(c.Response(), c.Request(), key(c), h)
			return h.err
		}
	}
}

// handler is an echo.HandlerFunc for one request, as an http.Handler.
type handler struct {
	c    echo.Context
	next echo.HandlerFunc
	err  error
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer h.c.SetRequest(h.c.Request())
	h.c.SetRequest(r) // it may carry a permit
	own := h.c.Response()
	if w == http.ResponseWriter(own) {
		h.err = h.next(h.c)
		return
	}
	h.c.SetResponse(echo.NewResponse(w, h.c.Echo()))
	defer h.c.SetResponse(own)
	if h.err = h.next(h.c); h.err != nil && !own.Committed {
		h.c.Error(h.err)
		h.err = nil // it is answered: echo would call its error handler again
	}
}
