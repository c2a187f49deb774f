package admin_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
)

// The page and the API of a process, which end with the context. Here that is at once.
func ExampleHandler_ListenAndServe() {
	ctx, stop := context.WithTimeout(context.Background(), time.Millisecond)
	defer stop()
	_ = os.Setenv("ADMIN_TOKEN", "an-example-0123456789")

	var limiters quotient.Registry
	_, err := limiters.Limiter("api", quotient.Rates(quotient.PerSecond(100)))
	if err != nil {
		fmt.Println(err)
		return
	}
	page, err := admin.New(&limiters, admin.Token(os.Getenv("ADMIN_TOKEN")))
	if err != nil {
		fmt.Println(err)
		return
	}
	err = page.ListenAndServe(ctx, "127.0.0.1:0") // in a program: "127.0.0.1:9091"
	fmt.Println(err)
	// Output: <nil>
}
