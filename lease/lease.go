package lease

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// Errors of a Client.
var (
	// ErrLost is the error of a Lease that is lost. It wraps the reason: ErrCutOff, ErrBroken, or the answer
	// of a server that refused to restore it.
	ErrLost = errors.New("lease: lost")
	// ErrCutOff is the reason where the client had no contact with a server for too long.
	ErrCutOff = errors.New("no contact with the server")
	// ErrBroken is the reason where an operator broke the lock.
	ErrBroken = errors.New("an operator broke the lock")
	// ErrAlreadyHeld refuses a lock that the same peer holds.
	ErrAlreadyHeld = errors.New("this peer holds the lock already")

	errUnlocked = fmt.Errorf("lease: unlocked: %w", context.Canceled)
)

// Lease is a lock that its client keeps alive until Unlock. It is safe for concurrent use.
//
// A Lease does not promise that nothing else holds the lock. A process that is stopped, or a machine that is
// suspended, does not see its Lease end, and goes on with what it was at when it wakes. An answer may come
// late, and clocks may run at different speeds. Where two holders would do harm, send Token with each write,
// and let the resource refuse a token that is smaller than one it has seen. Leases make two holders rare;
// only fencing makes the older one harmless.
//
// The client gives a Lease up before the server does. It counts from when the last request that the server
// answered was sent. The monotonic clock or the time of day counts, whichever is ahead, because the other
// may stand still while a machine sleeps. It gives up after ExpiresIn less a tenth, or after the server's
// grace time less a tenth where that is shorter. A server grants nothing for that time after its start. One
// without a grace time, as the published one, may grant the lock to another client right after a restart,
// before this client has restored it.
//
// A server restores whatever its clients say they hold. Where a lock was given to another one meanwhile, both
// hold it then, and the server counts and logs that.
type Lease struct {
	session *session
	name    string
	count   int64
	token   uint64
	after   int // how many heartbeats were sent before it was granted
	ctx     context.Context
	cancel  context.CancelCauseFunc
	lost    chan struct{}

	// guarded by session.mu
	err      error    // why it is lost
	released *release // after Unlock
}

// Name returns the semaphore's name.
func (l *Lease) Name() string { return l.name }

// Count returns the lock's count.
func (l *Lease) Count() int64 { return l.count }

// Token returns the fencing token: a grant that came later has a larger one. It is 0 where the server gives
// none. It stays the same when the Lease is restored.
func (l *Lease) Token() uint64 { return l.token }

// Context returns a context that derives from that of Lock and ends when the Lease is lost or unlocked. Its
// cause is then Err's error. A Lock under it asks for one more lock of the same peer.
func (l *Lease) Context() context.Context { return l.ctx }

// Lost returns a channel that is closed when the Lease is lost. It stays open after Unlock.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Err returns nil while the Lease is held and after it was unlocked. Once it is lost, errors.Is finds ErrLost
// and the reason in it. Err looks at the clock itself, so that it is right also just after a process was
// stopped, before Lost is closed. Call it before what must not be done without the Lease.
func (l *Lease) Err() error {
	s := l.session
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkLocked()
	return l.err
}

// Unlock gives the lock back, and waits until a server has confirmed it, or ctx ends. The peer is removed
// with its last lock. It may be called again, and then returns the same. It goes on in the background after
// ctx: for at most Timeout, and as long as the peer has other locks. Otherwise the lock ends by itself
// within ExpiresIn.
//
// Unlock of a lost Lease returns Err's error: the work was not protected until its end. It then makes one
// attempt to give back what the server may still keep.
func (l *Lease) Unlock(ctx context.Context) error {
	s := l.session
	s.mu.Lock()
	s.checkLocked()
	if l.err != nil {
		err, first := l.err, l.released == nil
		l.released = &release{}
		s.mu.Unlock()
		if first && !errors.Is(err, ErrBroken) {
			path := lockPath(s.id, l.name)
			_, _ = s.client.do(ctx, call{http.MethodDelete, path, nil, s.client.timeout(), ""})
		}
		return fmt.Errorf("lease: unlock %.40q: %w", l.name, err)
	}
	if l.released == nil {
		l.released = s.releaseLocked(l)
	}
	r := l.released
	s.mu.Unlock()
	select {
	case <-r.done:
	default:
		select {
		case <-r.done:
		case <-ctx.Done():
			return fmt.Errorf("lease: unlock %.40q: %w", l.name, context.Cause(ctx))
		}
	}
	if r.err != nil {
		return fmt.Errorf("lease: unlock %.40q: %w", l.name, r.err)
	}
	return nil
}
