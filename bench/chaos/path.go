package main

import (
	"sync"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/examples/fleet/upstream"
)

// A path is one limiter of a replica.
type path struct {
	source  source
	limiter *quotient.Limiter
	clock   upstream.Clock
	wait    int64 // from the last ask until there was room, in nanoseconds; of load's goroutine

	mu    sync.Mutex // guards what follows
	heard int64      // when the source first said something usable; 0: not yet
	said  int        // the pool size that the parent knows
}

// newPath makes the limiter of a path. This is all that a program has to do to be a replica.
func newPath(s source, a assignment, clock upstream.Clock) (*path, error) {
	p := &path{source: s, clock: clock}
	rate := quotient.PerSecond(a.Limit)
	rate.Burst = a.Burst
	var err error
	p.limiter, err = quotient.New(quotient.Limit{Rates: []quotient.Rate{rate}},
		quotient.OnAdmit(p.admitted), quotient.HoldDown(holdDown), quotient.AwaitPool(), quotient.HintMaxAge(time.Hour),
		quotient.StartPool(quotient.Pool{Replicas: 1000})) // what counts if there is never a hint: next to nothing, which would be seen
	return p, err
}

// admitted is the limiter's OnAdmit, which runs in load's goroutine.
func (p *path) admitted(_ string, waited, overhead time.Duration) { p.wait = int64(waited - overhead) }

// listen notes since when there is a share: the source has said something usable, and it is in force.
func (p *path) listen(report func(quotient.Pool, error)) func(quotient.Pool, error) {
	return func(pool quotient.Pool, err error) {
		before := p.clock.Now()
		report(pool, err)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.heard == 0 && err == nil && pool.Validate() == nil {
			p.heard = before
		}
	}
}

// look is what is new about the pool in force, if anything; it was not so at an earlier look.
func (p *path) look(earlier int64) *belief {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.limiter.Pool().Replicas
	if p.heard == 0 || n == p.said {
		return nil
	}
	from := earlier
	if p.said == 0 {
		from = p.heard
	}
	p.said = n
	return &belief{Source: p.source, Replicas: n, From: from, At: p.clock.Now()}
}
