package quotient

import (
	"context"
	"fmt"
	"runtime"
	"sync"
)

// slots counts weighted slots in flight. Under a size that was lowered below what is taken
// nobody is revoked: the debt drains with the releases, and nothing is taken until it has.
// It has no lock; whoever owns it does. The zero value has no slots.
type slots struct{ used, size int32 }

// take takes n slots if they are free.
func (s *slots) take(n int) bool {
	if n > s.free() {
		return false
	}
	s.used += int32(n)
	return true
}

// free is the number of slots that may be taken; negative while a debt drains.
func (s *slots) free() int { return int(s.size) - int(s.used) }

func (s *slots) give(n int) { s.used -= int32(n) }

// Semaphore is a weighted semaphore whose size may be changed while it is in use. It is what a
// Limiter uses for the slots of each key, on its own, for one resource of one process.
//
// Waiters are served first in, first out. The head waits until all it asked for is free, and
// nobody overtakes it, so that a large ask is not starved by many small ones. A cancelled waiter
// leaves no trace. Lowering the size revokes nothing: the debt drains as holders release.
//
// The zero value has no slots: every Acquire waits until Resize. A Semaphore is safe for use by
// many goroutines and must not be copied after first use.
type Semaphore struct {
	mu sync.Mutex
	slots
	waiters queue
}

// NewSemaphore returns a semaphore of size slots, 0 to 1<<30.
func NewSemaphore(size int) (*Semaphore, error) {
	s := new(Semaphore)
	return s, s.Resize(size)
}

// Acquire takes n slots, waiting until they are free or the context is done. It fails at once
// when n is below 1 or above the size, with an error that names both. On an error nothing is held.
func (s *Semaphore) Acquire(ctx context.Context, n int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if n < 1 || n > int(s.size) && s.size > 0 {
		size := s.size
		s.mu.Unlock()
		return fmt.Errorf("quotient: Semaphore.Acquire: %d is not between 1 and the size, %d", n, size)
	}
	if s.waiters.head == nil && s.take(n) {
		s.mu.Unlock()
		return nil
	}
	w := newWaiter(demand{weight: n})
	s.waiters.push(w)
	s.mu.Unlock()
	return s.await(ctx, w)
}

// await returns when w is let through, refused or given up. Should a method of a foreign context panic, it is
// given up too.
func (s *Semaphore) await(ctx context.Context, w *waiter) error {
	returned := false
	defer func() {
		if !returned {
			s.cancel(w)
		}
	}()
	select {
	case <-w.ready:
		returned = true
		return w.tooLarge()
	case <-ctx.Done():
		return endOf(ctx) // and the slots go back
	}
}

func (s *Semaphore) cancel(w *waiter) {
	s.mu.Lock()
	switch {
	case w.queued:
		s.waiters.remove(w)
	case w.refused.reason == ReasonNone: // it was granted meanwhile; give it back as if never asked
		s.give(w.d.weight)
	}
	s.serveAndUnlock()
}

// TryAcquire takes n slots if they are free and nobody waits, and tells whether it did.
func (s *Semaphore) TryAcquire(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return n >= 1 && s.waiters.head == nil && s.take(n)
}

// Release gives n slots back. It panics when more are released than are held: that is a
// programmer's error which would otherwise raise the limit silently.
func (s *Semaphore) Release(n int) {
	s.mu.Lock()
	if n < 0 || n > int(s.used) {
		used := s.used
		s.mu.Unlock()
		panic(fmt.Sprintf("quotient: Semaphore.Release: %d of %d slots held", n, used))
	}
	s.give(n)
	s.serveAndUnlock()
}

// Resize changes the number of slots, 0 to 1<<30. A raise lets waiters through at once. Waiters
// that ask for more than a lowered size fail at once, unless it is 0: then all wait for the next Resize.
func (s *Semaphore) Resize(size int) error {
	if size < 0 || size > maxInFlight {
		return fmt.Errorf("quotient: Semaphore size: %d is not between 0 and %d", size, maxInFlight)
	}
	s.mu.Lock()
	lowered := int32(size) < s.size || s.size == 0
	if s.size = int32(size); lowered {
		s.weed()
	}
	s.serveAndUnlock()
	return nil
}

// Size returns the number of slots.
func (s *Semaphore) Size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(s.size)
}

// InFlight returns the number of slots that are held; above Size while a debt drains.
func (s *Semaphore) InFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(s.used)
}

// serveAndUnlock lets waiters through and releases the lock, now and then also in between.
func (s *Semaphore) serveAndUnlock() {
	for s.waiters.head != nil && s.serve() {
		s.mu.Unlock()
		runtime.Gosched() // let those run who were woken
		s.mu.Lock()
	}
	s.mu.Unlock()
}

// serve lets waiters through from the head for as long as they fit, and tells whether
// there may be more to do: it serves at most wakeBatch in one hold of the lock.
func (s *Semaphore) serve() bool {
	for range wakeBatch {
		w := s.waiters.head
		switch {
		case w == nil:
			return false
		case !s.take(w.d.weight):
			return false
		}
		s.waiters.remove(w)
		w.ready <- struct{}{}
	}
	return true
}

// weed refuses waiters that ask for more than the size, wherever they stand. It is entered and left with the lock held,
// which it gives back now and then.
func (s *Semaphore) weed() {
	var ws []*waiter
	var next *waiter
	for s.waiters.head != nil {
		ws, next = s.waiters.unfit(next, s.refuses)
		for _, w := range ws {
			s.waiters.remove(w)
			w.ready <- struct{}{}
		}
		if next == nil {
			return
		}
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
	}
}

func (s *Semaphore) refuses(d *demand) verdict {
	if d.weight > int(s.size) && s.size > 0 {
		return verdict{reason: ReasonTooLarge}
	}
	return verdict{}
}

// tooLarge is the error of a waiter that a lowered size has refused, or nil.
func (w *waiter) tooLarge() error {
	if w.refused.reason == ReasonNone {
		return nil
	}
	return fmt.Errorf("quotient: Semaphore.Acquire: %d is above the size that Resize has set", w.d.weight)
}
