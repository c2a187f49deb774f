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
		is(t, []any{r, "is ErrLimited"}, errors.Is(err, ErrLimited), r != ReasonBadRequest)
		is(t, []any{r, "is DeadlineExceeded"}, errors.Is(err, context.DeadlineExceeded), r == ReasonDeadline)
		is(t, []any{r, "is Canceled"}, errors.Is(err, context.Canceled), false)
	}
}

func TestReasonNames(t *testing.T) {
	for r, want := range map[Reason]string{
		ReasonNone: "none", ReasonRate: "rate", ReasonInFlight: "in_flight", ReasonShare: "share",
		ReasonQueue: "queue_full", ReasonWait: "max_wait", ReasonDeadline: "deadline", ReasonDenied: "denied",
		ReasonTooLarge: "too_large", ReasonKeys: "keys", ReasonBadRequest: "bad_request", ReasonPool: "pool",
		numReasons: "invalid", 255: "invalid",
	} {
		is(t, int(r), r.String(), want)
	}
}

// Units and numbers stand in a sentence as they were configured, times with three digits.
func TestDecisionInWords(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		hour := Rate{Name: "hour", Unit: "tokens", Events: 20_000, Per: time.Hour, Burst: 20_000}
		l := mustNew(t, Limit{Rates: []Rate{perSecond(1, 1), hour}}, Replicas(3))
		for _, c := range []struct {
			opts []CallOption
			want string
		}{
			{nil, "admitted"},
			{nil, "refused: rate (second: share 0.333 of 1 per 1s), retry after 3s"},
			{[]CallOption{Cost("tokens", 20001)},
				"refused: too_large (hour: share 6667 of 20000 tokens per 1h)"},
			{[]CallOption{Weight(0)}, fmt.Sprintf("refused: bad_request (Weight: 0 is not between 1 and %d)", maxAmount)},
		} {
			_, d := l.TryAcquire("k", c.opts...)
			is(t, "a decision", fmt.Sprint(d), c.want)
		}
		setLimit(t, l, Rates(hour))
		l.TryAcquire("k", Cost("tokens", 7000))
		want := "refused: rate (hour: share 6667 of 20000 tokens per 1h), retry after 3m1s"
		is(t, "a call above what is left", l.Check("k", Cost("tokens", 1)).String(), want)
		setLimit(t, l, Limit{InFlight: 1})
		err := refusal("a\nb", refusedFor(t, l, ReasonShare, "a\nb"))
		is(t, "an error", err.Error(), `quotient: "a\nb" refused: share (in-flight: share 0 of 1)`)
	})
	is(t, "a year's limit has no exponent", exact(1e12)+" "+digits(1e12), "1000000000000 1000000000000")
	is(t, "but a tiny one", exact(1e-13), "1e-13")
	is(t, "short numbers", digits(5.55556)+" "+digits(1234.5)+" "+digits(99.96), "5.56 1235 100")
	is(t, "a wait has no nine digits", short(1_234_567_890), 1230*time.Millisecond)
	window := inUnit("", 10*time.Minute) + inUnit("", 70*time.Minute) + inUnit("", 90*time.Second) + inUnit("", 24*time.Hour)
	is(t, "windows", window+inUnit("", 100*ms), " per 10m per 1h10m per 1m30s per 24h per 100ms")
}
