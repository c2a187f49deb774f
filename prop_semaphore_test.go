package quotient

import (
	"context"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

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
func (e *entering) fate() fate {
	switch {
	case !e.ended():
		return fateWaiting
	case e.err == nil:
		return fateAdmitted
	case errors.Is(e.err, context.Canceled):
		return fateCancelled
	case strings.Contains(e.err.Error(), "size"):
		return fateRefused
	}
	return fate(e.err.Error())
}

// A semaphore does what a plain model does, call by call: first in, first out, whatever is requested,
// cancelled, released and resized.
func TestPropertySemaphore(t *testing.T) {
	property(t, func(rt *rapid.T) {
		size := rapid.IntRange(0, 5).Draw(rt, "size")
		s := new(Semaphore)
		must(rt, s.Resize(size))
		model := &plainSemaphore{size: size}
		var calls []*entering
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
			if held, size := s.Slots(); held != model.used || size != model.size {
				rt.Fatalf("%d of %d slots are held, want %d of %d", held, size, model.used, model.size)
			}
		}
	})
}
