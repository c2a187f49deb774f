// Command retry shows a client that retries and still stays within its limit.
//
//	go run ./examples/retry
//
// An upstream allows 100 requests a second and fails for a second. Every attempt passes the limiter and takes
// from a budget of retries. The pause before it is random, grows, and is never shorter than Retry-After. A
// second client shows the opposite: its retries bypass the limiter, as those built into an HTTP client do.
// client.go is the part to copy. The program ends by itself in about six seconds. The exit status is 1 when
// the first client exceeded the upstream's limit, or when the second did not.
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
	lasts     = 3 * time.Second
	tolerated = (perSecond + burst) * 13 / 10 // in a second: what a busy machine has delivered late arrives together
)

func main() {
	if err := loopback(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "retry:", err)
		os.Exit(1)
	}
}

// loopback is a run with a real network.
func loopback(ctx context.Context, out io.Writer) error {
	for _, bypass := range []bool{false, true} {
		base := &http.Transport{MaxIdleConnsPerHost: callers}
		u := newUpstream()
		server := httptest.NewServer(u)
		err := run(ctx, out, base, server.URL, u, bypass)
		base.CloseIdleConnections()
		server.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// run lets the callers call, and judges by what the upstream has seen.
func run(ctx context.Context, out io.Writer, base http.RoundTripper, url string, u *upstream, bypass bool) error {
	c, err := newClient(base)
	if err != nil {
		return err
	}
	name := "every attempt passes the limiter"
	if bypass {
		c.base, c.attempts, name = impatient{base}, 1, "retries beneath the limiter"
	}
	ctx, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	served, failed := call(ctx, c, url)
	seen, most := u.verdict()
	fmt.Fprintf(out, "%-34s %d served, %d given up; the upstream saw %d requests, %d in its worst second of %d allowed\n",
		name, served, failed, seen, most, perSecond+burst)
	switch {
	case served == 0:
		return errors.New("nothing was served")
	case !bypass && most > tolerated:
		return fmt.Errorf("%d requests in a second", most)
	case bypass && most <= tolerated:
		return errors.New("retries beneath the limiter should be too many, or this shows nothing")
	}
	return nil
}

func newClient(base http.RoundTripper) (*client, error) {
	gate, err := quotient.New(quotient.Rates(quotient.Rate{Events: perSecond, Per: time.Second, Burst: burst}))
	budget, err2 := quotient.New(quotient.Rates(quotient.Rate{Events: perSecond / 5, Per: time.Second, Burst: burst}))
	return &client{base, gate, budget, 4}, errors.Join(err, err2)
}

// call lets the callers send one request after the other, and returns the results.
func call(ctx context.Context, c *client, url string) (served, failed int) {
	var got, missed atomic.Int64
	var calling sync.WaitGroup
	for range callers {
		calling.Go(func() {
			var err error
			for err == nil || errors.Is(err, errGivenUp) { // else the time is over, or no turn comes before that
				if err = c.get(ctx, url); err == nil {
					got.Add(1)
				} else if errors.Is(err, errGivenUp) {
					missed.Add(1)
				}
			}
		})
	}
	calling.Wait()
	return int(got.Load()), int(missed.Load())
}

// impatient is a transport that tries three times by itself.
type impatient struct{ base http.RoundTripper }

// RoundTrip sends a request without a body, up to three times.
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

func newUpstream() *upstream { return &upstream{start: time.Now()} }

// ServeHTTP answers.
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
