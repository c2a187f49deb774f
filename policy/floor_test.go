package policy

import "testing"

// Few refusals do not cut below the floor, and leave what is below it already where it is.
func TestFloorHolds(t *testing.T) {
	for _, c := range []struct {
		from, to    float64
		heavy       bool
		want, floor float64
	}{
		{12, 11, false, 11, 10}, {12, 9, false, 10, 10}, {10, 9, false, 10, 10}, {8, 7, false, 8, 10},
		{12, 11, true, 11, 10}, {12, 9, true, 9, 9}, {8, 7, true, 7, 7},
	} {
		f := floor{hint: 10, floor: 10}
		if got := f.hold(c.from, c.to, c.heavy); got != c.want || f.floor != c.floor {
			t.Errorf("%+v: got %v, and the floor %v", c, got, f.floor)
		}
	}
}

// Under a share of 20 that was another: a law that is given less goes down by the same part, but not below
// the share. One that is given more has it at once.
func TestRescaled(t *testing.T) {
	f := floor{hint: 20, floor: 19.8}
	for _, c := range []struct{ rate, times, want float64 }{
		{40, .5, 20}, {100, .5, 50}, {30, .5, 20}, {10, .5, 10}, {5, .25, 5},
		{10, 2, 19.8}, {5, 4, 19.8}, {30, 2, 30},
	} {
		if got := f.rescaled(c.rate, c.times); got != c.want {
			t.Errorf("%v, with a share %v times the old one: got %v, want %v", c.rate, c.times, got, c.want)
		}
	}
}

// Each failed probe of the share makes the law half as patient again, up to eight times; others that idle end it.
func TestPatience(t *testing.T) {
	s := at(10, 10, false)
	for i, want := range []float64{1.5, 2.25, 3.375, 5.0625, 7.59375, 8, 8} {
		if s.share.probed(s); s.share.patience != want {
			t.Errorf("after %d failed probes: %v, want %v", i+1, s.share.patience, want)
		}
	}
	if s.share.risen(19.9); s.share.patience != 8 {
		t.Errorf("at 1.99 shares the patience is %v", s.share.patience)
	}
	if s.share.risen(20); s.share.patience != 1 {
		t.Errorf("at twice the share the patience is %v", s.share.patience)
	}
	for _, rate := range []float64{9.4, 20, 1e9} {
		s.rate = rate
		if s.share.probed(s); s.share.patience != 1 {
			t.Errorf("a refusal at %v is no failed probe of a share of 10", rate)
		}
	}
}
