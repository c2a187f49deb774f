// Hello is the smallest server under a limit that holds for a whole fleet.
package main

import (
	"io"
	"log"
	"net/http"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/httplimit"
)

func main() {
	limiter, err := quotient.New(quotient.Rates(quotient.PerSecond(100)), quotient.Replicas(4)) // each path
	if err != nil {
		log.Fatal(err)
	}
	hello := func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello\n") }
	throttled := httplimit.Middleware(limiter, httplimit.Path())
	log.Fatal(http.ListenAndServe("localhost:8080", throttled(http.HandlerFunc(hello))))
}
