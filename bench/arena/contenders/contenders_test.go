package contenders

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/quotient-go/quotient/bench/arena/sim"
	"github.com/quotient-go/quotient/policy"
	"pgregory.net/rapid"
)

func find(t *testing.T, name string) sim.Contender {
	for _, c := range Contenders() {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no contender %q", name)
	return sim.Contender{}
}

func scenario(t *testing.T, name string) sim.Scenario {
	for _, s := range append(sim.Given(), sim.Own()...) {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no scenario %q", name)
	return sim.Scenario{}
}

func TestContendersDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Contenders() {
		if seen[c.Name] {
			t.Errorf("two contenders are called %q", c.Name)
		}
		seen[c.Name] = true
	}
	if !seen[Ours] {
		t.Errorf("no contender is called %q", Ours)
	}
}

// TestDeafAreDeaf: what is played once for all levels of fields does not depend on them.
func TestDeafAreDeaf(t *testing.T) {
	for _, name := range []string{"S1", "S5", "O2", "O3a"} {
		s := scenario(t, name)
		s.Length, s.Changes = 100*time.Second, nil
		for _, c := range Contenders() {
			if !c.Deaf {
				continue
			}
			none := sim.Play(s, sim.Window1, sim.NoFields, c, 1, 0)
			for fields := sim.RetryAfter; fields <= sim.AllFields; fields++ {
				if !reflect.DeepEqual(none, sim.Play(s, sim.Window1, fields, c, 1, 0)) {
					t.Errorf("%s, %s: %s changes the run", name, c.Name, fields)
				}
			}
		}
	}
}

// TestScores pins what is known of references before anything is learned.
func TestScores(t *testing.T) {
	for _, row := range []struct {
		scenario, contender string
		least, most         float64
	}{
		{"S1", "oracle", .98, 1},
		{"S1", "static", .97, 1},
		{"S1", "coordinated", .97, 1},
		{"S1", "no hint static", .15, .45}, // twice the limit is sent, half refused: 1 x .5 x .5
		{"S5", "oracle", .75, 1},           // a minute's window that shrinks is overdrawn by any pacing
		{"S5", "static", .5, .8},
		{"S2", "coordinated", .9, 1},
		{"S2", "static", .1, .4}, // a tenth of the limit serves a client that wants nine
		{"S14", "static", .97, 1},
		{"O4", "oracle", .98, 1},
		{"N1b", "oracle", .98, 1},
		{"S15", "oracle", .75, 1},
	} {
		t.Run(row.scenario+" "+row.contender, func(t *testing.T) {
			s := scenario(t, row.scenario)
			for _, kind := range s.AllKinds() {
				score := sim.Play(s, kind, sim.NoFields, find(t, row.contender), 7, 0).Score()
				if score < row.least || score > row.most {
					t.Errorf("%s: score %.3f, want %.2f to %.2f", kind, score, row.least, row.most)
				}
			}
		})
	}
}

func TestWaterFill(t *testing.T) {
	for _, row := range []struct {
		name        string
		limit       float64
		wants, want []float64
	}{
		{"nobody", 10, nil, nil},
		{"nothing wanted", 10, []float64{0, 0}, []float64{0, 0}},
		{"equal", 10, []float64{20, 20}, []float64{5, 5}},
		{"all content: in proportion", 10, []float64{1, 4}, []float64{2, 8}},
		{"a modest one", 10, []float64{1, 20, 30}, []float64{1, 4.5, 4.5}},
		{"one that does not run", 10, []float64{0, 20}, []float64{0, 10}},
	} {
		rates := make([]float64, len(row.wants))
		WaterFill(row.limit, row.wants, rates)
		for i := range row.want {
			if math.Abs(rates[i]-row.want[i]) > 1e-9 {
				t.Errorf("%s: %v, want %v", row.name, rates, row.want)
			}
		}
	}
}

func TestWaterFillGivesTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Float64Range(.1, 1e4).Draw(t, "limit")
		wants := rapid.SliceOfN(rapid.Float64Range(1e-3, 1e4), 1, 50).Draw(t, "wants")
		rates := make([]float64, len(wants))
		WaterFill(limit, wants, rates)
		asked := total(wants)
		for i := range rates {
			if asked < limit*(1-1e-9) && rates[i] < wants[i]*(1-1e-9) {
				t.Fatalf("%v wanted, %v given, and the limit %v allows all", wants, rates, limit)
			}
			for j := range rates {
				if wants[i] <= wants[j] && rates[i] > rates[j]*(1+1e-9) {
					t.Fatalf("%v wanted, %v given: more to who wants less", wants, rates)
				}
			}
		}
		if math.Abs(total(rates)-limit) > 1e-6*limit {
			t.Fatalf("%v given of %v", total(rates), limit)
		}
	})
}

