// Command retry shows a client that retries and still stays within its limit.
//
//	go run ./examples/retry
//
// An upstream allows 100 requests a second and fails for a second. Every attempt passes the limiter, and retries a
// budget of their own. The pause before one is random, grows, and is never shorter than Retry-After. The retries of
// a second client bypass the limiter, as those built into an HTTP client do. client.go is the part to copy. The
// program ends by itself in six seconds, with status 1 if the first client was too fast, or the second was not.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-go/quotient"
)

const (
	perSecond = 100
	burst     = 10
	callers   = 50
	tolerated = (perSecond + burst) * 13 / 10 // in a second: what a busy machine has delivered late arrives together
)

func main() {
	fmt.Println("Look at the worst second of the upstream. Retries that pass the limiter keep it at the 110 that are allowed, give or\n" +
		"take what a request is late; retries beneath the limiter nearly triple it.")
	for _, bypass := range []bool{false, true} {
		u := &upstream{start: time.Now()}
		server := httptest.NewServer(u) // until the program ends
		if err := run(context.Background(), os.Stdout, http.DefaultTransport, server.URL, u, bypass); err != nil {
			fmt.Fprintln(os.Stderr, "retry:", err)
			os.Exit(1)
		}
	}
}

func newClient(base http.RoundTripper) *client {
	limit := func(n float64) *quotient.Limiter {
		return quotient.Must(quotient.New(quotient.Rates(quotient.Rate{Events: n, Per: time.Second, Burst: burst})))
	}
	return &client{base, limit(perSecond), limit(perSecond / 5), 4}
}

// run lets the callers call, and judges by what the upstream has seen.
func run(ctx context.Context, out io.Writer, base http.RoundTripper, url string, u *upstream, bypass bool) error {
	c, name := newClient(base), "every attempt passes the limiter"
	if bypass {
		c.base, c.attempts, name = impatient{base}, 1, "retries beneath the limiter"
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	var served, failed atomic.Int64
	var calling sync.WaitGroup
	for range callers {
		calling.Go(func() {
			var err error
			for err == nil || errors.Is(err, errGivenUp) { // else the time is over, or no turn comes before that
				if err = c.get(ctx, url); err == nil {
					served.Add(1)
				} else if errors.Is(err, errGivenUp) {
					failed.Add(1)
				}
			}
		})
	}
	calling.Wait()
	seen, most := u.verdict()
	fmt.Fprintf(out, "%-34s %d served, %d given up; the upstream saw %d requests, %d in its worst second of %d allowed\n",
		name, served.Load(), failed.Load(), seen, most, perSecond+burst)
	if served.Load() == 0 || (most > tolerated) != bypass { // without too many beneath the limiter this shows nothing
		return fmt.Errorf("%s: %d served, %d requests in a second", name, served.Load(), most)
	}
	return nil
}

// impatient is a transport that tries up to three times by itself.
type impatient struct{ base http.RoundTripper }

func (i impatient) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	for range 3 {
		if resp, err = i.base.RoundTrip(req); err != nil || resp.StatusCode < 500 {
			return resp, err
		}
		_ = resp.Body.Close()
	}
	return resp, err
}

// upstream fails from the first second to the second one, and notes its requests.
type upstream struct {
	mu    sync.Mutex
	start time.Time
	asked []time.Time
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	now := time.Now()
	u.mu.Lock()
	u.asked = append(u.asked, now)
	u.mu.Unlock()
	if age := now.Sub(u.start); age >= time.Second && age < 2*time.Second {
		w.Header().Set("Retry-After", "0.2")
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// verdict returns how many requests there were, and how many in the worst second.
func (u *upstream) verdict() (seen, most int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	first := 0
	for i, at := range u.asked {
		for at.Sub(u.asked[first]) >= time.Second {
			first++
		}
		most = max(most, i-first+1)
	}
	return len(u.asked), most
}
