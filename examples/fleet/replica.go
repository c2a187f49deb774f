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
	replicaArg  = "replica"              // the only argument of a process that is a replica
	reportEvery = 100 * time.Millisecond // how often a replica tells its parent what is new
	watchEvery  = 5 * time.Millisecond   // how often it looks whether it gets to run
)

// policies are the controllers by name. The empty name is the limiter's default: the share is a bound.
var policies = map[string]policy.Policy{"tracking": policy.Tracking{}, "aimd": policy.AIMD{}, "fixed": policy.Fixed{}}

// An assignment tells a replica what to do: a line of JSON on its standard input. Each line that follows is how many
// requests a second it is to send from now on. The end of the input, also by the parent's own, is the order to stop.
type assignment struct {
	ID                int       // 1, 2, …: never used twice, so that the log can tell replicas apart
	Upstream          string    // URL
	Start             time.Time // of the upstream: all times count from then
	Limit             float64   // requests a second over the fleet
	Burst             int       // over the fleet
	Replicas, Ordinal int       // pool size
	Join              bool      // others are using the limit already
	Pool, At          string    // one of countings, and where; Replicas is then the configured size
	Policy            string    // one of policies, up to the whole limit
}

// A message is a line of JSON on a replica's standard output: all that is known by then.
type message struct {
	Admin     string        // URL of the admin endpoint
	Born      time.Duration // just before its limiter was made
	Waiting   int           // requests that wait now
	Failed    int           // requests that got no answer
	LastError string        // of the last one
	Stall     time.Duration // longest time in which the process did not get to run
	Beliefs   []belief      // pool sizes that were put in force, of a replica that counts
}

// A belief is a pool size that a replica had put in force by an instant; at the instant after, another one was.
type belief struct {
	Replicas  int
	After, By time.Duration
}

type replica struct {
	assignment
	start   time.Time    // of the upstream, by the clock of this process
	wants   chan float64 // new orders for load
	limiter *quotient.Limiter
	client  *http.Client
	base    http.Transport
	looked  time.Duration // when look has last looked at the pool

	mu      sync.Mutex
	granted []arrival // admitted requests that have not left yet, oldest first; Sent is when each could have
	state   message
}

// replicaMain is a replica's whole life: read the assignment, serve the admin endpoint, send requests, until the
// standard input ends. It returns the exit status.
func replicaMain(stdin io.Reader, stdout, stderr io.Writer) int {
	in, now := json.NewDecoder(stdin), time.Now()
	r := &replica{wants: make(chan float64)}
	err := in.Decode(&r.assignment)
	if err == nil {
		r.start = now.Add(r.Start.Sub(now)) // all processes share the wall clock; from now on no step of it counts
		signal.Ignore(os.Interrupt)         // Ctrl-C reaches the whole process group; the parent ends us in order
		err = r.serve(in, json.NewEncoder(stdout))
	}
	if err != nil {
		fmt.Fprintln(stderr, "replica:", err)
		return exitFailed
	}
	return exitHeld
}

func (r *replica) now() time.Duration { return time.Since(r.start) }

// serve runs the replica until its orders end, or it cannot work.
func (r *replica) serve(in *json.Decoder, out *json.Encoder) error {
	r.looked, r.state.Born = r.now(), r.now()
	if err := r.makeLimiter(); err != nil {
		return err
	}
	var limiters quotient.Registry
	err := limiters.Add("fleet", r.limiter)
	operator, err2 := admin.New(&limiters, admin.Logger(slog.New(slog.DiscardHandler)))
	src, err3 := r.source()
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	srv := httptest.NewServer(operator)
	defer srv.Close()
	r.state.Admin = srv.URL
	if err := r.tell(out); err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(context.Background())
	go r.obey(ctx, fail, in) // it ends when the parent does, or wants us to
	var work sync.WaitGroup
	work.Go(func() { r.load(ctx) })
	if src != nil {
		work.Go(func() {
			if err := r.limiter.Follow(ctx, src); ctx.Err() == nil { // a source that cannot work at all
				fail(fmt.Errorf("the source of the pool size ended: %w", err))
			}
		})
	}
	r.report(ctx, fail, out)
	work.Wait()
	r.base.CloseIdleConnections()
	if cause := context.Cause(ctx); cause != ctx.Err() {
		return cause
	}
	return nil
}

// obey hands orders on, until there are no more, or one makes no sense.
func (r *replica) obey(ctx context.Context, fail context.CancelCauseFunc, in *json.Decoder) {
	defer fail(nil)
	for ctx.Err() == nil {
		var want float64
		if in.Decode(&want) != nil || !(want > 0) {
			return
		}
		select {
		case r.wants <- want:
		case <-ctx.Done():
		}
	}
}

