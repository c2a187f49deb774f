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
	// ErrCutOff is the reason if the client had no contact with a server for too long.
	ErrCutOff = errors.New("no contact with the server")
	// ErrBroken is the reason if an operator broke the lock.
	ErrBroken = errors.New("an operator broke the lock")
	// ErrAlreadyHeld is the error of a lock that the same peer already holds.
	ErrAlreadyHeld = errors.New("this peer holds the lock already")

	errUnlocked = fmt.Errorf("lease: unlocked: %w", context.Canceled)
)

// Lease is a lock that its client renews until Unlock. It is safe for concurrent use.
//
// A Lease does not guarantee that no other client holds the lock. A process that is stopped, or a machine
// that is suspended, does not notice the end of its Lease, and continues its work when it wakes. An answer
// may be late, and clocks may run at different speeds. If two holders would do harm, send Token with each
// write, and let the resource refuse a token that is smaller than one it has seen. Leases make two holders
// rare. Only fencing tokens make the older holder harmless.
//
// The client gives up a Lease before the server does. It measures the time since it sent the last request
// that the server answered. It uses the monotonic clock or the time of day, whichever has advanced more,
// because one of them may stop while a machine sleeps. It gives up after nine tenths of ExpiresIn, or of
// the server's grace time if that is shorter. A server grants nothing in the grace time after its start. A
// server without a grace time, such as the published throttle server, may grant the lock to another client
// right after a restart, before this client has restored it.
//
// A server restores every lock that a client reports. If the lock was granted to another client meanwhile,
// both hold it, and the server counts and logs that.
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

// Token returns the fencing token: a later grant has a larger one. It is 0 if the server sends none. It
// stays the same when the Lease is restored.
func (l *Lease) Token() uint64 { return l.token }

// Context returns a context that derives from that of Lock. It ends when the Lease is lost or unlocked. When the Lease
// is lost, its cause is the error of Err. A Lock with this context acquires one more lock for the same peer.
func (l *Lease) Context() context.Context { return l.ctx }

// Lost returns a channel that is closed when the Lease is lost. It stays open after Unlock.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Err returns nil while the Lease is held and after it was unlocked. Once the Lease is lost, errors.Is
// finds ErrLost and the reason in the error. Err reads the clock itself. So it is correct even just after a
// process was stopped, before Lost is closed. Call it before work that needs the Lease.
func (l *Lease) Err() error {
	s := l.session
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkLocked()
	return l.err
}

// Unlock gives back the lock, and waits until a server has confirmed that or ctx ends. The last lock of a
// peer also removes the peer. A further call returns the same.
//
// If ctx ends first, Unlock continues in the background: as long as the peer has other locks, and for at
// most Timeout if this was the last one. If that fails, the lock expires within ExpiresIn.
//
// Unlock of a lost Lease returns the error of Err, since the work was not protected until its end. It then
// makes one attempt to give back the lock that the server may still hold for the peer.
func (l *Lease) Unlock(ctx context.Context) error {
	if err := l.unlock(ctx); err != nil {
		return fmt.Errorf("lease: unlock %.40q: %w", l.name, err)
	}
	return nil
}

func (l *Lease) unlock(ctx context.Context) error {
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
		return err
	}
	if l.released == nil {
		delete(s.leases, l.name)
		l.cancel(errUnlocked)
		l.released = s.giveBack(l.name)
	}
	r := l.released
	s.mu.Unlock()
	select {
	case <-r.done:
	default:
		select {
		case <-r.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return r.err
}

// Errors of a Table, of a Server's answers and of a Client. Their texts are those of the HTTP interface.
var (
	ErrUnknownPeer      = errors.New("Unknown peer")
	ErrUnknownSemaphore = errors.New("Unknown semaphore")
	ErrAlreadyPending   = errors.New("Already pending. Only one pendig lock per peer is allowed.")
	ErrRestoreChanges   = errors.New("Restore is not allowed to change existing peers.")
	ErrTooManyPeers     = errors.New("Too many peers.")
	ErrTooManyLocks     = errors.New("Too many locks of one peer.")
	ErrNoTokens         = errors.New("No fencing tokens are left.")
	ErrNotHeld          = errors.New("No such lock is held.")
)

// CountError refuses a count that is not positive, or above MaxCount.
type CountError struct{ Count int64 }

// Error is the text of an answer, as for all errors here.
func (e *CountError) Error() string {
	if e.Count > MaxCount {
		return fmt.Sprintf("Lock count must be at most %d. Found: %d.", int64(MaxCount), e.Count)
	}
	return fmt.Sprintf("Lock count must be a positive number. Found: %d.", e.Count)
}

// NeverError refuses a count above the semaphore's maximum.
type NeverError struct{ Count, Max int64 }

func (e *NeverError) Error() string {
	return fmt.Sprintf("Lock can never be acquired. Lock asks for count %d yet full count is only %d.",
		e.Count, e.Max)
}

// LevelError refuses a lock that is not below the lowest level the peer holds.
type LevelError struct{ Held, Requested int64 }

func (e *LevelError) Error() string {
	return fmt.Sprintf("Lock hierachy violation. This may deadlock. The current lock level is %d the\n"+
		"        requested lock level was %d.", e.Held, e.Requested)
}

// GrowError refuses to raise the count of a lock that is held or pending.
type GrowError struct{ Has, Requested int64 }

func (e *GrowError) Error() string {
	return fmt.Sprintf("Lock count can only shrink. The lock has count %d, asked for is %d.", e.Has, e.Requested)
}

// TokenError refuses to restore a fencing token that no server can have given.
type TokenError struct{ Token uint64 }

func (e *TokenError) Error() string {
	return fmt.Sprintf("Token %d was never given: it is ahead of this server's tokens and of its clock.", e.Token)
}
