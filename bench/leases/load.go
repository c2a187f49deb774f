package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-go/quotient/lease"
)

// Figures of load. heartbeatEvery is that of the goal, probes are what the goals judge.
const (
	heartbeatEvery = 10 * time.Second
	loaders        = 16 // connections that add peers and send heartbeats
	probeEvery     = 5 * time.Millisecond
	expiries       = 20 // locks that expire while others wait
)

// load is a server with many peers and waiters.
type load struct {
	p       *pair
	peers   []uint64
	perPeer float64 // bytes of heap
	beats   atomic.Int64
	waiting sync.WaitGroup
	tokens  []uint64 // of the waiters, when they are served
	acquire []time.Duration
	nothing []time.Duration
	late    []time.Duration // expiries
}

// manyPeers measures a server with many peers, each of which holds a lease, and many waiters.
func (b *bench) manyPeers(ctx context.Context) (section, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p, err := servePair(lease.Config{Semaphores: map[string]lease.Semaphore{
		"held": {Max: lease.MaxCount, Level: 2}, "scarce": {Max: 1}, "free": {Max: lease.MaxCount, Level: 1},
		"brief": {Max: 1},
	}})
	if err != nil {
		return section{}, err
	}
	l := &load{p: p, tokens: make([]uint64, b.waiters)}
	err = l.run(ctx, b)
	if err := errors.Join(err, p.stop()); err != nil {
		return section{}, err
	}
	shutdown, err := b.shutdown(ctx)
	return l.section(b, shutdown), err
}

func (l *load) run(ctx context.Context, b *bench) error {
	if err := l.fill(ctx, b.peers); err != nil {
		return err
	}
	holder, failed := l.wait(ctx)
	if holder.err != nil {
		return holder.err
	}
	ctx, cancel := context.WithTimeout(ctx, b.span)
	defer cancel()
	var wg sync.WaitGroup
	errs := make([]error, loaders+2)
	for i := range loaders {
		wg.Go(func() { errs[i] = l.beat(ctx, i) })
	}
	wg.Go(func() { errs[loaders] = l.probe(ctx) })
	wg.Go(func() { errs[loaders+1] = l.expire() })
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return l.serveWaiters(holder, failed)
}

// fill adds peers that hold a lease each, and weighs them.
func (l *load) fill(ctx context.Context, n int) error {
	before, err := l.p.heapBytes()
	if err != nil {
		return err
	}
	if err := l.add(ctx, n); err != nil {
		return err
	}
	after, err := l.p.heapBytes()
	l.perPeer = (after - before) / float64(n)
	return err
}

