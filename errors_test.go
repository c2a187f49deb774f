package quotient

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestEveryRefusalIsErrLimited(t *testing.T) {
	for r := ReasonRate; r < numReasons; r++ {
		err := refusal("k", Decision{Reason: r})
		if got, want := errors.Is(err, ErrLimited), r != ReasonBadRequest; got != want {
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
		ReasonTooLarge: "too_large", ReasonKeys: "keys", ReasonBadRequest: "bad_request", ReasonPool: "pool",
		numReasons: "invalid", 255: "invalid",
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
		{LimitedError{Key: "k", Decision: Decision{Rule: "minute", Reason: ReasonRate, Limit: 100, Share: 25,
			Window: time.Minute}},
			`quotient: "k" refused: rate (minute: share 25 of 100 per 1m)`},
		{LimitedError{Key: "a\nb", Decision: Decision{Rule: "second", Reason: ReasonWait, Limit: 10,
			Share: 10.0 / 3, Window: time.Second, RetryAfter: time.Second}},
			`quotient: "a\nb" refused: max_wait (second: share 3.33 of 10 per 1s), retry after 1s`},
		{LimitedError{Decision: Decision{Rule: "in-flight", Reason: ReasonInFlight, Limit: 9, Share: 2}},
			`quotient: "" refused: in_flight (in-flight: share 2 of 9)`},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// Units and numbers stand in a sentence as they were configured, times with three digits.
func TestDecisionInWords(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		hour := Rate{Name: "hour", Unit: "tokens", Events: 20_000, Per: time.Hour, Burst: 20_000}
		l := limiterOf(t, Limit{Rates: []Rate{perSecond(1, 1), hour}}, Replicas(3))
		for _, c := range []struct {
			opts []CallOption
			want string
		}{
			{nil, "admitted"},
			{nil, "refused: rate (second: share 0.333 of 1 per 1s), retry after 3s"},
			{[]CallOption{Cost("tokens", 20001)},
				"refused: too_large (hour: share 6667 of 20000 tokens per 1h)"},
			{[]CallOption{Weight(0)}, "refused: bad_request (Weight: 0 is not between 1 and 1099511627776)"},
		} {
			if _, d := l.TryAcquire("k", c.opts...); fmt.Sprint(d) != c.want {
				t.Errorf("got  %s\nwant %s", d, c.want)
			}
		}
		setLimit(t, l, rated(hour))
		l.TryAcquire("k", Cost("tokens", 7000))
		want := "refused: rate (hour: share 6667 of 20000 tokens per 1h), retry after 3m1s"
		if d := l.Check("k", Cost("tokens", 1)); d.String() != want {
			t.Errorf("got  %s\nwant %s", d, want)
		}
	})
}

// A year's limit has no exponent, and a wait no nine digits.
func TestNumbersInWords(t *testing.T) {
	for n, want := range map[float64][2]string{
		1e12: {"1000000000000", "1000000000000"}, 20_000: {"20000", "20000"}, 5.55556: {"5.55556", "5.56"},
		1234.5: {"1234.5", "1235"},
		99.96:  {"99.96", "100"}, .001: {"0.001", "0.001"}, 1e-13: {"1e-13", "1e-13"},
	} {
		if got := [2]string{exact(n), digits(n)}; got != want {
			t.Errorf("%v: %q, want %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		0: "0s", 1: "1ns", 1_234_567_890: "1.23s", 20 * time.Second: "20s", 999_999: "1ms",
		3*time.Hour + 25*time.Second: "3h0m0s", never: "2561111h6m40s",
	} {
		if got := short(d).String(); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
	for window, want := range map[time.Duration]string{
		0: "", time.Second: " per 1s", time.Minute: " per 1m", 10 * time.Minute: " per 10m",
		24 * time.Hour:   " per 24h",
		90 * time.Second: " per 1m30s", 100 * time.Millisecond: " per 100ms", 70 * time.Minute: " per 1h10m",
	} {
		if got := inUnit("", window); got != want {
			t.Errorf("%v: %q, want %q", window, got, want)
		}
	}
}

// A decision must match what the limiter holds: rule, limit, share, time.
func TestDecisionNamesWhatRefused(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{Rates: []Rate{
			perSecond(8, 4),
			{Name: "slow", Events: 40, Per: 20 * time.Second, Burst: 40},
		}, InFlight: 9}, Replicas(4))
		p := took(t, l, "k")
		want := Decision{Reason: ReasonRate, Rule: "second", Limit: 8, Share: 2, Window: time.Second,
			RetryAfter: 500 * time.Millisecond}
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
