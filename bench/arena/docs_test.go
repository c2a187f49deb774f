package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/quotient-go/quotient/bench/arena/contenders"
)

const docsPage = "../../docs/adaptive-controller.md"

// TestDocsStateWhatWasMeasured: the table of contenders on the page has the figures of results.md.
func TestDocsStateWhatWasMeasured(t *testing.T) {
	text, results := file(t, docsPage), file(t, "results.md")
	_, summary, found := strings.Cut(results, "## Mean over scenarios")
	if !found {
		t.Fatal("results.md has no means")
	}
	for _, c := range contenders.Contenders() {
		x := row(summary, c.Name) // score, 429 %, steady, with S12, own
		if len(x) != 5 {
			t.Errorf("results.md has %q for %s", x, c.Name)
			continue
		}
		want := fmt.Sprintf("| %s | %s | %s | %s |\n", short(x[0]), short(x[4]), x[1], x[2])
		if !strings.Contains(text, want) {
			t.Errorf("%s does not have the figures of %s: %s", docsPage, c.Name, want)
		}
	}
}

// TestDocsHaveTheScenarios: so does its table of scenarios, for the controller and for the share alone.
func TestDocsHaveTheScenarios(t *testing.T) {
	_, scores, found := strings.Cut(file(t, "results.md"), "## Score by scenario")
	if !found {
		t.Fatal("results.md has no scores by scenario")
	}
	scenario := regexp.MustCompile(`(?m)^\| ([SNO]\d+[ab]?) \|[^|]*\| (\S+) \| (\S+) \|$`)
	rows := scenario.FindAllStringSubmatch(file(t, docsPage), -1)
	if len(rows) < 12 {
		t.Errorf("%s has %d scenarios, want at least 12", docsPage, len(rows))
	}
	for _, r := range rows {
		// oracle, coordinated, quotient, eight rules, cubic, aimd, aws, static, the whole
		x := row(scores, r[1])
		if len(x) < 8 || r[2] != short(x[2]) || r[3] != short(x[7]) {
			t.Errorf("%s has %s and %s for %s, results.md %q", docsPage, r[2], r[3], r[1], x)
		}
	}
}

// TestDocsHaveTheRules: what each rule is worth is that of ablation.md and worths.md, rounded.
func TestDocsHaveTheRules(t *testing.T) {
	text, scenarios, cells := file(t, docsPage), file(t, "ablation.md"), file(t, "worths.md")
	for _, c := range contenders.Ablation()[1:] {
		name := c.Name
		rule := regexp.MustCompile(`(?m)^\| ` + name + `(?: \([^)]*\))? \| (\S+) \| (\S+) \|`)
		in := rule.FindStringSubmatch(text)
		one, other := row(scenarios, name), row(cells, name)
		if in == nil || len(one) < 2 || len(other) < 7 {
			t.Errorf("%s has %q for %s, ablation.md %q, worths.md %q", docsPage, in, name, one, other)
			continue
		}
		near(t, name, in[1], one[1])
		near(t, name, in[2], other[6])
	}
}

// near holds a figure of the page to the one that it is rounded from.
func near(t *testing.T, what, rounded, exact string) {
	t.Helper()
	x, err := strconv.ParseFloat(rounded, 64)
	y, err2 := strconv.ParseFloat(exact, 64)
	if err != nil || err2 != nil || x-y > .0006 || y-x > .0006 {
		t.Errorf("%s: the page has %s, measured was %s", what, rounded, exact)
	}
}

// row returns the cells of the first row of this name.
func row(text, name string) []string {
	_, line, _ := strings.Cut(text, "\n| "+name+" ")
	line, _, _ = strings.Cut(line, "\n")
	var cells []string
	for cell := range strings.SplitSeq(line, "|") {
		if cell = strings.TrimSpace(cell); cell != "" {
			cells = append(cells, cell)
		}
	}
	return cells
}

// short is a score without its zero.
func short(score string) string { return strings.TrimPrefix(score, "0") }

func file(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
