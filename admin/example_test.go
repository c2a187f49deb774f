package admin_test

import (
	"context"
	"errors"
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
func ExampleNew() {
	limiter, err := quotient.New(
		quotient.Rates(quotient.PerSecond(100)),
		quotient.StartPool(quotient.Pool{Replicas: 3, Ordinal: 2}),
	)
	if err != nil {
		log.Fatal(err)
	}
	var limiters quotient.Registry
	if err := limiters.Add("api", limiter); err != nil {
		log.Fatal(err)
	}
	handler, err := admin.New(&limiters, admin.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	// In a program: handler.Listen and handler.Serve.
	srv := httptest.NewServer(handler)
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
		fmt.Println(resp.Status, limiter.Stats().Pool.Replicas)
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

// Two operators have seen the same state. The first changes the limit; the second gets an error.
func ExampleClient() {
	var limiters quotient.Registry
	if _, err := limiters.Limiter("api", quotient.Rates(quotient.PerSecond(100))); err != nil {
		log.Fatal(err)
	}
	handler, err := admin.New(&limiters, admin.Token("secret-0123456789"),
		admin.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	srv := httptest.NewServer(handler)
	defer srv.Close()

	client, err := admin.NewClient(srv.URL, admin.BearerToken("secret-0123456789"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()
	seen, err := client.Limiter(ctx, "api")
	if err != nil {
		log.Fatal(err)
	}
	raise := func(events float64) {
		limit := quotient.Rates(quotient.PerSecond(events))
		now, err := client.SetLimit(ctx, "api", limit, admin.IfMatch(seen.ETag))
		if errors.Is(err, admin.ErrConflict) {
			fmt.Println("another operator was faster")
			return
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(now.Limit.Rates[0].Events, "a second")
	}
	raise(200)
	raise(300)

	// Output:
	// 200 a second
	// another operator was faster
}
