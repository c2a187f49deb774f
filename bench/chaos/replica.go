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

	"go.uber.org/goleak"

	"github.com/quotient-go/quotient/examples/fleet/upstream"
)

const (
	watchEvery = 5 * time.Millisecond // how often a replica looks at its pools, and whether it gets to run
	leastStall = 5 * time.Millisecond // shorter ones are not worth a word
	answerIn   = 5 * time.Second      // an answer of the upstream
	leakTries  = 5                    // each takes half a second
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
	r := &replica{assignment: a, clock: upstream.NewClock(), out: json.NewEncoder(stdout)}
	if err := r.open(); err != nil {
		fmt.Fprintln(stderr, err)
		return exitFailed
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		r.obey(json.NewDecoder(in)) // until the parent ends, or wants us to
		_, _ = io.Copy(io.Discard, in)
		stop()
	}()
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
	paths  [sources]*path // nil where there is none
	gossip *whisper       // nil: it does not gossip
	base   *http.Transport
	client *http.Client

	mu  sync.Mutex // guards what follows
	out *json.Encoder
	end ending
}

// open makes the limiters.
func (r *replica) open() error {
	for s := range sources {
		if !r.has(s) {
			continue
		}
		p, err := newPath(s, r.assignment, r.clock)
		if err != nil {
			return err
		}
		r.paths[s] = p
	}
	if r.Whisper != nil {
		return r.openGossip()
	}
	return nil
}

// obey does what the parent says, until there is no more of it.
func (r *replica) obey(in *json.Decoder) {
	for {
		var c command
		if in.Decode(&c) != nil {
			return
		}
		for _, s := range c.Mute {
			r.silence(s, true)
		}
		for _, s := range c.Speak {
			r.silence(s, false)
		}
		if c.Step != nil && stepWall != nil {
			from := r.clock.Now()
			stepWall(int64(*c.Step))
			r.say(message{Step: &step{Ahead: *c.Step, From: from, At: r.clock.Now()}})
		}
		if r.gossip != nil {
			r.gossip.obey(r, c)
		}
	}
}

// silence lets a source fall silent, or speak again.
func (r *replica) silence(s source, silent bool) {
	if s < 0 || s >= sources || r.paths[s] == nil {
		return
	}
	r.paths[s].silent.Store(silent)
	r.say(message{Muted: &muted{Source: s, Silent: silent, At: r.clock.Now()}})
}

// live follows the sources and sends requests until ctx ends. All that it has started has ended then.
func (r *replica) live(ctx context.Context) error {
	r.base = &http.Transport{MaxIdleConnsPerHost: 64}
	defer r.base.CloseIdleConnections()
	r.client = &http.Client{Transport: r.base, Timeout: answerIn}
	r.say(message{Born: r.clock.Now()})
	var work sync.WaitGroup
	defer work.Wait()
	if r.gossip != nil {
		r.gossip.live(ctx, r, &work)
		return nil
	}
	store, cluster := r.stores()
	defer store.Close()
	defer cluster.Close()
	defer work.Wait()
	for s, src := range r.follow(store, cluster) {
		p := r.paths[s]
		if p == nil {
			continue
		}
		work.Go(func() { r.failed(ctx, p.limiter.Follow(ctx, src)) })
		r.ask(ctx, p, &work)
	}
	work.Go(func() { r.watch(ctx) })
	return nil
}

// lastWords returns which goroutines were left behind, but for those that are to be ignored. It returns the
// exit status.
func (r *replica) lastWords(ignored ...goleak.Option) int {
	err := goleak.Find(ignored...)
	for range leakTries { // a probe of memberlist outlives its end by up to its own time-out
		if err == nil || r.gossip == nil {
			break
		}
		err = goleak.Find(ignored...)
	}
	if err != nil {
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
			if p == nil {
				continue
			}
			for _, m := range p.look(last) {
				r.say(m)
			}
		}
		if r.gossip != nil {
			r.gossip.look(r)
		}
		last = now
	}
}
