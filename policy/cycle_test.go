package policy

import (
	"testing"
	"time"
)

// A cycle is kept for three of its lengths. A pause of more than three minutes, or after more refusals than
// the end of a window of a minute explains, is not a cycle.
func TestCycleIsKept(t *testing.T) {
	for _, c := range []struct {
		took, dark time.Duration
		want       float64
	}{
		{20 * time.Second, 5 * time.Second, 20},
		{100 * time.Millisecond, 0, 0.5}, // no window is shorter
		{180 * time.Second, 75 * time.Second, 180},
		{181 * time.Second, time.Second, 0},
		{100 * time.Second, 76 * time.Second, 0},
	} {
		s := at(10, 0, false)
		b := &s.blackout
		b.began, b.firstBad, b.proven, b.served = time.Hour, time.Hour+c.took-c.dark, farAway, 1
		b.took = max(c.took.Seconds(), probeFirst)
		end := time.Hour + c.took
		b.end(s, &Sample{Now: end})
		if got := b.cycleAt(end); got != c.want {
			t.Errorf("%v, of these %v dark: a cycle of %v s, want %v", c.took, c.dark, got, c.want)
		}
		until := end + time.Duration(3*c.want*float64(time.Second))
		if b.cycleAt(until) != 0 || c.want > 0 && b.cycleAt(until-1) != c.want {
			t.Errorf("%v, of these %v dark: the cycle is not kept for three", c.took, c.dark)
		}
	}
}

// A single cycle proves nothing: only a second one that is alike shows a window.
func TestCycleIsSeenTwice(t *testing.T) {
	for _, c := range []struct{ before, want float64 }{{0, 0}, {9, 0}, {11, 20}, {39, 20}, {41, 0}} {
		s := at(10, 0, false)
		b := &s.blackout
		b.began, b.firstBad, b.proven, b.served, b.took = time.Hour, time.Hour+15*time.Second, farAway,
			1, c.before
		end := time.Hour + 20*time.Second
		b.end(s, &Sample{Now: end})
		if got := b.cycleAt(end); got != c.want {
			t.Errorf("20 s after one of %v s: a cycle of %v s, want %v", c.before, got, c.want)
		}
	}
}

// No more than a window's part of an incident counts: 100 that were served in 25 seconds before it are one a
// second.
func TestIncidentCountsAsAWindow(t *testing.T) {
	s := at(10, 0, false)
	b := &s.blackout
	b.began, b.firstBad, b.proven, b.served = time.Hour, time.Hour+25*time.Second, farAway, 100
	b.held = 25
	b.end(s, &Sample{Now: 2 * time.Hour})
	if !about(s.rate, 1) {
		t.Errorf("the rate after an incident of an hour is %v, want 1", s.rate)
	}
}
