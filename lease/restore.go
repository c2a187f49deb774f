package lease

import "time"

// Restored is one lock that a client held when its server went away.
type Restored struct {
	Semaphore string
	Count     int64  // 1 to MaxCount
	Token     uint64 // 0: the client knows none, and the lock gets a new one
}

// Restore brings back a peer with the locks it held. An unknown peer is always restored, also beyond a maximum and
// below its own levels: it may have used the resource all the time. An existing one must hold just these counts, with
// the tokens that are given, and its expiry moves. Both expire so long after now: at least 0, and at most 100 years.
//
// If the tokens are those of a clock, one at or above Tokens.Next was given before the clock was set back. Nothing is
// granted then until the clock has passed it, and locks without a token get smaller ones meanwhile. A token that is
// more than a minute ahead is refused as one that was never given, or a client could move the tokens beyond where a
// restart begins.
//
// It fails with ErrTooManyLocks, ErrUnknownSemaphore, a CountError, ErrRestoreChanges, a TokenError, ErrNoTokens and
// ErrTooManyPeers, and then changes nothing. beyond names the semaphores of which more is held now than their maximum.
func (t *Table) Restore(
	id uint64, expiresIn time.Duration, locks []Restored, now time.Time,
) (beyond []string, err error) {
	t.Advance(now)
	p := t.peers[id]
	if err := t.restorable(p, locks, now); err != nil {
		return nil, err
	}
	if p != nil {
		p.expires = until(now, expiresIn)
		t.place(p)
		return nil, nil
	}
	if err := t.AddPeer(id, expiresIn, now); err != nil {
		return nil, err
	}
	p = t.peers[id]
	for _, r := range locks {
		t.skip(r.Token, now)
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

// skip goes on with the tokens above one that is restored: once the clock is there, which ends the grace time.
func (t *Table) skip(token uint64, now time.Time) {
	at := time.Unix(0, int64(token)+1)
	switch {
	case token < t.tokens.Next:
	case !at.After(now):
		t.tokens.Next = token + 1
	default:
		t.skipped = max(t.skipped, token)
		if at.After(t.grace) {
			t.grace = at
		}
	}
}

// restorable is an error if the locks cannot be those of p, or of a peer that is not known.
func (t *Table) restorable(p *peer, locks []Restored, now time.Time) error {
	if len(locks) > maxLocks {
		return ErrTooManyLocks
	}
	seen := make(map[string]bool, len(locks))
	for _, r := range locks {
		s := t.semaphores[r.Semaphore]
		switch {
		case s == nil || s.gone && p.lock(r.Semaphore) == nil:
			return ErrUnknownSemaphore
		case r.Count < 1 || r.Count > MaxCount:
			return &CountError{r.Count}
		case seen[r.Semaphore]:
			return ErrRestoreChanges
		}
		seen[r.Semaphore] = true
	}
	if p == nil {
		return t.tokensFit(locks, now)
	}
	if !p.holds(locks) {
		return ErrRestoreChanges
	}
	return nil
}

// tokensFit is an error if a token was never given, or if there are too few for the locks without one.
func (t *Table) tokensFit(locks []Restored, now time.Time) error {
	fresh := uint64(0)
	for _, r := range locks {
		switch {
		case r.Token == 0:
			fresh++
		case r.Token < t.tokens.Next:
		case t.tokens.End != EndOfTokens || r.Token > min(clockToken(now.Add(ahead)), EndOfTokens-1):
			return &TokenError{r.Token} // a server that draws from blocks has the newest
		}
	}
	if fresh > t.tokens.left() {
		return ErrNoTokens
	}
	return nil
}

// holds reports whether p holds just these locks, all different.
func (p *peer) holds(locks []Restored) bool {
	held := len(p.locks)
	if p.pending() != nil {
		held--
	}
	if held != len(locks) {
		return false
	}
	for _, r := range locks {
		l := p.lock(r.Semaphore)
		if l == nil || l.token == 0 || l.count != r.Count || r.Token != 0 && r.Token != l.token {
			return false
		}
	}
	return true
}

// bringBack gives p a lock whatever else is held.
func (t *Table) bringBack(p *peer, r Restored, now time.Time) *lock {
	s := t.semaphores[r.Semaphore]
	l := &lock{peer: p, semaphore: s, count: r.Count, token: r.Token, since: now}
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
