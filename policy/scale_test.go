package policy

import (
	"math"
	"testing"
	"time"
)

// at is the state of a controller at a rate under a hint, with a cost of 1, and one minute of cycle if so.
func at(rate, hint float64, cycled bool) *tracking {
	t := &tracking{rate: rate, cost: 1, share: share{hint: hint, patience: 1}}
	if cycled {
		t.blackout.cycle, t.blackout.cycled = 60, time.Hour
	}
	return t
}

func about(got, want float64) bool { return math.Abs(got-want) <= 1e-3*want }

func TestTimeScale(t *testing.T) {
	for _, c := range []struct {
		rate, hint float64
		cycled     bool

		reference, period float64
	}{
		// all the same without a hint
		{10, 0, false, 10, 8}, {0.1, 0, false, 0.1, 8}, {1e6, 0, false, 1e6, 8},
		{10, 10, false, 10, 8}, {40, 40, false, 40, 4}, {2.5, 2.5, false, 2.5, 16},
		{5, 10, false, 9.9, 8},                                      // below the share the floor counts
		{40, 10, false, 20, 8},                                      // above it the mean
		{1000, 1000, false, 1000, 2}, {0.01, 0.01, false, .01, 180}, // bounds
		{10, 0, true, 10, 60}, {0.01, 0.01, true, 0.01, 180}, // not shorter than the upstream's window
	} {
		s := at(c.rate, c.hint, c.cycled)
		if got := s.reference(); !about(got, c.reference) {
			t.Errorf("%+v: the reference is %v", c, got)
		}
		if got := s.period(s.slowness()); !about(got, c.period) {
			t.Errorf("%+v: the period is %v", c, got)
		}
	}
}

func TestPatienceIsForProbesOfTheShare(t *testing.T) {
	for _, c := range []struct {
		rate, want float64
	}{{9, 1}, {9.49, 1}, {9.5, 4}, {10, 4}, {19.99, 4}, {20, 1}, {40, 1}} {
		s := at(c.rate, 10, false)
		plain := s.period(s.slowness())
		s.share.patience = 4
		if got := s.period(s.slowness()) / plain; !about(got, c.want) {
			t.Errorf("at %v under a share of 10 the period is %v times as long, want %v", c.rate, got, c.want)
		}
	}
}

// A slow client that was never refused probes a period of eight seconds sooner, but not sooner than at ten
// requests a second.
func TestPeriodUntilRefused(t *testing.T) {
	for _, c := range []struct{ hint, want float64 }{{40, 4}, {10, 8}, {2.5, 8}, {0.1, 72}} {
		s := at(c.hint, c.hint, false)
		s.cuts.last = -farAway
		if got := s.period(s.slowness()); !about(got, c.want) {
			t.Errorf("under a share of %v the period is %v, want %v", c.hint, got, c.want)
		}
	}
}

// A rate is requests per second times their cost: what is slow counts in requests.
func TestScaleCountsRequests(t *testing.T) {
	s := at(1000, 1000, false)
	s.cost = 100
	if got := s.period(s.slowness()); !about(got, 8) {
		t.Errorf("the period at ten requests of 100 a second is %v, want 8", got)
	}
}
