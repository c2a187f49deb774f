package lease

import "time"

// Restored is a lock that a client held when its server went away.
type Restored struct {
	Semaphore string
	Count     int64  // 1 to MaxCount
	Token     uint64 // 0: the client knows none, and the lock gets a new one
}

// Restore brings back a peer with the locks it held. An unknown peer is always restored, also beyond a
// maximum and below its own levels: it may have used the resource all the time. An existing one must hold
// just these counts, and its expiry moves.
//
// It fails with a CountError, a TokenError, ErrUnknownSemaphore, ErrRestoreChanges and ErrTooManyPeers, and
// then changes nothing. beyond names the semaphores of which more is held now than their maximum.
func (t *Table) Restore(id uint64, expiresIn time.Duration, locks []Restored, now time.Time) (beyond []string, err error) {
	t.Advance(now)
	if err := t.restorable(locks); err != nil {
		return nil, err
	}
	if p := t.peers[id]; p != nil {
		if !p.holds(locks) {
			return nil, ErrRestoreChanges
		}
		p.expires = until(now, expiresIn)
		t.place(p)
		return nil, nil
	}
	p, err := t.addPeer(id, expiresIn, now)
	if err != nil {
		return nil, err
	}
	for _, r := range locks {
		if l := t.bringBack(p, r, now); l.semaphore.acquired > l.semaphore.max {
			l.semaphore.totals.Beyond++
			beyond = append(beyond, l.semaphore.name)
		}
	}
	t.place(p)
	return beyond, nil
}

// restorable is an error if one of the locks cannot be one that was held.
func (t *Table) restorable(locks []Restored) error {
	seen := make(map[string]bool, len(locks))
	for _, r := range locks {
		s := t.semaphores[r.Semaphore]
		switch {
		case s == nil || s.gone:
			return ErrUnknownSemaphore
		case r.Count < 1 || r.Count > MaxCount:
			return &CountError{r.Count}
		case r.Token >= t.tokens.Next && (t.tokens.End != EndOfTokens || r.Token >= restorable):
			return &TokenError{r.Token} // a server that draws from blocks has the newest
		case seen[r.Semaphore]:
			return ErrRestoreChanges
		}
		seen[r.Semaphore] = true
	}
	return nil
}

// holds reports whether p holds just these locks.
func (p *peer) holds(locks []Restored) bool {
	held := len(p.locks)
	if p.pending() != nil {
		held--
	}
	if held != len(locks) {
		return false
	}
	for _, r := range locks {
		if l := p.lock(r.Semaphore); l == nil || l.token == 0 || l.count != r.Count {
			return false
		}
	}
	return true
}

// bringBack gives p a lock whatever else is held.
func (t *Table) bringBack(p *peer, r Restored, now time.Time) *lock {
	s := t.semaphores[r.Semaphore]
	l := &lock{peer: p, semaphore: s, count: r.Count, token: r.Token, since: now}
	t.tokens.Next = max(t.tokens.Next, r.Token+1)
	if l.token == 0 {
		l.token = t.tokens.Next
		t.tokens.Next++
	}
	p.locks = append(p.locks, l)
	s.acquired += l.count
	s.held.push(l)
	s.totals.Restored++
	return l
}
