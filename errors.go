package quotient

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrLimited is what every refusal is, by errors.Is.
var ErrLimited = errors.New("quotient: limited")

// Reason tells why an ask was refused.
type Reason uint8

// The reasons. The zero value means admitted.
const (
	ReasonNone     Reason = iota
	ReasonRate            // a rate has no room now
	ReasonInFlight        // all slots are taken
	ReasonShare           // the weight is above this replica's slots, though not above the fleet's
	ReasonQueue           // MaxWaiting callers are waiting already, or one of a higher Priority took the place
	ReasonWait            // the turn would come, or came, later than MaxWait
	ReasonDeadline        // the turn lies beyond the context's deadline
	ReasonDenied          // the limit is Deny
	ReasonTooLarge        // more than the global burst or the global slots: can never be admitted
	ReasonKeys            // MaxKeys keys are busy, and the gate that further keys share has no room
	ReasonAsk             // the ask itself is not valid
	ReasonPool            // nobody has said yet how large the pool is (AwaitPool)
	numReasons
)

var reasonNames = [numReasons]string{
	"none", "rate", "in_flight", "share", "queue_full", "max_wait", "deadline", "denied", "too_large", "keys", "bad_ask", "pool",
}

// String returns the reason's name as metrics and the admin state spell it.
func (r Reason) String() string {
	if r < numReasons {
		return reasonNames[r]
	}
	return "invalid"
}

// MarshalText returns String; it makes a map of reasons readable as JSON.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// LimitedError is a refusal. errors.Is(err, ErrLimited) holds for each, and for
// ReasonDeadline also errors.Is(err, context.DeadlineExceeded).
type LimitedError struct {
	Key    string
	Rule   string // the rate's name, "in-flight", or "adaptive" for the policy's pace; "" where no single rule refused
	Reason Reason
	Limit  float64 // over the fleet, in the rule's unit: events per second, or slots
	Share  float64 // the part that this replica enforces
	// RetryAfter is when the ask would have its turn if nobody else came; 0 is "unknown".
	RetryAfter time.Duration
}

// Error names the key, the reason, the rule with limit and share, and the time to wait.
func (e *LimitedError) Error() string {
	s := fmt.Sprintf("quotient: %q refused: %s", e.Key, e.Reason)
	if e.Rule != "" {
		s += fmt.Sprintf(" (%s: share %.6g of %.6g)", e.Rule, e.Share, e.Limit)
	}
	if e.RetryAfter > 0 {
		s += fmt.Sprintf(", retry after %v", e.RetryAfter)
	}
	return s
}

// Is matches ErrLimited, and context.DeadlineExceeded when the deadline was the reason.
func (e *LimitedError) Is(target error) bool {
	return target == ErrLimited || e.Reason == ReasonDeadline && target == context.DeadlineExceeded
}

// Decision is the answer to an ask that does not wait. It is a value and allocates nothing.
type Decision struct {
	OK           bool
	Reason       Reason        // ReasonNone when OK
	Rule         string        // the rule that refused, as in LimitedError
	Limit, Share float64       // of that rule, over the fleet and here: events per second, or slots
	RetryAfter   time.Duration // when the ask would have its turn if nobody else came; 0 is "unknown"

	bad error // of ReasonAsk
}

// Err returns nil when OK, the ask's own error when it was not valid, else a *LimitedError for the key.
func (d Decision) Err(key string) error {
	switch {
	case d.OK:
		return nil
	case d.bad != nil:
		return d.bad
	}
	return &LimitedError{Key: key, Rule: d.Rule, Reason: d.Reason, Limit: d.Limit, Share: d.Share, RetryAfter: d.RetryAfter}
}

// endOf is the error of a context that is done. One that has none all the same counts as cancelled: nil would
// say that the caller holds what it asked for.
func endOf(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return context.Canceled
}
