package ginlimit

import (
	"net/http"
	"reflect"

	"github.com/gin-gonic/gin"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/httplimit"
)

// KeyFunc returns the key that a request is limited by, as httplimit.KeyFunc does for an http.Request. Keys
// of more than 256 bytes are hashed.
type KeyFunc func(*gin.Context) string

// unmatched is the key of all requests that no route takes, as in httplimit.
const unmatched = "(unmatched)"

// Route returns a KeyFunc that limits by method and route, such as "GET /items/:id", for all values of the
// parameters. All requests without a route share one key.
func Route() KeyFunc {
	return func(c *gin.Context) string {
		if c.FullPath() == "" {
			return unmatched
		}
		return c.Request.Method + " " + c.FullPath()
	}
}

// Request returns a KeyFunc that limits by the key of the http.Request, with a function such as
// httplimit.ClientAddr. httplimit.Pattern knows only the routes of net/http's ServeMux: use Route for those
// of gin. Request panics if key is nil.
func Request(key httplimit.KeyFunc) KeyFunc {
	if key == nil {
		panic("ginlimit: Request: the key function is nil")
	}
	return func(c *gin.Context) string { return key(c.Request) }
}

// Middleware returns a handler that puts l in front of the handlers after it: of one route, of a group, or,
// by gin.Engine.Use, of all. It answers a refused request and aborts the chain: later handlers are not
// called, and earlier ones see the status. The permit is released when the handlers have returned or
// panicked.
//
// If the limiter's policy learns, or the request asks for another protocol, the handlers see another
// gin.ResponseWriter in gin.Context.Writer. It has the methods of the original one.
//
// The handler is safe for use by many goroutines. Middleware panics if l or key is nil.
func Middleware(l *quotient.Limiter, key KeyFunc, opts ...httplimit.Option) gin.HandlerFunc {
	serve := httplimit.Around(l, opts...)
	if key == nil {
		panic("ginlimit: Middleware: the key function is nil")
	}
	return func(c *gin.Context) {
		rest := &chain{c: c}
		serve(c.Writer, c.Request, key(c), rest)
		if !rest.called {
			c.Abort()
		}
	}
}

// chain is the handlers after the limiter, as an http.Handler.
type chain struct {
	c      *gin.Context
	called bool
}

func (h *chain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.called = true
	asked := h.c.Request
	h.c.Request = r // it may carry a permit
	defer func() { h.c.Request = asked }()
	own := h.c.Writer
	if same(w, own) {
		h.c.Next()
		return
	}
	watched := &writer{own, w}
	h.c.Writer = watched
	defer func() { h.c.Writer = own }()
	h.c.Next()
	watched.decided() // gin writes the status when all handlers have returned
}

// same reports whether a is b. A writer of another middleware need not be of a type that can be compared.
func same(a, b http.ResponseWriter) bool { return reflect.ValueOf(a).Comparable() && a == b }
