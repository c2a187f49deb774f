package main

import (
	"bytes"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quotient-go/quotient/bench/arena/contenders"
	"github.com/quotient-go/quotient/bench/arena/sim"
	"github.com/quotient-go/quotient/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParseSeeds(t *testing.T) {
	for _, row := range []struct {
		in   string
		want []uint64
	}{
		{"1", []uint64{1}},
		{"1,3", []uint64{1, 3}},
		{"101-104", []uint64{101, 102, 103, 104}},
		{"7, 1-2", []uint64{7, 1, 2}},
		{"", nil}, {"x", nil}, {"-1", nil}, {"3-1", nil}, {"1-", nil}, {"1,,2", nil}, {"1-100000", nil},
		{"99999999999999999999", nil},
	} {
		got, err := parseSeeds(row.in)
		if !slices.Equal(got, row.want) || (err != nil) != (row.want == nil) {
			t.Errorf("%q: %v, %v; want %v", row.in, got, err, row.want)
		}
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{
		{"-nonsense"}, {"-seeds", "x"}, {"-scenario", "S99"}, {"-scenario", "S1,,S2"},
		{"-contender", "nobody"}, {"left over"},
		{"-ablate", "-contender", "quotient"}, {"-ablate", "-plot", "here"},
	} {
		var out, err bytes.Buffer
		if status := run(args, &out, &err); status != 1 || err.Len() == 0 || out.Len() > 0 {
			t.Errorf("%v: status %d, said %q and %q", args, status, err.String(), out.String())
		}
	}
}

func TestFamilies(t *testing.T) {
	for name, want := range map[string]string{"S9a": "S9", "S9b": "S9", "S10": "S10", "O3c": "O3",
		"N1b": "N1", "O4": "O4"} {
		if got := family(name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	c, err := parse([]string{"-scenario", "S9,O4"}, &bytes.Buffer{})
	var names []string
	for _, s := range c.scenarios {
		names = append(names, s.Name)
	}
	if err != nil || !slices.Equal(names, []string{"S9a", "S9b", "O4"}) {
		t.Errorf("chosen: %v, %v", names, err)
	}
}

// TestGoalsMeanSomething: every scenario of the page has a goal, and every goal a scenario.
func TestGoalsMeanSomething(t *testing.T) {
	var have, want []string
	for _, s := range sim.Given() {
		have = append(have, s.Name)
	}
	for _, g := range goals() {
		want = append(want, g.scenario)
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("scenarios %v, goals %v", have, want)
	}
}

func TestVerdicts(t *testing.T) {
	for _, row := range []struct {
		v    verdict
		met  bool
		text string
	}{
		{verdict{"a", .9796, .98, true, .001}, true, "- a: 0.980 (goal >= 0.980) met"},
		{verdict{"a", .9794, .98, true, .001}, false, "- a: 0.979 (goal >= 0.980) **MISSED**"},
		{verdict{"b", 2.04, 2, false, .1}, true, "- b: 2.0 (goal <= 2.0) met"},
		{verdict{"b", 2.06, 2, false, .1}, false, "- b: 2.1 (goal <= 2.0) **MISSED**"},
		{verdict{"c", math.NaN(), 2, false, .1}, false, "- c: NaN (goal <= 2.0) **MISSED**"},
	} {
		if row.v.met() != row.met || row.v.String() != row.text {
			t.Errorf("%v: met %v", row.v, row.v.met())
		}
	}
}

// made is a grid with results made by hand: two scenarios of one family and one of another.
func made() grid {
	var g grid
	for _, name := range []string{"S9a", "S9b", "S1"} {
		g.scenarios = append(g.scenarios, sim.Scenario{Name: name})
	}
	g.contenders = []sim.Contender{{Name: contenders.Ours}}
	for i, score := range []float64{.2, .4, .9} {
		g.cells = append(g.cells, cell{scenario: i, figures: figures{runs: 1, score: score, goodput: score}})
	}
	return g
}

func TestMeans(t *testing.T) {
	all := func(cell) bool { return true }
	if m := made().mean(all); math.Abs(m.score-.5) > 1e-9 || m.runs != 3 {
		t.Errorf("mean %+v", m)
	}
	if m := made().meanOfFamilies(all); math.Abs(m.score-.6) > 1e-9 || math.Abs(m.goodput-.6) > 1e-9 {
		t.Errorf("mean of families %+v", m)
	}
	if m := made().mean(func(cell) bool { return false }); m != (figures{}) || m.show(m.score, .1) != "-" {
		t.Errorf("mean of nothing %+v", m)
	}
}

// TestJudgesTheFall: the halving of S5 is judged separately from the doubling, on every upstream and on the
// mean of all that can be followed at once. N1 is judged by its score.
func TestJudgesTheFall(t *testing.T) {
	g := grid{config: config{contenders: []sim.Contender{{Name: contenders.Ours}}}}
	for _, s := range sim.Given() {
		if s.Name == "S5" || s.Name == "N1a" {
			g.scenarios = append(g.scenarios, s)
		}
	}
	for i := range g.scenarios {
		for _, kind := range g.scenarios[i].AllKinds() {
			f := figures{runs: 1, fell: 5, rose: 30, converged: 17.5, overshoot: 1.4, score: .97}
			if kind == sim.Window60 {
				f.fell, f.overshoot, f.score = 50, 2, .99
			}
			g.cells = append(g.cells, cell{scenario: i, kind: kind, figures: f})
		}
	}
	met := map[string]bool{}
	for _, v := range g.verdicts() {
		met[v.what] = v.met()
	}
	for what, want := range map[string]bool{
		"S5 convergence s": false, "S5 halving s, all but window 60s": true,
		"S5 overshoot, all but window 60s":                      true,
		"S5 halving s, log 10s":                                 true,
		"S5 halving s, window 60s (not before its window ends)": false,
		"S5 overshoot, window 60s (not before its window ends)": false, "N1a bucket score": false,
		"N1a window 60s score": true,
	} {
		if got, ok := met[what]; !ok || got != want {
			t.Errorf("%s: judged %v, met %v; want met %v", what, ok, got, want)
		}
	}
}

// TestAblation: what a rule is worth is the score with it less the score without, on the parts of the cells
// as well.
func TestAblation(t *testing.T) {
	g := grid{config: config{seeds: []uint64{1, 101},
		contenders: []sim.Contender{{Name: contenders.Ours}, {Name: "light"}, {Name: "heavy"}}}}
	for _, name := range []string{"S1", "O1"} {
		g.scenarios = append(g.scenarios, sim.Scenario{Name: name})
	}
	for l, scores := range [][2]float64{{.9, .8}, {.9, .799}, {.7, .8}} {
		for s, score := range scores {
			for _, seed := range g.seeds {
				g.cells = append(g.cells, cell{scenario: s, contender: l, seed: seed, like: -1,
					figures: figures{runs: 1, score: score}})
			}
		}
	}
	heavy := g.worthOf(2)
	if math.Abs(heavy.all-.1) > 1e-9 || heavy.given != "+0.2000" || heavy.own != "+0.0000" ||
		heavy.tuning != "+0.1000" ||
		heavy.fresh != "+0.1000" || heavy.mostIn != "S1" || heavy.leastIn != "O1" {
		t.Errorf("%+v", heavy)
	}
	var b bytes.Buffer
	if err := g.ablation(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	if !strings.Contains(text, "Worth less than 0.003: light.\n") ||
		strings.Index(text, "| heavy") > strings.Index(text, "| light") {
		t.Error(text)
	}
}

// TestAblationTakesEachRuleOut: all rules have a run without them, and no two runs are without the same.
func TestAblationTakesEachRuleOut(t *testing.T) {
	seen := policy.Rules(0)
	for i, c := range contenders.Ablation() {
		p, ok := c.Policy(nil).(policy.Tracking)
		if !ok || i == 0 && p.Without != 0 || i > 0 && (p.Without == 0 || seen&p.Without != 0) {
			t.Errorf("%s: %+v", c.Name, p)
		}
		seen |= p.Without
	}
	if all := policy.RuleFutile<<1 - 1; seen != all {
		t.Errorf("rules %b taken out, of %b", seen, all)
	}
}

// TestReport plays a part of the arena twice, with pictures, and reads what it wrote.
func TestReport(t *testing.T) {
	if underRace {
		t.Skip("80 runs of a simulation that shares nothing: minutes under the race detector, and nothing " +
			"for it to find")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "results.md")
	args := []string{"-seeds", "1", "-scenario", "N1b,O4", "-contender", "oracle,quotient", "-plot",
		filepath.Join(dir, "plots")}
	var out, progress, nothing bytes.Buffer
	if status := run(args, &out, &progress); status != 0 {
		t.Fatalf("status %d: %s", status, progress.String())
	}
	if status := run(append(args, "-o", file), &nothing, &progress); status != 0 || nothing.Len() > 0 {
		t.Fatalf("status %d, printed %q", status, nothing.String())
	}
	saved, err := os.ReadFile(file)
	if err != nil || string(saved) != out.String() {
		t.Errorf("the report to a file is another one: %v", err)
	}
	for _, text := range []string{"40 runs", "seeds 1.", "## N1b: one client alone, no hint", "## O4: ",
		"- N1b gcra goodput: ", "| oracle "} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("no %q in the report:\n%s", text, out.String())
		}
	}
	for _, name := range []string{"score", "N1b-bucket-none-quotient", "N1b-window60s-fields-quotient",
		"O4-bucket-none-quotient"} {
		checkPicture(t, filepath.Join(dir, "plots", name+".png"))
	}
}

func checkPicture(t *testing.T, file string) {
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	colours := map[any]bool{}
	for x := range img.Bounds().Dx() {
		for y := range img.Bounds().Dy() {
			colours[img.At(x, y)] = true
		}
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if len(colours) < 3 || info.Size() > 100_000 {
		t.Errorf("%s shows nothing, or has too many bytes: %d colours, %d bytes", file, len(colours),
			info.Size())
	}
}

// forgetful is a policy whose controllers do not follow from the seed.
type forgetful struct{ begin time.Time }

func (p forgetful) New(uint64) policy.Controller { return p }
func (p forgetful) Next(policy.Sample, policy.Bounds) policy.Pace {
	return policy.Pace{Rate: 1 + float64(time.Since(p.begin)%1000)}
}

func TestUnrepeatableRunsAreFound(t *testing.T) {
	c, err := parse([]string{"-seeds", "1", "-scenario", "S14", "-contender", "oracle"}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	c.contenders[0] = sim.Contender{Name: "dice",
		Policy: func(*sim.Scenario) policy.Policy { return forgetful{time.Now()} }}
	if _, err = c.grid().play(newProgress(&bytes.Buffer{})); err == nil ||
		!strings.Contains(err.Error(), "two different runs") {
		t.Errorf("a controller that reads the clock went unnoticed: %v", err)
	}
}

func TestProgress(t *testing.T) {
	var b bytes.Buffer
	p := newProgress(&b)
	for i := range 1000 {
		p.show(i+1, 1000)
	}
	if n := strings.Count(b.String(), "\n"); n != 10 || !strings.HasSuffix(b.String(), "100 %\n") {
		t.Errorf("%d lines: %s", n, b.String())
	}
	b.Reset()
	p = &progress{w: &b, terminal: true}
	for i := range 80 {
		p.show(i+1, 80)
	}
	if !strings.HasSuffix(b.String(), "\r["+strings.Repeat("#", 40)+"] 80/80\n") {
		t.Errorf("bar: %q", b.String())
	}
}

// TestPicturesExist: a picture can be played, by some contender, and has a file of its own.
func TestPicturesExist(t *testing.T) {
	all := append(sim.Given(), sim.Own()...)
	files := map[string]bool{}
	for _, p := range pictured {
		i := slices.IndexFunc(all, func(s sim.Scenario) bool { return s.Name == p.scenario })
		if i < 0 || !slices.Contains(all[i].AllKinds(), p.kind) || len(p.drawn) == 0 {
			t.Errorf("nothing to draw for %+v", p)
		}
		for _, ctrl := range p.drawn {
			if !slices.ContainsFunc(contenders.Contenders(),
				func(c sim.Contender) bool { return c.Name == ctrl }) || files[p.file(ctrl)] {
				t.Errorf("%s: drawn twice, or by no contender", p.file(ctrl))
			}
			files[p.file(ctrl)] = true
		}
	}
}
