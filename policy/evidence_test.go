package policy

import (
	"testing"
	"time"
)

// Few refusals prove nothing: a prior of eight answers stands before the first.
func TestHeavy(t *testing.T) {
	for _, c := range []struct {
		answers, refusals int
		heavy             bool
	}{
		{1, 1, false}, {2, 2, true}, {8, 1, false}, {8, 2, true}, {100, 12, false}, {100, 13, true}, {0, 0, false},
	} {
		var e evidence
		for i := range c.answers {
			if i < c.refusals {
				e.refused(Quota{}, 0)
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
		e := evidence{answers: 12, refusals: 12, contradicted: 12}
		e.age(c.dt, c.perSecond)
		for _, got := range []float64{e.answers, e.refusals, e.contradicted} {
			if got < c.left-1e-9 || got > c.left+1e-9 {
				t.Errorf("%v s at %v a second: got %v, want %v", c.dt, c.perSecond, got, c.left)
			}
		}
	}
}

// A refusal that comes with room left, more than a tenth and at least two units, contradicts the fields.
func TestDoubt(t *testing.T) {
	for _, c := range []struct {
		quota    Quota
		refusals int
		doubted  bool
	}{
		{Quota{Limit: 100, Remaining: 50}, 1, true},
		{Quota{Limit: 100, Remaining: 10}, 9, false},
		{Quota{Limit: 100, Remaining: 11}, 1, true},
		{Quota{Limit: 5, Remaining: 1.9}, 9, false},
		{Quota{Limit: 0, Remaining: 50}, 9, false},
		{Quota{Limit: 100, Remaining: 0}, 9, false},
	} {
		var e evidence
		for range c.refusals {
			e.refused(c.quota, time.Second)
		}
		e.doubt(time.Second)
		if got := e.doubtUntil == time.Second+2*time.Minute; got != c.doubted {
			t.Errorf("%d refusals with %+v: doubted until %v", c.refusals, c.quota, e.doubtUntil)
		}
	}
	e := evidence{answers: 100}
	e.refused(Quota{Limit: 100, Remaining: 50}, 0)
	if e.doubt(0); e.doubtUntil != 0 {
		t.Error("one contradiction in a hundred answers is chance")
	}
}
