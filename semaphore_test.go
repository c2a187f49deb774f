package quotient

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// semaphoreOf returns a semaphore of so many slots.
func semaphoreOf(t *testing.T, size int) *Semaphore {
	t.Helper()
	s := new(Semaphore)
	must(t, s.Resize(size))
	return s
}

// entering is a call of Semaphore.Acquire in a goroutine of its own.
type entering struct {
	err    error
	done   chan struct{}
	cancel context.CancelFunc
}

func enter(t interface{ Context() context.Context }, s *Semaphore, n int) *entering {
	ctx, cancel := context.WithCancel(t.Context())
	e := &entering{done: make(chan struct{}), cancel: cancel}
	go func() {
		e.err = s.Acquire(ctx, n)
		close(e.done)
	}()
	synctest.Wait()
	return e
}

// ended reports whether the call has returned.
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
	if h, n := s.Slots(); h != held || n != size {
		t.Errorf("%d of %d slots are held, want %d of %d", h, n, held, size)
	}
}

func TestSemaphoreIsWeighted(t *testing.T) {
	s := semaphoreOf(t, 5)
	for _, c := range []struct {
		n    int
		ok   bool
		held int
	}{
		{3, true, 3},
		{3, false, 3},
		{2, true, 5},
		{1, false, 5},
		{0, false, 5},
		{-1, false, 5},
		{math.MaxInt, false, 5},
		{math.MinInt, false, 5},
	} {
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
		s := semaphoreOf(t, 3)
		says(t, s.Resize(size), "Semaphore size", "not between 0 and 1073741824")
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

// No call overtakes the head, so that a large call is not starved by small ones.
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

// waitFor fails unless so many callers wait.
func waitFor(t *testing.T, s *Semaphore, n int) {
	t.Helper()
	if got := s.Waiting(); got != n {
		t.Errorf("%d wait, want %d", got, n)
	}
}

func TestSemaphoreCountsThoseWhoWait(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		s := new(Semaphore)
		waitFor(t, s, 0)
		calls := []*entering{enter(t, s, 3), enter(t, s, 1), enter(t, s, 5), enter(t, s, 1)}
		waitFor(t, s, 4)
		must(t, s.Resize(3)) // one gets in, one is too large
		inside(t, calls, 0)
		waitFor(t, s, 2)
		calls[3].cancel()
		inside(t, calls, 0)
		waitFor(t, s, 1)
		s.Release(3)
		inside(t, calls, 0, 1)
		waitFor(t, s, 0)
		s.TryAcquire(9)
		waitFor(t, s, 0)
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
		const many = 10*semBatch + 7
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

// admitBatch reports whether there may be more to do: only when it has admitted as many as it may under one
// lock.
func TestSemaphoreServesUntilNoneFits(t *testing.T) {
	s := new(Semaphore)
	batch := func() (n int, more bool) {
		first, more := s.admitBatch()
		for w := first; w != nil; w = w.next {
			n++
		}
		return n, more
	}
	for range semBatch + 1 {
		s.enqueue(1)
	}
	for i, want := range []struct {
		size, n int
		more    bool
	}{{semBatch, semBatch, true}, {semBatch, 0, false}, {semBatch + 1, 1, false}, {semBatch + 2, 0, false}} {
		s.size = int32(want.size)
		if n, more := batch(); n != want.n || more != want.more {
			t.Errorf("batch %d: %d were admitted, more to do: %v; want %d, %v", i, n, more, want.n, want.more)
		}
	}
}

// A place that is used again must not hold the answer to the call before: that would admit one more than
// there are slots.
func TestSemaphoreAnswerIsForOneCall(t *testing.T) {
	reused := false
	for range 100 { // a sync.Pool may lose a place
		s := semaphoreOf(t, 1)
		s.TryAcquire(1)
		first, second := s.enqueue(1), s.enqueue(1)
		s.enqueue(1) // the queue does not run empty
		s.Release(1)
		s.cancel(first)
		if second.queued || len(second.answer) != 1 {
			t.Fatal("the first was admitted and gave up, and the second does not come in its place")
		}
		w := s.enqueue(1)
		reused = reused || w == first
		if len(w.answer) != 0 {
			t.Fatal("a new ask finds an answer, and no slot is free")
		}
		counts(t, s, 1, 1)
	}
	if !reused {
		t.Error("no place was used again, so that this test shows nothing")
	}
}

// A waiter that gives up when it was refused already has nothing to give back.
func TestSemaphoreCancelOfARefusedWaiter(t *testing.T) {
	s := semaphoreOf(t, 2)
	s.TryAcquire(2)
	w := s.enqueue(2)
	must(t, s.Resize(1))
	s.cancel(w)
	counts(t, s, 2, 1)
}

// A semaphore may outlive a bubble: a test of a program that has one in a variable.
func TestSemaphoreAcrossBubbles(t *testing.T) {
	s := semaphoreOf(t, 1)
	s.TryAcquire(1)
	for range 20 {
		inFakeTime(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := s.Acquire(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		})
	}
	counts(t, s, 1, 1)
}

// A call that waits allocates nothing while others wait too.
func TestSemaphoreWaitAllocatesNothing(t *testing.T) {
	s := semaphoreOf(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stop, wg := new(atomic.Bool), new(sync.WaitGroup)
	turn := func() {
		if err := s.Acquire(ctx, 1); err != nil {
			t.Error(err)
		}
		runtime.Gosched()
		s.Release(1)
	}
	const others = 8
	for range others {
		wg.Go(func() {
			for !stop.Load() {
				turn()
			}
		})
	}
	// While this goroutine has one turn, each of the others has one. Under the race detector sync.Pool loses
	// a place now and then.
	if n := testing.AllocsPerRun(2000, turn) / (others + 1); n >= 1 {
		t.Errorf("%v allocations for each ask that waits", n)
	}
	stop.Store(true)
	wg.Wait()
}

// However calls, cancellations and changes of the size meet, never more is held than the largest size, and
// no slot is lost.
func TestSemaphoreUnderStress(t *testing.T) {
	const largest = 4
	s := semaphoreOf(t, largest)
	var held, admitted, gaveUp atomic.Int64
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for k := range 300 {
				ctx, cancel := context.WithCancel(t.Context())
				n := 1 + (i+k)%largest
				if (i+k)%3 == 0 {
					go cancel()
				}
				if err := s.Acquire(ctx, n); err != nil {
					gaveUp.Add(1)
				} else {
					if held.Add(int64(n)) > largest {
						t.Errorf("more than %d are held", largest)
					}
					runtime.Gosched()
					held.Add(int64(-n))
					s.Release(n)
					admitted.Add(1)
				}
				cancel()
			}
		})
	}
	wg.Go(func() {
		for k := range 300 {
			must(t, s.Resize([]int{largest, 2, 0, largest, 1}[k%5]))
			runtime.Gosched()
		}
		must(t, s.Resize(largest))
	})
	wg.Wait()
	counts(t, s, 0, largest)
	if !s.TryAcquire(largest) {
		t.Error("something still stands in the queue")
	}
	t.Logf("admitted %d, gave up %d", admitted.Load(), gaveUp.Load())
}
