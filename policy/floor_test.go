package policy

import (
	"math"
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

// worth is what an answer adds to the doubt.
func worth(refused bool) float64 {
	if refused {
		return 1
	}
	return -doubtPaid
}

// Successes that are only counted, since they follow closely upon each other, weigh as much as others.
func TestCountedSuccessesWeigh(t *testing.T) {
	s := Tracking{}.New(1).(*tracking)
	b := Bounds{Share: 1000, Ceiling: math.Inf(1)}
	s.Next(Sample{}, b)
	for i := range 3000 {
		now := time.Duration(i+1) * time.Millisecond
		o := Success
		if i%33 == 32 { // 3 % of noise
			o = Throttled
		}
		s.Next(Sample{Outcome: o, Now: now, Sent: now - time.Microsecond, Cost: 1, Paced: true}, b)
	}
	if s.share.doubt > 2 || s.share.hint != 1000 {
		t.Errorf("3 %% of refusals at a thousand a second leave a doubt of %v, and a hint of %v", s.share.doubt, s.share.hint)
	}
}

// Refusals at the floor are evidence against it, as far as they are more than one in twenty answers.
func TestDoubtIsEarned(t *testing.T) {
	f := floor{given: 10, hint: 10, floor: 9.9, patience: 1}
	for range 1000 {
		f.weigh(10.5, 1) // of its own probe
		f.weigh(10, -doubtPaid)
	}
	if f.doubt != 0 {
		t.Errorf("refusals above the floor leave a doubt of %v", f.doubt)
	}
	for i := range 1000 {
		if f.weigh(9.9, worth(i%21 == 0)); f.doubt > 1 {
			t.Fatalf("one refusal in 21 leaves a doubt of %v", f.doubt)
		}
	}
	for i := range 100 {
		f.weigh(9.9, worth(i%10 == 0))
	}
	if f.doubt < 3 || f.doubt > doubtMost {
		t.Errorf("one refusal in ten leaves a doubt of %v after a hundred answers", f.doubt)
	}
	f = floor{}
	if f.weigh(1, 1); f.doubt != 0 {
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

// A pause is refuted by the first success after it is announced, also where successes are else only counted.
func TestPauseIsRefutedAtAHighRate(t *testing.T) {
	s := Tracking{}.New(1).(*tracking)
	b := Bounds{Share: 1000, Ceiling: math.Inf(1)}
	s.Next(Sample{}, b)
	for i := range 400 {
		now := time.Duration(i+1) * time.Millisecond
		x := Sample{Outcome: Success, Now: now, Sent: now - time.Microsecond, Cost: 1, Paced: true}
		if i%4 == 3 {
			x.Outcome, x.RetryAfter = Throttled, time.Hour
		}
		s.Next(x, b)
	}
	if s.retry.believed > 1 {
		t.Errorf("a hundred announced hours in which requests were served leave %v s that are believed", s.retry.believed)
	}
}
