package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/examples/fleet/upstream"
	"github.com/quotient-go/quotient/httplimit"
)

const (
	reportEvery = 100 * time.Millisecond // how often a replica tells its parent what is new
	watchEvery  = 5 * time.Millisecond   // how often it looks whether it gets to run
)

// replicaMain is a replica's whole life: read the assignment, serve the admin endpoint, send
// requests, until the standard input ends. A replica whose parent dies therefore ends too, however
// the parent died. It returns the exit status.
func replicaMain(stdin io.Reader, stdout, stderr io.Writer) int {
	in := bufio.NewReader(stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		fmt.Fprintln(stderr, "replica: no assignment:", err)
		return exitFailed
	}
	var a assignment
	if err := json.Unmarshal(line, &a); err != nil {
		fmt.Fprintln(stderr, "replica: assignment:", err)
		return exitFailed
	}
	signal.Ignore(os.Interrupt) // Ctrl-C reaches the whole process group; the parent ends us in order
	ctx, stop := context.WithTimeout(context.Background(), a.Life)
	defer stop()
	r := &replica{assignment: a, clock: upstream.NewClock(), wants: make(chan float64)}
	ctx, fail := context.WithCancelCause(ctx)
	go func() {
		r.obey(ctx, json.NewDecoder(in)) // it ends when the parent does, or wants us to
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

// serve runs the replica until ctx ends. An error of calls ends it.
func (r *replica) serve(ctx context.Context, fail context.CancelCauseFunc, out *json.Encoder) error {
	born := r.clock.Now()
	r.looked = born
	if err := r.makeLimiter(); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var limiters quotient.Registry
	if err := limiters.Add("fleet", r.limiter); err != nil {
		return errors.Join(err, listener.Close())
	}
	operator, err := admin.New(&limiters, admin.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	srv := &http.Server{Handler: operator, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second}
	var work sync.WaitGroup
	work.Go(func() { _ = srv.Serve(listener) }) // it ends with ErrServerClosed, below
	if err := out.Encode(message{Admin: "http://" + listener.Addr().String(), Born: born}); err != nil {
		return err
	}
	work.Go(func() { r.load(ctx) })
	work.Go(func() { r.watch(ctx) })
	work.Go(func() { r.follow(ctx, fail) })
	err = r.report(ctx, out)
	err = errors.Join(err, srv.Close())
	work.Wait()
	r.base.CloseIdleConnections()
	if cause := context.Cause(ctx); cause != ctx.Err() {
		err = errors.Join(err, cause)
	}
	return err
}

// follow follows the source, if the replica is to count. A source only ends early when it cannot work at all.
func (r *replica) follow(ctx context.Context, fail context.CancelCauseFunc) {
	src := r.source()
	if src == nil {
		return
	}
	if err := r.limiter.Follow(ctx, src); ctx.Err() == nil {
		fail(fmt.Errorf("the source of the pool size ended: %w", err))
	}
}

// A replica is one process that shares the limit.
type replica struct {
	assignment
	clock   upstream.Clock
	wants   chan float64 // new orders for load
	limiter *quotient.Limiter
	client  *http.Client
	base    *http.Transport

	looked   int64 // by clock: when look has last looked at the pool
	believed int   // what it saw

	mu      sync.Mutex
	granted []int64 // by clock: admitted requests that have not left yet, oldest first
	news    message
}

// makeLimiter makes the limiter, and the client whose requests pass it. This is all that a
// program has to do to be a replica.
func (r *replica) makeLimiter() error {
	rate := quotient.PerSecond(r.Limit)
	rate.Burst = r.Burst
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
	limiter, err := quotient.New(quotient.Rates(rate), options...)
	if err != nil {
		return err
	}
	r.limiter = limiter
	r.base = &http.Transport{MaxIdleConnsPerHost: 64}
	r.client = &http.Client{
		Transport: &httplimit.Transport{Base: stamp{r}, Limiter: limiter, Key: httplimit.Constant("upstream")},
		Timeout:   r.Patience + 5*time.Second,
	}
	return nil
}

// load sends requests at the wanted rate whatever becomes of them, as the users of a service do:
// an arrival does not wait for the one before. Gaps are 0.5 to 1.5 times the mean. A request
// waits for its turn at most for the limiter's MaxWait, which bounds how many are waiting.
func (r *replica) load(ctx context.Context) {
	var calls sync.WaitGroup
	defer calls.Wait()
	want := r.Want
	if want == 0 {
		select {
		case <-ctx.Done():
			return
		case want = <-r.wants:
		}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	mean := float64(time.Second) / want
	for next := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case want := <-r.wants:
			mean, next = float64(time.Second)/want, time.Now()
		case <-timer.C:
			calls.Go(func() { r.call(ctx) })
		}
		next = next.Add(time.Duration(mean * (0.5 + rand.Float64())))
		timer.Reset(time.Until(next))
	}
}

// call sends one request and counts what became of it. The upstream counts the answers.
func (r *replica) call(ctx context.Context) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.Upstream, nil)
	if err != nil {
		r.count(func(m *message) { m.Failed++; m.LastError = err.Error() })
		return
	}
	resp, err := r.client.Do(req)
	switch {
	case err == nil:
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	case errors.Is(err, quotient.ErrLimited):
		r.count(func(m *message) { m.GaveUp++ })
	case ctx.Err() == nil:
		r.count(func(m *message) { m.Failed++; m.LastError = err.Error() })
	}
}

