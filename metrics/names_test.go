package metrics_test

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/metrics"
	"pgregory.net/rapid"
)

// TestARenamedRuleIsAnotherSeries holds what the page says of it.
func TestARenamedRuleIsAnotherSeries(t *testing.T) {
	l := must(quotient.New(perSecond("old", 1)))
	c := must(metrics.Of("api", l))
	named := func(rule string) bool {
		return slices.ContainsFunc(scrape(t, c),
			func(s string) bool { return strings.Contains(s, `rule="`+rule+`"`) })
	}
	if !named("old") || named("new") {
		t.Fatal("before")
	}
	if err := l.SetLimit(perSecond("new", 1)); err != nil {
		t.Fatal(err)
	}
	if named("old") || !named("new") {
		t.Fatal("after")
	}
}

func TestOfNamesWhatIsWrong(t *testing.T) {
	l := must(quotient.New(perSecond("x", 1)))
	if _, err := metrics.Of("no spaces", l); err == nil || !strings.Contains(err.Error(), `"no spaces"`) {
		t.Errorf("got %v", err)
	}
	if _, err := metrics.Of("api", nil); err == nil {
		t.Error("a nil limiter")
	}
}

// TestAwkwardRuleNames are names that would cost the whole scrape: not UTF-8, equal once repaired, equal to
// that of the slots, endless.
func TestAwkwardRuleNames(t *testing.T) {
	for _, names := range [][]string{
		{"\xff", "\xfe", "\uFFFD", "\xff #2"}, {"in-flight"}, {"a\nb", `quote"`, "{}", " "},
		{strings.Repeat("x", 100), strings.Repeat("x", 101)}, {strings.Repeat("é", 33), "ok"},
	} {
		checkRules(t, names)
	}
}

func TestPropertyAnyRuleNamesScrape(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		short := rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]byte("a\xff\xc3\xa9 #2")), 1, 3),
			func(b []byte) string { return string(b) })
		names := rapid.SliceOfNDistinct(rapid.OneOf(short,
			rapid.Map(rapid.SliceOfN(rapid.Byte(), 1, 200), func(b []byte) string { return string(b) })), 1,
			16, rapid.ID).Draw(t, "names")
		checkRules(t, names)
	})
}

// checkRules fails unless each rule has its own two series, with short labels, whatever it is called.
func checkRules(t interface{ Fatalf(string, ...any) }, names []string) {
	limit := quotient.Limit{InFlight: 1}
	for i, name := range names {
		r := quotient.Rate{Name: name, Events: 1, Per: time.Second}
		if i >= 1 && i <= 3 { // a limiter counts three units besides requests
			r.Unit = name
		}
		limit.Rates = append(limit.Rates, r)
	}
	seen := map[string]bool{}
	for _, line := range scrape(t, must(metrics.Of("api", must(quotient.New(limit))))) {
		if strings.HasPrefix(line, "quotient_limit_") {
			seen[line] = true
		}
		if !utf8.ValidString(line) || len(line) > 1000 {
			t.Fatalf("a line of %d bytes: %q", len(line), line)
		}
	}
	if want := 2 * (len(names) + 1); len(seen) != want {
		t.Fatalf("%d series of %d rules, want %d", len(seen), len(names)+1, want)
	}
}
