package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/quotient-go/quotient/bench/arena/laws"
)

// TestDocsSayWhatWasMeasured: the table of docs/adaptive-law.md has the figures of results.md, for each contender.
func TestDocsSayWhatWasMeasured(t *testing.T) {
	page, results := file(t, "../../docs/adaptive-law.md"), file(t, "results.md")
	_, summary, found := strings.Cut(results, "## Mean over scenarios")
	if !found {
		t.Fatal("results.md has no means")
	}
	for _, c := range laws.Contenders() {
		_, row, _ := strings.Cut(summary, "| "+c.Name+" ")
		row, _, _ = strings.Cut(row, "\n")
		var x []string // score, 429 %, steady, with S12, own
		for cell := range strings.SplitSeq(row, "|") {
			if cell = strings.TrimSpace(cell); cell != "" {
				x = append(x, cell)
			}
		}
		if len(x) != 5 {
			t.Errorf("results.md has %q for %s", row, c.Name)
			continue
		}
		short := func(score string) string { return strings.TrimPrefix(score, "0") }
		want := fmt.Sprintf("| %s | %s | %s | %s |\n", short(x[0]), short(x[4]), x[1], x[2])
		if !strings.Contains(page, want) {
			t.Errorf("docs/adaptive-law.md does not have the figures of %s: %s", c.Name, want)
		}
	}
}

func file(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
