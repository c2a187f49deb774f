package kube

import (
	"testing"
	"time"
)

// A change counts at once, and what does not change is reported every Refresh.
func TestFollowsTheSlices(t *testing.T) {
	bubble(t, func(t *testing.T, a *api, _ *pipes, s *Source) {
		a.set(3)
		r := follow(t, s)
		if got := r.sizes(); got != "3" {
			t.Fatalf("at the start: %q, want 3", got)
		}
		a.set(5)
		if got := r.sizes(); got != "3 5" { // two slices, one after the other
			t.Errorf("after it has grown: %q, want 3 5", got)
		}
		a.set(2)
		if got := r.sizes(); got != "4 2" {
			t.Errorf("after it has shrunk: %q, want 4 2", got)
		}
		time.Sleep(2*defaultRefresh + time.Second)
		if got := r.sizes(); got != "2 2" {
			t.Errorf("after two Refreshes: %q, want 2 2", got)
		}
	})
}