// TestCubicCurve follows the curve of RFC 9438: cut to .7, back at Wmax after K, faster beyond.
func TestCubicCurve(t *testing.T) {
	const share = 100
	b := policy.Bounds{Share: share, Ceiling: math.Inf(1)}
	ctrl := Cubic{}.New(0)
	if x := ctrl.Next(policy.Sample{}, b).Rate; x != share {
		t.Fatalf("starts at %v", x)
	}
	now := time.Second
	if x := ctrl.Next(policy.Sample{Outcome: policy.Throttled, Now: now, Sent: now},
		b).Rate; math.Abs(x-70) > 1e-9 {
		t.Fatalf("cut to %v", x)
	}
	if x := ctrl.Next(policy.Sample{Outcome: policy.Throttled, Now: now, Sent: now - 1},
		b).Rate; math.Abs(x-70) > 1e-9 {
		t.Fatalf("cut twice for one round, to %v", x)
	}
	k := math.Cbrt(share * .3 / .4)
	for dt := .1; dt < 2*k; dt += .1 {
		s := policy.Sample{Outcome: policy.Success, Now: now + time.Duration(dt*1e9), Paced: true}
		x := ctrl.Next(s, b).Rate
		if want := .4*math.Pow(dt-k, 3) + share; math.Abs(x-want) > .01*want {
			t.Fatalf("%.1f s after the cut: %v, want %v", dt, x, want)
		}
	}
}

// TestCubicMakesRoom: cut again below the last maximum, it aims below where it was cut (fast convergence).
func TestCubicMakesRoom(t *testing.T) {
	b := policy.Bounds{Share: 100, Ceiling: math.Inf(1)}
	ctrl := Cubic{}.New(0)
	ctrl.Next(policy.Sample{}, b)
	var x float64
	for i := range 2 {
		now := time.Duration(i+1) * time.Second
		x = ctrl.Next(policy.Sample{Outcome: policy.Throttled, Now: now, Sent: now}, b).Rate
	}
	if math.Abs(x-49) > 1e-9 {
		t.Fatalf("cut twice to %v", x)
	}
	// Wmax is 70 (1 + .7) / 2, reached after K.
	k := math.Cbrt((59.5 - 49) / .4)
	for dt := .1; dt < k; dt += .1 {
		x = ctrl.Next(policy.Sample{Outcome: policy.Success, Now: 2*time.Second + time.Duration(dt*1e9),
			Paced: true}, b).Rate
	}
	if math.Abs(x-59.5) > .1 {
		t.Errorf("after K: %v, want 59.5", x)
	}
}

func TestCubicKeepsAnUnusedRate(t *testing.T) {
	b := policy.Bounds{Share: 10, Ceiling: math.Inf(1)}
	ctrl := Cubic{}.New(0)
	ctrl.Next(policy.Sample{}, b)
	for i := range 1000 {
		s := policy.Sample{Outcome: policy.Success, Now: time.Duration(i) * time.Second}
		if x := ctrl.Next(s, b).Rate; x != 10 {
			t.Fatalf("grew to %v without need", x)
		}
	}
}

// TestSane feeds all controllers garbage: rates stay finite, positive and below the ceiling.
func TestSane(t *testing.T) {
	all := map[string]policy.Policy{
		"cubic":  Cubic{},
		"aws":    AWS{},
		"static": Static{Whole: 5},
		"eight":  Eight{},
		"ours":   ours,
	}
	rapid.Check(t, func(t *rapid.T) {
		ceiling := rapid.Float64Range(.5, 1e6).Draw(t, "ceiling")
		b := policy.Bounds{Share: rapid.Float64Range(0, ceiling).Draw(t, "share"), Ceiling: ceiling}
		for name, p := range all {
			ctrl := p.New(1)
			ctrl.Next(policy.Sample{}, b)
			for range rapid.IntRange(1, 50).Draw(t, "samples") {
				s := policy.Sample{
					Outcome: policy.Outcome(rapid.IntRange(0, 4).Draw(t, "outcome")),
					Now:     time.Duration(rapid.Int64Range(0, 1<<50).Draw(t, "now")),
					Sent:    time.Duration(rapid.Int64Range(0, 1<<50).Draw(t, "sent")),
					Paced:   rapid.Bool().Draw(t, "paced"),
					Cost:    1,
				}
				x := ctrl.Next(s, b).Rate
				if !(x > 0 && x <= ceiling) {
					t.Fatalf("%s: rate %v, ceiling %v, after %+v", name, x, ceiling, s)
				}
			}
		}
	})
}
