package quotient

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestMaxWaiting(t *testing.T) {
	for _, c := range []struct {
		perKey, total int
		keys          []string
		queued        int // the others are refused
	}{
		{2, 100, []string{"a", "a", "a", "b", "b", "b"}, 4},
		{100, 3, []string{"a", "a", "b", "c", "c"}, 3},
		{0, 100, []string{"a", "b"}, 0},
		{100, 0, []string{"a", "b"}, 0},
		{0, 0, []string{"a"}, 0},
	} {
		row(t, c, func(t *testing.T) {
			l := limiterOf(t, rated(Every(time.Minute)), MaxWaiting(c.perKey, c.total))
			for _, key := range []string{"a", "b", "c"} {
				wants(t, l, key, 1)
			}
			refused := 0
			for _, key := range c.keys {
				if call := asking(t, l, key); call.ended() {
					call.refusedAfter(t, 0, ReasonQueue)
					refused++
				}
			}
			if st := l.Stats(); st.Waiting != c.queued || refused != len(c.keys)-c.queued {
				t.Errorf("%d wait and %d were refused, want %d to wait", st.Waiting, refused, c.queued)
			}
			time.Sleep(time.Hour)
			if got := l.Stats().Waiting; got != 0 {
				t.Errorf("%d wait in the end", got)
			}
		})
	}
}

// Under pressure the youngest of the lowest class is refused first.
func TestFullQueueGivesUpTheLowest(t *testing.T) {
	for _, c := range []struct {
		queue, come string
		out         []int // the caller that each newcomer has refused; -1: itself
	}{
		{"LLN", "H", []int{1}},
		{"LLN", "HHHH", []int{1, 0, 2, -1}},
		{"LLN", "NNL", []int{1, 0, -1}},
		{"LLN", "L", []int{-1}},
		{"NNN", "NC", []int{-1, 2}},
		{"CHN", "CHC", []int{2, -1, 1}},
		{"HHL", "NNH", []int{2, -1, 3}},
	} {
		row(t, fmt.Sprint(c.queue, c.come), func(t *testing.T) {
			l := limiterOf(t, rated(Every(time.Minute)), MaxWaiting(3, 100))
			wants(t, l, "k", 1)
			calls := askingFor(t, l, "k", c.queue)
			for i, letter := range c.come {
				calls = append(calls, askingFor(t, l, "k", string(letter))...)
				out := c.out[i]
				if out < 0 {
					out = len(calls) - 1
				}
				if !calls[out].ended() {
					t.Fatalf("%d waits on after %q, %d", out, letter, i)
				}
				calls[out].refusedAfter(t, 0, ReasonQueue)
				if st := l.Stats(); st.Waiting != 3 || st.Refused[ReasonQueue] != uint64(i+1) {
					t.Errorf("%d wait, %v", st.Waiting, st.Refused)
				}
			}
			time.Sleep(time.Hour)
			if st := l.Stats(); st.Waiting != 0 || st.Admitted != 4 {
				t.Errorf("in the end %d wait and %d were admitted", st.Waiting, st.Admitted)
			}
		})
	}
}

// When all queues together are full, only those of the same key are displaced.
func TestFullInTotalGivesUpItsOwn(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Every(time.Second)), MaxWaiting(100, 3))
		wants(t, l, "a", 1)
		wants(t, l, "b", 1)
		a, b := askingFor(t, l, "a", "L"), askingFor(t, l, "b", "LL")
		askingFor(t, l, "a", "H")
		a[0].refusedAfter(t, 0, ReasonQueue)
		askingFor(t, l, "a", "H")[0].refusedAfter(t, 0, ReasonQueue)
		if st := l.Stats(); st.Waiting != 3 {
			t.Errorf("%d wait", st.Waiting)
		}
		time.Sleep(time.Hour)
		b[0].admittedAfter(t, time.Second)
		b[1].admittedAfter(t, 2*time.Second)
	})
}

