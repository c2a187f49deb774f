package policy

import "testing"

// Few refusals prove nothing: a prior of eight answers stands before the first.
func TestHeavy(t *testing.T) {
	for _, c := range []struct {
		answers, refusals int
		heavy             bool
	}{
		{1, 1, false}, {2, 2, true}, {8, 1, false}, {8, 2, true}, {100, 12, false}, {100, 13, true},
		{0, 0, false},
	} {
		var e evidence
		for i := range c.answers {
			if i < c.refusals {
				e.refused()
			} else {
				e.served()
			}
		}
		if e.heavy() != c.heavy {
			t.Errorf("%d refusals of %d answers: got %v", c.refusals, c.answers, !c.heavy)
		}
	}
}

// Half is forgotten in 2 seconds or 20 requests, whichever is longer.
func TestEvidenceIsForgotten(t *testing.T) {
	for _, c := range []struct{ dt, perSecond, left float64 }{
		{0, 10, 12}, {2, 10, 6}, {2, 1000, 6}, {20, 1, 6}, {2, 1, 12 / 1.1}, {6, 10, 3},
	} {
		e := evidence{answers: 12, refusals: 12}
		e.age(c.dt, (&tracking{rate: c.perSecond, cost: 1}).memory())
		for _, got := range []float64{e.answers, e.refusals} {
			if got < c.left-1e-9 || got > c.left+1e-9 {
				t.Errorf("%v s at %v a second: got %v, want %v", c.dt, c.perSecond, got, c.left)
			}
		}
	}
}
