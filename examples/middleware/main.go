// Command middleware shows a server with a limit for each client and another for each route.
//
//	go run ./examples/middleware
//
// A client over its limit is refused with 429, and every answer has RateLimit fields. A request over its
// route's limit waits. The health endpoint has no limit. On shutdown waiting requests get 503 at once, and
// admitted requests are finished. server.go is the part to copy. The program ends by itself in about a second.
// The exit status is 1 when one of these does not hold.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"sync"
	"time"
)

func main() {
	fmt.Println("Look at how many of 15 requests at once a client gets, at the route whose requests wait, at the health\n" +
		"endpoint without a limit, and at what becomes of those that wait at a shutdown.")
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "middleware:", err)
		os.Exit(1)
	}
}

// run serves on the loopback, asks, and shuts down.
func run(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	s := newService(netip.MustParsePrefix("127.0.0.0/8"))
	server := httptest.NewServer(s.handler)
	defer server.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	v := &visitor{transport, server.URL, out}
	return errors.Join(v.floods(ctx), v.checksHealth(ctx), v.seesShutdown(ctx, s, server.Config))
}

// A visitor asks the service, as a proxy in front of it would.
type visitor struct {
	base http.RoundTripper
	url  string
	out  io.Writer
}

// asks returns the status and the RateLimit field of one answer.
func (v *visitor) asks(ctx context.Context, client, path string) (status int, field string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.url+path, nil)
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("X-Forwarded-For", client)
	resp, err := v.base.RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header.Get("RateLimit"), err
}

// floods asks too much as one client, and once as another.
func (v *visitor) floods(ctx context.Context) error {
	served, last := 0, ""
	for range clientBurst + 5 {
		status, field, err := v.asks(ctx, "192.0.2.1", "/items/7")
		if err != nil {
			return err
		}
		if status == http.StatusOK {
			served++
		}
		last = field
	}
	other, _, err := v.asks(ctx, "192.0.2.2", "/items/7")
	fmt.Fprintf(v.out, "one client: %d of %d served, RateLimit: %s; another one: %d\n", served, clientBurst+5, last, other)
	if err != nil || served != clientBurst || last == "" || other != http.StatusOK {
		return fmt.Errorf("%d served, field %q, the other one %d, %w", served, last, other, err)
	}
	return nil
}

// checksHealth asks more often than any client may.
func (v *visitor) checksHealth(ctx context.Context) error {
	for range 3 * clientBurst {
		if status, _, err := v.asks(ctx, "192.0.2.1", "/healthz"); err != nil || status != http.StatusOK {
			return fmt.Errorf("health: %d, %w", status, err)
		}
	}
	fmt.Fprintf(v.out, "health: %d of %d served\n", 3*clientBurst, 3*clientBurst)
	return nil
}

// exports is how many visitors ask for one at shutdown: enough that one is still waiting when all have come.
const exports = 10

// seesShutdown asks for exports, of which one is served at a time, and shuts the server down meanwhile.
func (v *visitor) seesShutdown(ctx context.Context, s *service, server *http.Server) error {
	var mu sync.Mutex
	var asking sync.WaitGroup
	statuses := map[int]int{}
	before := s.routes.Stats().Admitted
	for i := range exports {
		asking.Go(func() {
			status, _, _ := v.asks(ctx, fmt.Sprintf("192.0.2.%d", 10+i), "/export/1") // 0 for an error
			mu.Lock()
			defer mu.Unlock()
			statuses[status]++
		})
	}
	arrived := func() bool {
		now := s.routes.Stats()
		return now.Waiting > 0 && now.Admitted-before+uint64(now.Waiting) == exports
	}
	for !arrived() && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	s.drain()
	err := server.Shutdown(ctx)
	asking.Wait()
	served, refused := statuses[http.StatusOK], statuses[http.StatusServiceUnavailable]
	fmt.Fprintf(v.out, "shutdown: %d finished, %d that waited were answered with 503\n", served, refused)
	if err != nil || served == 0 || refused == 0 || served+refused != exports {
		return fmt.Errorf("statuses at shutdown: %v, %w", statuses, err)
	}
	return nil
}
