// Package rest waits no longer than a context lasts.
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
