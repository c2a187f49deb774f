package quotient

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Under pressure the youngest of the lowest class is refused first.
func TestFullQueueGivesUpTheLowest(t *testing.T) {
	for _, c := range []struct {
		queue, come string
		out         []int // who is refused by each who comes; -1: the one who comes
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

// When all queues together are full only those of the same key give way.
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

// Who would be refused anyway pushes nobody out.
func TestNobodyGivesWayForNothing(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(1, 5)), MaxWaiting(1, 1))
		took(t, l, "k", Weight(5))
		low := asking(t, l, "k", PriorityLow.Ask())
		askingUntil(t, l, time.Second-1, "k", PriorityHigh.Ask()).refusedAfter(t, 0, ReasonDeadline)
		asking(t, l, "k", Weight(6), PriorityHigh.Ask()).refusedAfter(t, 0, ReasonTooLarge)
		low.waits(t)
		high := asking(t, l, "k", Weight(2), PriorityHigh.Ask())
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
		low := asking(t, l, "late", PriorityLow.Ask())
		high := asking(t, l, "later", PriorityHigh.Ask())
		low.refusedAfter(t, 0, ReasonKeys)
		p.Release()
		high.admittedAfter(t, 0)
	})
}

// The one with its turn may be pushed out too; the next is asked at once.
func TestPushedOutNextWakesTheNext(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(1, 100)), MaxWaiting(2, 100))
		took(t, l, "k", Weight(100))
		low := asking(t, l, "k", Weight(100), PriorityLow.Ask())
		high := asking(t, l, "k", Weight(50), PriorityHigh.Ask())
		g := gateOf(l, "k")
		g.more.queue.passed = trickle - 1
		time.Sleep(49 * time.Second)
		setLimit(t, l, rated(perSecond(1, 100))) // the low one is asked, and stays the next
		high2 := asking(t, l, "k", PriorityHigh.Ask())
		low.refusedAfter(t, 49*time.Second, ReasonQueue)
		time.Sleep(2 * time.Second)
		high.admittedAfter(t, 50*time.Second)
		high2.admittedAfter(t, 2*time.Second)
	})
}

// What the timer has left undone, and one that gives way brings to light, is done at once: more than one batch of it.
func TestManyAreServedAfterAPushOut(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		const n = 3 * wakeBatch
		l := limiterOf(t, rated(perSecond(1, 2*n)), MaxWaiting(n, n))
		took(t, l, "k", Weight(2*n))
		calls := askingFor(t, l, "k", strings.Repeat("L", n))
		g := gateOf(l, "k")
		g.more.timer.Stop() // it is late
		g.more.queue.passed = trickle - 1
		time.Sleep(2 * n * time.Second)
		askingFor(t, l, "k", "H")[0].ended()
		for i, c := range calls {
			if !c.ended() {
				t.Fatalf("%d of %d wait on", i, n)
			}
		}
	})
}
