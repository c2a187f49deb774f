package main

import (
	"slices"
	"strings"
	"testing"
)

func TestSentences(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"One. Two! Three?", []string{"One.", "Two!", "Three?"}},
		{"No full stop", []string{"No full stop"}},
		{"Some names, e.g. x/time/rate, i.e. a bucket. next is v2.",
			[]string{"Some names, e.g. x/time/rate, i.e. a bucket.", "next is v2."}},
		{"It takes 0.1 s. See go.mod and limit.go.", []string{"It takes 0.1 s.", "See go.mod and limit.go."}},
		{"It ends (at last.) Then it goes on.", []string{"It ends (at last.)", "Then it goes on."}},
		{"After that, twice that ... and so on. Then not.",
			[]string{"After that, twice that ... and so on.", "Then not."}},
		{"It reads `a. b. c` and [Limiter.Allow]. Yes.",
			[]string{"It reads `xxxxxxx` and [Limiter.Allow].", "Yes."}},
		{`It says "Stop. Go." to them. Yes.`, []string{`It says "xxxxx xxx" to them.`, "Yes."}},
		{"See [the page](https://example.com/a.b?c=d). **Yes**.", []string{"See the page.", "Yes."}},
		{"", nil},
	} {
		p := newProse(block{lines: []line{{1, c.text}}})
		var got []string
		for _, s := range p.sentences() {
			got = append(got, p.text[s.from:s.to])
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q:\n got %q\nwant %q", c.text, got, c.want)
		}
	}
}

func TestWords(t *testing.T) {
	for text, want := range map[string]int{
		"":                                       0,
		"limit / replicas, for each key":         5,
		"`xxxx` is one word":                     4,
		"x/time/rate does the maths – of v2":     6,
		"[Limiter.Allow] takes 1,000 (at most).": 5,
	} {
		if got := words(text); got != want {
			t.Errorf("%q: %d words, want %d", text, got, want)
		}
	}
}

// TestLongSentence checks the bound over several lines, and that a span of code is one word.
func TestLongSentence(t *testing.T) {
	thirty := strings.TrimSpace(strings.Repeat("word ", 30))
	for text, want := range map[string]bool{
		thirty + ".":                         false,
		thirty + " more.":                    true,
		thirty + ". " + thirty + ".":         false,
		thirty + ": " + thirty + ".":         true,
		"`" + thirty + "` is " + "one word.": false,
	} {
		first, second, _ := strings.Cut(text, " ")
		b := block{lines: []line{{3, first}, {4, second}}}
		hits := b.check()
		if got := len(hits) == 1 && hits[0].rule == ruleLong && hits[0].line == 3; got != want ||
			len(hits) > 1 {
			t.Errorf("%q: hits %+v, want one: %v", text, hits, want)
		}
	}
}

// TestLinesSurviveReplacements checks that a hit behind a link is reported on its own line.
func TestLinesSurviveReplacements(t *testing.T) {
	b := block{lines: []line{
		{1, "See [the list of all that"},
		{2, "is there](docs/list.md), where nobody"},
		{3, "looks at it, nobody at all."},
	}}
	var got []int
	for _, h := range b.check() {
		got = append(got, h.line)
	}
	if !slices.Equal(got, []int{2, 3}) {
		t.Errorf("hits on lines %v, want 2 and 3", got)
	}
}
