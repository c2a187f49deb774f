package quotient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

func (h *hints) reported(now time.Time) { h.reports++; h.last = now }

func (h *hints) reject(err error) { h.rejected++; h.lastError = err.Error() }

func (h *hints) failed(err error) { h.errors++; h.lastError = err.Error() }

// Follow applies a source's reports on the pool, until the context is done. It returns nil then, and the
// source's error if the source ends before. Run it in a goroutine of your own; one Follow at a time.
//
// Every report is checked. A failure, or a pool that is out of range, is counted, and the last good pool
// stays. A larger pool counts at once, a smaller one when no larger one was reported within HoldDown. After
// HintMaxAge without a usable report the configured pool counts again, or nothing is admitted. An ordinal
// counts when it is Fixed, or when one HoldDown brought no other report than it and the size. A report that
// is not repeated for a HoldDown counts no more.
//
// The log says when the source fails, is refused or ends, and when nothing is admitted any more. Without a
// Logger that goes to slog.Default, since Follow's error is often dropped: under AwaitPool a limiter would
// refuse all without a word. Logger(slog.New(slog.DiscardHandler)) ends it. A source that neither reports nor
// fails logs nothing: Stats().Pool tells, and Registry.Ready.
//
// If the limiter has Demand, a source that sums up numbers over the pool, as poolsize/gossip does, also carries the
// replicas' reports on their keys. FixedOrdinal may be around it.
func (l *Limiter) Follow(ctx context.Context, src Source) error {
	if src == nil {
		return errors.New("quotient: Follow: source: nil")
	}
	f, followed := l.follower(src)
	defer f.stop()
	err := f.carry(src, l.name)
	if err != nil {
		return err
	}
	f.begin(followed)
	err = src.Watch(ctx, func(p Pool, err error) { f.report(&hint{pool: p, err: err, at: time.Now()}) })
	f.ends(ctx, err)
	return unstopped(ctx, err)
}

// unstopped is the error of a source that ends before it was stopped.
func unstopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// follower returns a follower of a source, and reports whether another Follow has brought a pool.
func (l *Limiter) follower(src Source) (f *follower, followed bool) {
	f = &follower{l: l, began: l.follows(), steady: isSteady(src), uncarry: func() {}}
	p, followed := l.followed()
	if followed {
		f.damp.note(p, time.Now(), l.holdDown) // a source that starts again does not end a hold-down
	}
	return f, followed
}

// begin puts in force what an earlier Follow has awaited in vain.
func (f *follower) begin(followed bool) {
	if !followed || !f.steady {
		f.fire()
	}
}

// ends logs that the source has ended by itself.
func (f *follower) ends(ctx context.Context, err error) {
	if ctx.Err() == nil {
		f.l.alarm().Warn("source of pool hints ended", "error", err)
	}
}

// alarm is the log of what keeps the pool from being known.
func (l *Limiter) alarm() *slog.Logger {
	switch {
	case l.logs:
		return l.log
	case l.name != "":
		return slog.Default().With("limiter", l.name)
	}
	return slog.Default()
}

// fallsBack reports whether there is something to fall back to when hints have grown old: a configured pool,
// or a controller that does without one. The default of one replica is neither, and would be the whole
// limit.
func (o *options) fallsBack() bool { return o.sized || o.learns && o.beyond }

// isSteady reports whether a source reports once, at the start. Such a report does not grow old.
func isSteady(src Source) bool {
	if n, ok := src.(numbered); ok {
		src = n.src
	}
	_, ok := src.(static)
	return ok
}

// stops reports whether nothing is admitted when hints have grown old.
func (o *options) stops() bool { return o.awaits && !o.fallsBack() }

// follows returns when the wait for a usable report has begun: with the last one, or with the first Follow.
func (l *Limiter) follows() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hints.began.IsZero() {
		l.hints.began = time.Now()
	}
	return l.hints.began
}

// followed returns the pool that an earlier Follow has brought, and reports whether there is one.
func (l *Limiter) followed() (Pool, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.standing.belief.pool, l.standing.source == "followed"
}

