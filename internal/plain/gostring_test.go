package main

import (
	"slices"
	"strings"
	"testing"
)

func TestStrings(t *testing.T) {
	const src = `package p

import "a path nobody reads here"

type options struct {
	Path string ~help:"The path that nobody reads." default:"nobody ever reads this one"~
}

var _ = errors.New("p: Path: nobody may read it")

func f() {
	panic("p: the limit " + name +
		" is read by nobody")
	log.Warn("nobody")
	_ = "<b>this is markup that nobody ever reads</b>"
	_ = map[string]int{"it was said that nobody reads": 1}
	return ~
The first line, for nobody.

  quotient proxy, an indented line for nobody at all

- an item for nobody there
~
}
`
	want := []string{"6 nobody", "9 nobody", "13 nobody", "16 nobody", "16 was said", "18 nobody",
		"22 nobody"}
	got := hitsOf(t, "p.go", strings.ReplaceAll(src, "~", "`"), 0)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := hitsOf(t, "p_test.go", strings.ReplaceAll(src, "~", "`"), 0); got != nil {
		t.Errorf("strings of a test have hits: %q", got)
	}
}

// TestLongString checks that a string is read as one sentence, over all its parts.
func TestLongString(t *testing.T) {
	for n, want := range map[int]int{15: 0, 16: 1} {
		part := `"` + strings.Repeat("word ", n) + `"`
		if got := hitsOf(t, "p.go", "package p\n\nvar s = "+part+" +\n\t"+part+"\n", 0); len(got) != want {
			t.Errorf("%d words: %q", 2*n, got)
		}
	}
}

func TestHTML(t *testing.T) {
	const src = `<!doctype html>
<!-- nobody sees it -->
<title>Page of nobody</title>
<script>"nobody reads this here"</script>
<p>A text that <b>no</b>body reads,
<code>x</code> and nobody else.</p>
<button title="What nobody does">go</button>
<p>nobody</p>
`
	want := []string{"3 nobody", "5 nobody", "6 nobody", "7 nobody"}
	if got := hitsOf(t, "p.html", src, 0); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestScript(t *testing.T) {
	const src = `// A comment for nobody.
//   nobody(reads, what) is indented here
const a = "a text that nobody reads"; // and here nobody looks
const b = a / 2, c = /"nobody reads this one text'/.test(a) / 1;
/* nobody "reads this one either" */
f(~the key ${k ? ~x~ : "y"} is read
by nobody, they say~, 'nobody');
const d = "x.nobody { color: red }";
const e = ~one two three ${k ? ~x~ : nobody} four five six seven~;
`
	want := []string{"1 nobody", "3 nobody", "6 nobody"}
	if got := hitsOf(t, "p.js", strings.ReplaceAll(src, "~", "`"), 0); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestJSON(t *testing.T) {
	const src = `{
  "description": "A number that \\"nobody\\" reads, nobody.",
  "name": "nobody reads it",
  "items": {"type": "string", "title": "Of all that, nobody."}
}
`
	want := []string{"2 nobody", "4 nobody"}
	if got := hitsOf(t, "p.json", strings.ReplaceAll(src, `\\`, `\`), 0); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
