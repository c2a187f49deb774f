package quotient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/quotient-go/quotient/internal/damper"
)

// Follow applies a source's reports on the pool, until the context is done. It returns nil then, and the source's
// error if the source ends before. Run it in a goroutine of your own; one Follow at a time.
//
// A source may be wrong, so a failure, or a pool that is out of range, is counted and logged, and the last good pool
// stays. A larger pool counts at once. A smaller one counts when no larger one was reported within HoldDown, so that a
// source which loses sight of replicas for a while raises no share. An ordinal counts when it is Fixed, or when one
// HoldDown brought no other report than it and the size. After HintMaxAge, or the age of AwaitPool, without a usable
// report the configured pool counts again. Where there is none, nothing is admitted under AwaitPool.
//
// Because Follow's error is often dropped, what ails a source goes to slog.Default if there is no Logger: the first
// failure and each that has another error, at most five lines a minute, then one a minute, and the recovery. So does
// that nothing is admitted because no report comes: two seconds after Follow began, and when that ends. With Demand a
// source that sums up numbers, as poolsize/gossip's does, also carries reports on keys.
func (l *Limiter) Follow(ctx context.Context, src Source) error {
	if src == nil {
		return errors.New("quotient: Follow: source: nil")
	}
	f, followed := l.follower(src)
	defer f.stop()
	err := f.carry(src, l.name)
	if err != nil {
		f.ends(ctx, err)
		return err
	}
	f.begin(followed)
	err = src.Watch(ctx, func(p Pool, err error) { f.report(&hint{pool: p, err: err, at: time.Now()}) })
	f.ends(ctx, err)
	return unstopped(ctx, err)
}

// follower hands one source's reports to a limiter, damped. It waits for what changes without a report.
type follower struct {
	l       *Limiter
	mu      sync.Mutex // guards what follows; taken before Limiter.mu
	damp    damper.Damper
	inUse   PoolStats // what was last put in force: the pool and its source; the zero value at first
	latest  *hint     // that was reported
	timer   *time.Timer
	ended   bool
	uncarry func() // ends what the source carries
}

// hint is a report of a source.
type hint struct {
	pool Pool
	err  error
	at   time.Time
	n    uint64 // counts those of a source that a Registry follows
}

// follower returns a follower of a source, and reports whether another Follow has brought a pool.
func (l *Limiter) follower(src Source) (f *follower, followed bool) {
	now := time.Now()
	l.noteAwaiting()
	f = &follower{l: l, uncarry: func() {}}
	f.damp = damper.Damper{HoldDown: l.holdDown, Once: isSteady(src)}
	if l.awaits || l.fallsBack() { // else the last good pool stays: one replica would be the whole limit
		f.damp.MaxAge = l.hintMaxAge
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hints.began.IsZero() {
		l.hints.began = now
	}
	f.damp.Began = l.hints.began
	if followed = l.standing.source == "followed"; followed {
		f.damp.Recall(damper.Pool(l.standing.belief.pool), now)
	}
	return f, followed
}

// isSteady reports whether a source reports once, at the start. Such a report does not grow old.
func isSteady(src Source) bool {
	if n, ok := src.(numbered); ok {
		src = n.src
	}
	_, ok := src.(static)
	return ok
}

// fallsBack reports whether there is something to fall back to when hints have grown old: a configured pool, or a
// controller that does without one. The default of one replica is neither, and would be the whole limit.
func (o *options) fallsBack() bool { return o.sized || o.learns && o.beyond }

// stops reports whether nothing is admitted when hints have grown old.
func (o *options) stops() bool { return o.awaits && !o.fallsBack() }

// begin puts in force what an earlier Follow has awaited in vain.
func (f *follower) begin(followed bool) {
	if !followed || !f.damp.Once {
		f.fire()
	}
}

func (f *follower) report(h *hint) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended || f.latest != nil && h.n < f.latest.n || f.latest == h {
		return
	}
	if f.latest = h; f.l.noteReport(h.pool, h.err, h.at) {
		f.damp.Report(damper.Pool(h.pool), h.at)
		f.apply(time.Now())
	}
}

// fire is the timer's call.
func (f *follower) fire() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ended || f.isLatest() {
		f.apply(time.Now())
	}
}

// isLatest reports whether no other Follow has had a usable report since.
func (f *follower) isLatest() bool {
	f.l.mu.Lock()
	defer f.l.mu.Unlock()
	return f.l.hints.began.Equal(f.damp.Silent())
}

