package quotient

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
)

// Pool is what a replica knows about the pool that shares its limits.
type Pool struct {
	// Replicas is the number of live replicas: 1 to 1,000,000.
	Replicas int
	// Ordinal numbers the replicas from 1 to Replicas; 0 when it is not known.
	Ordinal int
	// Fixed says that no two replicas can hold the same ordinal: it comes from a StatefulSet or the
	// like. Only then is the remainder of a division of slots handed out, to the lowest ordinals.
	Fixed bool
}

// mostReplicas is beyond any fleet; a larger number is a misread field.
const mostReplicas = 1_000_000

// Validate reports the first field that is out of range, or nil.
func (p Pool) Validate() error {
	if p.Replicas < 1 || p.Replicas > mostReplicas {
		return fmt.Errorf("quotient: Pool.Replicas: %d is not between 1 and %d", p.Replicas, mostReplicas)
	}
	if p.Ordinal < 0 || p.Ordinal > p.Replicas {
		return fmt.Errorf("quotient: Pool.Ordinal: %d is not between 0 and the %d replicas", p.Ordinal, p.Replicas)
	}
	return nil
}

// Source is an outside opinion on the pool. Watch reports each pool that it sees, and each
// failure to see one, until the context is done; it then returns the context's error. It leaves no
// goroutine behind, and calls report from one goroutine at a time.
type Source interface {
	Watch(ctx context.Context, report func(Pool, error)) error
}

// Static is the source that always says p.
func Static(p Pool) Source { return static{func() (Pool, error) { return p, p.Validate() }} }

// Env is the source that reads the environment once: QUOTIENT_REPLICAS, and, if set,
// QUOTIENT_ORDINAL, a StatefulSet's pod index, which counts from 0. Such ordinals are fixed.
func Env() Source { return static{envPool} }

// The variables that Env reads.
const (
	envReplicas = "QUOTIENT_REPLICAS"
	envOrdinal  = "QUOTIENT_ORDINAL"
)

type static struct{ read func() (Pool, error) }

// Watch reports once and waits for the context's end.
func (s static) Watch(ctx context.Context, report func(Pool, error)) error {
	report(s.read())
	<-ctx.Done()
	return ctx.Err()
}

func envPool() (Pool, error) {
	var p Pool
	var err error
	if p.Replicas, err = strconv.Atoi(os.Getenv(envReplicas)); err != nil {
		return Pool{}, fmt.Errorf("quotient: %s: %q is no number", envReplicas, os.Getenv(envReplicas))
	}
	if v, ok := os.LookupEnv(envOrdinal); ok {
		i, err := strconv.Atoi(v)
		if err != nil || i < 0 {
			return Pool{}, fmt.Errorf("quotient: %s: %q is no number from 0", envOrdinal, v)
		}
		p.Ordinal, p.Fixed = i+1, true
	}
	return p, p.Validate()
}

// FixedOrdinal is src for a replica whose ordinal, 1 or more, is its own for good: a StatefulSet's pod index
// and one, while src counts the replicas. Pools smaller than the ordinal, which are in the middle of a
// restart, are reported without one.
func FixedOrdinal(ordinal int, src Source) Source { return numbered{ordinal, src} }

type numbered struct {
	ordinal int
	src     Source
}

// Watch reports what the source says, with the ordinal.
func (s numbered) Watch(ctx context.Context, report func(Pool, error)) error {
	if s.ordinal < 1 || s.src == nil {
		return fmt.Errorf("quotient: FixedOrdinal: ordinal %d of source %v: want 1 or more, and a source", s.ordinal, s.src)
	}
	return s.src.Watch(ctx, func(p Pool, err error) {
		if p.Ordinal, p.Fixed = 0, false; s.ordinal <= p.Replicas {
			p.Ordinal, p.Fixed = s.ordinal, true
		}
		report(p, err)
	})
}

