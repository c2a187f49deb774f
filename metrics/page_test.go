package metrics_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// longestHelp is the most words of a help text.
const longestHelp = 20

// TestTexts checks that the names follow the conventions of Prometheus, but for those that are not ours to choose,
// and that each help text is a phrase of few words that ends with a full stop.
func TestTexts(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(everything(t)...)
	for _, p := range must(testutil.GatherAndLint(reg)) {
		if !strings.HasPrefix(p.Metric, "throttle_") {
			t.Errorf("%+v", p)
		}
	}
	for _, f := range must(reg.Gather()) {
		if n := len(strings.Fields(f.GetHelp())); n > longestHelp || !strings.HasSuffix(f.GetHelp(), ".") {
			t.Errorf("%s: %d words: %s", f.GetName(), n, f.GetHelp())
		}
	}
}

// TestPage holds docs/metrics.md to a scrape in both directions.
func TestPage(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(everything(t)...)
	live := map[string]string{}
	for _, f := range must(reg.Gather()) {
		var labels []string
		for _, p := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, p.GetName())
		}
		slices.Sort(labels)
		live[f.GetName()] = fmt.Sprintf("%s {%s} %s", strings.ToLower(f.GetType().String()),
			strings.Join(labels, ","), f.GetHelp())
	}
	page := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| `((?:quotient|throttle)_[a-z0-9_]+)` \\| (\\w+) \\| " +
		"([a-z_, ]+) \\| " +
		"[^|]+ \\| ([^|]+) \\|$")
	for _, m := range row.FindAllStringSubmatch(text("../docs/metrics.md"), -1) {
		labels := strings.Split(strings.TrimPrefix(m[3], "none"), ", ")
		slices.Sort(labels)
		page[m[1]] = fmt.Sprintf("%s {%s} %s", m[2], strings.Join(labels, ","), m[4])
	}
	for name, s := range live {
		if page[name] != s {
			t.Errorf("%s\nis   %s\npage %s", name, s, page[name])
		}
	}
	for name := range page {
		if live[name] == "" {
			t.Errorf("the page lists %s, which no scrape has", name)
		}
	}
}

// TestPagesShowWhatCompiles checks that each Go block of the pages stands in an example, one tab further in.
func TestPagesShowWhatCompiles(t *testing.T) {
	var examples string
	for _, name := range []string{"example_test.go", "otel/otel_test.go"} {
		examples += text(name)
	}
	for name, want := range map[string]int{"README.md": 1, "otel/README.md": 1, "../docs/metrics.md": 2} {
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").
			FindAllStringSubmatch(text(name), -1)
		if len(blocks) != want {
			t.Errorf("%s: %d Go blocks, want %d", name, len(blocks), want)
		}
		for _, b := range blocks {
			indented := "\t" + strings.ReplaceAll(strings.TrimSuffix(b[1], "\n"), "\n", "\n\t")
			if !strings.Contains(examples, strings.ReplaceAll(indented, "\n\t\n", "\n\n")) {
				t.Errorf("%s: stands in no example:\n%s", name, b[1])
			}
		}
	}
}
