package quotient

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestEveryRefusalIsErrLimited(t *testing.T) {
	for r := ReasonRate; r < numReasons; r++ {
		err := refusal("k", Decision{Reason: r})
		if got, want := errors.Is(err, ErrLimited), r != ReasonAsk; got != want {
			t.Errorf("%v: is ErrLimited: %v, want %v", r, got, want)
		}
		if got, want := errors.Is(err, context.DeadlineExceeded), r == ReasonDeadline; got != want {
			t.Errorf("%v: is DeadlineExceeded: %v, want %v", r, got, want)
		}
		if errors.Is(err, context.Canceled) {
			t.Errorf("%v: is Canceled", r)
		}
	}
}

func TestReasonNames(t *testing.T) {
	for r, want := range map[Reason]string{
		ReasonNone: "none", ReasonRate: "rate", ReasonInFlight: "in_flight", ReasonShare: "share",
		ReasonQueue: "queue_full", ReasonWait: "max_wait", ReasonDeadline: "deadline", ReasonDenied: "denied",
		ReasonTooLarge: "too_large", ReasonKeys: "keys", ReasonAsk: "bad_ask", ReasonPool: "pool", numReasons: "invalid", 255: "invalid",
	} {
		if got := r.String(); got != want {
			t.Errorf("reason %d: %q, want %q", r, got, want)
		}
	}
}

func TestLimitedErrorText(t *testing.T) {
	for _, c := range []struct {
		err  LimitedError
		want string
	}{
		{LimitedError{Key: "k", Decision: Decision{Reason: ReasonDenied}}, `quotient: "k" refused: denied`},
		{LimitedError{Key: "k", Decision: Decision{Rule: "second", Reason: ReasonRate, Limit: 10, Share: 2.5}},
			`quotient: "k" refused: rate (second: share 2.5 of 10)`},
		{LimitedError{Key: "a\nb", Decision: Decision{Rule: "second", Reason: ReasonWait, Limit: 10, Share: 10.0 / 3, RetryAfter: time.Second}},
			`quotient: "a\nb" refused: max_wait (second: share 3.33333 of 10), retry after 1s`},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// What a decision says must be what the limiter holds: rule, limit, share, time.
func TestDecisionSaysWhatRefused(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{Rates: []Rate{perSecond(8, 4), {Name: "slow", Events: 40, Per: 20 * time.Second, Burst: 40}}, InFlight: 9},
			Replicas(4))
		p := took(t, l, "k")
		want := Decision{Reason: ReasonRate, Rule: "second", Limit: 8, Share: 2, RetryAfter: 500 * time.Millisecond}
		if _, d := l.TryAcquire("k"); d != want {
			t.Errorf("got %+v, want %+v", d, want)
		}
		time.Sleep(time.Second)
		took(t, l, "k")
		time.Sleep(time.Second)
		want = Decision{Reason: ReasonInFlight, Rule: "in-flight", Limit: 9, Share: 2}
		if _, d := l.TryAcquire("k"); d != want {
			t.Errorf("got %+v, want %+v", d, want)
		}
		p.Release()
		took(t, l, "k").Release()
	})
}