// makeLimiter makes the limiter, and the client whose requests pass it: all that a program has to do to be a
// replica.
func (r *replica) makeLimiter() (err error) {
	rate := quotient.Rate{Name: "second", Events: r.Limit, Per: time.Second, Burst: r.Burst}
	options := []quotient.Option{quotient.MaxWait(patience), quotient.OnAdmit(r.admitted)}
	if r.Policy != "" { // the upstream is the judge: up to the whole limit, if it bears that
		options = append(options, quotient.Policy(policies[r.Policy]), quotient.BeyondShare())
	} else {
		options = append(options, quotient.StartPool(quotient.Pool{Replicas: r.Replicas, Ordinal: r.Ordinal}))
		if r.Join {
			options = append(options, quotient.StartEmpty())
		}
	}
	if r.Pool != "" { // until it has counted it sends nothing
		options = append(options, quotient.AwaitPool(), quotient.HintMaxAge(hintMaxAge), quotient.HoldDown(holdDown))
	}
	r.limiter, err = quotient.New(quotient.Rates(rate), options...)
	r.base.MaxIdleConnsPerHost = 64
	r.client = &http.Client{
		Transport: &httplimit.Transport{Base: stamp{r}, Limiter: r.limiter, Key: httplimit.Constant("upstream")},
		Timeout:   patience + 5*time.Second,
	}
	return err
}

// load sends requests at the wanted rate whatever becomes of them, as the users of a service do: an arrival does
// not wait for the one before. Gaps are 0.5 to 1.5 times the mean. The limiter's MaxWait bounds how many are
// waiting.
func (r *replica) load(ctx context.Context) {
	var calls sync.WaitGroup
	defer calls.Wait()
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
			calls.Go(func() { r.call(ctx) })
		}
		next = next.Add(time.Duration(float64(time.Second) / want * (0.5 + rand.Float64())))
		due = time.After(time.Until(next))
	}
}

// call sends one request. The upstream counts the answers, which are empty.
func (r *replica) call(ctx context.Context) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.Upstream, nil)
	if err == nil {
		var resp *http.Response
		if resp, err = r.client.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}
	if err != nil && !errors.Is(err, quotient.ErrLimited) && ctx.Err() == nil {
		r.count(func(m *message) { m.Failed, m.LastError = m.Failed+1, err.Error() })
	}
}

// report tells the parent what is known, until ctx ends, and then once more: also how long the process stood still,
// without the limiter's help, and what it believes.
func (r *replica) report(ctx context.Context, fail context.CancelCauseFunc, out *json.Encoder) {
	last := time.Now()
	watchStalls(ctx, func(stall time.Duration) {
		r.count(func(m *message) { m.Stall = max(m.Stall, stall) })
		if r.Pool != "" {
			r.look()
		}
		if time.Since(last) < reportEvery {
			return
		}
		last = time.Now()
		if err := r.tell(out); err != nil {
			fail(err)
		}
	})
	_ = r.tell(out) // nobody listens any more when it fails
}

// watchStalls reports every five milliseconds how long this process stood still, until ctx ends: a busy machine
// does not run us when we are due.
func watchStalls(ctx context.Context, report func(stall time.Duration)) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		report(now.Sub(last) - watchEvery)
		last = now
	}
}

func (r *replica) tell(out *json.Encoder) error {
	var m message
	r.count(func(state *message) { m = *state })
	m.Waiting = r.limiter.Stats().Waiting
	return out.Encode(m)
}

// look notes the pool that is in force, if it is another than at the look before. Before the first hint none is.
func (r *replica) look() {
	began := r.now()
	pool := r.limiter.Stats().Pool
	b := belief{Replicas: pool.Replicas, After: r.looked, By: r.now()}
	r.looked = began
	r.count(func(m *message) {
		if n := len(m.Beliefs); pool.Source != "awaited" && (n == 0 || m.Beliefs[n-1].Replicas != b.Replicas) {
			m.Beliefs = append(m.Beliefs, b)
		}
	})
}

func (r *replica) count(change func(*message)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.state)
}

// admitted is the limiter's OnAdmit. The request could have left overhead ago.
func (r *replica) admitted(_ string, _, overhead time.Duration) {
	could := r.now() - overhead
	r.count(func(*message) { r.granted = append(r.granted, arrival{Sent: could, Overhead: overhead}) })
}

// stamp is the transport below the limiter's: it writes on each request when it left.
type stamp struct{ *replica }

// RoundTrip pairs the next request that leaves with the oldest that may: to count requests in windows only the
// order of instants matters, not which request has which.
func (s stamp) RoundTrip(req *http.Request) (*http.Response, error) {
	var a arrival
	s.count(func(*message) {
		sent := s.now()
		if len(s.granted) > 0 {
			a, s.granted = s.granted[0], s.granted[1:]
			a.Late = sent - a.Sent
		}
		a.Replica, a.Sent = s.ID, sent
	})
	text, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.Header.Set(header, string(text))
	return s.base.RoundTrip(req)
}
