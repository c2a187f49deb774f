package main

import (
	"context"

	"github.com/quotient-go/quotient"
)

// Waiting returns f throttled: each call waits for its turn, as long as its context lasts. quotient.Do does it.
func Waiting[In, Out any](l *quotient.Limiter, key string, f func(context.Context, In) (Out, error)) func(context.Context, In) (Out, error) {
	return func(ctx context.Context, in In) (Out, error) {
		return quotient.Do(ctx, l, key, func(ctx context.Context) (Out, error) { return f(ctx, in) })
	}
}

// Skipping returns f throttled for callers that would rather not call at all than wait: f is called if there
// is room now, and called reports it.
func Skipping[In, Out any](l *quotient.Limiter, key string, f func(context.Context, In) (Out, error)) func(context.Context, In) (out Out, called bool, err error) {
	return func(ctx context.Context, in In) (out Out, called bool, err error) {
		permit, d := l.TryAcquire(key)
		if !d.OK {
			return out, false, nil
		}
		defer permit.Release()
		out, err = f(ctx, in)
		return out, true, err
	}
}
