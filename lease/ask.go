package lease

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"
)

// attempt is one request for a lock.
type attempt struct {
	ctx                context.Context // ends with the caller's, and when the session is lost or restores
	stop               context.CancelFunc
	restores, renewals int // of the session when it began
}

// ask waits for the lock that begin or open have noted.
func (s *session) ask(ctx context.Context, name string, count int64) (*Lease, error) {
	l, err := s.wait(ctx, name, count)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asking, s.stopAsk = "", nil
		s.giveBack(name)
	}
	return l, err
}

func (s *session) wait(ctx context.Context, name string, count int64) (*Lease, error) {
	var pause backoff
	var before error
	for {
		q, err := s.newAttempt(ctx)
		if err != nil {
			return nil, err
		}
		l, again, err := s.request(ctx, q, name, count)
		interrupted := q.ctx.Err() != nil
		q.stop()
		switch {
		case l != nil:
			return l, nil
		case ctx.Err() != nil:
			return nil, cancelled(ctx, before)
		case interrupted || again:
			pause = backoff{}
			continue
		case errors.Is(err, ErrUnknownPeer):
			if err := s.renewal(ctx, q); err != nil {
				return nil, err
			}
		case err != nil && !temporary(err):
			return nil, err
		}
		before = err
		if !sleep(ctx, pause.next(s.client)) {
			return nil, cancelled(ctx, before)
		}
	}
}

// newAttempt begins a request for a lock.
func (s *session) newAttempt(ctx context.Context) (q attempt, err error) {
	err = s.await(ctx, func() bool {
		q.ctx, q.stop = context.WithCancel(ctx)
		q.restores, q.renewals, s.stopAsk = s.restores, s.renewals, q.stop
		return true
	})
	return q, err
}

// request asks once. Without a Lease and an error the lock is still pending. again is for asking at once.
func (s *session) request(ctx context.Context, q attempt, name string, count int64) (*Lease, bool, error) {
	block, began := s.client.blockFor(), time.Now()
	path := lockPath(s.id, name) + "?block_for=" + FormatDuration(block)
	want := strconv.FormatUint(s.id, 10)
	a, err := s.client.do(q.ctx, call{http.MethodPut, path, count, block + s.client.timeout(), want})
	if err != nil {
		return nil, false, err
	}
	if a.status != http.StatusOK {
		return nil, time.Since(began) >= block/2, nil
	}
	l := &Lease{session: s, name: name, count: count, token: a.token(), lost: make(chan struct{})}
	return s.granted(ctx, q, l)
}

// granted adds a Lease that the server has granted. It does not where the session was restored
// meanwhile, because the server that restored it may not know the lock.
func (s *session) granted(ctx context.Context, q attempt, l *Lease) (*Lease, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkLocked()
	switch {
	case s.err != nil:
		return nil, false, s.err
	case q.restores != s.restores:
		return nil, true, nil
	case s.stale(): // this process was stopped: is the peer still there?
		return nil, false, ErrUnknownPeer
	}
	l.ctx, l.cancel = context.WithCancelCause(context.WithValue(ctx, sessionKey{s.client}, s))
	l.after = s.sent
	s.leases[l.name] = l
	s.asking, s.stopAsk = "", nil
	s.watch()
	s.broadcast()
	return l, false, nil
}

// renewal waits for a heartbeat or a restore that was answered after q began, and asks for one.
func (s *session) renewal(ctx context.Context, q attempt) error {
	s.mu.Lock()
	if s.renewals == q.renewals {
		s.beats.Store(true)
		s.wakeKeep()
	}
	s.mu.Unlock()
	return s.await(ctx, func() bool { return s.renewals != q.renewals })
}