// A caller that would be refused anyway pushes no waiter out.
func TestNoWaiterIsDisplacedForNothing(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(1, 5)), MaxWaiting(1, 1))
		took(t, l, "k", Weight(5))
		low := asking(t, l, "k", PriorityLow.Option())
		askingUntil(t, l, time.Second-1, "k", PriorityHigh.Option()).refusedAfter(t, 0, ReasonDeadline)
		asking(t, l, "k", Weight(6), PriorityHigh.Option()).refusedAfter(t, 0, ReasonTooLarge)
		low.waits(t)
		high := asking(t, l, "k", Weight(2), PriorityHigh.Option())
		if e := low.refusedAfter(t, 0, ReasonQueue); e.RetryAfter != 3*time.Second {
			t.Errorf("it may come back after %v, want 3s: behind the one in its place", e.RetryAfter)
		}
		time.Sleep(2 * time.Second)
		high.admittedAfter(t, 2*time.Second)
	})
}

// The gate that keys without room share refuses for want of keys.
func TestFullOverflowGateGivesUpTheLowest(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 1}, MaxKeys(1), MaxWaiting(1, 100))
		took(t, l, "busy")
		p := took(t, l, "late")
		low := asking(t, l, "late", PriorityLow.Option())
		high := asking(t, l, "later", PriorityHigh.Option())
		low.refusedAfter(t, 0, ReasonKeys)
		p.Release()
		high.admittedAfter(t, 0)
	})
}

// The one with its turn may be pushed out too; the next is tried at once.
func TestPushedOutNextWakesTheNext(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(1, 100)), MaxWaiting(2, 100))
		took(t, l, "k", Weight(100))
		low := asking(t, l, "k", Weight(100), PriorityLow.Option())
		high := asking(t, l, "k", Weight(50), PriorityHigh.Option())
		g := gateOf(l, "k")
		g.ext.queue.passed = trickle - 1
		time.Sleep(49 * time.Second)
		setLimit(t, l, rated(perSecond(1, 100))) // the low one is tried, and stays the next
		high2 := asking(t, l, "k", PriorityHigh.Option())
		low.refusedAfter(t, 49*time.Second, ReasonQueue)
		time.Sleep(2 * time.Second)
		high.admittedAfter(t, 50*time.Second)
		high2.admittedAfter(t, 2*time.Second)
	})
}

// Work that the timer has left undone, and that a displaced waiter brings to light, is done at once: more
// than one batch of it.
func TestManyAreServedAfterAPushOut(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		const n = 3 * wakeBatch
		l := limiterOf(t, rated(perSecond(1, 2*n)), MaxWaiting(n, n))
		took(t, l, "k", Weight(2*n))
		calls := askingFor(t, l, "k", strings.Repeat("L", n))
		g := gateOf(l, "k")
		g.ext.timer.Stop() // it is late
		g.ext.queue.passed = trickle - 1
		time.Sleep(2 * n * time.Second)
		askingFor(t, l, "k", "H")[0].ended()
		for i, c := range calls {
			if !c.ended() {
				t.Fatalf("%d of %d wait on", i, n)
			}
		}
	})
}

// TestPacedRows holds the rows of the throttle that gives out one permit every three seconds and reserves at
// most so many ahead. Each row has the time at which the last permit is due, and what a caller gets.
func TestPacedRows(t *testing.T) {
	const none = -1
	for _, c := range []struct {
		bound     int
		now, last time.Duration // seconds; the last permit may be due after now
		wait      time.Duration
	}{
		{bound: 0, now: 2, last: 1, wait: none},
		{bound: 0, now: 4, last: 1, wait: 0},
		{bound: 1, now: 2, last: 1, wait: 2}, // valid at 4
		{bound: 2, now: 2, last: 8, wait: none},
		{bound: 2, now: 2, last: 5, wait: 6},
		{bound: 3, now: 2, last: 8, wait: 9},
		{bound: 2, now: 9, last: 8, wait: 2},
		{bound: 2, now: 11, last: 8, wait: 0},
	} {
		row(t, c, func(t *testing.T) {
			l := limiterOf(t, rated(Every(3*time.Second)), MaxWaiting(c.bound, c.bound))
			// Permits are three seconds apart, the last one due at c.last.
			first := c.last % 3
			ahead := max(0, c.last-c.now+2) / 3
			if c.last > 3 {
				time.Sleep(first * time.Second)
				permitsUntil(t, l, c.last-first, c.now-first)
			} else {
				time.Sleep(c.last * time.Second)
				took(t, l, "k")
				time.Sleep((c.now - c.last) * time.Second)
			}
			if got := l.Stats().Waiting; got != int(ahead) {
				t.Fatalf("%+v: %d permits are reserved, want %d", c, got, ahead)
			}
			got := asking(t, l, "k")
			if c.wait == none {
				got.refusedAfter(t, 0, ReasonQueue)
				return
			}
			time.Sleep(c.wait * time.Second)
			got.admittedAfter(t, c.wait*time.Second)
		})
	}
}

