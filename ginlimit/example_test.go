package ginlimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/ginlimit"
)

func Example() {
	gin.SetMode(gin.ReleaseMode)
	l, err := quotient.New(quotient.Rates(quotient.Every(time.Minute)))
	if err != nil {
		panic(err)
	}
	router := gin.New()
	router.Use(ginlimit.Middleware(l, ginlimit.Route()))
	router.GET("/items/:id", func(c *gin.Context) { c.String(http.StatusOK, "item %s", c.Param("id")) })

	for _, path := range []string{"/items/1", "/items/2"} {
		w := httptest.NewRecorder()
		router.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		fmt.Printf("%d, Retry-After %q\n", w.Code, w.Header().Get("Retry-After"))
	}
	// Output:
	// 200, Retry-After ""
	// 429, Retry-After "60"
}
