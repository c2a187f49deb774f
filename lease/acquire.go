package lease

import (
	"math"
	"slices"
	"time"
)

// Acquire asks for a lock. It returns the fencing token of a lock that is held, or 0 for one that is pending.
// A lock is taken at once only where it fits beside all that is held and pending, so that none overtakes.
//
// It may be repeated: a lock keeps its token, and one that is pending its place. A smaller count shrinks
// the lock; a larger one is a NeverError above the maximum, else a GrowError.
//
// It fails with ErrUnknownSemaphore, a CountError, a NeverError, ErrUnknownPeer, ErrAlreadyPending, a
// LevelError and ErrTooManyLocks, whichever holds first. A peer that is kept though it has expired gets the
// lock, and goes with it at the next step.
func (t *Table) Acquire(id uint64, name string, count int64, now time.Time) (token uint64, err error) {
	t.Advance(now)
	s := t.semaphores[name]
	if s == nil {
		return 0, ErrUnknownSemaphore
	}
	p := t.peers[id]
	l := p.lock(name)
	switch {
	case s.gone && l == nil:
		return 0, ErrUnknownSemaphore
	case count < 1:
		return 0, &CountError{count}
	case l != nil:
		return t.repeat(l, count, now)
	}
	if err := t.mayAsk(p, s, count); err != nil {
		return 0, err
	}
	p.refused = nil
	p.broken = slices.DeleteFunc(p.broken, func(b string) bool { return b == name })
	l = &lock{peer: p, semaphore: s, count: count, since: now}
	p.locks = append(p.locks, l)
	t.place(p)
	if t.grants() && s.acquired+s.waiting+count <= s.max {
		t.grant(l, now)
	} else {
		s.pending.push(l)
		s.waiting += count
	}
	return l.token, nil
}

// mayAsk is an error if p may not ask for a lock that it has not asked for before.
func (t *Table) mayAsk(p *peer, s *semaphore, count int64) error {
	switch {
	case count > s.max:
		return &NeverError{count, s.max}
	case p == nil:
		return ErrUnknownPeer
	case p.pending() != nil:
		return ErrAlreadyPending
	}
	level := int64(math.MaxInt64)
	for _, l := range p.locks {
		level = min(level, l.semaphore.level)
	}
	switch {
	case s.level >= level:
		return &LevelError{level, s.level}
	case len(p.locks) >= maxLocks:
		return ErrTooManyLocks
	}
	return nil
}

// repeat is Acquire of a lock that is there.
func (t *Table) repeat(l *lock, count int64, now time.Time) (token uint64, err error) {
	if err := l.covers(count); err != nil {
		return 0, err
	}
	less := l.count - count
	l.count = count
	if l.token != 0 {
		l.semaphore.acquired -= less
	} else {
		l.semaphore.waiting -= less
	}
	if less > 0 {
		t.dispatch(l.semaphore, now)
	}
	return l.token, nil
}

// covers is an error if the lock has less than count.
func (l *lock) covers(count int64) error {
	switch {
	case count <= l.count:
		return nil
	case count > l.semaphore.max:
		return &NeverError{count, l.semaphore.max}
	}
	return &GrowError{l.count, count}
}

// State returns what has become of a lock that was pending: its token, or 0 if it is still pending. It asks
// for nothing. It fails with ErrUnknownSemaphore, ErrUnknownPeer, a NeverError if the maximum has become too
// small, a GrowError if the lock has become smaller, or ErrNotHeld if it was given back.
func (t *Table) State(id uint64, name string, count int64, now time.Time) (token uint64, err error) {
	t.Advance(now)
	p := t.peers[id]
	if p == nil {
		return 0, ErrUnknownPeer
	}
	if l := p.lock(name); l != nil {
		if err := l.covers(count); err != nil {
			return 0, err
		}
		return l.token, nil
	}
	return 0, t.missing(name, count)
}

// missing is why a lock that was asked for is not there.
func (t *Table) missing(name string, count int64) error {
	switch s := t.semaphores[name]; {
	case s == nil || s.gone:
		return ErrUnknownSemaphore
	case count > s.max:
		return &NeverError{count, s.max}
	}
	return ErrNotHeld
}

// Release gives back a lock of the peer, held or pending, and serves those that wait for it. It is no error
// if there is none. It fails with ErrUnknownPeer and ErrUnknownSemaphore.
func (t *Table) Release(id uint64, name string, now time.Time) error {
	t.Advance(now)
	p := t.peers[id]
	if p == nil {
		return ErrUnknownPeer
	}
	if l := p.lock(name); l != nil {
		t.end(l, now, &l.semaphore.totals.Released)
		return nil
	}
	if p.refused != nil && p.refused.semaphore.name == name {
		p.refused = nil
	}
	if s := t.semaphores[name]; s == nil || s.gone {
		return ErrUnknownSemaphore
	}
	return nil
}

// Break takes a held lock away from its holder, for an operator, and returns it as it was. The token must be
// the lock's: a lock that was granted meanwhile stays. The peer is informed at its next heartbeat. It fails
// with ErrUnknownPeer and ErrNotHeld.
func (t *Table) Break(id uint64, name string, token uint64, now time.Time) (broken Lock, err error) {
	t.Advance(now)
	p := t.peers[id]
	if p == nil {
		return Lock{}, ErrUnknownPeer
	}
	l := p.lock(name)
	if l == nil || l.token == 0 || l.token != token {
		return Lock{}, ErrNotHeld
	}
	broken = l.show()
	if !slices.Contains(p.broken, name) {
		p.broken = append(p.broken, name)
	}
	t.end(l, now, &l.semaphore.totals.Broken)
	return broken, nil
}

// end takes a lock from its peer, counts it where it was held, and serves those that wait.
func (t *Table) end(l *lock, now time.Time, total *uint64) {
	if l.token != 0 {
		*total++
	} else {
		t.notify(l.peer)
	}
	t.detach(l, now)
	t.dispatch(l.semaphore, now)
	t.forget(l.semaphore)
}

// detach takes a lock from its semaphore and its peer.
func (t *Table) detach(l *lock, now time.Time) {
	l.semaphore.unlink(l, now)
	l.peer.locks = slices.DeleteFunc(l.peer.locks, func(o *lock) bool { return o == l })
	t.place(l.peer)
}

// Acquired reports whether the peer has no pending lock. It fails with ErrUnknownPeer. If a configuration has dropped
// the pending lock, it fails as State does, until the peer acquires another lock or releases the dropped one.
func (t *Table) Acquired(id uint64, now time.Time) (bool, error) {
	t.Advance(now)
	p := t.peers[id]
	if p == nil {
		return false, ErrUnknownPeer
	}
	if l := p.refused; l != nil {
		return false, t.missing(l.semaphore.name, l.count)
	}
	return p.pending() == nil, nil
}

// Remainder returns the maximum less what is held: negative after a restore beyond the maximum, or a lower
// maximum. It fails with ErrUnknownSemaphore.
func (t *Table) Remainder(name string, now time.Time) (int64, error) {
	t.Advance(now)
	s := t.semaphores[name]
	if s == nil || s.gone {
		return 0, ErrUnknownSemaphore
	}
	return s.max - s.acquired, nil
}
