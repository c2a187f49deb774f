package grpclimit

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/status"

	"github.com/quotient-go/quotient"
)

// shortage is a limiter that is short of something, a call that may wait, and how the call is refused.
type shortage struct {
	name    string
	limiter func(t *testing.T) *quotient.Limiter
	calls   time.Duration // the deadline of the call; 0: none
	want    quotient.Decision
	after   time.Duration
}

// short is a function that makes a limiter whose key m has admitted a call, with some that wait.
func short(waiters int, limit quotient.Limit, opts ...quotient.Option) func(t *testing.T) *quotient.Limiter {
	return func(t *testing.T) *quotient.Limiter {
		l := limiter(t, limit, opts...)
		l.TryAcquire("m")
		for range waiters {
			go func() { _, _ = l.Acquire(t.Context(), "m") }()
			synctest.Wait()
		}
		return l
	}
}

// crowded is a function that makes a limiter with no room for the key m.
func crowded(limit quotient.Limit) func(t *testing.T) *quotient.Limiter {
	return func(t *testing.T) *quotient.Limiter {
		l := limiter(t, limit, quotient.MaxKeys(1))
		for _, key := range []string{"a", "b"} { // b has the gate of the further keys
			l.TryAcquire(key)
		}
		return l
	}
}

// both is a limit of a rate and of slots.
var both = quotient.Limit{Rates: hourly.Rates, InFlight: 1}

// shortages are all that a call which may wait for a minute can be refused for.
var shortages = []shortage{
	{"rate", short(0, hourly), 0, reason(quotient.ReasonRate, "hour", time.Hour), 0},
	{"rate behind waiters", short(2, hourly), 0, reason(quotient.ReasonRate, "hour", 3*time.Hour), 0},
	{"rate, and all slots", short(0, both), 0, reason(quotient.ReasonRate, "hour", time.Hour), 0},
	{"slots", short(0, oneSlot), 0, reason(quotient.ReasonInFlight, "in-flight", 0), time.Minute},
	{"slots behind waiters", short(2, oneSlot), 0, reason(quotient.ReasonInFlight, "in-flight", 0),
		time.Minute},
	{"keys, known", crowded(hourly), 0, reason(quotient.ReasonKeys, "hour", time.Hour), 0},
	{"keys", crowded(oneSlot), 0, reason(quotient.ReasonKeys, "in-flight", 0), time.Minute},
	{"the call's own deadline", short(0, hourly), time.Second,
		reason(quotient.ReasonDeadline, "hour", time.Hour), 0},
	{"the limiter's bound, known", short(0, hourly, quotient.MaxWait(time.Second)), 0,
		reason(quotient.ReasonWait, "hour", time.Hour), 0},
	{"the limiter's bound", short(0, oneSlot, quotient.MaxWait(time.Second)), 0,
		reason(quotient.ReasonWait, "in-flight", 0), time.Second},
	{"a full queue", short(1, oneSlot, quotient.MaxWaiting(1, 1)), 0,
		reason(quotient.ReasonQueue, "in-flight", 0), 0},
}

func reason(r quotient.Reason, rule string, wait time.Duration) quotient.Decision {
	return quotient.Decision{Reason: r, Rule: rule, RetryAfter: wait}
}

// A refusal after a wait, or for one that would be too long, names what is short and not the bound.
func TestReasonAfterAWait(t *testing.T) {
	for _, tt := range shortages {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, ctx, start := tt.limiter(t), t.Context(), time.Now()
				if tt.calls > 0 {
					limited, cancel := context.WithTimeout(ctx, tt.calls)
					defer cancel()
					ctx = limited
				}
				err := call(ctx, l, Wait(time.Minute))
				var limited *quotient.LimitedError
				if !errors.As(err, &limited) || time.Since(start) != tt.after {
					t.Fatalf("%v after %v, want a refusal after %v", err, time.Since(start), tt.after)
				}
				got := limited.Decision
				if got.Reason != tt.want.Reason || got.Rule != tt.want.Rule ||
					got.RetryAfter.Round(time.Second) != tt.want.RetryAfter {
					t.Errorf("%+v\nwant %+v", got, tt.want)
				}
				rule, wait := detailsOf(err)
				if rule != got.Rule || wait != max(got.RetryAfter, unknownWait) && got.RetryAfter > 0 {
					t.Errorf("the status %v names %q and %v", status.Convert(err), rule, wait)
				}
				if got.OK || (got.Limit == 0) == (got.Rule != "") {
					t.Errorf("the numbers of the rule are missing: %+v", got)
				}
			})
		})
	}
}
