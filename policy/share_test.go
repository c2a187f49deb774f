package policy

import (
	"math"
	"testing"
	"time"
)

// A floor without doubt holds, and leaves what is below it already where it is. A cut below one in doubt
// refutes the share as too high.
func TestFloorHolds(t *testing.T) {
	const low = 10 * floorOfShare
	for _, c := range []struct {
		from, to, doubt, want, hint, tooHigh float64
	}{
		{12, 11, 0, 11, 10, 0}, {12, 9, 0, low, 10, 0}, {low, 9, 0, low, 10, 0}, {8, 7, 0, 8, 10, 0},
		{12, 9, 3.95, low, 10, 0}, {12, 11, 4, 11, 10, 0}, {12, 9.8, 4, 9.8, 0, 10}, {8, 7, 4, 7, 0, 10},
	} {
		f := share{given: 10, hint: 10, doubt: c.doubt}
		if got := f.hold(c.from, c.to); got != c.want || f.hint != c.hint || f.tooHigh != c.tooHigh {
			t.Errorf("%+v: got %v, and %+v", c, got, f)
		}
	}
}

// A share that was too high keeps a slow client slow, and makes none faster.
func TestShareThatIsTooHighShowsSlowness(t *testing.T) {
	s := at(.1, .1, false)
	want := s.slowAt(.1)
	s.share.doubt = doubtMost
	s.share.hold(.1, .09)
	if got := s.slowness(); got != want || want < 9 {
		t.Errorf("refuted as too high: a slowness of %v, want %v", got, want)
	}
	if s.share.tooHigh = 1000; s.slowness() != 1 {
		t.Errorf("a share of a thousand that was too high: a slowness of %v", s.slowness())
	}
	if s.share.risen(999); s.share.tooHigh != 1000 {
		t.Errorf("at 999 a share of a thousand is not too high any more: %+v", s.share)
	}
	if s.share.risen(1000); s.share.tooHigh != 0 {
		t.Errorf("at a thousand a share of a thousand is too high: %+v", s.share)
	}
	s.share.tooHigh = 1000
	if s.hint(.2); s.share.tooHigh != 0 {
		t.Error("the next share is as high as the last one was")
	}
	s = at(.1, .1, false)
	if s.share.risen(.2); s.slowness() != 1 {
		t.Errorf("a share that was too low: a slowness of %v", s.slowness())
	}
}

// worth is what an answer adds to the doubt.
func worth(refused bool) float64 {
	if refused {
		return 1
	}
	return -doubtPaid
}

// answered is a controller at a share of a thousand after n answers, one in a millisecond: successes, but
// for what change does.
func answered(n int, change func(i int, x *Sample)) *tracking {
	s := Tracking{}.New(1).(*tracking)
	b := Bounds{Share: 1000, Ceiling: math.Inf(1)}
	s.Next(Sample{}, b)
	for i := range n {
		now := time.Duration(i+1) * time.Millisecond
		x := Sample{Outcome: Success, Now: now, Sent: now - time.Microsecond, Cost: 1, Paced: true}
		change(i, &x)
		s.Next(x, b)
	}
	return s
}

// Successes that are only counted, since they follow closely upon each other, weigh as much as others.
func TestCountedSuccessesWeigh(t *testing.T) {
	s := answered(3000, func(i int, x *Sample) {
		if i%33 == 32 { // 3 % of noise
			x.Outcome = Throttled
		}
	})
	if s.share.doubt > 2 || s.share.hint != 1000 {
		t.Errorf("3 %% of refusals at a thousand a second leave a doubt of %v, and a hint of %v",
			s.share.doubt, s.share.hint)
	}
}

// Refusals at the floor are evidence against it, as far as they are more than one in twenty answers.
func TestDoubtIsEarned(t *testing.T) {
	f := share{given: 10, hint: 10, patience: 1}
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
	f = share{}
	if f.weigh(1, 1); f.doubt != 0 {
		t.Errorf("without a floor there is a doubt of %v", f.doubt)
	}
}

// Each failed probe of the share makes the controller half as patient again, up to eight times.
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
	f := share{given: 10, hint: 10, patience: 8}
	if f.risen(19.9); f.hint != 10 {
		t.Errorf("at 1.99 shares: %+v", f)
	}
	if f.risen(20); f.hint != 0 || f.patience != 1 || f.given != 10 {
		t.Errorf("at twice the share: %+v", f)
	}
}

// A source is believed until it flaps, or was wrong twice; and again after five minutes of rest.
func TestSourceIsBelieved(t *testing.T) {
	s := at(10, 0, false)
	s.share = share{since: -farAway}
	now := time.Duration(0)
	give := func(after time.Duration, given, want float64) {
		t.Helper()
		now += after
		s.now = now
		if s.hint(given); s.share.hint != want || s.share.patience != 1 {
			t.Errorf("at %v, given %v: %+v, want %v", now, given, s.share, want)
		}
	}
	give(0, 10, 10)
	give(15*time.Second, 20, 20)
	s.share.refute(true)
	give(20*time.Second, 10, 10)
	s.share.refute(true)
	give(20*time.Second, 20, 0)
	give(5*time.Minute, 10, 10)
	give(14*time.Second, 20, 0)
	give(time.Minute, 10, 0)
	give(5*time.Minute, 20, 20)
	give(time.Minute, 0, 0)
}

// A pause is refuted by the first success after it is announced, also where successes are else only counted.
func TestPauseIsRefutedAtAHighRate(t *testing.T) {
	s := answered(400, func(i int, x *Sample) {
		if i%4 == 3 {
			x.Outcome, x.RetryAfter = Throttled, time.Hour
		}
	})
	if s.retry.believed > 1 {
		t.Errorf("a hundred announced hours in which requests were served leave %v s that are believed",
			s.retry.believed)
	}
}
