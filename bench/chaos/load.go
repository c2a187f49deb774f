package main

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// ask lets callers request all that the limiter of a path admits, until ctx ends. For slots there are
// several callers, which hold what they get. At aligned windows there is one, which waits in one half of the
// replicas and polls in the other.
func (r *replica) ask(ctx context.Context, p *path, work *sync.WaitGroup) {
	switch {
	case p.source == onSlots, p.source == onLentSlots:
		callers := slotCallers
		if p.source == onLentSlots {
			callers = r.ctrl(p.source).slots + 1
		}
		for range callers {
			work.Go(func() { r.hold(ctx, p) })
		}
	case p.source == onCounted:
		work.Go(func() { r.sip(ctx, p) })
	case p.source == onWindows && r.ID%2 == 0:
		work.Go(func() { r.poll(ctx, p) })
	default:
		work.Go(func() { r.load(ctx, p) })
	}
}

// load sends a request whenever the limiter lets it, until ctx ends. It asks for one at a time, so that it
// knows for each when it asked.
func (r *replica) load(ctx context.Context, p *path) {
	var calls sync.WaitGroup
	defer calls.Wait()
	for p.wanted(ctx) {
		asked := r.clock.Now()
		permit, err := p.limiter.Acquire(ctx, "path")
		if err != nil {
			r.failed(ctx, err)
			return
		}
		s := stamp{Replica: r.ID, Admitted: r.clock.Now(), Could: asked + p.wait}
		if p.source == onLent {
			r.gossip.count()
		}
		calls.Go(func() {
			defer permit.Release()
			r.failed(ctx, r.send(ctx, p.source, s))
		})
	}
}

// poll asks again and again, and sends a request whenever the limiter lets it, until ctx ends. A
// waiter sleeps until the instant that the limiter has worked out; a poller sees each window.
func (r *replica) poll(ctx context.Context, p *path) {
	var calls sync.WaitGroup
	defer calls.Wait()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		asked := r.clock.Now()
		if permit, d := p.limiter.TryAcquire("path"); d.OK {
			s := stamp{Replica: r.ID, Admitted: r.clock.Now(), Could: asked}
			calls.Go(func() {
				defer permit.Release()
				r.failed(ctx, r.send(ctx, p.source, s))
			})
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sip asks for one request each time, until ctx ends.
func (r *replica) sip(ctx context.Context, p *path) {
	var calls sync.WaitGroup
	defer calls.Wait()
	tick := time.NewTicker(sipEvery)
	defer tick.Stop()
	for p.wanted(ctx) {
		if permit, d := p.limiter.TryAcquire("path"); d.OK {
			at := r.clock.Now()
			s := stamp{Replica: r.ID, Admitted: at, Could: at}
			calls.Go(func() {
				defer permit.Release()
				r.failed(ctx, r.send(ctx, p.source, s))
			})
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// hold takes a permit in flight whenever it can, holds it for a while, and sends a request that says from
// when to when, until ctx ends.
func (r *replica) hold(ctx context.Context, p *path) {
	var calls sync.WaitGroup
	defer calls.Wait()
	for p.wanted(ctx) {
		permit, err := p.limiter.Acquire(ctx, "path")
		if err != nil {
			r.failed(ctx, err)
			return
		}
		s := stamp{Replica: r.ID, Admitted: r.clock.Now()}
		select {
		case <-ctx.Done():
		case <-time.After(leastHold + rand.N(mostHold-leastHold)):
		}
		s.Could, s.Sent = s.Admitted, r.clock.Now()
		permit.Release()
		calls.Go(func() { r.failed(ctx, r.send(ctx, p.source, s)) })
	}
}

// send sends one request.
func (r *replica) send(ctx context.Context, s source, st stamp) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL+"/"+s.String(), nil)
	if err != nil {
		return err
	}
	if st.Sent == 0 {
		st.Sent = r.clock.Now()
	}
	req.Header.Set(headerStamp, st.String())
	resp, err := r.client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}
