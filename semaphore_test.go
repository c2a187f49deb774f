package quotient

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// semaphoreOf returns a semaphore of so many slots.
func semaphoreOf(t *testing.T, size int) *Semaphore {
	t.Helper()
	s := new(Semaphore)
	must(t, s.Resize(size))
	return s
}

// fullSemaphore returns a semaphore whose slots are all taken.
func fullSemaphore(t *testing.T, size int) *Semaphore {
	t.Helper()
	s := semaphoreOf(t, size)
	s.TryAcquire(size)
	return s
}

// enter calls Semaphore.Acquire in a goroutine of its own, and returns once that waits or has ended.
func enter(t interface{ Context() context.Context }, s *Semaphore, n int) *call {
	ctx, cancel := context.WithCancel(t.Context())
	c := &call{done: make(chan struct{}), cancel: cancel}
	go func() {
		c.err = s.Acquire(ctx, n)
		close(c.done)
	}()
	synctest.Wait()
	return c
}

// counts fails unless so many slots are held, of so many.
func counts(t *testing.T, s *Semaphore, held, size int) {
	t.Helper()
	h, n := s.Slots()
	is(t, "slots held, and all", [2]int{h, n}, [2]int{held, size})
}

func TestSemaphoreRefusesBadNumbers(t *testing.T) {
	s := semaphoreOf(t, 3)
	for _, size := range []int{-1, maxInFlight + 1, math.MinInt, math.MaxInt} {
		says(t, s.Resize(size), "Semaphore size", "not between 0 and 1073741824")
	}
	for _, n := range []int{0, -1, 4, math.MaxInt, math.MinInt} {
		says(t, s.Acquire(t.Context(), n), "Semaphore.Acquire", "size, 3")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	is(t, "a context that has ended", s.Acquire(ctx, 1), context.Canceled)
	counts(t, s, 0, 3)
	for _, n := range []int{0, -1, 4, math.MaxInt, math.MinInt} {
		is(t, n, s.TryAcquire(n), false)
	}
	s.TryAcquire(2)
	s.Release(0)
	for _, n := range []int{3, math.MaxInt, -1} {
		func() {
			defer func() { is(t, []any{n, "panics"}, recover() != nil, true) }()
			s.Release(n)
		}()
		counts(t, s, 2, 3) // and is still of use
	}
}

// fate is what became of a call.
type fate string

const (
	fateWaiting   fate = "waits"
	fateAdmitted  fate = "is admitted"
	fateCancelled fate = "is cancelled"
	fateRefused   fate = "is refused"
)

// plainSemaphore is a semaphore without locks and goroutines: the model.
type plainSemaphore struct {
	size, used int
	queue      []int // indices of calls
	asks       []plainAsk
}

type plainAsk struct {
	n    int
	fate fate
}

func (p *plainSemaphore) fits(n int) bool     { return n <= p.size-p.used }
func (p *plainSemaphore) tooLarge(n int) bool { return p.size > 0 && n > p.size }

func (p *plainSemaphore) acquire(n int) {
	p.asks = append(p.asks, plainAsk{n, fateWaiting})
	p.queue = append(p.queue, len(p.asks)-1)
	p.settle()
}

// settle refuses what is too large, then admits from the head.
func (p *plainSemaphore) settle() {
	kept := p.queue[:0:0]
	for _, i := range p.queue {
		a := &p.asks[i]
		switch {
		case a.fate != fateWaiting:
		case p.tooLarge(a.n):
			a.fate = fateRefused
		case len(kept) == 0 && p.fits(a.n):
			a.fate = fateAdmitted
			p.used += a.n
		default:
			kept = append(kept, i)
		}
	}
	p.queue = kept
}

// fate is what became of the call so far.
func (c *call) fate() fate {
	switch {
	case !c.ended():
		return fateWaiting
	case c.err == nil:
		return fateAdmitted
	case errors.Is(c.err, context.Canceled):
		return fateCancelled
	case strings.Contains(c.err.Error(), "size"):
		return fateRefused
	}
	return fate(c.err.Error())
}

// A semaphore does what a plain model does, call by call: first in, first out, whatever is requested,
// cancelled, released and resized. Calls for more than a lowered size fail at once, wherever they stand.
func TestPropertySemaphore(t *testing.T) {
	property(t, func(rt *rapid.T) {
		size := rapid.IntRange(0, 5).Draw(rt, "size")
		s := new(Semaphore)
		must(rt, s.Resize(size))
		model := &plainSemaphore{size: size}
		var calls []*call
		defer func() {
			for _, e := range calls {
				e.cancel()
			}
		}()
		for range rapid.IntRange(1, 50).Draw(rt, "steps") {
			switch rapid.IntRange(0, 7).Draw(rt, "step") {
			case 0, 1, 2:
				n := rapid.IntRange(1, 6).Draw(rt, "n")
				calls = append(calls, enter(rt, s, n))
				model.acquire(n)
			case 3:
				n := rapid.IntRange(0, 6).Draw(rt, "n at once")
				ok := n > 0 && len(model.queue) == 0 && model.fits(n)
				if got := s.TryAcquire(n); got != ok {
					rt.Fatalf("TryAcquire(%d): %v, want %v", n, got, ok)
				}
				if ok {
					model.used += n
				}
			case 4, 5:
				n := rapid.IntRange(0, model.used).Draw(rt, "released")
				s.Release(n)
				model.used -= n
			case 6:
				model.size = rapid.IntRange(0, 6).Draw(rt, "new size")
				must(rt, s.Resize(model.size))
			default:
				if len(calls) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(calls)-1).Draw(rt, "who gives up")
				calls[i].cancel()
				if a := &model.asks[i]; a.fate == fateWaiting {
					a.fate = fateCancelled
				}
			}
			model.settle()
			for i, a := range model.asks {
				if got := calls[i].fate(); got != a.fate {
					rt.Fatalf("ask %d, for %d of %d slots: %s, want %s", i, a.n, model.size, got, a.fate)
				}
			}
			if held, size := s.Slots(); held != model.used || size != model.size ||
				s.Waiting() != len(model.queue) {
				rt.Fatalf("%d of %d slots are held and %d wait, want %d of %d and %d", held, size,
					s.Waiting(), model.used, model.size, len(model.queue))
			}
		}
	})
}

