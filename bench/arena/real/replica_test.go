package real

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/examples/fleet/upstream"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/policy"
)

// controller is what the replicas learn by, here and in the simulation.
var ctrl policy.Policy = policy.Tracking{}

// An assignment tells a replica what to do: one line of JSON on its standard input, whose end is its own.
type assignment struct {
	ID       int
	URL      string
	Speaks   string  // the host as whose answers are read; "" for that of URL
	Limit    float64 // requests a second, over the fleet
	Replicas int     // what it knows of the pool; 0: nothing
	Want     float64 // requests a second, as a Poisson process
	Life     time.Duration
}

// A report is what a replica has to tell at its end: one line of JSON on its standard output.
type report struct {
	Stall     time.Duration // the longest time in which it did not get to run
	Failed    int           // requests without an answer
	LastError string
}

const (
	patience   = 5 * time.Second // of a request that waits for its turn; as in the simulation
	watchEvery = 10 * time.Millisecond
)

// replicaMain is a replica's whole life. It returns the exit status.
func replicaMain(stdin io.Reader, stdout, stderr io.Writer) int {
	in := bufio.NewReader(stdin)
	line, err := in.ReadBytes('\n')
	var a assignment
	if err = errors.Join(err, json.Unmarshal(line, &a)); err != nil {
		fmt.Fprintln(stderr, "assignment:", err)
		return 1
	}
	ctx, stop := context.WithTimeout(context.Background(), a.Life)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		stop()
	}()
	r := &replica{assignment: a, clock: upstream.NewClock()}
	if err := r.makeClient(); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	var work sync.WaitGroup
	work.Go(func() { r.watch(ctx) })
	r.load(ctx)
	work.Wait()
	if err := json.NewEncoder(stdout).Encode(r.report); err != nil {
		return 1
	}
	return 0
}

type replica struct {
	assignment
	clock  upstream.Clock
	client *http.Client

	mu     sync.Mutex
	report report
}

// makeClient is all that a program has to do to adapt to an upstream.
func (r *replica) makeClient() error {
	options := []quotient.Option{quotient.Policy(ctrl), quotient.BeyondShare(), quotient.MaxWait(patience)}
	if r.Replicas > 0 {
		options = append(options, quotient.Replicas(r.Replicas))
	}
	limit := quotient.Rates(quotient.PerSecond(r.Limit))
	limiter, err := quotient.New(limit, options...)
	transport := &httplimit.Transport{Base: &http.Transport{MaxIdleConnsPerHost: 64}, Limiter: limiter}
	if r.Speaks != "" {
		transport.Profile = func(string) *httplimit.Profile { return httplimit.ProfileFor(r.Speaks) }
	}
	r.client = &http.Client{Transport: transport}
	return err
}

// load sends requests whatever becomes of them, until ctx ends.
func (r *replica) load(ctx context.Context) {
	var calls sync.WaitGroup
	defer calls.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for next := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		calls.Go(func() { r.call(ctx) })
		next = next.Add(time.Duration(rand.ExpFloat64() / r.Want * float64(time.Second)))
		timer.Reset(time.Until(next))
	}
}

func (r *replica) call(ctx context.Context) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL, nil)
	if err == nil {
		var resp *http.Response
		upstream.Sign(req.Header, r.ID, r.clock.Now(), 0)
		if resp, err = r.client.Do(req); err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			err = errors.Join(err, resp.Body.Close())
		}
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, quotient.ErrLimited) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.report.Failed++
		r.report.LastError = err.Error()
	}
}

// watch measures how long the process stood still.
func (r *replica) watch(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for last := time.Now(); ; last = time.Now() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r.mu.Lock()
		r.report.Stall = max(r.report.Stall, time.Since(last)-watchEvery)
		r.mu.Unlock()
	}
}
