package quotient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// lined is one that waits, as the reference sees it.
type lined struct {
	who    int
	class  Priority
	cancel context.CancelFunc
}

// reference is a queue with classes, written down as it is promised, in order of arrival.
type reference struct {
	waiting []lined
	passed  int // admissions in a row that went past who had waited longest
}

// next returns the caller that has its turn.
func (r *reference) next() int {
	best := 0
	for i, w := range r.waiting {
		if r.passed < 7 && w.class > r.waiting[best].class {
			best = i
		}
	}
	return best
}

// gives returns the caller that has to go for one of a class; -1 for none.
func (r *reference) gives(class Priority) int {
	out := -1
	for i, w := range r.waiting {
		if w.class < class && (out < 0 || w.class <= r.waiting[out].class) {
			out = i
		}
	}
	return out
}

func (r *reference) serve(i int) {
	if r.passed++; i == 0 {
		r.passed = 0
	}
	r.remove(i)
}

func (r *reference) remove(i int) {
	if r.waiting = slices.Delete(r.waiting, i, i+1); len(r.waiting) == 0 {
		r.passed = 0
	}
}

// Against the reference: the next caller, the one that is pushed out, and what is left. FIFO within a class
// follows from it, and that one of any eight admissions is of the caller that has waited longest.
func TestPropertyQueueOfClasses(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var q queue
		var ref reference
		byID := map[int]*waiter{}
		for id := range rapid.IntRange(1, 120).Draw(rt, "steps") {
			switch what := rapid.IntRange(0, 9).Draw(rt, "what"); {
			case what < 5:
				w := newWaiter(demand{weight: 1, class: drawClass(rt)})
				w.since, w.order = time.Duration(id/3), uint32(id) // three at a time come at one instant
				byID[id] = w
				q.push(w)
				ref.waiting = append(ref.waiting, lined{who: id, class: w.d.class})
			case len(ref.waiting) == 0:
			case what < 8:
				i := ref.next()
				w := q.next()
				if w != byID[ref.waiting[i].who] {
					rt.Fatalf("the next is of class %v, want %+v", w.d.class, ref.waiting[i])
				}
				q.served(w)
				q.remove(w)
				ref.serve(i)
			case what == 8:
				i := rapid.IntRange(0, len(ref.waiting)-1).Draw(rt, "who")
				q.remove(byID[ref.waiting[i].who])
				ref.remove(i)
			default:
				class := drawClass(rt)
				i, w := ref.gives(class), q.victim(class)
				if (i < 0) != (w == nil) || i >= 0 && w != byID[ref.waiting[i].who] {
					rt.Fatalf("for one of class %v %d has to go", class, i)
				}
			}
			if q.len != len(ref.waiting) || int(q.passed) != ref.passed {
				rt.Fatalf("%d wait and %d have passed, want %d and %d", q.len, q.passed, len(ref.waiting),
					ref.passed)
			}
		}
	})
}

// arrivals is a history of callers with classes and the reference that it is held against.
type arrivals struct {
	*rapid.T
	turns
	reference
	most int // that may wait
}

func (a *arrivals) comes(class Priority) {
	who := a.sent
	a.sent++
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		p, err := a.l.Acquire(ctx, "k", class.Option())
		a.done <- served{who, time.Now(), p, err}
	}()
	synctest.Wait()
	out := -1
	if len(a.waiting) == a.most {
		if out = a.gives(class); out < 0 {
			cancel()
			a.refused(who)
			return
		}
		a.refused(a.waiting[out].who)
		a.remove(out)
	}
	a.waiting = append(a.waiting, lined{who, class, cancel})
}

// refused wants one caller, and no other, to have been refused for a full queue.
func (a *arrivals) refused(who int) {
	select {
	case got := <-a.done:
		var limited *LimitedError
		if got.who != who || !errors.As(got.err, &limited) || limited.Reason != ReasonQueue {
			a.Fatalf("%d ended with %v, want %d to be refused", got.who, got.err, who)
		}
	default:
		a.Fatalf("no caller was refused, want %d", who)
	}
}

// passes lets so many turns come.
func (a *arrivals) passes(turns int) {
	for range turns {
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if len(a.waiting) == 0 {
			continue
		}
		i := a.next()
		select {
		case got := <-a.done:
			if got.who != a.waiting[i].who || got.err != nil {
				a.Fatalf("the turn went to %d with %v, want %d of %+v", got.who, got.err, a.waiting[i].who,
					a.waiting)
			}
		default:
			a.Fatalf("no caller was admitted, want %d", a.waiting[i].who)
		}
		a.serve(i)
	}
}

func (a *arrivals) leaves(i int) {
	w := a.waiting[i]
	w.cancel()
	synctest.Wait()
	if got := <-a.done; got.who != w.who || !errors.Is(got.err, context.Canceled) {
		a.Fatalf("%d ended with %v, want %d to be cancelled", got.who, got.err, w.who)
	}
	a.remove(i)
}

