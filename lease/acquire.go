package lease

import (
	"math"
	"slices"
	"time"
)

// Acquire asks for a lock. It returns the fencing token of a lock that is held, or 0 for one that is pending.
// A lock is taken at once only where it fits beside all that is held and pending, so that nobody overtakes.
//
// It may be repeated: a lock keeps its token, and one that is pending its place. A smaller count shrinks
// the lock; a larger one is a GrowError.
//
// It fails with ErrUnknownSemaphore, a CountError, a NeverError, ErrUnknownPeer, ErrAlreadyPending and a
// LevelError, whichever holds first. A peer that has expired is unknown until its next heartbeat.
func (t *Table) Acquire(id uint64, name string, count int64, now time.Time) (token uint64, err error) {
	t.Advance(now)
	s := t.semaphores[name]
	if s == nil || s.gone {
		return 0, ErrUnknownSemaphore
	}
	if count < 1 {
		return 0, &CountError{count}
	}
	p := t.peers[id]
	if p != nil {
		if l := p.lock(name); l != nil {
			return l.token, t.repeat(l, count, now)
		}
	}
	if err := t.mayAsk(p, s, count, now); err != nil {
		return 0, err
	}
	p.broken = slices.DeleteFunc(p.broken, func(b string) bool { return b == name })
	l := &lock{peer: p, semaphore: s, count: count, since: now}
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
func (t *Table) mayAsk(p *peer, s *semaphore, count int64, now time.Time) error {
	switch {
	case count > s.max:
		return &NeverError{count, s.max}
	case p == nil || now.After(p.expires):
		return ErrUnknownPeer
	case p.pending() != nil:
		return ErrAlreadyPending
	}
	level := int64(math.MaxInt64)
	for _, l := range p.locks {
		level = min(level, l.semaphore.level)
	}
	if s.level >= level {
		return &LevelError{level, s.level}
	}
	return nil
}

// repeat is Acquire of a lock that is there.
func (t *Table) repeat(l *lock, count int64, now time.Time) error {
	if count > l.count {
		return &GrowError{l.count, count}
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
	return nil
}

// State returns what has become of a lock that was pending: its token, or 0 if it is still pending. It asks
// for nothing. It fails with ErrUnknownSemaphore, ErrUnknownPeer, a NeverError if the maximum has become too
// small, or ErrNotHeld if the lock was given back.
func (t *Table) State(id uint64, name string, count int64, now time.Time) (token uint64, err error) {
	t.Advance(now)
	p := t.peers[id]
	if p == nil {
		return 0, ErrUnknownPeer
	}
	if l := p.lock(name); l != nil {
		return l.token, nil
	}
	switch s := t.semaphores[name]; {
	case s == nil || s.gone:
		return 0, ErrUnknownSemaphore
	case count > s.max:
		return 0, &NeverError{count, s.max}
	}
	return 0, ErrNotHeld
}

// Release gives back a lock of the peer, held or pending. It is no error if there is none. It fails with
// ErrUnknownSemaphore and ErrUnknownPeer.
func (t *Table) Release(id uint64, name string, now time.Time) error {
	t.Advance(now)
	p := t.peers[id]
	if p == nil {
		return ErrUnknownPeer
	}
	l := p.lock(name)
	if l == nil {
		if t.semaphores[name] == nil {
			return ErrUnknownSemaphore
		}
		return nil
	}
	t.end(l, now, &l.semaphore.totals.Released)
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
	l.semaphore.unlink(l, now)
	l.peer.locks = slices.DeleteFunc(l.peer.locks, func(o *lock) bool { return o == l })
	t.place(l.peer)
	t.dispatch(l.semaphore, now)
	t.forget(l.semaphore)
}

// drop takes a pending lock from its peer and from the queue.
func (t *Table) drop(l *lock) {
	l.semaphore.pending.remove(l)
	l.semaphore.waiting -= l.count
	l.peer.locks = slices.DeleteFunc(l.peer.locks, func(o *lock) bool { return o == l })
	t.place(l.peer)
}

// Acquired reports whether the peer waits for nothing. It fails with ErrUnknownPeer.
func (t *Table) Acquired(id uint64, now time.Time) (bool, error) {
	t.Advance(now)
	p := t.peers[id]
	if p == nil {
		return false, ErrUnknownPeer
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
