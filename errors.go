package quotient

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrLimited matches every refusal with errors.Is, except ReasonBadRequest.
var ErrLimited = errors.New("quotient: limited")

// Reason is why a call was refused. The zero value means admitted.
type Reason uint8

// The reasons.
const (
	ReasonNone       Reason = iota
	ReasonRate              // a rate has no room now
	ReasonInFlight          // all slots are taken
	ReasonShare             // the weight is above this replica's slots, though not above the fleet's
	ReasonQueue             // MaxWaiting callers are waiting already, or a higher Priority took the place
	ReasonWait              // the turn would come, or came, later than MaxWait
	ReasonDeadline          // the turn lies beyond the context's deadline
	ReasonDenied            // the limit is Deny
	ReasonTooLarge          // more than the global burst or the global slots: can never be admitted
	ReasonKeys              // MaxKeys keys are busy, and the limit that further keys share has no room
	ReasonBadRequest        // the call itself is not valid
	ReasonPool              // the replica count is not known yet, or no longer (AwaitPool)
	numReasons
)

var reasonNames = [numReasons]string{
	"none", "rate", "in_flight", "share", "queue_full", "max_wait", "deadline", "denied", "too_large", "keys",
	"bad_request", "pool",
}

// String returns the reason's name as metrics and the admin state spell it.
func (r Reason) String() string {
	if r < numReasons {
		return reasonNames[r]
	}
	return "invalid"
}

// Decision is the answer to a call that does not wait. It allocates nothing. RetryAfter is no sooner than the call
// would have its turn if no other came. If all refused callers were told the same instant they would all come again
// then, so each is told a turn of its own behind the others', at most a hundred turns later. The first that comes is
// admitted.
type Decision struct {
	OK         bool
	Reason     Reason        // ReasonNone when OK
	Rule                     // the one that refuses; zero where no single one does
	RetryAfter time.Duration // when to come again; 0 is "unknown"

	bad error // of ReasonBadRequest
}

// String is in words: "refused: rate (minute: share 25 of 100 per 1m), retry after 1.2s".
func (d Decision) String() string {
	if d.OK {
		return "admitted"
	}
	s := "refused: " + d.Reason.String()
	if d.Reason == ReasonNone { // of a newer version's server
		s = "refused"
	}
	switch {
	case d.bad != nil:
		s += " (" + strings.TrimPrefix(d.bad.Error(), "quotient: ") + ")"
	case d.Name != "" && d.Limit == 0: // from a server, without numbers
		s += " (" + d.Name + ")"
	case d.Name != "":
		s += " (" + d.Name + ": " + shareWords(d.Share, d.Limit, d.Unit, d.Window) + ")"
	}
	if d.RetryAfter > 0 {
		s += ", retry after " + short(d.RetryAfter).String()
	}
	return s
}

// LimitedError is a refusal of a key: a Decision that is not OK. It is ErrLimited, unless the reason is
// ReasonBadRequest, and for ReasonDeadline context.DeadlineExceeded as well.
type LimitedError struct {
	Key string
	Decision
}

// Error names the key, and says what the Decision says.
func (e *LimitedError) Error() string {
	if e.bad != nil {
		return e.bad.Error()
	}
	return fmt.Sprintf("quotient: %q %s", e.Key, e.Decision)
}

// Is has errors.Is find ErrLimited and context.DeadlineExceeded in e, as LimitedError says.
func (e *LimitedError) Is(target error) bool {
	return target == ErrLimited && e.Reason != ReasonBadRequest ||
		e.Reason == ReasonDeadline && target == context.DeadlineExceeded
}

// endOf is the error of a context that is done. A context without an error counts as cancelled all the same:
// nil would mean that the caller got its permit.
func endOf(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return context.Canceled
}

// clip shortens what an error repeats.
func clip(s string) string {
	if len(s) <= longestName {
		return s
	}
	return s[:longestName] + "…"
}

// longestName is the longest name of a limiter, and what an error repeats at most.
const longestName = 64

// namesAre says what isName does.
const namesAre = "1 to 64 of a-z, 0-9, '.', '_' and '-'"

// isName reports whether the name is one that a log or a metric can bear.
func isName(name string) bool {
	const may = "abcdefghijklmnopqrstuvwxyz0123456789._-"
	return len(name) >= 1 && len(name) <= longestName && strings.Trim(name, may) == ""
}
