package quotient

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// Semaphore is a weighted semaphore whose size may be changed while it is in use, for one resource of one
// process. The zero value is ready and has no slots: every Acquire waits until Resize. It is safe for use by
// many goroutines and must not be copied after first use.
//
// Waiters are served first in, first out. The head waits until all its slots are free, and no other
// overtakes it, so that a large call is not starved by many small ones. A cancelled waiter leaves no trace.
// Lowering the size revokes nothing: the debt drains as holders release.
type Semaphore struct {
	mu         sync.Mutex
	used, size int32      // slots; after a Resize more may be used than there are, until holders release
	head, tail *semWaiter // the queue, oldest first
	check      *semWaiter // where refuseBatch goes on, while Resize looks for calls that are too large
	waiting    int        // in the queue
	period     uint64     // since the queue was last empty; see semWaiter
}

// Acquire takes n slots, waiting until they are free or the context is done. It fails at once
// when n is below 1 or above the size, with an error that names both. On an error nothing is held.
func (s *Semaphore) Acquire(ctx context.Context, n int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if n < 1 || s.tooLarge(n) {
		size := s.size
		s.mu.Unlock()
		return fmt.Errorf("quotient: Semaphore.Acquire: %d is not between 1 and the size, %d", n, size)
	}
	if s.head == nil && s.take(n) {
		s.mu.Unlock()
		return nil
	}
	w := s.enqueue(n)
	s.mu.Unlock()
	return s.await(ctx, w)
}

// await returns when w is admitted or refused, or when the context is done. A method of the caller's
// context may panic or end the goroutine; w is given up then too.
func (s *Semaphore) await(ctx context.Context, w *semWaiter) error {
	answered := false
	defer func() {
		if !answered {
			s.cancel(w)
		}
	}()
	var admitted bool
	select {
	case admitted = <-w.answer:
		answered = true
	case <-ctx.Done():
		return endOf(ctx)
	}
	n := w.n
	spareWaiters.Put(w)
	if !admitted {
		return fmt.Errorf("quotient: Semaphore.Acquire: %d is above the size that Resize has set", n)
	}
	return nil
}

// cancel takes w out of the queue. If w has left the queue already, its answer is in the channel or about to
// be. It is taken out, or the next user of the channel would mistake it for its own.
func (s *Semaphore) cancel(w *semWaiter) {
	s.mu.Lock()
	if w.queued {
		s.remove(w)
		s.serveAndUnlock()
	} else {
		s.mu.Unlock()
		if admitted := <-w.answer; admitted {
			s.Release(w.n)
		}
	}
	spareWaiters.Put(w)
}

// TryAcquire takes n slots if they are free and no caller waits, and reports whether it did.
func (s *Semaphore) TryAcquire(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return n >= 1 && s.head == nil && s.take(n)
}

// Release gives n slots back. It panics when more are released than are held: that is a programming error
// which would otherwise raise the limit silently.
func (s *Semaphore) Release(n int) {
	s.mu.Lock()
	if n < 0 || n > int(s.used) {
		used := s.used
		s.mu.Unlock()
		panic(fmt.Sprintf("quotient: Semaphore.Release: %d of %d slots held", n, used))
	}
	s.used -= int32(n)
	s.serveAndUnlock()
}

// Resize changes the number of slots, 0 to 1<<30. A raise admits waiters at once. Waiters that want more
// than a lowered size fail at once, unless it is 0: then all wait for the next Resize.
func (s *Semaphore) Resize(size int) error {
	if size < 0 || size > maxInFlight {
		return fmt.Errorf("quotient: Semaphore size: %d is not between 0 and %d", size, maxInFlight)
	}
	s.mu.Lock()
	if int32(size) < s.size || s.size == 0 {
		s.check = s.head
	}
	s.size = int32(size)
	for s.refuseBatch() {
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
	}
	s.serveAndUnlock()
	return nil
}

// Slots returns how many slots are held, and how many there are. More are held while a debt drains.
func (s *Semaphore) Slots() (held, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(s.used), int(s.size)
}

// Waiting returns how many calls of Acquire wait.
func (s *Semaphore) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting
}

// The methods below need the lock.

// take takes n slots if they are free, and reports whether it did.
func (s *Semaphore) take(n int) bool {
	if n > int(s.size)-int(s.used) {
		return false
	}
	s.used += int32(n)
	return true
}

// tooLarge reports whether n can never be admitted under the present size. A size of 0 refuses nothing.
func (s *Semaphore) tooLarge(n int) bool { return s.size > 0 && n > int(s.size) }

// semBatch is how many waiters are looked at in one hold of the lock.
const semBatch = 64

// serveAndUnlock admits waiters and releases the lock. It answers them without the lock, which is then free
// for the first of them to come back.
func (s *Semaphore) serveAndUnlock() {
	for s.head != nil {
		first, more := s.admitBatch()
		s.mu.Unlock()
		for w := first; w != nil; w = first {
			first, w.next = w.next, nil
			w.answer <- true // w is its caller's from here on
		}
		if !more {
			return
		}
		runtime.Gosched() // the waiters that were admitted may run first
		s.mu.Lock()
	}
	s.mu.Unlock()
}

// admitBatch takes the slots of waiters from the head for as long as they fit. It returns these waiters as a
// list, and reports whether there may be more.
func (s *Semaphore) admitBatch() (first *semWaiter, more bool) {
	end := &first
	for range semBatch {
		w := s.head
		if w == nil || !s.take(w.n) {
			return first, false
		}
		s.remove(w)
		*end, end = w, &w.next
	}
	return first, true
}

// refuseBatch refuses waiters that call for more than the size, from s.check on. It reports whether there
// are more to look at.
func (s *Semaphore) refuseBatch() bool {
	for range semBatch {
		w := s.check
		if w == nil {
			return false
		}
		if s.check = w.next; s.tooLarge(w.n) {
			s.remove(w)
			w.answer <- false
		}
	}
	return s.check != nil
}

// semWaiter is a place in the queue of a Semaphore. Places are used again, since what they allocate costs
// more than what they do. A channel is used again only while the queue was never empty. So it does not leave
// the bubble of testing/synctest that has made it, which is not allowed.
type semWaiter struct {
	next, prev *semWaiter
	answer     chan bool // holds one: whether the call was admitted or refused
	n          int
	queued     bool
	period     uint64 // in which the channel was made
}

var (
	spareWaiters = sync.Pool{New: func() any { return new(semWaiter) }}
	periods      atomic.Uint64 // of all semaphores, so that each has its own numbers
)

// enqueue puts a call for n slots at the end of the queue.
func (s *Semaphore) enqueue(n int) *semWaiter {
	if s.head == nil {
		s.period = periods.Add(1)
	}
	w := spareWaiters.Get().(*semWaiter)
	if w.period != s.period {
		w.answer, w.period = make(chan bool, 1), s.period
	}
	w.n, w.queued, w.prev, w.next = n, true, s.tail, nil
	if s.tail != nil {
		s.tail.next = w
	} else {
		s.head = w
	}
	s.tail = w
	s.waiting++
	return w
}

// remove takes w out of the queue.
func (s *Semaphore) remove(w *semWaiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		s.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		s.tail = w.prev
	}
	if s.check == w {
		s.check = w.next
	}
	w.next, w.prev, w.queued = nil, nil, false
	s.waiting--
}
