package quotient

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// Do runs fn when the key's turn has come, and returns what it returns. It waits and fails as Acquire does;
// fn is then not called. With MaxWaiting(0, …) it tries again, when it is told to or with jittered back-off,
// until it is admitted or the context ends. The permit is released also when fn panics. For the policy a nil
// error is policy.Success, and any other error policy.Failed, unless an error in its chain has a method
// Feedback() policy.Feedback.
func Do[T any](ctx context.Context, l *Limiter, key string, fn func(context.Context) (T, error)) (T, error) {
	p, err := l.persist(ctx, key)
	if err != nil {
		var none T
		return none, err
	}
	f := policy.Feedback{Outcome: policy.Failed} // should fn panic
	defer func() { p.Done(f) }()
	v, err := fn(ctx)
	f = feedbackOf(err)
	return v, err
}

func feedbackOf(err error) policy.Feedback {
	var carrier interface{ Feedback() policy.Feedback }
	switch {
	case err == nil:
		return policy.Feedback{Outcome: policy.Success}
	case errors.As(err, &carrier):
		return carrier.Feedback()
	}
	return policy.Feedback{Outcome: policy.Failed}
}

// Back-off of a caller that may not queue: it starts at about a timer's accuracy and doubles, as is usual.
const (
	firstBackOff = 2 * time.Millisecond
	lastBackOff  = time.Second
)

// persist is Acquire, and where no caller may queue it tries again and again.
func (l *Limiter) persist(ctx context.Context, key string) (Permit, error) {
	for backOff := firstBackOff; ; backOff = min(2*backOff, lastBackOff) {
		p, err := l.Acquire(ctx, key)
		var limited *LimitedError
		if l.perKey > 0 || !errors.As(err, &limited) ||
			limited.Reason != ReasonQueue && limited.Reason != ReasonKeys {
			return p, err
		}
		jitter := time.Duration(rand.Int64N(int64(backOff))) + 1 // it breaks up callers in step
		pause := cmp.Or(limited.RetryAfter, jitter)              // a turn of its own, if there are turns
		if end, ok := ctx.Deadline(); ok && pause > time.Until(end) {
			pause = l.Explain(key).Next.RetryAfter + jitter // too late for it: it comes when there is room
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return Permit{}, ctx.Err()
		}
	}
}
