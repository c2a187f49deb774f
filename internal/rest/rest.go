// Package rest waits no longer than a context lasts, and wakes who waits.
package rest

import (
	"context"
	"time"
)

// For waits for d, or until ctx ends, and reports whether ctx goes on.
func For(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Wake lets a value be in c, which has room for one: who waits there looks at everything that is new.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Twice calls f with so much time, and once more if that was too little while ctx goes on: a client of several servers
// asks another one then.
func Twice(ctx context.Context, most time.Duration, f func(context.Context) error) (err error) {
	for range 2 {
		short, cancel := context.WithTimeout(ctx, most)
		err = f(short)
		late := err != nil && short.Err() != nil && ctx.Err() == nil
		cancel()
		if !late {
			break
		}
	}
	return err
}