// add adds peers that hold a lease each.
func (l *load) add(ctx context.Context, n int) error {
	l.peers = make([]uint64, n)
	var wg sync.WaitGroup
	errs := make([]error, loaders)
	for i := range loaders {
		wg.Go(func() {
			w := &wire{addr: l.p.Leases, ctx: ctx}
			defer w.close()
			for k := i; k < n && errs[i] == nil; k += loaders {
				if l.peers[k], errs[i] = w.create(3 * heartbeatEvery); errs[i] == nil {
					_, errs[i] = w.want(200, "PUT", fmt.Sprintf("/peers/%d/held", l.peers[k]), "1")
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// holder holds what the waiters wait for.
type holder struct {
	id  uint64
	err error
}

// wait starts requests that wait for one lock, each on a connection of its own. It returns when all of them
// are pending.
func (l *load) wait(ctx context.Context) (h holder, failed chan error) {
	w := &wire{addr: l.p.Leases}
	defer w.close()
	if h.id, h.err = w.create(time.Hour); h.err == nil {
		_, h.err = w.want(200, "PUT", fmt.Sprintf("/peers/%d/scarce", h.id), "1")
	}
	n := len(l.tokens)
	failed = make(chan error, n)
	ids := make([]uint64, n)
	for i := range ids {
		if h.err != nil {
			return h, failed
		}
		if ids[i], h.err = w.create(time.Hour); h.err == nil {
			_, h.err = w.want(202, "PUT", fmt.Sprintf("/peers/%d/scarce", ids[i]), "1")
		}
	}
	for i, id := range ids {
		l.waiting.Go(func() {
			w := &wire{addr: l.p.Leases, ctx: ctx}
			defer w.close()
			lock := fmt.Sprintf("/peers/%d/scarce", id)
			a, err := w.want(200, "PUT", lock+"?block_for=30m", "1")
			if l.tokens[i] = a.token; err == nil {
				_, err = w.want(200, "DELETE", lock, "")
			}
			if err != nil {
				failed <- err
			}
		})
	}
	return h, failed
}

// serveWaiters releases what they wait for, and waits until all were served.
func (l *load) serveWaiters(h holder, failed chan error) error {
	w := &wire{addr: l.p.Leases}
	defer w.close()
	if _, err := w.want(200, "DELETE", fmt.Sprintf("/peers/%d/scarce", h.id), ""); err != nil {
		return err
	}
	l.waiting.Wait()
	close(failed)
	return <-failed
}

// beat sends a heartbeat of each of its peers in heartbeatEvery.
func (l *load) beat(ctx context.Context, i int) error {
	w := &wire{addr: l.p.Leases}
	defer w.close()
	var mine []uint64
	for k := i; k < len(l.peers); k += loaders {
		mine = append(mine, l.peers[k])
	}
	if len(mine) == 0 {
		return nil
	}
	tick := time.NewTicker(heartbeatEvery / time.Duration(len(mine)))
	defer tick.Stop()
	for k := 0; ; k++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		_, err := w.want(200, "PUT", fmt.Sprintf("/peers/%d", mine[k%len(mine)]), lasting(3*heartbeatEvery))
		if err != nil {
			return err
		}
		l.beats.Add(1)
	}
}

// probe measures an acquire and a handler that does nothing, in turn, with the same request.
func (l *load) probe(ctx context.Context) error {
	ours, bare := &wire{addr: l.p.Leases}, &wire{addr: l.p.Nothing}
	defer ours.close()
	defer bare.close()
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for k := 0; ; k++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		lock := fmt.Sprintf("/peers/%d/free", l.peers[k%len(l.peers)])
		for i := range 2 {
			w, to := ours, &l.acquire
			if (i+k)%2 == 0 {
				w, to = bare, &l.nothing
			}
			began := time.Now()
			if _, err := w.want(http.StatusOK, "PUT", lock, "1"); err != nil {
				return err
			}
			*to = append(*to, time.Since(began))
		}
		if _, err := ours.want(http.StatusOK, "DELETE", lock, ""); err != nil {
			return err
		}
	}
}

// expire lets locks expire that another peer waits for, and measures how late that one gets them. They
// expire so long after the server had the heartbeat, which is between its call and its answer.
func (l *load) expire() error {
	one, two := &wire{addr: l.p.Leases}, &wire{addr: l.p.Leases}
	defer one.close()
	defer two.close()
	next, err := two.create(time.Hour)
	if err != nil {
		return err
	}
	const lasts = 50 * time.Millisecond
	for range expiries {
		first, err := one.create(time.Hour)
		if err == nil {
			_, err = one.want(http.StatusOK, "PUT", fmt.Sprintf("/peers/%d/brief", first), "1")
		}
		call := time.Now()
		if err == nil {
			_, err = one.want(http.StatusOK, "PUT", fmt.Sprintf("/peers/%d", first), lasting(lasts))
		}
		if err != nil {
			return err
		}
		lock := fmt.Sprintf("/peers/%d/brief", next)
		if _, err = two.want(http.StatusOK, "PUT", lock+"?block_for=1m", "1"); err != nil {
			return err
		}
		late := time.Since(call) - lasts
		if late < 0 {
			return fmt.Errorf("a lock of %v expired %v early", lasts, -late)
		}
		l.late = append(l.late, late)
		if _, err = two.want(http.StatusOK, "DELETE", lock, ""); err != nil {
			return err
		}
	}
	return nil
}

func (l *load) section(b *bench, shutdown time.Duration) section {
	s := section{title: "Load",
		note: fmt.Sprintf("%d peers hold a lease each and send a heartbeat every %v, and %d requests wait for "+
			"one lock, for %v. Meanwhile an acquire and the same request to a handler that does nothing take "+
			"turns, and locks expire that others wait for. Memory is the heap after a collection, before and "+
			"after the peers are added. Lateness of an expiry counts from the sending of the last heartbeat. At "+
			"the end all that wait are served, one after the other. Shutdown is from SIGTERM to the end of the "+
			"program quotient, with as many peers and waiters.", len(l.peers), heartbeatEvery, len(l.tokens), b.span),
		header: []string{"what", "is"}}
	row := func(what, is string) { s.rows = append(s.rows, []string{what, is}) }
	acquire, nothing := quantile(l.acquire, .99), quantile(l.nothing, .99)
	row("heartbeats", strconv.FormatInt(l.beats.Load(), 10))
	row("acquires that were timed", strconv.Itoa(len(l.acquire)))
	row("acquire, p50 and p99 in µs", micros(quantile(l.acquire, .5))+" and "+micros(acquire))
	row("a handler that does nothing, p50 and p99 in µs",
		micros(quantile(l.nothing, .5))+" and "+micros(nothing))
	row("expiry, latest of "+strconv.Itoa(len(l.late))+" in ms", number(quantile(l.late, 1).Seconds()*1000))
	served := map[uint64]bool{}
	for _, token := range l.tokens {
		if token != 0 {
			served[token] = true
		}
	}
	beats := b.span.Seconds() * float64(len(l.peers)) / heartbeatEvery.Seconds()
	s.verdicts = []verdict{
		atMost("p99 of an acquire, in that of a handler that does nothing", float64(acquire)/float64(nothing),
			5, " x"),
		atMost("heap of a peer with a lease, in bytes", l.perPeer, 2048, ""),
		atMost("latest expiry", quantile(l.late, 1).Seconds()*1000, 50, " ms"),
		atMost("shutdown", shutdown.Seconds(), 1, " s"),
		{"heartbeats, at least 0.9 of what the peers must send", fmt.Sprint(l.beats.Load()),
			float64(l.beats.Load()) >= .9*beats},
		{"waiters were served in the order of their asking", fmt.Sprint(slices.IsSorted(l.tokens)),
			slices.IsSorted(l.tokens)},
		exactly("waiters that were served, each with a token of its own", len(served), len(l.tokens)),
	}
	return s
}
