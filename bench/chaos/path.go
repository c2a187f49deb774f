package main

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/examples/fleet/upstream"
)

// A path is one limiter of a replica.
type path struct {
	source  source
	limiter *quotient.Limiter
	clock   upstream.Clock
	demand  *demand     // nil: there always is some
	wait    int64       // from the last call until there was room, in nanoseconds; of load's goroutine
	silent  atomic.Bool // the source does not report

	mu    sync.Mutex // guards what follows
	heard int64      // when the source first said something usable; 0: not yet
	said  int        // the pool size that the parent knows
	place int        // the ordinal that it knows
	part  float64    // the part of the limit that it knows
}

// newPath makes the limiter of a path. This is all that a program has to do to be a replica.
func newPath(s source, a assignment, clock upstream.Clock) (*path, error) {
	p := &path{source: s, clock: clock}
	fallback := quotient.Replicas(a.fallback(s))
	options := []quotient.Option{quotient.HoldDown(holdDown), quotient.AwaitPool(), fallback}
	if s.gossips() {
		p.demand = newDemand(a.Whisper.Busy)
		options = append(options, quotient.Demand(10, newsMaxAge))
	}
	switch s {
	case onSlots:
		options = append(options, quotient.HintMaxAge(hintAge))
	case onLentSlots:
		options = append(options, quotient.HintMaxAge(time.Hour))
	default:
		options = append(options, quotient.HintMaxAge(time.Hour), quotient.OnAdmit(p.admitted))
	}
	var err error
	p.limiter, err = quotient.New(a.ctrl(s).limit(), options...)
	return p, err
}

// admitted is the limiter's OnAdmit, which runs in load's goroutine.
func (p *path) admitted(_ string, waited, overhead time.Duration) { p.wait = int64(waited - overhead) }

// listen notes since when there is a share: the source has said something usable, and it is in force. The
// report of a silent source is lost.
func (p *path) listen(report func(quotient.Pool, error)) func(quotient.Pool, error) {
	return func(pool quotient.Pool, err error) {
		if p.silent.Load() {
			return
		}
		before := p.clock.Now()
		report(pool, err)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.heard == 0 && err == nil && pool.Replicas > 0 {
			p.heard = before
		}
	}
}

// look is what is new about the pool in force; it was not so at an earlier look.
func (p *path) look(earlier int64) (news []message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pool := p.limiter.Stats().Pool.Pool
	if p.heard == 0 {
		return nil
	}
	from, at := earlier, p.clock.Now()
	if p.said == 0 {
		from = p.heard
	}
	if n := pool.Replicas; n != p.said {
		p.said = n
		news = append(news, message{Belief: &belief{Source: p.source, Replicas: n, From: from, At: at}})
	}
	if pool.Ordinal != p.place {
		p.place = pool.Ordinal
		news = append(news, message{Place: &place{Source: p.source, Ordinal: pool.Ordinal, From: from, At: at}})
	}
	if p.source.gossips() {
		for k := range p.limiter.Keys() { // there is one
			if k.Part != p.part {
				p.part = k.Part
				news = append(news, message{Lent: &lent{p.source, k.Part, at}})
			}
		}
	}
	return news
}
