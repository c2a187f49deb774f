package quotient

import (
	"testing"
	"time"
)

func TestSemaphoreResize(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		s := semaphoreOf(t, 1)
		s.TryAcquire(1)
		calls := []*entering{enter(t, s, 1), enter(t, s, 1), enter(t, s, 1)}
		s.Resize(3)
		inside(t, calls, 0, 1)
		counts(t, s, 3, 3)
		s.Resize(1) // no slot is revoked, the debt drains
		counts(t, s, 3, 1)
		s.Release(1)
		s.Release(1)
		inside(t, calls, 0, 1)
		counts(t, s, 1, 1)
		s.Release(1)
		inside(t, calls, 0, 1, 2)
		counts(t, s, 1, 1)
	})
}

func TestSemaphoreOfNoSlotsWaitsForResize(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		s := new(Semaphore)
		if s.TryAcquire(1) {
			t.Error("the zero value has slots")
		}
		calls := []*entering{enter(t, s, 1), enter(t, s, 5), enter(t, s, 2)}
		time.Sleep(time.Hour)
		inside(t, calls)
		s.Resize(3) // 5 is above the size: refused, and in no one's way
		inside(t, calls, 0, 2)
		if calls[1].ended() {
			says(t, calls[1].err, "5 is above the size")
		}
		counts(t, s, 3, 3)
		s.Resize(0)
		late := enter(t, s, 4)
		s.Release(3)
		if late.ended() {
			t.Errorf("ended with %v", late.err)
		}
		late.cancel()
	})
}

func TestSemaphoreHeadAboveALoweredSizeFailsAtOnce(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		s := semaphoreOf(t, 4)
		s.TryAcquire(2)
		calls := []*entering{enter(t, s, 3), enter(t, s, 1)}
		s.Resize(2)
		if !calls[0].ended() {
			t.Error("a head above the size still waits")
		}
		inside(t, calls)
		s.Release(1)
		inside(t, calls, 1)
	})
}

// The comment of Resize: waiters that call for more than a lowered size fail at once, wherever they stand.
func TestSemaphoreWaiterAboveALoweredSizeFailsAtOnce(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		s := semaphoreOf(t, 4)
		s.TryAcquire(4)
		calls := []*entering{enter(t, s, 1), enter(t, s, 3)}
		s.Resize(2)
		if !calls[1].ended() {
			t.Error("a waiter that asks for 3 of 2 slots still waits, because it is not the head")
		}
		s.Release(4)
	})
}

// A waiter may leave while Resize looks at the queue piece by piece. Resize goes on behind it.
func TestSemaphoreWaiterLeavesWhileResizeLooks(t *testing.T) {
	s := semaphoreOf(t, 2)
	s.TryAcquire(2)
	for range semBatch {
		s.enqueue(1)
	}
	next, last := s.enqueue(1), s.enqueue(2)
	s.size, s.check = 1, s.head
	if !s.refuseBatch() || s.check != next {
		t.Fatal("the first piece is not a batch long")
	}
	s.cancel(next)
	if s.refuseBatch() || last.queued || <-last.answer {
		t.Error("a waiter that asks for 2 of 1 slots still waits")
	}
}
