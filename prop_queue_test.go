package quotient

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// turns collects who was admitted when. Waiters are numbered in the order they asked.
type turns struct {
	l    *Limiter
	done chan served
	sent int
}

type served struct {
	who    int
	at     time.Time
	permit Permit
	err    error
}

func newTurns(l *Limiter) *turns { return &turns{l: l, done: make(chan served, 1000)} }

// ask starts a waiter, and returns when it is admitted or stands in the queue.
func (q *turns) ask(opts ...CallOption) (w lined) {
	ctx, cancel := context.WithCancel(context.Background())
	w.who, w.cancel = q.sent, cancel
	q.sent++
	go func() {
		p, err := q.l.Acquire(ctx, "k", opts...)
		q.done <- served{w.who, time.Now(), p, err}
	}()
	synctest.Wait()
	return w
}

// all waits for all callers, and returns them in the order in which they came back.
func (q *turns) all() []served {
	var out []served
	for range q.sent {
		out = append(out, <-q.done)
	}
	return out
}

// bucketLine is a bucket that serves its callers in the order in which they came, as it is promised.
type bucketLine struct {
	rate    Rate
	tokens  float64
	last    time.Time
	waiting []lined
	turns   map[int]time.Time // of those served
}

// until serves all whose turns have come by an instant, and returns how far the nearest turn is from it.
func (b *bucketLine) until(now time.Time) time.Duration {
	near := now.Sub(b.last)
	pass := func(to time.Time) {
		b.tokens += to.Sub(b.last).Seconds() * b.rate.perSecond()
		b.tokens, b.last = min(b.tokens, float64(b.rate.Burst)), to
	}
	for len(b.waiting) > 0 {
		at, weight := b.last, float64(b.waiting[0].weight)
		if need := weight - b.tokens; need > 1e-9 {
			at = at.Add(time.Duration(math.Ceil(need / b.rate.perSecond() * float64(time.Second))))
		}
		if near = at.Sub(now).Abs(); at.After(now) {
			break
		}
		pass(at)
		b.tokens -= weight
		b.turns[b.waiting[0].who] = at
		b.waiting = b.waiting[1:]
	}
	pass(now)
	return near
}

// Bounds 7 and 8: first in, first out for each key, whatever the weights: many small calls never starve a
// large one. The turns are those that the rate has: at the earliest instant, and not before. A raise or a cut
// has those who wait go on as if they had always waited under it, and one that gives up leaves the others as
// if it had never called.
func TestPropertyFIFO(t *testing.T) {
	property(t, func(rt *rapid.T) {
		burst := rapid.IntRange(1, 9).Draw(rt, "burst")
		draw := func() Rate {
			r := drawRate(rt, "r")
			r.Burst = burst
			return r
		}
		line := bucketLine{rate: draw(), tokens: float64(burst), last: time.Now(), turns: map[int]time.Time{}}
		l := mustNew(rt, Rates(line.rate), few)
		q := newTurns(l)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			time.Sleep(drawPause(rt) / 10)
			what := rapid.IntRange(0, 9).Draw(rt, "what")
			if line.until(time.Now()) < 50*time.Microsecond {
				what = 9 // at the instant of a turn a change may come before it, or after
			}
			switch n := len(line.waiting); {
			case what == 0:
				line.rate = draw()
				must(rt, l.SetLimit(Rates(line.rate)))
			case what <= 2 && n > 0:
				i := rapid.IntRange(0, n-1).Draw(rt, "who")
				line.waiting[i].cancel()
				line.waiting = slices.Delete(line.waiting, i, i+1)
			default:
				weight := rapid.IntRange(1, burst).Draw(rt, "weight")
				w := q.ask(Weight(weight))
				w.weight = weight
				line.waiting = append(line.waiting, w)
			}
			synctest.Wait()
			line.until(time.Now())
			if s := l.Stats(); s.Waiting != len(line.waiting) {
				rt.Fatalf("%d wait, want %d", s.Waiting, len(line.waiting))
			}
		}
		line.until(time.Now().Add(10_000 * time.Hour))
		for _, got := range q.all() {
			want, served := line.turns[got.who]
			if served != (got.err == nil) || served && got.at.Sub(want).Abs() > 100*time.Microsecond {
				rt.Fatalf("%d ended at %v with %v, want a turn at %v", got.who, got.at, got.err, want)
			}
		}
	})
}

// lined is one that waits, as the reference sees it.
type lined struct {
	who    int
	class  Priority
	weight int
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

// arrivals is a history of callers with classes and the reference that it is held against.
type arrivals struct {
	*rapid.T
	turns
	reference
	most int // that may wait
}

func (a *arrivals) comes(class Priority) {
	w := a.ask(class.Option())
	w.class = class
	if len(a.waiting) == a.most {
		out := a.gives(class)
		if out < 0 {
			w.cancel()
			a.refused(w.who)
			return
		}
		a.refused(a.waiting[out].who)
		a.remove(out)
	}
	a.waiting = append(a.waiting, w)
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
		ask := func(class Priority) lined {
			return q.ask(Weight(rapid.IntRange(1, burst).Draw(rt, "weight")), class.Option())
		}
		older := rapid.IntRange(0, 4).Draw(rt, "older")
		for range older {
			ask(max(PriorityNormal, drawClass(rt)))
		}
		before := l.Stats().Admitted
		low := ask(PriorityLow)
		for ended := 0; ; {
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
				if ended++; (<-q.done).who == low.who {
					time.Sleep(time.Hour)
					q.sent -= ended
					q.all()
					return
				}
			}
		}
	})
}

// A cancel that meets its own admission gives all back: no caller is lost, slots and queue drain.
func TestPropertyCancelStorm(t *testing.T) {
	property(t, func(rt *rapid.T) {
		slots := rapid.IntRange(1, 3).Draw(rt, "slots")
		l := mustNew(rt, Limit{InFlight: slots}, few)
		q := newTurns(l)
		var cancels []context.CancelFunc
		for range rapid.IntRange(1, 20).Draw(rt, "asks") {
			cancels = append(cancels, q.ask(Weight(rapid.IntRange(1, slots).Draw(rt, "weight"))).cancel)
		}
		cancels = rapid.Permutation(cancels).Draw(rt, "order")
		go func() {
			for _, cancel := range cancels {
				cancel()
			}
		}()
		for _, got := range q.all() {
			got.permit.Release()
		}
		synctest.Wait()
		if s := l.Stats(); s.Waiting != 0 || s.InFlight != 0 || l.shards[0].order.Len() > 1 {
			rt.Fatalf("left behind: %d waiting, %d in flight", s.Waiting, s.InFlight)
		}
		if _, d := l.TryAcquire("k", Weight(slots)); !d.OK {
			rt.Fatalf("slots lost: %+v", d)
		}
	})
}
