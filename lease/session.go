package lease

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-go/quotient/internal/rest"
)

// sessionKey finds a Client's session in a Lease's context.
type sessionKey struct{ *Client }

// errOver means that all Leases of a session are unlocked.
var errOver = errors.New("the session is over")

// session is one peer: its Leases, the lock that it asks for, and what it must give back. A goroutine of its
// own, keep, sends the heartbeats, restores and releases, one after the other. The caller of Lock asks.
type session struct {
	client *Client
	id     uint64
	ctx    context.Context // ends when the session is lost or over
	stop   context.CancelFunc
	wake   chan struct{} // there is something for keep to do
	beats  atomic.Bool   // a heartbeat, at once

	mu       sync.Mutex // guards all below
	leases   map[string]*Lease
	asking   string              // semaphore that a Lock waits for; empty: none
	stopAsk  context.CancelFunc  // of the present request of that Lock
	owed     map[string]*release // by semaphore
	err      error               // lost
	over     bool
	renewed  time.Time     // when the last request was sent that renewed the peer
	grace    time.Duration // of the server; 0: none
	loss     *time.Timer
	sent     int           // heartbeats
	renewals int           // heartbeats and restores that were answered
	restores int           // restores that were begun
	changed  chan struct{} // closed when something above has changed
}

// release is a lock that is being given back.
type release struct {
	done chan struct{}
	err  error // after done
}

// open adds a peer that asks for a lock.
func (c *Client) open(ctx context.Context, name string) (*session, error) {
	var pause backoff
	for {
		sent := time.Now()
		a, err := c.do(ctx, call{http.MethodPost, "/new_peer", expiry(c), c.timeout(), ""})
		if err == nil {
			id, err := strconv.ParseUint(a.text, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("new peer: %w", a.unexpected())
			}
			return c.start(id, name, sent, a.grace()), nil
		}
		if ctx.Err() == nil && !temporary(err) {
			return nil, err
		}
		if ctx.Err() != nil || !rest.For(ctx, pause.next(c)) {
			return nil, cancelled(ctx, err)
		}
	}
}

func (c *Client) start(id uint64, name string, renewed time.Time, grace time.Duration) *session {
	s := &session{
		client: c, id: id, wake: make(chan struct{}, 1), leases: make(map[string]*Lease), asking: name,
		owed: make(map[string]*release), renewed: renewed, grace: grace, changed: make(chan struct{}),
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	go s.keep()
	return s
}

// cancelled is the error of a Lock whose ctx has ended, with what went wrong before.
func cancelled(ctx context.Context, before error) error {
	if before == nil || errors.Is(before, ctx.Err()) {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w, after: %w", context.Cause(ctx), before)
}

// begin makes the session ask for one more lock, once all that it must give back is given back.
func (s *session) begin(ctx context.Context, name string) error {
	var refused error
	err := s.await(ctx, func() bool {
		switch {
		case s.over:
			refused = errOver
		case s.leases[name] != nil:
			refused = ErrAlreadyHeld
		case s.asking != "":
			refused = ErrAlreadyPending
		case len(s.owed) > 0:
			return false
		default:
			s.asking = name
		}
		return true
	})
	if err != nil {
		return err
	}
	return refused
}

// await waits until f reports true, under the lock. It fails when the session is lost or ctx ends.
func (s *session) await(ctx context.Context, f func() bool) error {
	for {
		s.mu.Lock()
		s.checkLocked()
		err, changed := s.err, s.changed
		ok := err == nil && f()
		s.mu.Unlock()
		if ok || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// broadcast makes those that await look again. The caller holds the lock.
func (s *session) broadcast() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// checkLocked loses the session if there was no contact for too long. The caller holds the lock.
func (s *session) checkLocked() {
	if s.err == nil && len(s.leases) > 0 && s.stale() {
		s.lose(ErrCutOff)
	}
}

// stale reports whether what the peer holds may have ended, or will soon.
func (s *session) stale() bool { return passed(s.until(), time.Now()) }

// until is when the session gives up. A tenth is for clocks of different speed, and for the holder to stop.
func (s *session) until() time.Time {
	d := s.lifetime()
	return s.renewed.Add(d - d/10)
}

// lifetime is how long a lock is safe without contact. A server that was restarted grants it to
// another one after its grace time.
func (s *session) lifetime() time.Duration {
	if s.grace > 0 {
		return min(s.grace, s.client.expiresIn())
	}
	return s.client.expiresIn()
}

// watch sets the timer that gives up. The caller holds the lock.
func (s *session) watch() {
	switch {
	case len(s.leases) == 0:
		if s.loss != nil {
			s.loss.Stop()
		}
	case s.loss == nil:
		s.loss = time.AfterFunc(time.Until(s.until()), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.checkLocked()
			s.watch()
		})
	default:
		s.loss.Reset(time.Until(s.until()))
	}
}

// lose ends all Leases. The caller holds the lock.
func (s *session) lose(reason error) {
	s.err = fmt.Errorf("%w: %w", ErrLost, reason)
	for _, l := range s.leases {
		l.lose(s.err)
	}
	s.client.log().Error("lease: locks are lost", "peer", s.id, "locks", len(s.leases), "err", reason)
	clear(s.leases)
	s.finish()
}

// finish ends the requests that are on their way. The caller holds the lock.
func (s *session) finish() {
	s.stop()
	if s.stopAsk != nil {
		s.stopAsk()
	}
	s.watch()
	s.broadcast()
}

// lose ends one Lease. The caller holds the session's lock.
func (l *Lease) lose(err error) {
	l.err = err
	close(l.lost)
	l.cancel(err)
}

// giveBack gives back what is called name: a lock that was held or asked for. With the last one the session
// is over. The caller holds the lock.
func (s *session) giveBack(name string) *release {
	r := &release{done: make(chan struct{})}
	if s.err != nil {
		r.err = s.err
		close(r.done)
		return r
	}
	s.owed[name] = r
	s.settleLocked()
	rest.Wake(s.wake)
	return r
}

// settleLocked ends a session that has no more locks. The caller holds the lock.
func (s *session) settleLocked() {
	if s.err == nil && len(s.leases) == 0 && s.asking == "" {
		s.over = true
		s.finish()
		return
	}
	s.watch()
	s.broadcast()
}

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
		if !rest.For(ctx, pause.next(s.client)) {
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
		rest.Wake(s.wake)
	}
	s.mu.Unlock()
	return s.await(ctx, func() bool { return s.renewals != q.renewals })
}