// Bound 8 with classes: histories of callers that come, go and wait at a paced rate. Each turn goes to the
// caller of the reference, at its instant, and a full queue refuses the caller of the reference.
func TestPropertyClassesInFakeTime(t *testing.T) {
	property(t, func(rt *rapid.T) {
		a := arrivals{T: rt, most: rapid.IntRange(1, 12).Draw(rt, "most")}
		a.turns = *newTurns(mustNew(rt, rated(Every(100*time.Millisecond)), few, MaxWaiting(a.most, 100)))
		wantsNow(rt, a.l)
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch what := rapid.IntRange(0, 9).Draw(rt, "what"); {
			case what < 6:
				a.comes(drawClass(rt))
			case what < 9 || len(a.waiting) == 0:
				a.passes(rapid.IntRange(1, 4).Draw(rt, "turns"))
				if len(a.waiting) == 0 {
					wantsNow(rt, a.l) // what has come by in the meantime
				}
			default:
				a.leaves(rapid.IntRange(0, len(a.waiting)-1).Draw(rt, "who"))
				if len(a.waiting) == 0 {
					time.Sleep(100 * time.Millisecond)
					wantsNow(rt, a.l)
				}
			}
		}
		a.passes(len(a.waiting))
		if s := a.l.Stats(); s.Waiting != 0 {
			rt.Fatalf("%d wait in the end", s.Waiting)
		}
	})
}

// wantsNow takes the one event of a paced rate, which may be there or not.
func wantsNow(t *rapid.T, l *Limiter) {
	l.Allow("k")
	if l.Allow("k") {
		t.Fatalf("two events at one instant")
	}
}

// No starvation, whatever the weights and the crowd that comes: a low one is admitted within eight admissions
// for itself and for each that has waited longer.
func TestPropertyLowIsNotStarved(t *testing.T) {
	property(t, func(rt *rapid.T) {
		burst := rapid.IntRange(1, 10).Draw(rt, "burst")
		l := mustNew(rt, rated(Rate{Events: 1, Per: 100 * time.Millisecond, Burst: burst}), few)
		if _, d := l.TryAcquire("k", Weight(burst)); !d.OK {
			rt.Fatal("not full")
		}
		q := newTurns(l)
		ask := func(class Priority) {
			w := rapid.IntRange(1, burst).Draw(rt, "weight")
			q.sent++
			go func() {
				_, err := l.Acquire(context.Background(), "k", Weight(w), class.Option())
				q.done <- served{int(class), time.Now(), Permit{}, err}
			}()
			synctest.Wait()
		}
		older := rapid.IntRange(0, 4).Draw(rt, "older")
		for range older {
			ask(max(PriorityNormal, drawClass(rt)))
		}
		before := l.Stats().Admitted
		ask(PriorityLow)
		for {
			switch rapid.IntRange(0, 3).Draw(rt, "what") {
			case 0:
				l.TryAcquire("k", Weight(rapid.IntRange(1, burst).Draw(rt, "weight")),
					PriorityCritical.Option())
			case 1:
				l.Allow("k")
			case 2:
				ask(max(PriorityNormal, drawClass(rt)))
			default:
				time.Sleep(100 * time.Millisecond)
			}
			synctest.Wait()
			admitted := int(l.Stats().Admitted - before)
			if admitted > 8*(older+1) {
				rt.Fatalf("%d were admitted before a low one behind %d", admitted, older)
			}
			for len(q.done) > 0 {
				if q.sent--; (<-q.done).who == int(PriorityLow) {
					time.Sleep(time.Hour)
					q.all()
					return
				}
			}
		}
	})
}

// Callers of one class, whichever it is, are served exactly as callers without any.
func TestPropertyOneClassIsFIFO(t *testing.T) {
	property(t, func(rt *rapid.T) {
		rate := drawRate(rt, "r")
		rate.Burst = rapid.IntRange(1, 9).Draw(rt, "burst")
		limit, class := rated(rate), drawClass(rt)
		opts := []Option{few, MaxWaiting(rapid.IntRange(0, 9).Draw(rt, "most"), 100),
			MaxWait(time.Duration(rapid.IntRange(0, 9).Draw(rt, "patience")) * time.Second)}
		plain, classed := newTurns(mustNew(rt, limit, opts...)), newTurns(mustNew(rt, limit, opts...))
		for range rapid.IntRange(1, 30).Draw(rt, "asks") {
			w := Weight(rapid.IntRange(1, rate.Burst).Draw(rt, "weight"))
			switch rapid.IntRange(0, 3).Draw(rt, "what") {
			case 0:
				_, a := plain.l.TryAcquire("k", w)
				_, b := classed.l.TryAcquire("k", w, class.Option())
				if a != b {
					rt.Fatalf("%+v without a class, %+v with %v", a, b, class)
				}
			default:
				plain.acquire(w)
				classed.acquire(w, class.Option())
			}
			time.Sleep(drawPause(rt) / 10)
			synctest.Wait() // timers that are due at this very instant come before the call
		}
		a, b := plain.all(), classed.all()
		for _, s := range [][]served{a, b} {
			slices.SortFunc(s, func(x, y served) int { return x.who - y.who })
		}
		for i := range a {
			if a[i].who != b[i].who || a[i].at.Sub(b[i].at).Abs() > time.Microsecond ||
				fmt.Sprint(a[i].err) != fmt.Sprint(b[i].err) {
				rt.Fatalf("%d ended at %v with %v without a class, at %v with %v in one", i, a[i].at,
					a[i].err, b[i].at, b[i].err)
			}
		}
	})
}

// acquire is ask with any options.
func (q *turns) acquire(opts ...CallOption) {
	who := q.sent
	q.sent++
	go func() {
		p, err := q.l.Acquire(context.Background(), "k", opts...)
		q.done <- served{who, time.Now(), p, err}
	}()
	synctest.Wait()
}
