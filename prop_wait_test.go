package quotient

import (
	"context"
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

// ask starts a waiter and returns when it is admitted or stands in the queue.
func (q *turns) ask(ctx context.Context, weight int) {
	who := q.sent
	q.sent++
	go func() {
		p, err := q.l.Acquire(ctx, "k", Weight(weight))
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
		l := mustNew(rt, Rates(rate), few)
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
			if got.who != i || got.err != nil {
				rt.Fatalf("turn %d went to %d, %v", i, got.who, got.err)
			}
			at := last // the reference: a bucket served in order
			if asked[i].After(at) {
				at = asked[i]
			}
			tokens = min(float64(rate.Burst), tokens+at.Sub(last).Seconds()*rate.perSecond())
			if need := float64(weights[i]) - tokens; need > 1e-9 {
				d := time.Duration(need / rate.perSecond() * float64(time.Second))
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
		before := Rate{Name: "r", Events: float64(rapid.IntRange(1, 50).Draw(rt, "before")),
			Per: time.Second, Burst: 1}
		after := Rate{Name: "r", Events: float64(rapid.IntRange(1, 100000).Draw(rt, "after")),
			Per: time.Second, Burst: 1}
		n := rapid.IntRange(1, 30).Draw(rt, "waiters")
		l := mustNew(rt, Rates(before), few)
		q := newTurns(l)
		began := time.Now()
		for range n {
			q.ask(context.Background(), 1)
		}
		time.Sleep(time.Duration(rapid.IntRange(0, 900).Draw(rt, "ms")) * time.Millisecond)
		changed := time.Now()
		must(rt, l.SetLimit(Rates(after)))
		was, is := before.perSecond(), after.perSecond()
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
		limit := Limit{Rates: []Rate{drawRate(rt, "r")}, InFlight: rapid.IntRange(0, 3).Draw(rt, "in flight")}
		l, twin := mustNew(rt, limit, few), mustNew(rt, limit, few)
		mostWeight := int(limit.Rates[0].burst())
		if limit.InFlight > 0 {
			mostWeight = min(mostWeight, limit.InFlight)
		}
		for range rapid.IntRange(0, 5).Draw(rt, "before") {
			w := Weight(rapid.IntRange(1, mostWeight).Draw(rt, "weight"))
			_, a := l.TryAcquire("k", w)
			_, b := twin.TryAcquire("k", w)
			if a != b {
				rt.Fatalf("%+v and %+v before anything was cancelled", a, b)
			}
		}
		// While the head cannot be admitted no waiter behind it can: all of these are cancelled.
		if _, d := twin.TryAcquire("k", Weight(mostWeight)); d.OK {
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
			if got.err == nil {
				rt.Fatalf("waiter %d was admitted", got.who)
			}
		}
		if s := l.Stats(); s.Waiting != 0 {
			rt.Fatalf("%d waiting after all were cancelled", s.Waiting)
		}
		for range 10 {
			w := Weight(rapid.IntRange(1, mostWeight).Draw(rt, "weight"))
			_, a := l.TryAcquire("k", w)
			_, b := twin.TryAcquire("k", w)
			if a != b {
				rt.Fatalf("%+v after cancels, %+v without", a, b)
			}
			time.Sleep(drawPause(rt))
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
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			cancels = append(cancels, cancel)
			q.ask(ctx, rapid.IntRange(1, slots).Draw(rt, "weight"))
		}
		order := rapid.Permutation(slices.Collect(intsTo(len(cancels)))).Draw(rt, "order")
		go func() {
			for _, i := range order {
				cancels[i]()
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

func intsTo(n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}
