package cost

import (
	"context"

	"github.com/failsafe-go/failsafe-go/bulkhead"
	"golang.org/x/sync/semaphore"

	"github.com/quotient-go/quotient"
)

// slots is a contender that bounds what is in flight. take waits for a slot and reports whether it got one; give
// gives it back.
type slots struct {
	take func() bool
	give func()
}

// slotPeers bound what is in flight. The first one is what benchstat compares the others with.
func slotPeers() []named[func(capacity int) (slots, error)] {
	return []named[func(int) (slots, error)]{
		{"x-sync-semaphore", makeXSemaphore},
		{"channel", makeChannel},
		{"failsafe-go-bulkhead", makeBulkhead},
		{"quotient-semaphore", makeSemaphore},
	}
}

func makeXSemaphore(capacity int) (slots, error) {
	s, ctx := semaphore.NewWeighted(int64(capacity)), context.Background()
	return slots{func() bool { return s.Acquire(ctx, 1) == nil }, func() { s.Release(1) }}, nil
}

func makeChannel(capacity int) (slots, error) {
	c, ctx := make(chan struct{}, capacity), context.Background()
	return slots{func() bool {
		select {
		case c <- struct{}{}:
			return true
		case <-ctx.Done():
			return false
		}
	}, func() { <-c }}, nil
}

func makeBulkhead(capacity int) (slots, error) {
	b, ctx := bulkhead.New[any](uint(capacity)), context.Background()
	return slots{func() bool { return b.AcquirePermit(ctx) == nil }, b.ReleasePermit}, nil
}

func makeSemaphore(capacity int) (slots, error) {
	s, ctx := new(quotient.Semaphore), context.Background()
	return slots{func() bool { return s.Acquire(ctx, 1) == nil }, func() { s.Release(1) }}, s.Resize(capacity)
}
