package admin_test

import (
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
)

// A replica of three learns over HTTP that it is now one of four.
func ExampleHandler() {
	limiter, err := quotient.New(
		quotient.Limit{Rates: []quotient.Rate{quotient.PerSecond(100)}},
		quotient.StartPool(quotient.Pool{Replicas: 3, Ordinal: 2}),
	)
	if err != nil {
		log.Fatal(err)
	}
	// In a program: an http.Server with time-outs on a listener at 127.0.0.1.
	srv := httptest.NewServer(admin.Handler(limiter, admin.Logger(slog.New(slog.DiscardHandler))))
	defer srv.Close()

	send := func(body string) {
		req, err := http.NewRequest("PUT", srv.URL+"/replicas", strings.NewReader(body))
		if err != nil {
			log.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			log.Fatal(err)
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(resp.Status, limiter.Pool().Replicas)
		if resp.StatusCode != http.StatusOK {
			fmt.Print(string(answer))
		}
	}
	send(`{"replicas":4,"ordinal":2}`)
	send(`{"replicas":0}`)

	// Output:
	// 200 OK 4
	// 400 Bad Request 4
	// {
	//   "title": "Bad Request",
	//   "status": 400,
	//   "detail": "out of range",
	//   "field": "replicas",
	//   "value": "0",
	//   "range": "a whole number from 1 to 1000000"
	// }
}
