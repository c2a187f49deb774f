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
	perPath := quotient.Rates(quotient.PerSecond(100)) // over the fleet
	limiter := quotient.Must(quotient.New(perPath, quotient.Replicas(4)))
	hello := func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello\n") }
	throttled := httplimit.Middleware(limiter, httplimit.Path())
	log.Println("serving http://localhost:8080")
	log.Fatal(http.ListenAndServe("localhost:8080", throttled(http.HandlerFunc(hello))))
}
