package main

import (
	"cmp"
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

// An assignment tells a replica what to do: a line of JSON on its standard input. Orders may follow. The input
// stays open for as long as the parent lives; its end is the order to stop.
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
	Want              float64   // requests a second to try to send; 0: wait for an order
	Patience          time.Duration
	Life              time.Duration // ends by itself after this, whatever happens
}

// An order changes what a replica does: a line of JSON on its standard input.
type order struct {
	Want float64 // requests a second to try to send from now on
}

// A message is a line of JSON on a replica's standard output. The first has Admin and Born set, and nothing else;
// the others are reports of what is new since the one before.
type message struct {
	Admin     string          `json:",omitempty"` // URL of the admin endpoint
	Born      time.Duration   `json:",omitempty"` // just before its limiter was made
	Waiting   int             `json:",omitempty"` // requests that wait now
	Failed    int             `json:",omitempty"` // requests that got no answer
	LastError string          `json:",omitempty"` // of the last one
	Overheads []time.Duration `json:",omitempty"` // of the limiter, one for each admitted request
	Stall     time.Duration   `json:",omitempty"` // longest time in which the process did not get to run
	Beliefs   []belief        `json:",omitempty"` // pool sizes that were put in force, of a replica that counts
}

// A belief is a pool size that a replica had put in force by an instant; at the instant after, another one was.
type belief struct {
	Replicas  int
	After, By time.Duration
}

// add makes one report of two.
func (m *message) add(news message) {
	m.Waiting = news.Waiting
	m.Failed += news.Failed
	m.LastError = cmp.Or(news.LastError, m.LastError)
	m.Overheads = append(m.Overheads, news.Overheads...)
	m.Stall = max(m.Stall, news.Stall)
	m.Beliefs = append(m.Beliefs, news.Beliefs...)
}

type replica struct {
	assignment
	start   time.Time    // of the upstream, by the clock of this process
	wants   chan float64 // new orders for load
	limiter *quotient.Limiter
	client  *http.Client
	base    http.Transport

	looked   time.Duration // when look has last looked at the pool
	believed int           // what it saw

	mu      sync.Mutex
	granted []time.Duration // admitted requests that have not left yet, oldest first
	news    message
}

// replicaMain is a replica's whole life: read the assignment, serve the admin endpoint, send requests, until the
// standard input ends. A replica whose parent dies therefore ends too, however it died. It returns the exit status.
func replicaMain(stdin io.Reader, stdout, stderr io.Writer) int {
	in, now := json.NewDecoder(stdin), time.Now()
	r := &replica{wants: make(chan float64)}
	if err := in.Decode(&r.assignment); err != nil {
		fmt.Fprintln(stderr, "replica: no assignment:", err)
		return exitFailed
	}
	r.start = now.Add(r.Start.Sub(now)) // all processes share the wall clock; from now on no step of it counts
	signal.Ignore(os.Interrupt)         // Ctrl-C reaches the whole process group; the parent ends us in order
	ctx, stop := context.WithTimeout(context.Background(), r.Life)
	defer stop()
	ctx, fail := context.WithCancelCause(ctx)
	go func() {
		r.obey(ctx, in) // it ends when the parent does, or wants us to
		fail(nil)
	}()
	if err := r.serve(ctx, fail, json.NewEncoder(stdout)); err != nil {
		fmt.Fprintln(stderr, "replica:", err)
		return exitFailed
	}
	return exitHeld
}

// obey hands orders on, until there are no more, or one makes no sense.
func (r *replica) obey(ctx context.Context, in *json.Decoder) {
	for {
		var o order
		if in.Decode(&o) != nil || !(o.Want > 0) {
			return
		}
		select {
		case r.wants <- o.Want:
		case <-ctx.Done():
			return
		}
	}
}

func (r *replica) now() time.Duration { return time.Since(r.start) }

// serve runs the replica until ctx ends, which fail does for a cause.
func (r *replica) serve(ctx context.Context, fail context.CancelCauseFunc, out *json.Encoder) error {
	born := r.now()
	r.looked = born
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
	if err := out.Encode(message{Admin: srv.URL, Born: born}); err != nil {
		return err
	}
	var work sync.WaitGroup
	work.Go(func() { r.load(ctx) })
	work.Go(func() {
		if src == nil {
			return
		}
		if err := r.limiter.Follow(ctx, src); ctx.Err() == nil { // a source that cannot work at all
			fail(fmt.Errorf("the source of the pool size ended: %w", err))
		}
	})
	r.report(ctx, fail, out)
	work.Wait()
	r.base.CloseIdleConnections()
	if cause := context.Cause(ctx); cause != ctx.Err() {
		return cause
	}
	return nil
}

