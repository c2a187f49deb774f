package quotient

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// semaphoreOf returns a semaphore of so many slots.
func semaphoreOf(t *testing.T, size int) *Semaphore {
	t.Helper()
	s, err := NewSemaphore(size)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// entering is a call of Semaphore.Acquire in a goroutine of its own.
type entering struct {
	err    error
	done   chan struct{}
	cancel context.CancelFunc
}

func enter(t *testing.T, s *Semaphore, n int) *entering {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	e := &entering{done: make(chan struct{}), cancel: cancel}
	go func() {
		e.err = s.Acquire(ctx, n)
		close(e.done)
	}()
	synctest.Wait()
	return e
}

// ended tells whether the call has returned.
func (e *entering) ended() bool {
	synctest.Wait()
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

// inside fails unless exactly the calls with these indices have got in.
func inside(t *testing.T, calls []*entering, want ...int) {
	t.Helper()
	var got []int
	for i, e := range calls {
		if e.ended() && e.err == nil {
			got = append(got, i)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("inside are %v, want %v", got, want)
	}
}

// counts fails unless so many slots are held, of so many.
func counts(t *testing.T, s *Semaphore, held, size int) {
	t.Helper()
	if s.InFlight() != held || s.Size() != size {
		t.Errorf("%d of %d slots are held, want %d of %d", s.InFlight(), s.Size(), held, size)
	}
}

func TestSemaphoreIsWeighted(t *testing.T) {
	s := semaphoreOf(t, 5)
	for _, c := range []struct {
		n    int
		ok   bool
		held int
	}{{3, true, 3}, {3, false, 3}, {2, true, 5}, {1, false, 5}, {0, false, 5}, {-1, false, 5}, {math.MaxInt, false, 5}, {math.MinInt, false, 5}} {
		if got := s.TryAcquire(c.n); got != c.ok {
			t.Errorf("TryAcquire(%d): %v, want %v", c.n, got, c.ok)
		}
		counts(t, s, c.held, 5)
	}
	s.Release(5)
	s.Release(0)
	counts(t, s, 0, 5)
}

func TestSemaphoreRefusesBadNumbers(t *testing.T) {
	for _, size := range []int{-1, maxInFlight + 1, math.MinInt, math.MaxInt} {
		_, err := NewSemaphore(size)
		says(t, err, "Semaphore size", "not between 0 and 1073741824")
		s := semaphoreOf(t, 3)
		says(t, s.Resize(size), "Semaphore size")
		counts(t, s, 0, 3)
	}
	s := semaphoreOf(t, 3)
	for _, n := range []int{0, -1, 4, math.MaxInt, math.MinInt} {
		says(t, s.Acquire(t.Context(), n), "Semaphore.Acquire", "size, 3")
		counts(t, s, 0, 3)
	}
}

func TestSemaphoreServesFirstInFirstOut(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		s := semaphoreOf(t, 1)
		s.TryAcquire(1)
		var calls []*entering
		for range 50 {
			calls = append(calls, enter(t, s, 1))
		}
		var served []int
		for i := range calls {
			s.Release(1)
			served = append(served, i)
			inside(t, calls, served...)
		}
	})
}

// Nobody overtakes the head, so that a large ask is not starved by small ones.
func TestSemaphoreDoesNotStarveTheLarge(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		s := semaphoreOf(t, 4)
		s.TryAcquire(1)
		calls := []*entering{enter(t, s, 4), enter(t, s, 1), enter(t, s, 1)}
		if s.TryAcquire(1) {
			t.Error("TryAcquire overtook the head")
		}
		inside(t, calls)
		s.Release(1)
		inside(t, calls, 0)
		s.Release(4)
		inside(t, calls, 0, 1, 2)
	})
}

func TestSemaphoreCancelLeavesNoTrace(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		s := semaphoreOf(t, 4)
		s.TryAcquire(2)
		calls := []*entering{enter(t, s, 3), enter(t, s, 1), enter(t, s, 1)}
		calls[1].cancel()
		if !calls[1].ended() || !errors.Is(calls[1].err, context.Canceled) {
			t.Error("a waiter in the middle does not end with its context")
		}
		inside(t, calls)
		calls[0].cancel() // the head: those behind it fit now
		inside(t, calls, 2)
		counts(t, s, 3, 4)
		s.Release(3)
		counts(t, s, 0, 4)
		if !s.TryAcquire(4) {
			t.Error("the slots have not come back")
		}
	})
}

func TestSemaphoreContextThatHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := semaphoreOf(t, 4)
	if err := s.Acquire(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	counts(t, s, 0, 4)
}

// A call whose context ends in the instant in which it is served either has its slots or has not.
func TestSemaphoreCancelAgainstRelease(t *testing.T) {
	both := map[bool]int{}
	for range 2000 {
		s := semaphoreOf(t, 1)
		s.TryAcquire(1)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Acquire(ctx, 1) }()
		go cancel()
		s.Release(1)
		err := <-done
		both[err == nil]++
		if err == nil {
			s.Release(1)
		}
		counts(t, s, 0, 1)
	}
	t.Logf("admitted or not: %v", both)
}

func TestSemaphoreResize(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		s := semaphoreOf(t, 1)
		s.TryAcquire(1)
		calls := []*entering{enter(t, s, 1), enter(t, s, 1), enter(t, s, 1)}
		s.Resize(3)
		inside(t, calls, 0, 1)
		counts(t, s, 3, 3)
		s.Resize(1) // nobody is revoked, the debt drains
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
		s.Resize(3) // 5 is above the size: refused, and in nobody's way
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

// The comment of Resize: waiters that ask for more than a lowered size fail at once, wherever they stand.
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

func TestSemaphorePanicsOnOverRelease(t *testing.T) {
	for _, n := range []int{3, math.MaxInt, -1} {
		s := semaphoreOf(t, 9)
		s.TryAcquire(2)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Release(%d) of 2 did not panic", n)
				}
			}()
			s.Release(n)
		}()
		counts(t, s, 2, 9) // and is still of use
	}
}

// One release lets more waiters through than are served in one hold of the lock.
func TestSemaphoreServesManyAtOnce(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		const many = 10*wakeBatch + 7
		s := semaphoreOf(t, many)
		s.TryAcquire(many)
		var calls []*entering
		for range many {
			calls = append(calls, enter(t, s, 1))
		}
		s.Release(many)
		for i, e := range calls {
			if !e.ended() || e.err != nil {
				t.Fatalf("waiter %d was not served", i)
			}
		}
		counts(t, s, many, many)
	})
}

// serve says whether there may be more to do: only when it has served as many as it may under one lock.
func TestSemaphoreServesUntilNobodyFits(t *testing.T) {
	s := new(Semaphore)
	if s.serve() {
		t.Error("there is more to do in an empty queue")
	}
	for range wakeBatch + 1 {
		s.waiters.push(newWaiter(demand{weight: 1}))
	}
	if s.size = wakeBatch; !s.serve() || s.waiters.len != 1 {
		t.Errorf("after a whole batch there is no more to do, and %d wait", s.waiters.len)
	}
	if s.serve() {
		t.Error("there is more to do where the head does not fit")
	}
	if s.size++; s.serve() || s.waiters.len != 0 {
		t.Errorf("there is more to do when all are served, and %d wait", s.waiters.len)
	}
}
