package policy

import "testing"

func TestCutSize(t *testing.T) {
	for _, c := range []struct {
		rate, hint    float64
		cycled, heavy bool
		want          float64
	}{
		{10, 0, false, false, .12}, {1000, 0, false, false, .12},
		{10, 10, false, false, .12}, {1000, 1000, false, false, .012}, {2.5, 2.5, false, false, .24},
		{.1, .1, false, false, .4}, {.1, .1, false, true, .4}, // at most
		{10, 0, true, false, .016}, {10, 0, true, true, .12}, // few refusals mean little where growth is slow
		{.1, .1, true, false, .4}, // a clock that is slower than the cycle anyway
	} {
		if got := at(c.rate, c.hint, c.cycled).cutSize(c.heavy); !about(got, c.want) {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}
