package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/quotient-go/quotient"
)

var crowds = []int{1_000, 10_000, 100_000}

// patience bounds every wait of the crowd figures; only a bug reaches it.
const patience = time.Minute

// waitersFigure queues a crowd of goroutines on one key and measures what each costs to queue, to cancel
// and to wake, as the crowd grows. Goroutines that block on a bare channel stand beside it: their start
// and their stack are the caller's, not the limiter's.
func waitersFigure(c config) ([]table, error) {
	t := table{
		title: "Waiters on one key",
		note: "Nanoseconds a waiter, the work of its goroutine included; heap bytes a waiter beside those of a goroutine " +
			"that blocks in a select on a shared channel and a context.",
		header: []string{"waiters", "queue", "cancel", "wake", "bare goroutine: block", "bare: wake", "heap bytes", "stack bytes"},
	}
	var all []crowdCost
	for _, n := range crowds {
		cost, err := crowdCosts(max(100, n/c.scale), c.rounds)
		if err != nil {
			return nil, fmt.Errorf("%d waiters: %w", n, err)
		}
		all = append(all, cost)
		t.rows = append(t.rows, cost.row())
	}
	timers, err := countTimers(max(100, crowds[len(crowds)-1]/c.scale))
	if err != nil {
		return nil, err
	}
	t.verdicts = crowdVerdicts(all, timers)
	return []table{t}, nil
}

// crowdVerdicts judges how the cost of a waiter grows with the queue. The cost is a multiple of what a bare
// goroutine costs in a crowd of the same size: that one grows too, when the crowd no longer fits the caches.
// Each step may grow 2.5 fold when the queue is a hundred times as long. That is more than a logarithm does
// (5/3) and far less than a linear search (100).
func crowdVerdicts(all []crowdCost, timers int) []verdict {
	small, big := all[0], all[len(all)-1]
	growth := func(step string, pick func(crowdCost) float64) verdict {
		goal := fmt.Sprintf("%s against a bare goroutine, growth from %d to %d waiters", step, small.n, big.n)
		return verdict{goal, pick(big) / pick(small), 2.5, "x"}
	}
	return []verdict{
		growth("queue", func(c crowdCost) float64 { return c.queue / c.bare }),
		growth("cancel", func(c crowdCost) float64 { return c.cancel / c.bareWake }),
		growth("wake", func(c crowdCost) float64 { return c.wake / c.bareWake }),
		{"heap a waiter beside its goroutine", big.bytes, 400, " bytes"},
		{fmt.Sprintf("timers for %d waiters on a rate", big.n), float64(timers), 1, ""},
	}
}

// crowdCost is nanoseconds and bytes a waiter, medians over the rounds.
type crowdCost struct {
	n                                   int
	queue, cancel, wake, bare, bareWake float64
	bytes, stack                        float64
}

func (c crowdCost) row() []string {
	cells := []string{fmt.Sprint(c.n)}
	for _, v := range []float64{c.queue, c.cancel, c.wake, c.bare, c.bareWake, c.bytes, c.stack} {
		cells = append(cells, fmt.Sprintf("%.0f", v))
	}
	return cells
}

// crowdCosts runs the rounds for one size. The first round only makes the goroutines that later rounds reuse.
func crowdCosts(n, rounds int) (crowdCost, error) {
	var queue, cancel, wake, bare, bareWake, bytes, stack []float64
	for i := range rounds + 1 {
		b, err := bareCrowd(n)
		if err != nil {
			return crowdCost{}, err
		}
		woken, err := quotientCrowd(n, wakeByRaise)
		if err != nil {
			return crowdCost{}, err
		}
		cancelled, err := quotientCrowd(n, wakeByCancel)
		if err != nil {
			return crowdCost{}, err
		}
		if i == 0 {
			continue
		}
		queue, cancel, wake = append(queue, woken.queue), append(cancel, cancelled.leave), append(wake, woken.leave)
		bare, bareWake = append(bare, b.queue), append(bareWake, b.leave)
		bytes, stack = append(bytes, woken.heap-b.heap), append(stack, woken.stack-b.stack)
	}
	return crowdCost{n: n, queue: middle(queue), cancel: middle(cancel), wake: middle(wake), bare: middle(bare),
		bareWake: middle(bareWake), bytes: middle(bytes), stack: middle(stack)}, nil
}

// crowd is what one crowd cost, each divided by its size.
type crowd struct{ queue, leave, heap, stack float64 }

// runCrowd starts n goroutines in wait, until parked reports that all block. Then it calls free and waits
// until all have left.
func runCrowd(n int, wait func(), parked func() int, free func()) (crowd, error) {
	heap0, stack0 := inUse()
	var wg sync.WaitGroup
	start := time.Now()
	for range n {
		wg.Go(wait)
	}
	if err := until(n, func() bool { return parked() == n }); err != nil {
		return crowd{}, fmt.Errorf("%d of %d queued: %w", parked(), n, err)
	}
	queued := time.Since(start)
	heap1, stack1 := inUse()
	start = time.Now()
	free()
	wg.Wait()
	left := time.Since(start)
	each := func(v float64) float64 { return v / float64(n) }
	return crowd{each(float64(queued)), each(float64(left)), each(heap1 - heap0), each(stack1 - stack0)}, nil
}

