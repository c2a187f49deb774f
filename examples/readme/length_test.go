package readme

import (
	"regexp"
	"strings"
	"testing"
)

// docsWords is how many words all pages of docs may have together, decisions included.
const docsWords = 22_000

var (
	wholeFence = regexp.MustCompile("(?ms)^```.*?^```[ \\t]*$")
	comment    = regexp.MustCompile(`(?s)<!--.*?-->`)
	target     = regexp.MustCompile(`\]\([^)]*\)`)
	wordy      = regexp.MustCompile(`[\p{L}\p{N}_]`)
)

// words counts the words of a page outside of code blocks, comments and the targets of links.
func words(text string) (n int) {
	text = comment.ReplaceAllString(wholeFence.ReplaceAllString(text, ""), "")
	for _, w := range strings.Fields(target.ReplaceAllString(text, "]")) {
		if wordy.MatchString(w) {
			n++
		}
	}
	return n
}

// The documentation stays short.
func TestDocsAreShort(t *testing.T) {
	total, counted := 0, 0
	pages(t, func(name, text string) {
		if strings.HasPrefix(name, "docs/") {
			counted++
			total += words(text)
		}
	})
	if total > docsWords || counted < 20 {
		t.Errorf("%d pages of docs have %d words, want at most %d", counted, total, docsWords)
	}
}

// TestWords checks that the count above counts what a reader reads.
func TestWords(t *testing.T) {
	for text, want := range map[string]int{
		"":                              0,
		"Two words.":                    2,
		"| a cell | another |":          3,
		"[a link](some/where.md) ends":  3,
		"one\n```go\nx := 1\n```\n two": 2,
		"one <!-- not\nthis --> two":    2,
		"- — 1.5 ·":                     1,
	} {
		if got := words(text); got != want {
			t.Errorf("%q: %d words, want %d", text, got, want)
		}
	}
}
