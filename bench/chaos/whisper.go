package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/poolsize/gossip"
)

// Gossip has these settings: a death is noticed soon, and all else has its default.
const (
	gossipEvery   = 200 * time.Millisecond
	gossipProbe   = 200 * time.Millisecond
	gossipRejoin  = time.Second
	gossipNotices = 5 * time.Second // a death, at the latest
	newsMaxAge    = 2 * time.Second // of Demand
)

// A gossiping is how a replica gossips.
type gossiping struct {
	Name, Bind, Advertise, JoinFile string
	Busy                            bool // callers ask from the start
}

// A demand is whether callers ask.
type demand struct {
	mu     sync.Mutex // guards what follows
	busy   bool
	change chan struct{} // closed at the next change
}

func newDemand(busy bool) *demand { return &demand{busy: busy, change: make(chan struct{})} }

func (d *demand) set(busy bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy != busy {
		d.busy = busy
		close(d.change)
		d.change = make(chan struct{})
	}
}

// wanted waits until callers ask. It reports false when ctx has ended.
func (p *path) wanted(ctx context.Context) bool {
	for p.demand != nil {
		p.demand.mu.Lock()
		busy, change := p.demand.busy, p.demand.change
		p.demand.mu.Unlock()
		if busy {
			break
		}
		select {
		case <-ctx.Done():
			return false
		case <-change:
		}
	}
	return ctx.Err() == nil
}

// A whisper is what a replica needs to gossip.
type whisper struct {
	src      *gossip.Source
	registry quotient.Registry
	own      string // the name of its counter
	added    atomic.Int64
	members  int // that the parent knows; of watch's goroutine
}

// toAll is the counter that all replicas add to.
const toAll = "all"

// openGossip makes the source of a replica. Its limiters share it.
func (r *replica) openGossip() error {
	g := r.Whisper
	src, err := gossip.New(gossip.Config{
		Fleet: "chaos", Name: g.Name, Bind: g.Bind, Advertise: g.Advertise, JoinFile: g.JoinFile,
		Interval: gossipEvery, Probe: gossipProbe, Rejoin: gossipRejoin,
	})
	if err != nil {
		return err
	}
	r.gossip = &whisper{src: src, own: counterOf(r.ID)}
	for _, p := range r.paths {
		if p == nil {
			continue
		}
		if err := r.gossip.registry.Add(p.source.String(), p.limiter); err != nil {
			return err
		}
	}
	return nil
}

// live follows the source, and asks.
func (w *whisper) live(ctx context.Context, r *replica, work *sync.WaitGroup) {
	work.Go(func() { r.failed(ctx, w.registry.Follow(ctx, whispered{w.src, r})) })
	for _, p := range r.paths {
		if p != nil {
			r.ask(ctx, p, work)
		}
	}
	work.Go(func() { r.watch(ctx) })
}

// whispered is the source, which passes the paths.
type whispered struct {
	*gossip.Source
	r *replica
}

// Watch is the source's, with a report that passes the paths.
func (w whispered) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	for _, p := range w.r.paths {
		if p != nil {
			report = p.listen(report)
		}
	}
	return w.Source.Watch(ctx, report)
}

// count adds one event to the fleet's counter, and to that of this replica.
func (w *whisper) count() {
	c := w.src.Counters()
	if c.Add(toAll, 1) && c.Add(w.own, 1) {
		w.added.Add(1)
	}
}

// obey does what the parent says.
func (w *whisper) obey(r *replica, c command) {
	if c.Busy != nil {
		for _, p := range r.paths {
			if p != nil {
				p.demand.set(*c.Busy)
			}
		}
	}
	if c.Count {
		r.say(message{Counts: w.counts()})
	}
}

// look reports how many members there are, if it is not the same as before.
func (w *whisper) look(r *replica) {
	if n := w.src.Stats().Members; n != w.members {
		w.members = n
		r.say(message{Listed: &listed{n, r.clock.Now()}})
	}
}

// counts is what this replica knows of all counters.
func (w *whisper) counts() *counts {
	c, st := w.src.Counters(), w.src.Stats()
	all := &counts{
		Added: w.added.Load(), Members: st.Members, Sums: map[string]int64{},
		Sent: st.Sent, Received: st.Received, Refused: st.Refused,
	}
	for _, key := range c.Keys() {
		sum, age := c.Sum(key)
		all.Sums[key] = sum
		all.Age = max(all.Age, age)
	}
	return all
}