// follower damps one source.
type follower struct {
	l        *Limiter
	steady   bool       // what the source has reported does not grow old
	mu       sync.Mutex // guards what follows; taken before Limiter.mu
	damp     damper
	began    time.Time // when the wait for a usable report did
	reported bool
	inUse    PoolStats // what was last put in force: the pool and its source; the zero value at first
	latest   *hint     // that was reported
	timer    *time.Timer
	ended    bool
	uncarry  func() // ends what the source carries
}

// hint is a report of a source.
type hint struct {
	pool Pool
	err  error
	at   time.Time
	n    uint64 // counts those of a source that a Registry follows
}

func (f *follower) report(h *hint) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended || f.latest != nil && h.n < f.latest.n || f.latest == h {
		return
	}
	if f.latest = h; !f.l.noteReport(h.pool, h.err, h.at) {
		return
	}
	f.reported, f.began = true, h.at
	f.damp.note(h.pool, h.at, f.l.holdDown)
	f.apply(time.Now())
}

// noteReport counts a report, logs what is new about it, and reports whether it is usable.
func (l *Limiter) noteReport(p Pool, err error, now time.Time) bool {
	bad := p.validate()
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
		l.hints.reported(now)
		l.hints.began = now
		line = l.hints.log.usable(now)
	}
	l.mu.Unlock()
	line.write(l.alarm())
	return err == nil && bad == nil
}

// apply puts in force what the damped source amounts to now, if that is new. It sets the timer for the next
// instant at which that may change without a report.
func (f *follower) apply(now time.Time) {
	p, source := f.l.options.pool, "configured"
	stale := f.grownOld(now)
	switch {
	case f.reported && !stale:
		p, source = f.damp.pool(now, f.l.holdDown), "followed"
	case f.l.stops():
		source = "awaited"
	}
	if u := &f.inUse; (p != u.Pool || source != u.Source) && (f.reported || stale) {
		u.Pool, u.Source = p, source
		f.l.applyHint(p, source)
	}
	f.arm(now)
}

// grownOld reports whether no usable report has come for HintMaxAge. A limiter that has nothing to go back to
// keeps the last good pool: one replica would be the whole limit.
func (f *follower) grownOld(now time.Time) bool {
	o := &f.l.options
	return o.hintMaxAge > 0 && now.Sub(f.began) >= o.hintMaxAge && (o.awaits || o.fallsBack()) &&
		!(f.reported && f.steady)
}

