package echolimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/labstack/echo/v5"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/echolimit"
)

func Example() {
	l, err := quotient.New(quotient.Rates(quotient.Every(time.Minute)))
	if err != nil {
		panic(err)
	}
	e := echo.New()
	e.Use(echolimit.Middleware(l, echolimit.Route()))
	e.GET("/items/:id", func(c *echo.Context) error { return c.String(http.StatusOK, "item "+c.Param("id")) })

	for _, path := range []string{"/items/1", "/items/2"} {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		fmt.Printf("%d, Retry-After %q\n", w.Code, w.Header().Get("Retry-After"))
	}
	// Output:
	// 200, Retry-After ""
	// 429, Retry-After "60"
}
