package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/quotient-go/quotient/examples/fleet/upstream"
)

const (
	watchEvery = 5 * time.Millisecond // how often a replica looks at its pools, and whether it gets to run
	leastStall = 5 * time.Millisecond // shorter ones are not worth a word
	answerIn   = 5 * time.Second      // an answer of the upstream
)

// replicaMain is a replica's whole life. It returns the exit status.
func replicaMain(stdin io.Reader, stdout, stderr io.Writer) int {
	in := bufio.NewReader(stdin)
	line, err := in.ReadBytes('\n')
	var a assignment
	if err = errors.Join(err, json.Unmarshal(line, &a)); err != nil {
		fmt.Fprintln(stderr, "assignment:", err)
		return exitFailed
	}
	signal.Ignore(os.Interrupt) // Ctrl-C reaches the whole process group; the parent ends us in order
	ctx, stop := context.WithTimeout(context.Background(), a.Life)
	defer stop()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, in) // it ends when the parent does, or wants us to
		stop()
	}()
	r := &replica{assignment: a, clock: upstream.NewClock(), out: json.NewEncoder(stdout)}
	if err := r.live(ctx); err != nil {
		fmt.Fprintln(stderr, err)
		return exitFailed
	}
	<-gone // a replica that outlives its time waits here for its parent
	return r.lastWords()
}

// A replica is one process of the fleets.
type replica struct {
	assignment
	clock  upstream.Clock
	paths  [sources]*path
	base   *http.Transport
	client *http.Client

	mu  sync.Mutex // guards what follows
	out *json.Encoder
	end ending
}

// live follows the sources and sends requests until ctx ends. Whatever it has started has ended then.
func (r *replica) live(ctx context.Context) error {
	r.base = &http.Transport{MaxIdleConnsPerHost: 64}
	defer r.base.CloseIdleConnections()
	r.client = &http.Client{Transport: r.base, Timeout: answerIn}
	goredis.SetLogger(silent{}) // the source reports what fails, and the client says it again
	store := goredis.NewClient(&goredis.Options{Addr: r.Redis, ContextTimeoutEnabled: true, DialTimeout: redisPeriod, DialerRetries: 1, MaxRetries: -1})
	defer store.Close()
	for s := range sources {
		p, err := newPath(s, r.assignment, r.clock)
		if err != nil {
			return err
		}
		r.paths[s] = p
	}
	r.say(message{Born: r.clock.Now()})
	var work sync.WaitGroup
	defer work.Wait()
	for s, src := range r.follow(store) {
		work.Go(func() { r.failed(ctx, r.paths[s].limiter.Follow(ctx, src)) })
		work.Go(func() { r.load(ctx, r.paths[s]) })
	}
	work.Go(func() { r.watch(ctx) })
	return nil
}

type silent struct{}

// Printf says nothing.
func (silent) Printf(context.Context, string, ...any) {}

// lastWords tells which goroutines were left behind, but for those that are to be ignored. It returns the exit status.
func (r *replica) lastWords(ignored ...goleak.Option) int {
	if err := goleak.Find(ignored...); err != nil {
		r.end.Leak = err.Error()
	}
	r.say(message{End: &r.end})
	return exitHeld
}

func (r *replica) say(m message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.out.Encode(m) // a parent that is gone does not listen
}

// load sends a request whenever the limiter lets it, until ctx ends. It asks for one at a time, so that it knows for each
// when it asked.
func (r *replica) load(ctx context.Context, p *path) {
	var calls sync.WaitGroup
	defer calls.Wait()
	for ctx.Err() == nil {
		asked := r.clock.Now()
		permit, err := p.limiter.Acquire(ctx, "path")
		if err != nil {
			r.failed(ctx, err)
			return
		}
		s := stamp{Replica: r.ID, Admitted: r.clock.Now(), Could: asked + p.wait}
		calls.Go(func() {
			defer permit.Release()
			r.failed(ctx, r.send(ctx, p.source, s))
		})
	}
}

// send sends one request.
func (r *replica) send(ctx context.Context, s source, st stamp) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL+"/"+s.String(), nil)
	if err != nil {
		return err
	}
	st.Sent = r.clock.Now()
	req.Header.Set(headerStamp, st.String())
	resp, err := r.client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}

// failed counts a failure, unless it is the end.
func (r *replica) failed(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end.Failed++
	r.end.LastError = err.Error()
}

// watch tells the parent which pool is in force, as soon as it changes, and when the process did not get to run.
func (r *replica) watch(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for last := r.clock.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := r.clock.Now()
		if time.Duration(now-last) > watchEvery+leastStall {
			r.say(message{Stall: &stall{last, now}})
		}
		for _, p := range r.paths {
			if b := p.look(last); b != nil {
				r.say(message{Belief: b})
			}
		}
		last = now
	}
}