// watch measures how long the process stood still, without the limiter's help, and what it believes.
func (r *replica) watch(ctx context.Context) {
	watchStalls(ctx, func(stall time.Duration) {
		r.count(func(m *message) { m.Stall = max(m.Stall, stall) })
		if r.Pool != "" {
			r.look()
		}
	})
}

// watchStalls measures how long this process stands still, until ctx ends, and reports each time: every five milliseconds, or
// as soon as it gets to run. A busy machine, or one whose processes have used up their time, does not run us when we are due.
func watchStalls(ctx context.Context, report func(stall time.Duration)) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for last := time.Now(); ; last = time.Now() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		report(time.Since(last) - watchEvery)
	}
}

// count changes the reports under the lock.
func (r *replica) count(change func(*message)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.news)
}

// admitted is the limiter's OnAdmit. The request could have left overhead ago.
func (r *replica) admitted(_ string, _, overhead time.Duration) {
	could := r.clock.Now() - int64(overhead)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.granted = append(r.granted, could)
	r.news.Overheads = append(r.news.Overheads, overhead)
}

// stamp is the transport below the limiter's: it writes on each request when it left.
type stamp struct{ *replica }

// RoundTrip sends a copy of req with the stamp.
func (s stamp) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	sent, late := s.leave()
	upstream.Sign(req.Header, s.ID, sent, late)
	return s.base.RoundTrip(req)
}

// leave returns when the request that leaves now does so, and how much earlier it might have. It pairs the
// next that leaves with the oldest that may: to count requests in windows only the order of instants
// matters, not which request has which.
func (r *replica) leave() (sent, late int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent = r.clock.Now()
	if len(r.granted) > 0 {
		late = sent - r.granted[0]
		r.granted = r.granted[1:]
	}
	return sent, late
}

// report tells the parent what is new, until ctx ends, and then once more.
func (r *replica) report(ctx context.Context, out *json.Encoder) error {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return out.Encode(r.takeNews())
		case <-tick.C:
		}
		if err := out.Encode(r.takeNews()); err != nil {
			return err
		}
	}
}

// takeNews returns the reports and starts over.
func (r *replica) takeNews() message {
	waiting := r.limiter.Stats().Waiting
	r.mu.Lock()
	defer r.mu.Unlock()
	news := r.news
	news.Waiting = waiting
	r.news = message{}
	return news
}
