package main

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quotient-go/quotient/bench/arena/sim"
	"github.com/quotient-go/quotient/bench/rig"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // fleets wait for time, not for processors; a flag still goes before
	goleak.VerifyTestMain(m)
}

// underRace: what shares nothing is not played under the race detector, which would take minutes.
func underRace() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

func configOf(t *testing.T, args ...string) config {
	c, err := parse(args, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"-nonsense"}, {"-seeds", "0"}, {"-scenario", "S99"}, {"-scenario", "S1,,S2"},
		{"-contender", "nobody"}, {"left over"}} {
		var out, err bytes.Buffer
		if status := run(args, &out, &err); status != 1 || err.Len() == 0 || out.Len() > 0 {
			t.Errorf("%v: status %d, said %q and %q", args, status, err.String(), out.String())
		}
	}
	c := configOf(t, "-scenario", "S9,O4", "-first", "7", "-seeds", "2")
	s := c.scenarios
	if len(s) != 3 || s[0].Name+s[1].Name+s[2].Name != "S9aS9bO4" || !slices.Equal(c.seeds, []uint64{7, 8}) {
		t.Errorf("chosen: %v %v", s, c.seeds)
	}
}

// TestGoals: every scenario named S or N has goals, and no other. What is printed is judged.
func TestGoals(t *testing.T) {
	for _, s := range sim.Scenarios {
		if (s.Goals == nil) != (s.Name[0] == 'O' || s.Name[0] == 'H') || len(s.Goals) > len(judged) {
			t.Errorf("%s has the goals %v", s.Name, s.Goals)
		}
	}
	for _, v := range []rig.Verdict{
		measures[sim.Goodput].judge("0.980 true", .9796, .98), measures[sim.Goodput].judge("0.979 false", .9794, .98),
		measures[sim.Converged].judge("2.0 true", 2.04, 2), measures[sim.Converged].judge("NaN false", math.NaN(), 2),
	} {
		if got := fmt.Sprint(v.Seen, " ", v.OK); got != v.Name {
			t.Errorf("%s: %+v", got, v)
		}
	}
}

// TestResultsAreThoseOfToday plays three scenarios as the page says, and compares with what it shows.
func TestResultsAreThoseOfToday(t *testing.T) {
	page := file(t, "results.md")
	if underRace() {
		t.Skip("one goroutine a run")
	}
	for args, rows := range map[string][]string{
		"-scenario S11,S15": {"S11", "S15", "slots, fields", "S11 429 %", "S15 goodput"},
		"-scenario S5,N1a -contender quotient": {"S5 convergence s", "S5 gcra fall s", "S5 window 60s overshoot",
			"N1a log 10s score"},
	} {
		var out, progress bytes.Buffer
		if status := run(strings.Fields(args), &out, &progress); status != 0 {
			t.Fatalf("status %d: %s", status, progress.String())
		}
		for _, name := range rows {
			if now, then := row(t, out.String(), name), row(t, page, name); !slices.Equal(now, then) {
				t.Errorf("%s: %q, results.md has %q", name, now, then)
			}
		}
	}
}

// TestDeafAreDeaf: what is played once for all levels of fields does not depend on them.
func TestDeafAreDeaf(t *testing.T) {
	for _, c := range contenders() {
		s := configOf(t, "-scenario", "O2").scenarios[0]
		s.Length = time.Minute
		play := func(f sim.Fields) []int { return sim.Play(s, sim.Window1, f, c, 1).Sent }
		if deaf := slices.Equal(play(sim.NoFields), play(sim.AllFields)); deaf != c.Deaf {
			t.Errorf("%s: deaf %v, said to be %v", c.Name, deaf, c.Deaf)
		}
	}
}

const (
	docsPage = "../../docs/adaptive-controller.md"
	choosing = "../../docs/choosing.md"
)

// TestDocsStateWhatWasMeasured: the tables of contenders and of scenarios in the docs have the figures of
// results.md.
func TestDocsStateWhatWasMeasured(t *testing.T) {
	page, results := file(t, docsPage), file(t, "results.md")
	given, own := row(t, results, "given scenarios"), row(t, results, "own scenarios")
	refused, steady := row(t, results, "429 %, given"), row(t, results, "steady 429 % with fields")
	for i, c := range contenders() {
		want := []string{short(given[i]), short(own[i]), refused[i], steady[i]}
		if !strings.Contains(page, " | "+strings.Join(want, " | ")+" |\n") {
			t.Errorf("%s does not have the figures of %s: %v", docsPage, c.Name, want)
		}
	}
	column := func(name string) int {
		return slices.IndexFunc(contenders(), func(c sim.Contender) bool { return c.Name == name })
	}
	tracking, share := column(ours), column("static")
	for _, is := range []struct{ name, page, words string }{
		{"S1", docsPage, "ten equal replicas, right hint"}, {"S2", docsPage, "one replica wants nine tenths"},
		{"S4", docsPage, "20 become 5, hint 30 s late"}, {"S5", docsPage, "the limit halves, then doubles"},
		{"S6", docsPage, "50 replicas, no hint"}, {"S7", docsPage, "demand on and off"},
		{"S11", docsPage, "600 a minute in fixed windows"}, {"S12b", docsPage, "2 % meaningless 429s, no hint"},
		{"O2", docsPage, "wrong Retry-After"}, {"O4", docsPage, "everything refused for 20 s"},
		{"S1", choosing, "all want the same, and know their number"}, {"S2", choosing, "one wants nine tenths"},
		{"S7", choosing, "demand comes and goes"},
	} {
		x, shown := row(t, results, is.name), row(t, file(t, is.page), is.words)
		if !slices.Equal(shown, []string{short(x[tracking]), short(x[share])}) {
			t.Errorf("%s has %v for %s, %s, results.md %v", is.page, shown, is.name, is.words, x)
		}
	}
	many := row(t, results, "S6 429 %")[1] + " %"
	for want, page := range map[string]string{
		refused[tracking] + " % of requests get 429. If 50 replicas don't know their count it is " + many: choosing,
		"have " + many + " refused, because each finds the limit itself":                                  docsPage,
		"has " + refused[tracking] + " % of requests refused and [scores](adaptive-controller.md#figures) " +
			short(given[tracking]) + ", the SDK's controller 8.9 % and .777 (commit fae18a5)": "../../docs/coming-from.md",
	} {
		if text := strings.Join(strings.Fields(file(t, page)), " "); !strings.Contains(text, want) {
			t.Errorf("%s does not say %q", page, want)
		}
	}
}

// row returns the cells of the first row of this name, without the name.
func row(t *testing.T, text, name string) (cells []string) {
	t.Helper()
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(line, "| \n"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if cells[0] == name {
			return cells[1:]
		}
	}
	t.Fatalf("no row %s", name)
	return nil
}

// short is a score without its zero.
func short(score string) string { return strings.TrimPrefix(score, "0") }

func file(t *testing.T, name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
