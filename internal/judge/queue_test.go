package judge

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient"
)

// turns collects who was admitted when. Waiters are numbered in the order they asked.
type turns struct {
	l    *quotient.Limiter
	done chan served
	sent int
}

type served struct {
	who    int
	at     time.Time
	permit quotient.Permit
	err    error
}

func newTurns(l *quotient.Limiter) *turns { return &turns{l: l, done: make(chan served, 1000)} }

// ask starts a waiter and returns when it is admitted or stands in the queue.
func (q *turns) ask(ctx context.Context, weight int) {
	who := q.sent
	q.sent++
	go func() {
		p, err := q.l.Acquire(ctx, "k", quotient.Weight(weight))
		q.done <- served{who, time.Now(), p, err}
	}()
	synctest.Wait()
}

// all waits for all callers, and returns them in the order in which they came back.
func (q *turns) all() []served {
	var out []served
	for range q.sent {
		out = append(out, <-q.done)
	}
	return out
}

// Bound 8: first in, first out for each key, whatever the weights: many small calls never starve a large
// one. And the turns are those that the rate has: at the earliest instant, and not before.
func TestPropertyFIFO(t *testing.T) {
	property(t, func(rt *rapid.T) {
		rate := drawRate(rt, "r")
		rate.Burst = rapid.IntRange(1, 9).Draw(rt, "burst")
		l := mustNew(rt, quotient.Rates(rate), few)
		q := newTurns(l)
		began, asked, weights := time.Now(), []time.Time{}, []int{}
		for range rapid.IntRange(1, 12).Draw(rt, "asks") {
			w := rapid.IntRange(1, rate.Burst).Draw(rt, "weight")
			asked, weights = append(asked, time.Now()), append(weights, w)
			q.ask(context.Background(), w)
			time.Sleep(drawPause(rt) / 10)
		}
		tokens, last := float64(rate.Burst), began
		for i, got := range q.all() {
			stop(rt, got.who != i || got.err != nil, "turn %d went to %d, %v", i, got.who, got.err)
			at := last // the reference: a bucket served in order
			if asked[i].After(at) {
				at = asked[i]
			}
			tokens = min(float64(rate.Burst), tokens+at.Sub(last).Seconds()*perSecond(rate))
			if need := float64(weights[i]) - tokens; need > 1e-9 {
				d := time.Duration(need / perSecond(rate) * float64(time.Second))
				at, tokens = at.Add(d), tokens+need
			}
			tokens, last = tokens-float64(weights[i]), at
			if off := got.at.Sub(at); off.Abs() > 2*time.Microsecond {
				rt.Fatalf("turn %d came %v beside the reference", i, off)
			}
		}
	})
}

// Bound 7, raises and cuts: after a SetLimit the waiters' turns are those of the new limit. They count from
// what the bucket then holds, as if the waiters had always waited under it.
func TestPropertyRaiseAndCut(t *testing.T) {
	property(t, func(rt *rapid.T) {
		before := quotient.Rate{Name: "r", Events: float64(rapid.IntRange(1, 50).Draw(rt, "before")),
			Per: time.Second, Burst: 1}
		after := quotient.Rate{Name: "r", Events: float64(rapid.IntRange(1, 100000).Draw(rt, "after")),
			Per: time.Second, Burst: 1}
		n := rapid.IntRange(1, 30).Draw(rt, "waiters")
		l := mustNew(rt, quotient.Rates(before), few)
		q := newTurns(l)
		began := time.Now()
		for range n {
			q.ask(context.Background(), 1)
		}
		time.Sleep(time.Duration(rapid.IntRange(0, 900).Draw(rt, "ms")) * time.Millisecond)
		changed := time.Now()
		must(rt, l.SetLimit(quotient.Rates(after)))
		was, is := perSecond(before), perSecond(after)
		for i, got := range q.all() {
			want := began.Add(seconds(float64(i) / was))
			if passed := changed.Sub(began).Seconds() * was; float64(i) > passed {
				want = changed.Add(seconds((float64(i) - passed) / is))
			}
			if off := got.at.Sub(want); got.who != i || off.Abs() > time.Duration(i+2)*time.Microsecond {
				rt.Fatalf("turn %d went to %d, %v beside the new limit's", i, got.who, off)
			}
		}
	})
}

func seconds(s float64) time.Duration { return time.Duration(math.Ceil(s * float64(time.Second))) }

