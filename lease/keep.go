package lease

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/quotient-go/quotient/internal/rest"
)

// expiry is the body of a new peer and of a heartbeat.
func expiry(c *Client) any {
	return map[string]string{"expires_in": FormatDuration(c.expiresIn())}
}

// keep keeps the session until it is lost or over.
func (s *session) keep() {
	defer s.end()
	var pause backoff
	due := time.Now().Add(s.period())
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
		ok := s.releaseOwed()
		if s.beats.Swap(false) || !time.Now().Before(due) {
			ok = s.beat() && ok
			due = time.Now().Add(s.period())
			if ok {
				pause = backoff{}
			}
		}
		if !ok {
			if again := time.Now().Add(min(pause.next(s.client), s.period()/4)); again.Before(due) {
				due = again
			}
		}
		timer.Reset(time.Until(due))
	}
}

// leastPeriod is below a third of each ExpiresIn. A grace time may be so short that nothing can be held.
const leastPeriod = minExpiresIn / 4

// period is the time between heartbeats: about a third of what is safe without, so that one may fail.
func (s *session) period() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.client.jitter(s.lifetime()/3, .1), leastPeriod)
}

// send sends a call of keep. It leaves time for another attempt, or for all servers where there are many.
func (s *session) send(method, path string, body any) (reply, error) {
	s.mu.Lock()
	timeout := min(s.client.timeout(), s.lifetime()/time.Duration(max(6, 2*len(s.client.URLs))))
	s.mu.Unlock()
	return s.client.do(s.ctx, call{method, path, body, timeout, "Ok"})
}

// beat sends a heartbeat. It reports whether the server knows the peer now.
func (s *session) beat() bool {
	now := time.Now()
	s.mu.Lock()
	s.checkLocked() // a process that was stopped must not restore what it has lost
	s.sent++
	number := s.sent
	s.mu.Unlock()
	a, err := s.send(http.MethodPut, peerPath(s.id), expiry(s.client))
	switch {
	case errors.Is(err, ErrUnknownPeer):
		return s.restore()
	case err != nil:
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renew(now, a.grace())
	for _, name := range a.broken() {
		if l := s.leases[name]; l != nil && l.after < number {
			delete(s.leases, name)
			l.lose(fmt.Errorf("%w: %w", ErrLost, ErrBroken))
		}
	}
	s.settleLocked()
	return true
}

// renew notes that the server has answered a request which was sent at that time. The caller holds the lock.
func (s *session) renew(sent time.Time, grace time.Duration) {
	s.checkLocked()
	if s.err != nil {
		return
	}
	s.renewed, s.grace = sent, grace
	s.renewals++
	s.watch()
	s.broadcast()
}

// restore brings back all Leases at a server that does not know the peer.
func (s *session) restore() bool {
	now := time.Now()
	a, err := s.send(http.MethodPost, "/restore", s.beginRestore())
	if err != nil && (temporary(err) || s.ctx.Err() != nil) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if s.err == nil {
			s.lose(fmt.Errorf("restore was refused: %w", err))
		}
		return false
	}
	s.client.log().Info("lease: restored after a restart of the server", "peer", s.id, "locks", len(s.leases))
	s.renew(now, a.grace())
	return s.err == nil
}

// beginRestore returns the body of a restore. It interrupts the request for a lock: the old server may have
// granted it, so it is sent again.
func (s *session) beginRestore() any {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkLocked()
	s.restores++
	if s.stopAsk != nil {
		s.stopAsk()
	}
	counts, tokens := map[string]int64{}, map[string]uint64{}
	for name, l := range s.leases {
		counts[name] = l.count
		if l.token != 0 {
			tokens[name] = l.token
		}
	}
	body := map[string]any{
		"expires_in": FormatDuration(s.client.expiresIn()), "peer_id": s.id, "acquired": counts,
	}
	if len(tokens) > 0 {
		body["tokens"] = tokens
	}
	return body
}

// releaseOwed gives back what was unlocked, or asked for in vain. It reports whether nothing is left.
func (s *session) releaseOwed() bool {
	s.mu.Lock()
	owed := maps.Clone(s.owed)
	s.mu.Unlock()
	for name, r := range owed {
		if s.ctx.Err() != nil {
			return false
		}
		_, err := s.send(http.MethodDelete, lockPath(s.id, name), nil)
		if err != nil && (temporary(err) || s.ctx.Err() != nil) {
			return false
		}
		s.mu.Lock()
		delete(s.owed, name)
		close(r.done) // also where the server knows neither the peer nor the semaphore
		s.broadcast()
		s.mu.Unlock()
	}
	return true
}

// end removes the peer of a session that is over, and answers those who wait for a release.
func (s *session) end() {
	s.mu.Lock()
	err := s.err
	s.mu.Unlock()
	if err == nil {
		err = s.remove()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.owed {
		r.err = err
		close(r.done)
	}
	clear(s.owed)
	s.broadcast()
}

// remove removes the peer with all its locks, for at most Timeout.
func (s *session) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.client.timeout())
	defer cancel()
	var pause backoff
	for {
		_, err := s.client.do(ctx, call{http.MethodDelete, peerPath(s.id), nil, s.client.timeout(), ""})
		if err == nil || !temporary(err) {
			return err
		}
		if ctx.Err() != nil || !rest.For(ctx, pause.next(s.client)) {
			s.client.log().Warn("lease: a lock was not given back", "peer", s.id, "err", err)
			return fmt.Errorf("not confirmed, it ends within %v: %w", s.client.expiresIn(), err)
		}
	}
}
