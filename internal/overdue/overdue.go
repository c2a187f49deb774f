// Package overdue holds the reason of a refusal at the end of a bounded wait, for HTTP and gRPC alike. The
// module grpclimit imports it too: what it promises stays from release to release.
package overdue

import "github.com/quotient-go/quotient"

// Decision is the decision against a call that has waited for as long as it may, or whose turn comes later
// than that. It goes by what the call waits for now, which Limiter.Check returns. turn is the decision that
// knew the turn, if there is one: its rule and its time count those that wait, and stay.
func Decision(now, turn quotient.Decision) quotient.Decision {
	switch {
	case now.OK: // since this instant
		return quotient.Decision{Reason: quotient.ReasonWait}
	case turn.Rule.Name == "" || now.Reason != quotient.ReasonRate && now.Reason != quotient.ReasonInFlight:
		return now
	}
	turn.Reason = now.Reason
	if turn.Name != now.Name || turn.Unit != now.Unit { // slots are tried first; their turns are not known
		turn.Reason = quotient.ReasonRate
	}
	return turn
}