// arm sets the one timer of the follower.
func (f *follower) arm(now time.Time) {
	next := f.damp.next(now, f.l.holdDown)
	end := f.began.Add(f.l.hintMaxAge)
	if f.l.hintMaxAge > 0 && end.After(now) && (next.IsZero() || end.Before(next)) {
		next = end
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
	if !f.ended || f.l.follows().Equal(f.began) { // else another Follow has had a usable report since
		f.apply(time.Now())
	}
}

// stop ends the follower. Where nothing is admitted under hints that have grown old, they still grow old.
func (f *follower) stop() {
	defer func() { f.uncarry() }() // without the lock; it changes no more
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	if f.timer == nil {
		return
	}
	f.timer.Stop()
	if now := time.Now(); f.l.stops() && !f.grownOld(now) && !f.steady {
		f.timer.Reset(f.began.Add(f.l.hintMaxAge).Sub(now))
	}
}

// damper keeps what a source has reported within the hold-down. The smallest share of that counts: for a
// replica whose weight does not change, that of the largest pool.
type damper struct {
	last      Pool
	since     time.Time  // when the source began to report exactly last
	confirmed time.Time  // when it last did
	older     []pastSize // of smaller shares than last, smallest first; each ends later than the one before
}

// pastSize is a pool that a source held until an instant.
type pastSize struct {
	Pool
	until time.Time
}

// maxPastSizes bounds the memory of a source that keeps changing its mind. The largest share is dropped, and
// the next smaller one counts in its stead until then, which is the safe side.
const maxPastSizes = 64

// note takes note of a reported pool. It replaces larger shares, since a smaller one outlasts them.
func (d *damper) note(p Pool, now time.Time, holdDown time.Duration) {
	silent := now.Sub(d.confirmed) >= holdDown
	if d.confirmed = now; p == d.last {
		if silent {
			d.since = now // meanwhile the ordinal may have been another replica's
		}
		return
	}
	if d.last.smaller(p) {
		d.older = append(d.older, pastSize{d.last, now})
	}
	d.last, d.since = p, now
	kept := d.older[:0]
	for _, o := range d.older {
		if o.smaller(p) && now.Sub(o.until) < holdDown {
			kept = append(kept, o)
		}
	}
	if d.older = kept; len(kept) > maxPastSizes {
		d.older[len(kept)-2].until = d.older[len(kept)-1].until
		d.older = kept[:len(kept)-1]
	}
}

// pool returns what counts now. While a smaller share than the last counts, an ordinal counts only if the
// source calls it fixed: any other belongs to the pool that the source sees now.
func (d *damper) pool(now time.Time, holdDown time.Duration) Pool {
	for _, o := range d.older {
		if now.Sub(o.until) < holdDown {
			p := d.last.withShareOf(o.Pool)
			if !p.Fixed {
				p.Ordinal = 0
			}
			return p
		}
	}
	p := d.last
	switch {
	case p.Fixed:
	case holdDown > 0 && now.Sub(d.confirmed) >= holdDown:
		p.Ordinal = 0 // by now it may be another replica's
	default:
		p.Fixed = p.Ordinal > 0 && d.confirmed.Sub(d.since) >= holdDown
	}
	return p
}

// next returns when pool changes without a report; the zero time when it does not.
func (d *damper) next(now time.Time, holdDown time.Duration) time.Time {
	for _, o := range d.older {
		if at := o.until.Add(holdDown); at.After(now) {
			return at
		}
	}
	if at := d.confirmed.Add(holdDown); d.last.Ordinal > 0 && !d.last.Fixed && at.After(now) {
		return at
	}
	return time.Time{}
}

// SetPool sets the pool, at once and undamped, as an operator wants it. If ttl is above 0, it overrides all
// hints until ttl expires. Then the followed pool applies again, or else the configured one. If ttl is 0, it
// applies until Follow has a change: another report, the end of a hold-down, HintMaxAge. The next SetPool
// replaces it in any case. On an error nothing changes, and a pool that is out of range is counted as a
// rejected hint. The timer of a ttl keeps the limiter alive until then.
func (l *Limiter) SetPool(p Pool, ttl time.Duration) error {
	if ttl < 0 {
		return fmt.Errorf("quotient: SetPool: ttl: %v is below 0", ttl)
	}
	if err := p.validate(); err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.hints.reject(err)
		return err
	}
	l.mu.Lock()
	l.version++
	l.hints.reported(time.Now())
	l.standing.end()
	if ttl > 0 {
		until := time.Now().Add(ttl)
		l.standing.until = until
		l.standing.timer = time.AfterFunc(ttl, func() { l.ttlEnds(until) })
	}
	v := belief{pool: p, sized: true}
	if ttl == 0 && (l.standing.belief.awaits || !l.standing.belief.sized) {
		l.standing.belief, l.standing.source = v, "set" // no other pool has been reported
	}
	old := l.enforce(v, "set")
	l.mu.Unlock()
	l.logPool(old, v, "set")
	return nil
}

// end unpins the pool that SetPool has set with a ttl.
func (t *standing) end() {
	if t.timer != nil {
		t.timer.Stop()
	}
	t.timer, t.until = nil, time.Time{}
}

// ttlEnds is the timer's call, for the word that was to end then.
func (l *Limiter) ttlEnds(until time.Time) {
	l.mu.Lock()
	if l.standing.until != until {
		l.mu.Unlock()
		return // another SetPool has come
	}
	l.version++
	l.standing.end()
	v, source := l.standing.belief, l.standing.source
	old := l.enforce(v, source)
	l.mu.Unlock()
	l.logPool(old, v, source)
}

// applyHint puts in force what a source reports, or what is configured, unless a pool that SetPool has pinned
// holds against it.
func (l *Limiter) applyHint(p Pool, source string) {
	l.mu.Lock()
	v := belief{pool: p, sized: l.options.sized || source != "configured", awaits: source == "awaited"}
	if v.awaits {
		v.pool = l.standing.belief.pool // the last that was known
	}
	l.standing.belief, l.standing.source = v, source
	if !l.standing.until.IsZero() {
		l.mu.Unlock()
		return
	}
	old := l.enforce(v, source)
	l.mu.Unlock()
	l.logPool(old, v, source)
}