// makeLimiter makes the limiter, and the client whose requests pass it: all that a program has to do to be a
// replica.
func (r *replica) makeLimiter() (err error) {
	rate := quotient.Rate{Name: "second", Events: r.Limit, Per: time.Second, Burst: r.Burst}
	options := []quotient.Option{quotient.MaxWait(r.Patience), quotient.OnAdmit(r.admitted)}
	pool := quotient.Pool{Replicas: r.Replicas, Ordinal: r.Ordinal}
	switch {
	case r.Policy != "": // the upstream is the judge: up to the whole limit, if it bears that
		options = append(options, quotient.Policy(policies[r.Policy]), quotient.BeyondShare())
	case r.Pool != "": // until it has counted it sends nothing
		options = append(options, quotient.StartPool(pool), quotient.AwaitPool(),
			quotient.HintMaxAge(hintMaxAge), quotient.HoldDown(holdDown))
	default:
		options = append(options, quotient.StartPool(pool))
	}
	if r.Join && r.Policy == "" {
		options = append(options, quotient.StartEmpty())
	}
	r.limiter, err = quotient.New(quotient.Rates(rate), options...)
	r.base.MaxIdleConnsPerHost = 64
	r.client = &http.Client{
		Transport: &httplimit.Transport{Base: stamp{r}, Limiter: r.limiter, Key: httplimit.Constant("upstream")},
		Timeout:   r.Patience + 5*time.Second,
	}
	return err
}

// load sends requests at the wanted rate whatever becomes of them, as the users of a service do: an arrival does
// not wait for the one before. Gaps are 0.5 to 1.5 times the mean. The limiter's MaxWait bounds how many are
// waiting.
func (r *replica) load(ctx context.Context) {
	var calls sync.WaitGroup
	defer calls.Wait()
	want, next := r.Want, time.Now()
	for {
		var due <-chan time.Time
		if want > 0 {
			due = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return
		case want = <-r.wants:
			next = time.Now()
		case <-due:
			calls.Go(func() { r.call(ctx) })
		}
		next = next.Add(time.Duration(float64(time.Second) / want * (0.5 + rand.Float64())))
	}
}

// call sends one request. The upstream counts the answers.
func (r *replica) call(ctx context.Context) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.Upstream, nil)
	if err == nil {
		var resp *http.Response
		if resp, err = r.client.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}
	if err != nil && !errors.Is(err, quotient.ErrLimited) && ctx.Err() == nil {
		r.count(func(m *message) { m.Failed, m.LastError = m.Failed+1, err.Error() })
	}
}

// report tells the parent what is new, until ctx ends, and then once more: also how long the process stood still,
// without the limiter's help, and what it believes.
func (r *replica) report(ctx context.Context, fail context.CancelCauseFunc, out *json.Encoder) {
	tell := func() error {
		var news message
		waiting := r.limiter.Stats().Waiting
		r.count(func(m *message) { news, *m = *m, message{} })
		news.Waiting = waiting
		return out.Encode(news)
	}
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
		if err := tell(); err != nil {
			fail(err)
		}
	})
	_ = tell() // nobody listens any more when it fails
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

// look notes the pool that is in force, if it is another than at the look before. Before the first hint none is.
func (r *replica) look() {
	began := r.now()
	pool := r.limiter.Stats().Pool
	b := belief{Replicas: pool.Replicas, After: r.looked, By: r.now()}
	r.looked = began
	if pool.Source == "awaited" || pool.Replicas == r.believed {
		return
	}
	r.believed = pool.Replicas
	r.count(func(m *message) { m.Beliefs = append(m.Beliefs, b) })
}

func (r *replica) count(change func(*message)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.news)
}

// admitted is the limiter's OnAdmit. The request could have left overhead ago.
func (r *replica) admitted(_ string, _, overhead time.Duration) {
	could := r.now() - overhead
	r.count(func(m *message) {
		r.granted = append(r.granted, could)
		m.Overheads = append(m.Overheads, overhead)
	})
}

// stamp is the transport below the limiter's: it writes on each request when it left.
type stamp struct{ *replica }

// RoundTrip pairs the next request that leaves with the oldest that may: to count requests in windows only the
// order of instants matters, not which request has which.
func (s stamp) RoundTrip(req *http.Request) (*http.Response, error) {
	a := arrival{Replica: s.ID}
	s.count(func(*message) {
		a.Sent = s.now()
		if len(s.granted) > 0 {
			a.Late, s.granted = a.Sent-s.granted[0], s.granted[1:]
		}
	})
	text, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.Header.Set(header, string(text))
	return s.base.RoundTrip(req)
}