// hints counts what was said about the pool. Limiter.mu guards it.
type hints struct {
	source                    string
	began                     time.Time // when the wait for the first usable report did
	last                      time.Time // when something usable was last said
	reports, errors, rejected uint64
	lastError                 string
	log                       hintLog
}

func (h *hints) said(now time.Time) { h.reports++; h.last = now }

func (h *hints) reject(err error) { h.rejected++; h.lastError = err.Error() }

func (h *hints) failed(err error) { h.errors++; h.lastError = err.Error() }

// Follow puts in force what a source says about the pool, until the context is done, and
// returns the source's error. Run it in a goroutine of your own; one Follow at a time.
//
// Nothing is believed unchecked. A pool that is out of range is refused and counted; a failure is counted; in
// both cases the last good pool stays. A larger pool counts at once, a smaller one only when nothing larger
// was said within HoldDown. An ordinal counts for the division of slots when it is Fixed, or when it and the
// size have been said again and again for one HoldDown, in which nothing else was said; one that is not Fixed
// counts for nothing when it was not said again for a HoldDown, and has then to be said for another one.
// After HintMaxAge without a usable report the configured pool counts again.
func (l *Limiter) Follow(ctx context.Context, src Source) error {
	if src == nil {
		return errors.New("quotient: Follow: source: nil")
	}
	f := &follower{l: l, began: l.follows(), keeps: !l.fallsBack() || isSteady(src)}
	if p, followed := l.followed(); followed {
		f.damp.say(p, f.began, l.holdDown) // a source that begins anew does not end a hold-down
	}
	defer f.stop()
	f.fire() // what an earlier Follow has awaited in vain may be due
	err := src.Watch(ctx, f.report)
	if ctx.Err() == nil {
		l.log.Warn("source of pool hints ended", "error", err)
	}
	return err
}

// fallsBack reports whether there is something to fall back to when hints have grown old: a configured pool, or
// a law that does without one. The default of one replica is neither, and would be the whole limit.
func (o *options) fallsBack() bool { return o.sized || o.learns && o.ceiling == CeilingLimit }

// isSteady tells a source that says its only word at the start: it does not grow old.
func isSteady(src Source) bool {
	if n, ok := src.(numbered); ok {
		src = n.src
	}
	_, ok := src.(static)
	return ok
}

// follows returns when the wait for a usable report has begun: now, or while AwaitPool waits with the first
// Follow.
func (l *Limiter) follows() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hints.began.IsZero() || !l.below.view.shut {
		l.hints.began = l.now()
	}
	return l.hints.began
}

// followed returns what the source says, as far as an earlier Follow has heard it.
func (l *Limiter) followed() (Pool, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.below.view.pool, l.below.source == "followed"
}

// follower damps one source.
type follower struct {
	l     *Limiter
	mu    sync.Mutex // guards what follows; taken before Limiter.mu
	damp  damper
	began time.Time
	heard bool
	keeps bool      // the last good pool stays, however old it is
	inUse PoolStats // what was last put in force: the pool and its source; the zero value at first
	timer *time.Timer
	ended bool
}

func (f *follower) report(p Pool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.l.now()
	if f.ended || !f.l.hear(p, err, now) {
		return
	}
	f.heard, f.began = true, now
	f.damp.say(p, now, f.l.holdDown)
	f.apply(now)
}

// hear counts a report, logs what is new about it, and reports whether it is usable.
func (l *Limiter) hear(p Pool, err error, now time.Time) bool {
	bad := p.Validate()
	var line hintLine
	l.mu.Lock()
	switch {
	case err != nil:
		l.hints.failed(err)
		line = l.hints.log.failed(hintFailed, err, now)
	case bad != nil:
		l.hints.reject(bad)
		line = l.hints.log.failed(hintRefused, bad, now)
	default:
		l.hints.said(now)
		line = l.hints.log.usable(now)
	}
	l.mu.Unlock()
	line.write(l.log)
	return err == nil && bad == nil
}

