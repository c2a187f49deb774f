package metrics_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// longestHelp is the most words of a help text.
const longestHelp = 20

// TestHelpIsShort checks that each help text is a phrase of few words that ends with a full stop.
func TestHelpIsShort(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(busy(t), fileOf(configState{}), leasesOf(leaseTable(t)))
	for _, f := range must(reg.Gather()) {
		if n := len(strings.Fields(f.GetHelp())); n > longestHelp || !strings.HasSuffix(f.GetHelp(), ".") {
			t.Errorf("%s: %d words: %s", f.GetName(), n, f.GetHelp())
		}
	}
}

// TestPage holds docs/metrics.md to a scrape in both directions.
func TestPage(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(busy(t), fileOf(configState{}), leasesOf(leaseTable(t)))
	fams := must(reg.Gather())
	live := map[string]string{}
	for _, f := range fams {
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
	for _, m := range row.FindAllStringSubmatch(string(must(os.ReadFile("../docs/metrics.md"))), -1) {
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
