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
	"os"
	"strings"
	"time"

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

	url, token := srv.URL, "secret-0123456789"
	client, err := admin.NewClient(url, admin.BearerToken(token))
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

// The page and the API of a process, which end with the context. Here that is at once.
func ExampleHandler_ListenAndServe() {
	ctx, stop := context.WithTimeout(context.Background(), time.Millisecond)
	defer stop()
	addr := "127.0.0.1:0"
	_ = os.Setenv("ADMIN_TOKEN", "an-example-0123456789")

	var limiters quotient.Registry
	_, err := limiters.Limiter("api", quotient.Rates(quotient.PerSecond(100)))
	if err != nil {
		fmt.Println(err)
		return
	}
	page, err := admin.New(&limiters, admin.Token(os.Getenv("ADMIN_TOKEN")))
	if err != nil {
		log.Fatal(err)
	}
	err = page.ListenAndServe(ctx, addr) // such as "127.0.0.1:9091"
	fmt.Println(err)
	// Output: <nil>
}

// One listener has the page, metrics for those with the token, and a probe for a kubelet, which has none and
// asks by a pod's address.
func ExampleMountOpen() {
	var limiters quotient.Registry
	if _, err := limiters.Limiter("api", quotient.Rates(quotient.PerSecond(100))); err != nil {
		log.Fatal(err)
	}
	ready := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := limiters.Ready(); err != nil {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ready")
	})
	// promhttp's
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "quotient_limiters 1")
	})
	token, logger := "secret-0123456789", slog.New(slog.DiscardHandler)
	page, err := admin.New(&limiters, admin.Token(token), admin.Logger(logger),
		admin.Mount("/metrics", metrics), admin.MountOpen("/ready", ready))
	if err != nil {
		log.Fatal(err)
	}
	ask := func(path, host, token string) {
		r := httptest.NewRequest("GET", "http://"+host+path, nil)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		page.ServeHTTP(w, r)
		body, _, _ := strings.Cut(w.Body.String(), "\n")
		fmt.Println(path, w.Code, body)
	}
	ask("/ready", "10.1.2.3:4041", "")
	ask("/metrics", "localhost:4041", "")
	ask("/metrics", "localhost:4041", token)

	// Output:
	// /ready 200 ready
	// /metrics 401 {
	// /metrics 200 quotient_limiters 1
}

// The page and GET /state show the file that limiters are configured by, and tables of the program's own.
func ExampleFile() {
	var limiters quotient.Registry
	state := func() admin.FileState { // in a program: admin.FileState(config.State())
		return admin.FileState{
			Path: "quotient.toml", Loaded: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Reloads: 1,
			Failures: 1,
			Error:    "quotient.toml:3:7: limiters.api.rate: unknown field (did you mean rates?)",
			ErrorAt:  time.Date(2026, 1, 2, 4, 0, 0, 0, time.UTC),
		}
	}
	upstreams := func() []admin.Table {
		return []admin.Table{{
			Title: "Upstreams", Columns: []string{"URL", "State", "In flight"},
			Rows: [][]string{{"http://10.0.0.1:8080", "healthy", "12"}},
		}}
	}
	page, err := admin.New(&limiters, admin.File(state), admin.Tables(upstreams),
		admin.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	srv := httptest.NewServer(page)
	defer srv.Close()
	client, err := admin.NewClient(srv.URL)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	now, err := client.State(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(now.File.Error)
	fmt.Println(now.Tables[0].Title, now.Tables[0].Rows[0])

	// Output:
	// quotient.toml:3:7: limiters.api.rate: unknown field (did you mean rates?)
	// Upstreams [http://10.0.0.1:8080 healthy 12]
}
