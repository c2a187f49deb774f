package quotient

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// Do runs fn when the key's turn has come, and returns what it returns. It waits as Acquire does
// and fails as Acquire fails; fn is then not called.
//
// Where nobody may queue (MaxWaiting(0, …)) Do is a pessimistic caller: it tries again, with
// jittered back-off, until it is admitted or the context ends.
//
// An error of fn that has, anywhere in its chain, a method Feedback() policy.Feedback tells the policy what the
// upstream said; nil counts as policy.Success, any other error as policy.Failed. The permit is
// released also when fn panics.
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

// Wrap returns fn throttled: each call goes through Do under the key of its input.
func Wrap[In, Out any](l *Limiter, key func(In) string, fn func(context.Context, In) (Out, error)) func(context.Context, In) (Out, error) {
	return func(ctx context.Context, in In) (Out, error) {
		return Do(ctx, l, key(in), func(ctx context.Context) (Out, error) { return fn(ctx, in) })
	}
}

func feedbackOf(err error) policy.Feedback {
	var told interface{ Feedback() policy.Feedback }
	switch {
	case err == nil:
		return policy.Feedback{Outcome: policy.Success}
	case errors.As(err, &told):
		return told.Feedback()
	}
	return policy.Feedback{Outcome: policy.Failed}
}

// Back-off of a caller that may not queue: it starts at about a timer's accuracy and doubles, as is usual.
const (
	firstBackOff = 2 * time.Millisecond
	lastBackOff  = time.Second
)

// persist is Acquire, and where nobody may queue it tries again and again.
func (l *Limiter) persist(ctx context.Context, key string) (Permit, error) {
	for backOff := firstBackOff; ; backOff = min(2*backOff, lastBackOff) {
		p, err := l.Acquire(ctx, key)
		var limited *LimitedError
		if l.perKey > 0 || !errors.As(err, &limited) || limited.Reason != ReasonQueue && limited.Reason != ReasonKeys {
			return p, err
		}
		// Full jitter above the time that is known to be needed breaks up callers in step.
		pause := limited.RetryAfter + time.Duration(rand.Int64N(int64(backOff))) + 1
		if err := sleep(ctx, pause); err != nil {
			return Permit{}, err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
