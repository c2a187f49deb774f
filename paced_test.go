package quotient

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestPacedRows holds the rows of the throttle that gives out one permit every three seconds and reserves
// at most so many ahead. Each row says when the last permit is due, and what a caller gets.
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

// permitsUntil takes a permit now and one every three seconds, reserved ahead as far as needed, up to the
// one that is due after last seconds; it returns after now seconds.
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

func TestPacedRatesSaveNothingUp(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Every(time.Second)))
		for range 5 {
			time.Sleep(time.Hour)
			wants(t, l, "k", 1)
		}
	})
}
