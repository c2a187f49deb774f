package cost

import (
	"context"

	"github.com/failsafe-go/failsafe-go/bulkhead"
	"golang.org/x/sync/semaphore"
)

// slots is a contender that bounds what is in flight. take waits for a slot and reports whether it got one; give
// gives it back.
type slots struct {
	take func() bool
	give func()
}

// slotPeers bound what is in flight. The first one is what benchstat compares the others with.
// A caller gives up with the context, as that of a request ends.
func slotPeers(ctx context.Context) []named[func(capacity int) slots] {
	return []named[func(int) slots]{
		{"x-sync-semaphore", func(capacity int) slots {
			s := semaphore.NewWeighted(int64(capacity))
			return slots{func() bool { return s.Acquire(ctx, 1) == nil }, func() { s.Release(1) }}
		}},
		{"channel", func(capacity int) slots {
			c := make(chan struct{}, capacity)
			take := func() bool {
				select {
				case c <- struct{}{}:
					return true
				case <-ctx.Done():
					return false
				}
			}
			return slots{take, func() { <-c }}
		}},
		{"failsafe-go-bulkhead", func(capacity int) slots {
			b := bulkhead.New[any](uint(capacity))
			return slots{func() bool { return b.AcquirePermit(ctx) == nil }, b.ReleasePermit}
		}},
	}
}
