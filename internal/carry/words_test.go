package carry_test

import (
	"testing"

	"github.com/quotient-go/quotient/internal/carry"
)

func TestCountText(t *testing.T) {
	for _, window := range []int64{0, 1, -1, 1 << 40, -1 << 62} {
		for _, key := range []string{"", "k", "c", string(make([]byte, 300))} {
			want := carry.Count{Rule: 1 << 40, Key: key}
			text := want.Text(window)
			if k, w, ok := carry.ReadCount(text); !ok || k != want || w != window {
				t.Errorf("%q of window %d reads as %v of %d, %v", key, window, k, w, ok)
			}
			for n := range min(len(text), 9) {
				if _, _, ok := carry.ReadCount(text[:n]); ok {
					t.Errorf("%q reads as a count", text[:n])
				}
			}
		}
	}
	if _, _, ok := carry.ReadCount(carry.Count{Key: "k"}.Text(1)); ok {
		t.Error("rule 0 reads as one")
	}
}

// Events that a replica gave back in its earlier life are not taken off its takes in the next.
func TestWhatIsLostOfACount(t *testing.T) {
	for _, row := range []struct {
		name   string
		sums   [][2]int64 // taken and given back
		joined bool       // at the last
		want   int64
	}{
		{"nothing", [][2]int64{{10, 2}, {12, 3}}, false, 9},
		{"a replica is gone", [][2]int64{{10, 2}, {6, 1}}, false, 8},
		{"and comes back", [][2]int64{{10, 2}, {6, 1}, {10, 2}}, true, 8},
		{"it takes as much as before", [][2]int64{{2, 1}, {2, 0}}, false, 2},
		{"it gives all back", [][2]int64{{10, 9}, {6, 0}}, false, 6},
	} {
		var got int64
		var n carry.Taken
		for i, s := range row.sums {
			sum := carry.Terms{carry.CountEvents: s[0], carry.CountBack: s[1]}
			got = n.See(sum, row.joined && i == len(row.sums)-1)
		}
		if got != row.want {
			t.Errorf("%s: got %d, want %d", row.name, got, row.want)
		}
	}
}