// apply puts in force what the damped source says now, if that is something new, and sets the timer for
// the next instant at which it may say something else by itself.
func (f *follower) apply(now time.Time) {
	p, source := f.l.options.pool, "configured"
	stale := f.l.stale > 0 && now.Sub(f.began) >= f.l.stale && !(f.heard && f.keeps)
	if f.heard && !stale {
		p, source = f.damp.pool(now, f.l.holdDown), "followed"
	}
	if u := &f.inUse; (p != u.Pool || source != u.Source) && (f.heard || stale) {
		u.Pool, u.Source = p, source
		f.l.hint(p, source)
	}
	f.again(now)
}

// again sets the one timer of the follower.
func (f *follower) again(now time.Time) {
	next := f.damp.next(now, f.l.holdDown)
	if at := f.began.Add(f.l.stale); f.l.stale > 0 && at.After(now) && (next.IsZero() || at.Before(next)) {
		next = at
	}
	if next.IsZero() {
		return
	}
	if f.timer == nil {
		f.timer = time.AfterFunc(next.Sub(now), f.fire)
		return
	}
	f.timer.Reset(next.Sub(now))
}

func (f *follower) fire() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ended {
		f.apply(f.l.now())
	}
}

func (f *follower) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	if f.timer != nil {
		f.timer.Stop()
	}
}

// damper keeps what a source has said within the hold-down: the largest pool of it counts.
type damper struct {
	last  Pool
	since time.Time // when the source began to say exactly last
	heard time.Time // when it said so the last time
	older []opinion // of larger pools than last, largest first; each ends later than the one before
}

// opinion is a size that a source held until an instant.
type opinion struct {
	replicas int
	until    time.Time
}

// mostOpinions bounds the memory of a source that keeps changing its mind. The smallest is dropped, and
// the next larger one counts in its stead until then, which is the safe side.
const mostOpinions = 64

// say takes note of p. It replaces smaller opinions, since a larger one outlasts them.
func (d *damper) say(p Pool, now time.Time, holdDown time.Duration) {
	silent := now.Sub(d.heard) >= holdDown
	if d.heard = now; p == d.last {
		if silent {
			d.since = now // what was not said meanwhile may have been another replica's
		}
		return
	}
	if d.last.Replicas > p.Replicas {
		d.older = append(d.older, opinion{d.last.Replicas, now})
	}
	d.last, d.since = p, now
	kept := d.older[:0]
	for _, o := range d.older {
		if o.replicas > p.Replicas && now.Sub(o.until) < holdDown {
			kept = append(kept, o)
		}
	}
	if d.older = kept; len(kept) > mostOpinions {
		d.older[len(kept)-2].until = d.older[len(kept)-1].until
		d.older = kept[:len(kept)-1]
	}
}

// pool is what counts now. While a larger size than the last counts, only an ordinal does that the source
// calls fixed: any other belongs to the smaller pool.
func (d *damper) pool(now time.Time, holdDown time.Duration) Pool {
	for _, o := range d.older {
		if now.Sub(o.until) < holdDown {
			p := Pool{Replicas: o.replicas}
			if d.last.Fixed {
				p.Ordinal, p.Fixed = d.last.Ordinal, true
			}
			return p
		}
	}
	p := d.last
	switch {
	case p.Fixed:
	case holdDown > 0 && now.Sub(d.heard) >= holdDown:
		p.Ordinal = 0 // by now it may be another replica's
	default:
		p.Fixed = p.Ordinal > 0 && d.heard.Sub(d.since) >= holdDown
	}
	return p
}

// next is when pool changes by itself; zero when it does not.
func (d *damper) next(now time.Time, holdDown time.Duration) time.Time {
	for _, o := range d.older {
		if at := o.until.Add(holdDown); at.After(now) {
			return at
		}
	}
	if at := d.heard.Add(holdDown); d.last.Ordinal > 0 && !d.last.Fixed && at.After(now) {
		return at
	}
	return time.Time{}
}
