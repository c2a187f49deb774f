package lease

import (
	"errors"
	"fmt"
)

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