// Bound 7, cancels: a waiter that was given up leaves the limiter as if it had never called.
func TestPropertyCancelLeavesNoTrace(t *testing.T) {
	property(t, func(rt *rapid.T) {
		limit := quotient.Rates(drawRate(rt, "r"))
		limit.InFlight = rapid.IntRange(0, 3).Draw(rt, "in flight")
		l, twin := mustNew(rt, limit, few), mustNew(rt, limit, few)
		mostWeight := int(burstOf(limit.Rates[0]))
		if limit.InFlight > 0 {
			mostWeight = min(mostWeight, limit.InFlight)
		}
		for range rapid.IntRange(0, 5).Draw(rt, "before") {
			w := quotient.Weight(rapid.IntRange(1, mostWeight).Draw(rt, "weight"))
			_, a := l.TryAcquire("k", w)
			_, b := twin.TryAcquire("k", w)
			stop(rt, a != b, "%+v and %+v before anything was cancelled", a, b)
		}
		// While the head cannot be admitted no waiter behind it can: all of these are cancelled.
		if _, d := twin.TryAcquire("k", quotient.Weight(mostWeight)); d.OK {
			return
		}
		ctx, cancel := context.WithCancel(context.Background())
		q := newTurns(l)
		q.ask(ctx, mostWeight)
		for range rapid.IntRange(0, 5).Draw(rt, "waiters") {
			q.ask(ctx, rapid.IntRange(1, mostWeight).Draw(rt, "weight"))
		}
		cancel()
		for _, got := range q.all() {
			stop(rt, got.err == nil, "waiter %d was admitted", got.who)
		}
		if s := l.Stats(); s.Waiting != 0 {
			rt.Fatalf("%d waiting after all were cancelled", s.Waiting)
		}
		for range 10 {
			forgetPromises(l) // they go with a key
			forgetPromises(twin)
			w := quotient.Weight(rapid.IntRange(1, mostWeight).Draw(rt, "weight"))
			_, a := l.TryAcquire("k", w)
			_, b := twin.TryAcquire("k", w)
			stop(rt, a != b, "%+v after cancels, %+v without", a, b)
			time.Sleep(drawPause(rt))
		}
	})
}

// lined is one that waits, as the reference sees it.
type lined struct {
	who    int
	class  quotient.Priority
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
func (r *reference) gives(class quotient.Priority) int {
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

func (a *arrivals) comes(class quotient.Priority) {
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
		var limited *quotient.LimitedError
		if got.who != who || !errors.As(got.err, &limited) || limited.Reason != quotient.ReasonQueue {
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
		paced := quotient.Rates(quotient.Every(100 * time.Millisecond))
		a.turns = *newTurns(mustNew(rt, paced, few, quotient.MaxWaiting(a.most, 100)))
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
func wantsNow(t *rapid.T, l *quotient.Limiter) {
	l.Allow("k")
	stop(t, l.Allow("k"), "two events at one instant")
}

// No starvation, whatever the weights and the crowd that comes: a low one is admitted within eight admissions
// for itself and for each that has waited longer.
func TestPropertyLowIsNotStarved(t *testing.T) {
	property(t, func(rt *rapid.T) {
		burst := rapid.IntRange(1, 10).Draw(rt, "burst")
		l := mustNew(rt, quotient.Rates(quotient.Rate{Events: 1, Per: 100 * time.Millisecond, Burst: burst}), few)
		if _, d := l.TryAcquire("k", quotient.Weight(burst)); !d.OK {
			rt.Fatal("not full")
		}
		q := newTurns(l)
		ask := func(class quotient.Priority) {
			w := rapid.IntRange(1, burst).Draw(rt, "weight")
			q.sent++
			go func() {
				_, err := l.Acquire(context.Background(), "k", quotient.Weight(w), class.Option())
				q.done <- served{int(class), time.Now(), quotient.Permit{}, err}
			}()
			synctest.Wait()
		}
		older := rapid.IntRange(0, 4).Draw(rt, "older")
		for range older {
			ask(max(quotient.PriorityNormal, drawClass(rt)))
		}
		before := l.Stats().Admitted
		ask(quotient.PriorityLow)
		for {
			switch rapid.IntRange(0, 3).Draw(rt, "what") {
			case 0:
				l.TryAcquire("k", quotient.Weight(rapid.IntRange(1, burst).Draw(rt, "weight")),
					quotient.PriorityCritical.Option())
			case 1:
				l.Allow("k")
			case 2:
				ask(max(quotient.PriorityNormal, drawClass(rt)))
			default:
				time.Sleep(100 * time.Millisecond)
			}
			synctest.Wait()
			admitted := int(l.Stats().Admitted - before)
			stop(rt, admitted > 8*(older+1), "%d were admitted before a low one behind %d", admitted, older)
			for len(q.done) > 0 {
				if q.sent--; (<-q.done).who == int(quotient.PriorityLow) {
					time.Sleep(time.Hour)
					q.all()
					return
				}
			}
		}
	})
}
