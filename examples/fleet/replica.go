package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/policy"
)

const (
	replicaArg = "replica"              // the argument of a process that is a replica, before its assignment
	patience   = 500 * time.Millisecond // a request waits for its turn, then its replica gives it up
	wakeEvery  = 5 * time.Millisecond   // how often a replica looks whether it gets to run
)

// policies are the controllers by name. The empty name is the limiter's default: the share is a bound.
var policies = map[string]policy.Policy{"tracking": policy.Tracking{}, "aimd": policy.AIMD{}, "fixed": policy.Fixed{}}

// An assignment tells a replica what to do.
type assignment struct {
	ID       int       // 1, 2, …: never used twice, so that the log can tell replicas apart
	Upstream string    // URL
	Start    time.Time // of the upstream: all times count from then
	Limit    float64   // requests a second over the fleet
	Burst    int       // over the fleet
	Replicas int       // the configured pool size
	Join     bool      // others are using the limit already
	Policy   string    // one of policies, up to the whole limit
}

// A Report is what a replica knows of itself.
type Report struct {
	Pid       int           // of its process
	Admin     string        // URL of the admin endpoint
	Born      time.Duration // just before its limiter was made
	Waiting   int           // requests that wait now
	Failed    int           // requests that got no answer
	LastError string        // of the last one
	Stall     time.Duration // longest time in which the process did not get to run
}

// A replica sends requests, and reports to its parent.
type replica struct {
	assignment
	wants   chan float64 // new orders for load
	limiter *quotient.Limiter
	client  *http.Client

	mu    sync.Mutex
	state Report
}

// replicaMain is a replica's whole life: it serves the admin endpoint and sends requests until its parent ends, or
// kills it. It returns the exit status.
func replicaMain(task string, orders io.Reader, reports, stderr io.Writer) int {
	signal.Ignore(os.Interrupt) // Ctrl-C reaches the whole process group; the parent ends us
	var a assignment
	err := json.Unmarshal([]byte(task), &a)
	if err == nil {
		var r *replica
		if r, err = newReplica(a); err == nil {
			err = r.serve(orders, reports)
		}
	}
	if err != nil {
		fmt.Fprintln(stderr, "replica:", err)
		return exitFailed
	}
	return exitHeld
}

// newReplica makes the limiter, and the client whose requests pass it: all that a program has to do to be a replica.
func newReplica(a assignment) (*replica, error) {
	now := time.Now()
	start := now.Add(a.Start.Sub(now)) // all processes share the wall clock; from now on no step of it counts
	r := &replica{assignment: a, wants: make(chan float64), state: Report{Pid: os.Getpid(), Born: time.Since(start)}}
	rate := quotient.Rate{Name: "second", Events: a.Limit, Per: time.Second, Burst: a.Burst}
	options := []quotient.Option{quotient.MaxWait(patience)}
	if a.Policy != "" { // the upstream is the judge: up to the whole limit, if it bears that
		options = append(options, quotient.Policy(policies[a.Policy]), quotient.BeyondShare())
	} else {
		options = append(options, quotient.Replicas(a.Replicas))
	}
	if a.Join {
		options = append(options, quotient.StartEmpty())
	}
	var err error
	r.limiter, err = quotient.New(quotient.Rates(rate), options...)
	sends := &stamp{id: a.ID, start: start, base: &http.Transport{MaxIdleConnsPerHost: 64}}
	r.client = &http.Client{
		Transport: &httplimit.Transport{Base: sends, Limiter: r.limiter, Key: httplimit.Constant("upstream")},
		Timeout:   patience + 5*time.Second,
	}
	return r, err
}

// serve runs the replica until its parent is gone.
func (r *replica) serve(orders io.Reader, reports io.Writer) error {
	var limiters quotient.Registry
	err := limiters.Add("fleet", r.limiter)
	operator, err2 := admin.New(&limiters, admin.Logger(slog.New(slog.DiscardHandler)))
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	r.state.Admin = httptest.NewServer(operator).URL
	go r.watchStalls()
	go r.load(context.Background())
	r.answer(orders, reports)
	return nil
}

// answer answers each order with a report, until the parent is gone. An order is how many requests a second are to be
// sent from now on, or 0 to go on as before.
func (r *replica) answer(orders io.Reader, reports io.Writer) {
	in, out := json.NewDecoder(orders), json.NewEncoder(reports)
	for {
		var want float64
		if in.Decode(&want) != nil {
			return
		}
		if want > 0 {
			r.wants <- want
		}
		var known Report
		r.count(func(state *Report) { known = *state })
		known.Waiting = r.limiter.Stats().Waiting
		if out.Encode(known) != nil {
			return
		}
	}
}

func (r *replica) count(change func(*Report)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.state)
}

// load sends requests at the wanted rate whatever becomes of them, as the users of a service do: an arrival does
// not wait for the one before. Gaps are 0.5 to 1.5 times the mean. The limiter's MaxWait bounds how many are
// waiting. The end of ctx ends all.
func (r *replica) load(ctx context.Context) {
	var want float64
	var next time.Time
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case want = <-r.wants:
			next = time.Now()
		case <-due:
			go r.call(ctx)
		}
		next = next.Add(time.Duration(float64(time.Second) / want * (0.5 + rand.Float64())))
		due = time.After(time.Until(next))
	}
}

// call sends one request. The upstream counts the answers, which are empty.
func (r *replica) call(ctx context.Context) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.Upstream, nil)
	var resp *http.Response
	if err == nil {
		resp, err = r.client.Do(req)
	}
	if err == nil {
		err = resp.Body.Close()
	}
	if err != nil && !errors.Is(err, quotient.ErrLimited) {
		r.count(func(state *Report) { state.Failed, state.LastError = state.Failed+1, err.Error() })
	}
}

// watchStalls notes, without the limiter's help, how long this process stood still: a busy machine does not run us
// when we are due.
func (r *replica) watchStalls() {
	for {
		slept := time.Now()
		time.Sleep(wakeEvery)
		stall := time.Since(slept) - wakeEvery
		r.count(func(state *Report) { state.Stall = max(state.Stall, stall) })
	}
}

// stamp is the transport below the limiter's: it writes on each request who sends it, and when.
type stamp struct {
	id    int
	start time.Time
	base  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (s *stamp) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set(header, fmt.Sprint(s.id, " ", time.Since(s.start).Nanoseconds()))
	return s.base.RoundTrip(req)
}
