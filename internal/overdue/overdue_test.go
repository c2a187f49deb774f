package overdue_test

import (
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/overdue"
)

func TestDecision(t *testing.T) {
	minute := func(reason quotient.Reason, wait time.Duration) quotient.Decision {
		return quotient.Decision{Reason: reason, Rule: quotient.Rule{Name: "minute"}, RetryAfter: wait}
	}
	slots := quotient.Decision{Reason: quotient.ReasonInFlight, Rule: quotient.Rule{Name: "in-flight"}}
	pool := quotient.Decision{Reason: quotient.ReasonPool}
	turn := minute(quotient.ReasonDeadline, time.Hour)
	tokens := minute(quotient.ReasonRate, time.Second)
	tokens.Unit = "tokens"
	for name, tt := range map[string]struct{ now, turn, want quotient.Decision }{
		"room by now": {quotient.Decision{OK: true}, turn,
			quotient.Decision{Reason: quotient.ReasonWait}},
		"no turn was known": {slots, quotient.Decision{}, slots},
		"the turn's rule": {minute(quotient.ReasonRate, time.Second), turn,
			minute(quotient.ReasonRate, time.Hour)},
		"slots are short too":   {slots, turn, minute(quotient.ReasonRate, time.Hour)},
		"another unit is short": {tokens, turn, minute(quotient.ReasonRate, time.Hour)},
		"this replica's fault":  {pool, turn, pool},
		"denied since it waited": {quotient.Decision{Reason: quotient.ReasonDenied}, turn,
			quotient.Decision{Reason: quotient.ReasonDenied}},
	} {
		if got := overdue.Decision(tt.now, tt.turn); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
