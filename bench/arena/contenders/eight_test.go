package contenders

import (
	"math"
	"testing"

	"github.com/quotient-go/quotient/bench/arena/sim"
)

// TestEightIsTheOldController: these are the scores, with seed 1, of the controller that was written when the
// page was, before it was rewritten here. They change with a scenario or an upstream, too; then what was
// known before is no longer known.
func TestEightIsTheOldController(t *testing.T) {
	for _, row := range []struct {
		scenario string
		kind     sim.Kind
		want     [3]float64 // by fields
	}{
		{"S1", sim.TokenBucket, [3]float64{.945, .945, .983}},
		{"S1", sim.SlidingLog, [3]float64{.929, .922, .972}},
		{"S5", sim.Window1, [3]float64{.903, .903, .932}},
		{"S5", sim.Window60, [3]float64{.859, .859, .973}},
		{"S11", sim.Window60, [3]float64{.897, .942, .964}},
		{"S13", sim.GCRA, [3]float64{.891, .891, .931}},
		{"S13", sim.Window60, [3]float64{.869, .864, .878}},
		{"S15", sim.Concurrency, [3]float64{.823, .823, .827}},
		{"O9", sim.SlidingLog, [3]float64{.843, .864, .851}},
	} {
		for fields, want := range row.want {
			fields := sim.Fields(fields)
			got := sim.Play(scenario(t, row.scenario), row.kind, fields, find(t, "eight rules"), 1, 0).Score()
			if math.Abs(got-want) > .005 {
				t.Errorf("%s, %s, %s: %.4f, want %.3f", row.scenario, row.kind, fields, got, want)
			}
		}
	}
}
