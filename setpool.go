package quotient

import (
	"fmt"
	"time"
)

// underlying is what the configuration and the source say about the pool, while an operator's word stands
// above it. Limiter.mu guards it.
type underlying struct {
	view   view
	source string
	until  time.Time   // when the word of SetPoolFor ends; zero: none is in force
	timer  *time.Timer // ends it
}

// SetPool sets the pool, at once and undamped: an operator's word. It holds until the next SetPool, or until
// what Follow makes of its source changes: another report, the end of a hold-down, HintMaxAge. On an error
// nothing changes, and the attempt is counted as a rejected hint.
func (l *Limiter) SetPool(p Pool) error { return l.word(p, 0) }

// SetPoolFor is SetPool for a time, above 0: until then it holds against every hint, and then what was
// followed or configured counts again, with what has been heard meanwhile; where nothing is, what an earlier
// SetPool has said. A SetPool or another SetPoolFor ends it sooner. Its timer keeps the limiter alive until
// then.
func (l *Limiter) SetPoolFor(p Pool, ttl time.Duration) error {
	if ttl <= 0 {
		return fmt.Errorf("quotient: SetPoolFor: ttl: %v is not above 0", ttl)
	}
	return l.word(p, ttl)
}

// word puts an operator's word in force, for ever when ttl is 0.
func (l *Limiter) word(p Pool, ttl time.Duration) error {
	if err := p.Validate(); err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.hints.reject(err)
		return err
	}
	l.mu.Lock()
	l.version++
	l.hints.said(l.now())
	l.below.end()
	if ttl > 0 {
		until := time.Now().Add(ttl)
		l.below.until = until
		l.below.timer = time.AfterFunc(ttl, func() { l.wordEnds(until) })
	}
	v := view{pool: p, sized: true}
	if ttl == 0 && (l.below.view.shut || !l.below.view.sized) {
		l.below.view, l.below.source = v, "set" // nobody else has said anything
	}
	old := l.enforce(v, "set")
	l.mu.Unlock()
	l.tellPool(old, v, "set")
	return nil
}

// end takes an operator's word back.
func (t *underlying) end() {
	if t.timer != nil {
		t.timer.Stop()
	}
	t.timer, t.until = nil, time.Time{}
}

// wordEnds is the timer's call, for the word that was to end then.
func (l *Limiter) wordEnds(until time.Time) {
	l.mu.Lock()
	if l.below.until != until {
		l.mu.Unlock()
		return // another word has come
	}
	l.version++
	l.below.end()
	v, source := l.below.view, l.below.source
	old := l.enforce(v, source)
	l.mu.Unlock()
	l.tellPool(old, v, source)
}

// hint puts in force what a source says, or what is configured, unless an operator's word is to hold against
// it.
func (l *Limiter) hint(p Pool, source string) {
	l.mu.Lock()
	v := view{pool: p, sized: l.options.sized || source != "configured"}
	l.below.view, l.below.source = v, source
	if !l.below.until.IsZero() {
		l.mu.Unlock()
		return
	}
	old := l.enforce(v, source)
	l.mu.Unlock()
	l.tellPool(old, v, source)
}

// enforce puts a view of the pool in force, and returns the one before. Call with l.mu held.
func (l *Limiter) enforce(v view, source string) (old view) {
	old = l.view
	l.hints.source, l.view = source, v
	if v.pool != old.pool || l.learns && v.sized != old.sized || v.shut != old.shut {
		l.publish(l.shards[0].current().limit)
	}
	return old
}

// tellPool logs a change, without a lock: a handler may ask for Stats.
func (l *Limiter) tellPool(old, v view, source string) {
	if v.shut {
		source = "awaited"
	}
	if v.pool != old.pool || v.shut != old.shut {
		l.log.Info("pool changed", "old", old.pool, "new", v.pool, "source", source)
	}
}