// enforce puts a belief in the pool in force, and returns the one before. Call with l.mu held.
func (l *Limiter) enforce(v belief, source string) (old belief) {
	old = l.belief
	l.hints.source, l.belief = source, v
	if v.pool != old.pool || l.learns && v.sized != old.sized || v.awaits != old.awaits {
		l.publish(l.newest().limit)
	}
	return old
}

// hintPause is the least time between two lines that say the same of a source. A source that was now good and
// now bad must be good for as long before a line calls it good.
const hintPause = time.Minute

// hintLine is a line for the log; the zero value writes nothing.
type hintLine struct {
	level slog.Level
	text  string
	args  []any
}

// write logs the line. Call without a lock: a handler may ask for Stats.
func (h hintLine) write(log *slog.Logger) {
	if h.text != "" {
		log.Log(context.Background(), h.level, h.text, h.args...)
	}
}

// failed takes note of a failure. The first failure of a run is logged at once. The first one
// after the log has called the source good, and the first one of the other kind, are logged at once too. All
// others are counted, for one line a minute of each kind.
func (h *hintLog) failed(kind hintKind, err error, now time.Time) hintLine {
	if !h.failing && now.Sub(h.last) >= hintPause {
		*h = hintLog{began: now}
	}
	h.mixed = h.mixed || !h.well.IsZero()
	h.last, h.well = now, time.Time{}
	h.failures++
	k := &h.kinds[kind]
	k.unlogged++
	if h.failing && !k.last.IsZero() && now.Sub(k.last) < hintPause {
		return hintLine{}
	}
	n := k.unlogged
	k.last, k.unlogged, h.failing = now, 0, true
	return hintLine{slog.LevelWarn, hintTexts[kind], []any{"error", err, "failures", n}}
}

// usable takes note of a usable report. The first one after failures is logged at once. But a source that has
// also failed between usable reports must have gone for a minute without a failure.
func (h *hintLog) usable(now time.Time) hintLine {
	if h.well.IsZero() {
		h.well = now
	}
	if !h.failing || h.mixed && now.Sub(h.last) < hintPause {
		return hintLine{}
	}
	h.failing = false
	lasted := h.well.Sub(h.began)
	return hintLine{slog.LevelInfo, "pool hints are back", []any{"failures", h.failures, "lasted", lasted}}
}

// standing is the pool by the configuration and the source. It counts again when a SetPool with a ttl ends.
// Limiter.mu guards it.
type standing struct {
	belief belief
	source string
	until  time.Time   // when a SetPool with a ttl ends; zero: none is in force
	timer  *time.Timer // ends it
}

// hints counts the reports about the pool. Limiter.mu guards it.
type hints struct {
	source                    string
	began                     time.Time // when the wait for the first usable report did
	last                      time.Time // when the last usable report came
	reports, errors, rejected uint64
	lastError                 string
	log                       hintLog
}

// hintKind is what was wrong with a hint.
type hintKind int

// The kinds, which have lines of their own.
const (
	hintFailed  hintKind = iota // the source has failed
	hintRefused                 // the source has reported what is no pool
	hintKinds
)

var hintTexts = [hintKinds]string{hintFailed: "pool hint failed", hintRefused: "pool hint refused"}

// hintLog is a run of failures of a source, and what was logged of it. Limiter.mu guards it.
type hintLog struct {
	began, last time.Time // the first and the last failure
	failures    uint64
	kinds       [hintKinds]struct {
		last     time.Time // when there was a line; zero: there was none
		unlogged uint64    // failures since
	}
	well    time.Time // the first usable report since the last failure; zero: there was none
	mixed   bool      // a failure has come after a usable report
	failing bool      // the last line is of a failure
}

// logPool logs a change, without a lock: a handler may ask for Stats.
func (l *Limiter) logPool(old, v belief, source string) {
	switch {
	case v.awaits && !old.awaits:
		l.alarm().Warn("pool not known: nothing is admitted", "last", old.pool, "source", "awaited")
	case old.awaits && !v.awaits:
		l.log.Info("pool changed", "old", "not known", "new", v.pool, "source", source)
	case v.pool != old.pool:
		l.log.Info("pool changed", "old", old.pool, "new", v.pool, "source", source)
	}
	if v != old {
		l.warnOfSlots()
	}
}
