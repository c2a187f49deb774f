package metrics_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestPagesShowWhatCompiles checks that each Go block of the pages stands in an example, one tab further in.
func TestPagesShowWhatCompiles(t *testing.T) {
	var examples string
	for _, name := range []string{"example_test.go", "otel/otel_test.go"} {
		examples += string(must(os.ReadFile(name)))
	}
	for name, want := range map[string]int{"README.md": 1, "otel/README.md": 1, "../docs/metrics.md": 2} {
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").
			FindAllStringSubmatch(string(must(os.ReadFile(name))), -1)
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