// One release lets more waiters through than are served in one hold of the lock.
func TestSemaphoreServesManyAtOnce(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		const many = 10*semBatch + 7
		s := fullSemaphore(t, many)
		var calls []*call
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

// A place that is used again must not hold the answer to the call before: that would admit one more than
// there are slots.
func TestSemaphoreAnswerIsForOneCall(t *testing.T) {
	reused := false
	for range 100 { // a sync.Pool may lose a place
		s := fullSemaphore(t, 1)
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
	is(t, "a place was used again", reused, true)
}

// A waiter that gives up when it was refused already has nothing to give back.
func TestSemaphoreCancelOfARefusedWaiter(t *testing.T) {
	s := fullSemaphore(t, 2)
	w := s.enqueue(2)
	must(t, s.Resize(1))
	s.cancel(w)
	counts(t, s, 2, 1)
}

// A waiter may leave while Resize looks at the queue piece by piece. Resize goes on behind it.
func TestSemaphoreWaiterLeavesWhileResizeLooks(t *testing.T) {
	s := fullSemaphore(t, 2)
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

// A semaphore may outlive a bubble: a test of a program that has one in a variable.
func TestSemaphoreAcrossBubbles(t *testing.T) {
	s := fullSemaphore(t, 1)
	for range 20 {
		inFakeTime(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			is(t, "the end", s.Acquire(ctx, 1), context.DeadlineExceeded)
		})
	}
	counts(t, s, 1, 1)
}

// A call that waits allocates nothing while others wait too.
func TestSemaphoreWaitAllocatesNothing(t *testing.T) {
	s := semaphoreOf(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stop atomic.Bool
	var wg sync.WaitGroup
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
	var held atomic.Int64
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for k := range 300 {
				ctx, cancel := context.WithCancel(t.Context())
				n := 1 + (i+k)%largest
				if (i+k)%3 == 0 {
					go cancel()
				}
				if s.Acquire(ctx, n) == nil {
					if held.Add(int64(n)) > largest {
						t.Errorf("more than %d are held", largest)
					}
					runtime.Gosched()
					held.Add(int64(-n))
					s.Release(n)
				}
				cancel()
			}
		})
	}
	wg.Go(func() {
		for k := range 301 {
			must(t, s.Resize([]int{largest, 2, 0, largest, 1}[k%5]))
			runtime.Gosched()
		}
	})
	wg.Wait()
	counts(t, s, 0, largest)
	is(t, "all can be taken", s.TryAcquire(largest), true)
}
