package policy

import (
	"testing"
	"time"
)

// A floor without doubt holds, and leaves what is below it already where it is. One in doubt yields to the cut, and
// below seven tenths of the share nothing of it is left.
func TestFloorHolds(t *testing.T) {
	for _, c := range []struct {
		from, to, doubt, want, floor, hint float64
	}{
		{12, 11, 0, 11, 10, 10}, {12, 9, 0, 10, 10, 10}, {10, 9, 0, 10, 10, 10}, {8, 7, 0, 8, 10, 10}, {12, 9, 3.95, 10, 10, 10},
		{12, 11, 4, 11, 10, 10}, {12, 9, 4, 9, 9, 10}, {8, 7.1, 4, 7.1, 7.1, 10}, {8, 6.9, 4, 6.9, 0, 0},
	} {
		f := floor{given: 10, hint: 10, floor: 10, doubt: c.doubt}
		if got := f.hold(c.from, c.to); got != c.want || f.floor != c.floor || f.hint != c.hint {
			t.Errorf("%+v: got %v, and %+v", c, got, f)
		}
	}
}

// Refusals at the floor are evidence against it, as far as they are more than one in twenty answers.
func TestDoubtIsEarned(t *testing.T) {
	f := floor{given: 10, hint: 10, floor: 9.9, patience: 1}
	for range 1000 {
		f.answered(10.5, true) // of its own probe
		f.answered(10, false)
	}
	if f.doubt != 0 {
		t.Errorf("refusals above the floor leave a doubt of %v", f.doubt)
	}
	for i := range 1000 {
		if f.answered(9.9, i%21 == 0); f.doubt > 1 {
			t.Fatalf("one refusal in 21 leaves a doubt of %v", f.doubt)
		}
	}
	for i := range 100 {
		f.answered(9.9, i%10 == 0)
	}
	if f.doubt < 3 || f.doubt > doubtMost {
		t.Errorf("one refusal in ten leaves a doubt of %v after a hundred answers", f.doubt)
	}
	f = floor{}
	if f.answered(1, true); f.doubt != 0 {
		t.Errorf("without a floor there is a doubt of %v", f.doubt)
	}
}

// Each failed probe of the share makes the law half as patient again, up to eight times.
func TestPatience(t *testing.T) {
	s := at(10, 10, false)
	for i, want := range []float64{1.5, 2.25, 3.375, 5.0625, 7.59375, 8, 8} {
		if s.share.probed(s); s.share.patience != want {
			t.Errorf("after %d failed probes: %v, want %v", i+1, s.share.patience, want)
		}
	}
	for _, rate := range []float64{9.4, 20, 1e9} {
		s.rate, s.share.patience = rate, 1
		if s.share.probed(s); s.share.patience != 1 {
			t.Errorf("a refusal at %v is no failed probe of a share of 10", rate)
		}
	}
}

// At twice the share others leave so much that it means nothing.
func TestShareIsLeftBehind(t *testing.T) {
	f := floor{given: 10, hint: 10, floor: 9.9, patience: 8}
	if f.risen(19.9); f.hint != 10 {
		t.Errorf("at 1.99 shares: %+v", f)
	}
	if f.risen(20); f.hint != 0 || f.floor != 0 || f.patience != 1 || f.given != 10 {
		t.Errorf("at twice the share: %+v", f)
	}
}

// A source is believed until it flaps, or was wrong twice; and again after five minutes of rest.
func TestSourceIsBelieved(t *testing.T) {
	s := at(10, 0, false)
	s.share = floor{since: -farAway}
	now := time.Duration(0)
	give := func(after time.Duration, share, want float64) {
		t.Helper()
		now += after
		s.now = now
		if s.hint(share); s.share.hint != want || s.share.floor != floorOfShare*want || s.share.patience != 1 {
			t.Errorf("at %v, given %v: %+v, want %v", now, share, s.share, want)
		}
	}
	give(0, 10, 10)
	give(15*time.Second, 20, 20)
	s.share.refute()
	give(20*time.Second, 10, 10)
	s.share.refute()
	give(20*time.Second, 20, 0)
	give(5*time.Minute, 10, 10)
	give(14*time.Second, 20, 0)
	give(time.Minute, 10, 0)
	give(5*time.Minute, 20, 20)
	give(time.Minute, 0, 0)
}