// until polls, since no limiter reports when its queue has reached a length of n. The longer the queue, the
// less often it polls, so that the polls do not add to the measured time.
func until(n int, done func() bool) error {
	pause := 20*time.Microsecond + time.Duration(10*n)
	for deadline := time.Now().Add(patience); !done(); time.Sleep(pause) {
		if time.Now().After(deadline) {
			return errors.New("gave up")
		}
	}
	return nil
}

func inUse() (heapBytes, stackBytes float64) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc), float64(m.StackInuse)
}

// bareCrowd blocks on a channel that all share.
func bareCrowd(n int) (crowd, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	gate := make(chan struct{})
	var mu sync.Mutex
	waiting := 0
	wait := func() {
		mu.Lock()
		waiting++
		mu.Unlock()
		select {
		case <-gate:
		case <-ctx.Done():
		}
	}
	return runCrowd(n, wait, func() int { mu.Lock(); defer mu.Unlock(); return waiting }, func() { close(gate) })
}

// ending is how a crowd of waiters is let go.
type ending int

const (
	wakeByRaise  ending = iota // the limit is raised, all are admitted
	wakeByCancel               // their context ends
)

// quotientCrowd queues n callers behind a slot that is taken and lets them go.
func quotientCrowd(n int, how ending) (crowd, error) {
	l, err := quotient.New(quotient.Limit{InFlight: 1}, quotient.MaxWaiting(n, n))
	if err != nil {
		return crowd{}, err
	}
	key := makeKey("tenant-", 0)
	first, d := l.TryAcquire(key)
	if !d.OK {
		return crowd{}, &quotient.LimitedError{Key: key, Decision: d}
	}
	defer first.Release()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	free := cancel
	if how == wakeByRaise {
		free = func() { err = l.SetLimit(quotient.Limit{InFlight: n + 1}) }
	}
	wait := func() { _, _ = l.Acquire(ctx, key) }
	c, runErr := runCrowd(n, wait, func() int { return l.Stats().Waiting }, free)
	if err := errors.Join(err, runErr); err != nil {
		return crowd{}, err
	}
	return c, checkEnding(l.Stats(), n, how)
}

// checkEnding fails unless all waiters left the way they were meant to.
func checkEnding(s quotient.Stats, n int, how ending) error {
	inFlight, cancelled := 1, n
	if how == wakeByRaise {
		inFlight, cancelled = n+1, 0
	}
	if s.Waiting != 0 || s.InFlight != inFlight || s.Cancelled != uint64(cancelled) {
		return fmt.Errorf("after the end: %d waiting, %d in flight (want %d), %d cancelled (want %d)",
			s.Waiting, s.InFlight, inFlight, s.Cancelled, cancelled)
	}
	return nil
}

// countTimers queues n callers behind an empty bucket and counts the timers that are made meanwhile: heap
// objects from time.NewTimer, time.AfterFunc or time.NewTicker, in an exact memory profile.
func countTimers(n int) (int, error) {
	defer func(rate int) { runtime.MemProfileRate = rate }(runtime.MemProfileRate)
	runtime.MemProfileRate = 1
	before := timersMade()
	l, err := quotient.New(quotient.Rates(quotient.Every(time.Hour)), quotient.MaxWaiting(n, n))
	if err != nil {
		return 0, err
	}
	key := makeKey("tenant-", 0)
	if !l.Allow(key) {
		return 0, errors.New("the first event was refused")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	made := 0
	_, err = runCrowd(n, func() { _, _ = l.Acquire(ctx, key) }, func() int { return l.Stats().Waiting }, func() {
		made = timersMade() - before
		cancel()
	})
	if err == nil && made < 1 {
		err = errors.New("no timer seen: the profile is blind")
	}
	return made, err
}

func timersMade() int {
	runtime.GC()
	runtime.GC() // a profile shows the state before the last collection but one
	records := make([]runtime.MemProfileRecord, 1<<16)
	n, _ := runtime.MemProfile(records, true)
	made := 0
	for _, r := range records[:min(n, len(records))] {
		if madeByTimer(r.Stack()) {
			made += int(r.AllocObjects) // not those in use: a timer of before may be garbage by now
		}
	}
	return made
}

// madeByTimer reports whether an object was allocated by a constructor of package time on behalf of the
// limiter. The harness and the test's own time-out have timers too, and the runtime's heap of timers, which
// grows in the constructor's name, is no timer.
func madeByTimer(stack []uintptr) bool {
	timer := false
	frames := runtime.CallersFrames(stack)
	for {
		f, more := frames.Next()
		if strings.HasPrefix(f.Function, "runtime.(*timers)") {
			return false
		}
		if strings.HasPrefix(f.Function, "time.NewTimer") || strings.HasPrefix(f.Function, "time.AfterFunc") ||
			strings.HasPrefix(f.Function, "time.NewTicker") || strings.HasPrefix(f.Function, "time.newTimer") {
			timer = true
		}
		if timer && strings.HasPrefix(f.Function, "github.com/quotient-go/quotient.") {
			return true
		}
		if !more {
			return false
		}
	}
}
