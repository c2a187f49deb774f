package admin_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
)

// One listener has the page, metrics for those with the token, and a probe for a kubelet, which has none and
// asks by a pod's address.
func ExampleMountOpen() {
	var limiters quotient.Registry
	if _, err := limiters.Limiter("api", quotient.Rates(quotient.PerSecond(100))); err != nil {
		log.Fatal(err)
	}
	ready := func(w http.ResponseWriter, _ *http.Request) {
		if err := limiters.Ready(); err != nil {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ready")
	}
	// promhttp's
	metrics := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "quotient_limiters 1")
	}
	page, err := admin.New(&limiters, admin.Token("secret-0123456789"),
		admin.Logger(slog.New(slog.DiscardHandler)),
		admin.Mount("/metrics", http.HandlerFunc(metrics)),
		admin.MountOpen("/ready", http.HandlerFunc(ready)))
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
	ask("/metrics", "localhost:4041", "secret-0123456789")

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
