package quotient

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A waiter that was given up counts in nobody's estimate.
func TestCancelledWaiterIsNotCounted(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Every(time.Second)))
		wants(t, l, "k", 1)
		stays, goes := asking(t, l, "k"), asking(t, l, "k")
		goes.cancel()
		synctest.Wait()
		if d := refusedFor(t, l, ReasonRate, "k"); d.RetryAfter != 2*time.Second {
			t.Errorf("retry after %v behind one waiter, want 2s", d.RetryAfter)
		}
		stays.cancel()
	})
}

// The end of a queue leaves nothing behind: no timer, no entry in the shard's list, nothing behind the gate.
func TestQueueLeavesNothingBehind(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Every(time.Hour)))
		wants(t, l, "k", 1)
		c := asking(t, l, "k")
		g, s := gateOf(l, "k"), l.shard("k")
		timer := g.more.timer
		c.cancel()
		synctest.Wait()
		if g.more != nil || len(s.waiting) != 0 {
			t.Errorf("left: %+v, %d gates with waiters", g.more, len(s.waiting))
		}
		if timer == nil || timer.Stop() {
			t.Error("the timer goes on")
		}
	})
}

// Time that is measured must not follow the wall clock's steps.
func TestClockIsMonotonic(t *testing.T) {
	for _, r := range []Rate{PerSecond(1), {Events: 1, Per: time.Minute, Aligned: true}} {
		l := limiterOf(t, rated(r))
		if now := l.now().String(); !strings.Contains(now, " m=") {
			t.Errorf("%+v: %s has no monotonic reading", r, now)
		}
	}
}
