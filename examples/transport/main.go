// Command transport shows a client of an upstream that answers 429, first with a limit that is too high,
// then with a limit that it learns.
//
//	go run ./examples/transport
//
// Sixteen goroutines share one http.Client, and so one limiter. httplimit.Transport acquires a permit before
// each request, and keeps its slot until the body is closed. newClient is the part to copy. The program ends
// by itself in about nine seconds. The exit status is 1 when more requests were in flight than allowed, or
// when the learning client was refused often or used too little.
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
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/policy"
)

const (
	believed  = 400 // requests a second that the client is configured with
	perSecond = 100 // that the upstream allows
	inFlight  = 8
	callers   = 16
	judged    = 3 // seconds at the end
)

// newClient makes a client whose requests share one limit for each host. Under policy.Fixed that is the
// configured limit. A policy that learns starts there, since this is the only replica, and takes it as the
// most that is ever tried.
func newClient(base http.RoundTripper, p policy.Policy) *http.Client {
	limit := quotient.Limit{Rates: []quotient.Rate{quotient.PerSecond(believed)}, InFlight: inFlight}
	learns := quotient.Policy(p)
	limiter := quotient.Must(quotient.New(limit, learns, quotient.BeyondShare(), quotient.Replicas(1)))
	return &http.Client{Transport: &httplimit.Transport{Base: base, Limiter: limiter}}
}

// get asks and reads. The body is closed whatever happens: that is what gives the slot back.
func get(ctx context.Context, c *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(req) // waits for its turn
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func main() {
	u := newUpstream()
	server := httptest.NewServer(u) // until the program ends
	base := &http.Transport{MaxIdleConnsPerHost: callers}
	if err := run(context.Background(), os.Stdout, base, server.URL, u); err != nil {
		fmt.Fprintln(os.Stderr, "transport:", err)
		os.Exit(1)
	}
}

// run shows both clients and judges the second.
func run(ctx context.Context, out io.Writer, base http.RoundTripper, url string, u *upstream) error {
	fixed := play(ctx, newClient(base, policy.Fixed{}), url, u, 0)
	fmt.Fprintf(out, "configured %d/s, %d/s allowed: %s\n", believed, perSecond, fixed)
	learned := play(ctx, newClient(base, policy.Tracking{}), url, u, 3*time.Second)
	fmt.Fprintf(out, "the same, but it learns:  %s\n", learned)
	return errors.Join(u.check(), learned.check())
}

// A tally is what the upstream did in the seconds that are judged.
type tally struct{ served, refused int }

func (t tally) refusedShare() float64 {
	return float64(t.refused) / float64(max(1, t.served+t.refused))
}

// String is a line for the reader.
func (t tally) String() string {
	return fmt.Sprintf("%d served and %d refused in %d s, %.1f %% refused",
		t.served, t.refused, judged, 100*t.refusedShare())
}

func (t tally) check() error {
	if t.refusedShare() > .1 || float64(t.served) < .7*perSecond*judged {
		return fmt.Errorf("the client that learns: %v", t)
	}
	return nil
}

// play lets the callers call, and counts after a time to settle.
func play(ctx context.Context, c *http.Client, url string, u *upstream, settles time.Duration) tally {
	ctx, cancel := context.WithTimeout(ctx, settles+judged*time.Second)
	defer cancel()
	var calling sync.WaitGroup
	for range callers {
		calling.Go(func() {
			var err error
			for err == nil { // until the time is over
				err = get(ctx, c, url)
			}
		})
	}
	time.Sleep(settles)
	before := u.counted()
	calling.Wait()
	after := u.counted()
	return tally{after.served - before.served, after.refused - before.refused}
}

// upstream is a server with a limit of its own, that says nothing about it but 429.
type upstream struct {
	limits *quotient.Limiter

	mu            sync.Mutex
	working, most int
}

func newUpstream() *upstream {
	allowed := quotient.Rate{Events: perSecond, Per: time.Second, Burst: perSecond / 10}
	return &upstream{limits: quotient.Must(quotient.New(quotient.Rates(allowed)))}
}

// ServeHTTP answers after ten milliseconds, or at once if it refuses.
func (u *upstream) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	u.works(1)
	defer u.works(-1)
	if !u.limits.Allow("all") {
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	time.Sleep(10 * time.Millisecond)
	_, _ = io.WriteString(w, "an answer\n") // a client that has left is no error
}

// works counts the requests that are worked on.
func (u *upstream) works(more int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.working += more
	u.most = max(u.most, u.working)
}

func (u *upstream) counted() tally {
	s := u.limits.Stats()
	return tally{int(s.Admitted), int(s.Refused[quotient.ReasonRate])}
}

// check returns an error if more requests came at a time than the client may send. A server sees the end of
// its answer a moment later than the client, so that one more a caller is no proof.
func (u *upstream) check() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.most > 2*inFlight-1 {
		return fmt.Errorf("%d requests at a time, want %d", u.most, inFlight)
	}
	return nil
}
