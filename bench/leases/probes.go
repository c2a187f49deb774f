package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/quotient-go/quotient/lease"
)

const (
	probeGap    = 10 * time.Millisecond // between two probes of one server
	probeWithin = 300 * time.Millisecond
)

// probes ask each server for a lock all the time. A pending lock proves that the server leads, and that its
// grace time is not over.
type probes struct {
	wg     sync.WaitGroup
	grants *ledger // the lock of a probe is "held" while it is asked for
	seen   sync.Mutex
	leads  []sight // pending or granted
}

// sight is an answer of a server that leads.
type sight struct {
	at      time.Duration
	server  int
	granted bool
}

func newProbes(ctx context.Context, ports [servers]int) *probes {
	p := &probes{grants: newLedger(1000, 0)}
	for i, port := range ports {
		p.wg.Go(func() { p.probe(ctx, i, at(port)) })
	}
	return p
}

func (p *probes) wait() { p.wg.Wait() }

func (p *probes) now() time.Duration { return p.grants.now() }

func (p *probes) probe(ctx context.Context, i int, addr string) {
	w := &wire{addr: addr, ctx: ctx, within: probeWithin}
	defer w.close()
	id := uint64(0)
	for ctx.Err() == nil {
		pause(ctx, probeGap)
		call := p.now()
		lock := fmt.Sprintf("/peers/%d/probe", id)
		a, err := w.ask("PUT", lock, "1")
		if err != nil {
			continue // it does not answer
		}
		if a.status == 400 { // it leads, and does not know this peer
			id, _ = w.create(time.Hour)
			continue
		}
		if a.status != 200 && a.status != 202 {
			continue
		}
		p.saw(sight{p.now(), i, a.status == 200}, call, a.token)
		if a.status == 200 {
			_, _ = w.ask("DELETE", lock, "") // the next probe sees what became of it
		}
	}
}

func (p *probes) saw(s sight, call time.Duration, token uint64) {
	p.seen.Lock()
	defer p.seen.Unlock()
	p.leads = append(p.leads, s)
	if s.granted {
		p.grants.all = append(p.grants.all, holding{token: token, called: call, from: s.at, to: s.at})
	}
}

// anyServer excludes none.
const anyServer = -1

// find waits for a sight of another server after an instant.
func (p *probes) find(
	ctx context.Context, after, within time.Duration, not int, granted bool,
) (s sight, err error) {
	err = until(ctx, within, func() error {
		var ok bool
		if s, ok = p.first(after, not, granted); !ok {
			return errors.New("no server was seen that leads")
		}
		return nil
	})
	return s, err
}

// first is the first sight of another server after an instant: of one that grants, or any.
func (p *probes) first(after time.Duration, not int, granted bool) (sight, bool) {
	p.seen.Lock()
	defer p.seen.Unlock()
	for _, s := range p.leads {
		if s.at > after && s.server != not && (s.granted || !granted) {
			return s, true
		}
	}
	return sight{}, false
}

// granted waits until a lock is granted after an instant, and returns the server that did.
func (p *probes) granted(ctx context.Context, after, within time.Duration) (server int, err error) {
	s, err := p.find(ctx, after, within, anyServer, true)
	return s.server, err
}

// silent waits until no server has led for a while.
func (p *probes) silent(ctx context.Context, span, within time.Duration) error {
	return until(ctx, within, func() error {
		if _, ok := p.first(p.now()-span, anyServer, false); ok {
			return errors.New("a server leads still")
		}
		return nil
	})
}

// longestGap is the longest time without a granted lock that ended after an instant.
func (p *probes) longestGap(after time.Duration) (gap time.Duration) {
	p.seen.Lock()
	defer p.seen.Unlock()
	last := time.Duration(0)
	for _, s := range p.leads {
		if !s.granted {
			continue
		}
		if s.at > after && last > 0 {
			gap = max(gap, s.at-last)
		}
		last = s.at
	}
	return gap
}

// drills cut a client that holds a lock from the network, while another one waits for the lock.
type drills struct {
	wg                      sync.WaitGroup
	noticed, late, overlaps int
	closest                 time.Duration // to the end of its lease that a client noticed
}

// cutExpires is how long the lease of a drill lasts.
const cutExpires = 3 * time.Second

func newDrills(ctx context.Context, c *cluster) *drills {
	d := &drills{closest: cutExpires}
	d.wg.Go(func() {
		for ctx.Err() == nil {
			d.drill(ctx, c)
		}
	})
	return d
}

func (d *drills) wait() { d.wg.Wait() }

func (d *drills) drill(ctx context.Context, c *cluster) {
	net := &cable{}
	defer net.CloseIdleConnections()
	held, err := c.client(net, cutExpires).Lock(ctx, "cut", 1)
	if err != nil {
		return
	}
	net.cut.Store(true)
	got := make(chan time.Time, 1)
	go func() {
		defer close(got)
		if rival, err := c.client(&cable{}, cutExpires).Lock(ctx, "cut", 1); err == nil {
			got <- time.Now()
			_ = rival.Unlock(context.WithoutCancel(ctx)) // it may be lost in a failover
		}
	}()
	ended := time.Time{}
	select {
	case <-held.Lost():
		ended = time.Now()
		left := cutExpires - ended.Sub(time.Unix(0, net.last.Load()))
		d.noticed++
		d.late += asBit(left < 0)
		d.closest = min(d.closest, left)
	case <-ctx.Done():
	}
	if at, ok := <-got; ok && at.Before(ended) {
		d.overlaps++
	}
	if ctx.Err() == nil && !errors.Is(held.Err(), lease.ErrCutOff) {
		d.late++
	}
	net.cut.Store(false) // what the session still sends is answered, and outlives no test
	giveUp, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Millisecond)
	defer cancel()
	_ = held.Unlock(giveUp) // its error is that it is lost
}