// apply puts in force what the damped source amounts to now, if that is new. It sets the timer for the next
// instant at which that may change without a report.
func (f *follower) apply(now time.Time) {
	p, source := f.l.options.pool, "configured"
	known, ok := f.damp.Pool(now)
	switch {
	case ok:
		p, source = Pool(known), "followed"
	case f.l.stops():
		source = "awaited"
	}
	if u := &f.inUse; (p != u.Pool || source != u.Source) && (ok || f.damp.Old(now)) {
		u.Pool, u.Source = p, source
		f.l.applyHint(p, source)
	}
	next := f.damp.Next(now)
	switch {
	case next.IsZero():
	case f.timer == nil:
		f.timer = time.AfterFunc(next.Sub(now), f.fire)
	default:
		f.timer.Reset(next.Sub(now))
	}
}

// ends logs that the source has ended by itself.
func (f *follower) ends(ctx context.Context, err error) {
	if ctx.Err() == nil {
		f.l.alarm().Warn("source of pool hints ended", "error", err)
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
	if now := time.Now(); f.l.stops() && !f.damp.Old(now) && !f.damp.Once {
		f.timer.Reset(f.damp.Silent().Add(f.damp.MaxAge).Sub(now))
	}
}

// unstopped is the error of a source that ends before it was stopped.
func unstopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// SetPool sets the pool, at once and undamped, as an operator wants it. With a ttl above 0 it overrides all hints
// until that ends, and keeps the limiter alive until then. With 0 it applies until Follow has a change. The next
// SetPool replaces it in any case. A pool that is out of range changes nothing, and counts as a rejected hint.
func (l *Limiter) SetPool(p Pool, ttl time.Duration) error { return l.setPool(p, ttl, true) }

// setPoolUnlogged is SetPool without its line.
func setPoolUnlogged(l *Limiter, p Pool, ttl time.Duration) error { return l.setPool(p, ttl, false) }

func (l *Limiter) setPool(p Pool, ttl time.Duration, logged bool) error {
	if ttl < 0 {
		return fmt.Errorf("quotient: SetPool: ttl: %v is below 0", ttl)
	}
	err := p.validate()
	l.mu.Lock()
	if err != nil {
		defer l.mu.Unlock()
		l.hints.reject(err)
		return err
	}
	l.version++
	l.hints.reports, l.hints.last = l.hints.reports+1, time.Now()
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
	l.enforceAndUnlock(v, "set", logged)
	return nil
}

// standing is the pool by the configuration and the source. It counts again when a SetPool with a ttl ends.
// Limiter.mu guards it.
type standing struct {
	belief belief
	source string
	until  time.Time   // when a SetPool with a ttl ends; zero: none is in force
	timer  *time.Timer // ends it
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
	l.enforceAndUnlock(l.standing.belief, l.standing.source, true)
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
	l.enforceAndUnlock(v, source, true)
}

// enforceAndUnlock puts a belief in the pool in force, and logs that without the lock: a handler may ask for Stats.
func (l *Limiter) enforceAndUnlock(v belief, source string, logged bool) {
	old := l.belief
	l.hints.source, l.belief = source, v
	if v.pool != old.pool || l.learns && v.sized != old.sized || v.awaits != old.awaits {
		l.publish(nil)
	}
	alarmed := l.awaitLog.turn(v.awaits, old.awaits)
	l.mu.Unlock()
	attrs := append(v.pool.changed(old.pool, !old.awaits), slog.String("source", source))
	switch ctx := context.Background(); {
	case !logged:
	case v.awaits && !old.awaits:
		l.alarm().Warn(textAwaited, "last", old.pool.Replicas, "source", source)
	case alarmed:
		l.alarm().LogAttrs(ctx, slog.LevelWarn, "pool known: calls are admitted again", attrs...)
	case v.pool != old.pool || v.awaits != old.awaits:
		l.log.LogAttrs(ctx, slog.LevelInfo, "pool changed", attrs...)
	}
	if v != old {
		l.warnOfSlots()
	}
}

const textAwaited = "pool not known: nothing is admitted"

// awaitLog is what was logged of a limiter that admits nothing because it awaits its pool.
type awaitLog struct {
	asked atomic.Bool // a timer was set for the line
	said  bool        // Limiter.mu guards it
}

// awaitPause is how long a pool may be awaited before a line says so: the first report of a source takes a moment.
const awaitPause = 2 * time.Second

// turn takes note of a belief in a pool, and reports whether it ends what a line has said.
func (a *awaitLog) turn(awaits, awaited bool) (ends bool) {
	ends = a.said && !awaits
	if awaits != awaited {
		a.said = awaits
	}
	return ends
}

// noteAwaiting has a line say that nothing is admitted from the start on, unless the pool is known soon. It is called
// when a Follow begins, and when a call is stopped: without a source nobody else would say it. A lock may be held.
func (l *Limiter) noteAwaiting() {
	if l.awaits && !l.awaitLog.asked.Load() && !l.awaitLog.asked.Swap(true) {
		time.AfterFunc(awaitPause, l.sayAwaiting)
	}
}

func (l *Limiter) sayAwaiting() {
	l.mu.Lock()
	says := l.belief.awaits && !l.awaitLog.said
	l.awaitLog.said = l.awaitLog.said || says
	l.mu.Unlock()
	if says {
		l.alarm().Warn(textAwaited, "source", "awaited")
	}
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

func (h *hints) reject(err error) { h.rejected++; h.lastError = err.Error() }

// noteReport counts a report, logs what is new about it, and reports whether it is usable.
func (l *Limiter) noteReport(p Pool, err error, now time.Time) bool {
	bad := p.validate()
	var line func(*slog.Logger)
	l.mu.Lock()
	h := &l.hints
	switch {
	case err != nil:
		h.errors++
		h.lastError = err.Error()
		line = h.log.failed(hintFailed, err, now)
	case bad != nil:
		h.reject(bad)
		line = h.log.failed(hintRefused, bad, now)
	default:
		h.reports++
		h.last, h.began = now, now
		line = h.log.usable(now)
	}
	l.mu.Unlock()
	if line != nil { // and without a lock: a handler may ask for Stats
		line(l.alarm())
	}
	return err == nil && bad == nil
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

// hintLog is a run of failures of a source, and what was logged of it. Limiter.mu guards it.
type hintLog struct {
	began, last time.Time // the first and the last failure
	failures    uint64
	kinds       [hintKinds]struct {
		last     time.Time // when there was a line; zero: there was none
		text     string    // of that line's error, without its digits
		news     int       // lines since the last one that was due: of errors with another text
		unlogged uint64    // failures since
	}
	well    time.Time // the first usable report since the last failure; zero: there was none
	mixed   bool      // a failure has come after a usable report
	failing bool      // the last line is of a failure
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

// hintPause is the least time between two lines that say the same of a source. A source that was now good and
// now bad must be good for as long before a line calls it good.
const hintPause = time.Minute

// mostNews is how many lines between two that are due say that the error is another one: a source may alternate.
const mostNews = 4

// failed takes note of a failure. The first failure of a run is logged at once. The first one after the log has called
// the source good, the first one of the other kind, and one whose error has another text, are logged at once too. All
// others are counted, for one line a minute of each kind. Digits do not make another text: ports, times and attempts
// change each time. It returns what writes the line, nil for none.
func (h *hintLog) failed(kind hintKind, err error, now time.Time) func(*slog.Logger) {
	if !h.failing && now.Sub(h.last) >= hintPause {
		*h = hintLog{began: now}
	}
	h.mixed = h.mixed || !h.well.IsZero()
	h.last, h.well = now, time.Time{}
	h.failures++
	k := &h.kinds[kind]
	k.unlogged++
	text := withoutDigits(err.Error())
	if h.failing && !k.last.IsZero() && now.Sub(k.last) < hintPause {
		if text == k.text || k.news >= mostNews {
			return nil
		}
		k.news++
	} else {
		k.news = 0
	}
	n := k.unlogged
	k.last, k.text, k.unlogged, h.failing = now, text, 0, true
	return func(log *slog.Logger) { log.Warn(hintTexts[kind], "error", err, "failures", n) }
}

func withoutDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, s)
}

// usable takes note of a usable report. The first one after failures is logged at once. But a source that has
// also failed between usable reports must have gone for a minute without a failure.
func (h *hintLog) usable(now time.Time) func(*slog.Logger) {
	if h.well.IsZero() {
		h.well = now
	}
	if !h.failing || h.mixed && now.Sub(h.last) < hintPause {
		return nil
	}
	h.failing = false
	n, lasted := h.failures, h.well.Sub(h.began)
	return func(log *slog.Logger) { log.Info("pool hints are back", "failures", n, "lasted", lasted) }
}