// permitsUntil takes a permit now and one every three seconds, reserved ahead as far as needed, up to the one
// that is due after last seconds. It returns after now seconds.
func permitsUntil(t *testing.T, l *Limiter, last, now time.Duration) {
	t.Helper()
	took(t, l, "k")
	for due := time.Duration(3); due <= last; due += 3 {
		if ahead := due - now; ahead <= 0 {
			time.Sleep(3 * time.Second)
			took(t, l, "k")
			now -= 3
			last -= 3
			due -= 3
			continue
		}
		go l.Acquire(t.Context(), "k") //nolint:errcheck // whether it waits is what Stats says
		synctest.Wait()
	}
	time.Sleep(now * time.Second)
}

func TestNoMoreThanTheBoundIsOutstanding(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		const bound = 3
		l := limiterOf(t, rated(Every(3*time.Second)), MaxWaiting(bound, bound))
		var calls []*call
		for range 10 {
			calls = append(calls, asking(t, l, "k"))
			if got := l.Stats().Waiting; got > bound {
				t.Errorf("%d wait, at most %d may", got, bound)
			}
		}
		for _, c := range calls[1+bound:] {
			if err := c.refusedAfter(t, 0, ReasonQueue); err.RetryAfter != 12*time.Second {
				t.Errorf("retry after %v, want the turn behind those who wait, 12s", err.RetryAfter)
			}
		}
		for i, c := range calls[:1+bound] {
			c.admittedAfter(t, time.Duration(3*i)*time.Second)
			time.Sleep(3 * time.Second)
		}
	})
}

// The timeline of the throttle's description: the third attempt comes five seconds after the second.
func TestPacedTimeline(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Every(6*time.Second)), MaxWaiting(0, 0))
		for _, c := range []struct {
			after time.Duration
			ok    bool
		}{{0, true}, {6, true}, {5, false}, {1, true}} {
			time.Sleep(c.after * time.Second)
			if got := l.Allow("k"); got != c.ok {
				t.Errorf("after %d s more: %v, want %v", c.after, got, c.ok)
			}
		}
	})
}

// A waiter that gave up its place gets the rule that held it back then, also when the rules have changed by
// the time that it wakes.
func TestRefusalNamesTheRuleOfItsTime(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		slow := func(string, time.Duration) { time.Sleep(time.Second) }
		a, b := Rate{Name: "a", Events: 100, Per: time.Second}, Rate{Name: "b", Events: 7, Per: time.Second}
		l := limiterOf(t, Limit{Rates: []Rate{a}, InFlight: 1}, MaxWaiting(1, 9), OnWait(slow))
		p := took(t, l, "k")
		low := asking(t, l, "k", PriorityLow.Option())
		high := asking(t, l, "k")
		c := b
		c.Name = "c"
		setLimit(t, l, Limit{Rates: []Rate{a, b, c}, InFlight: 1})
		time.Sleep(time.Second)
		if err := low.refusedAfter(t, time.Second, ReasonQueue); err.Rule != inFlightRule || err.Limit != 1 {
			t.Errorf("refused by %+v, want in-flight", err)
		}
		p.Release()
		high.admittedAfter(t, time.Second)
	})
}
