package main

import (
	"slices"
	"testing"
)

func TestComments(t *testing.T) {
	for _, c := range []struct {
		file, src string
		want      []string
	}{
		{"a.yaml", `# A comment for nobody,
# and more of it.
#
# name: nobody
name: nobody knows it # nobody here
url: "a # nobody here" # an item
annotations:
  summary: A summary for nobody
  description: >-
    A text that nobody
    reads, for nobody.
  other: it is of nobody at all
`, []string{"1 nobody", "5 nobody", "8 nobody", "10 nobody", "11 nobody"}},
		{"a.toml", `# replicas = "nobody knows"
# [nobody.here]
grace = "30s"   # for nobody
`, []string{"3 nobody"}},
		{"sub/Makefile", `SHELL := "# nobody here"
# Of all that, nobody.
fleet: ## run it for nobody
`, []string{"2 nobody", "2 Of", "3 nobody"}},
		{".ci/run", "#!/bin/nobody has it\n# Whoever runs it.\n", []string{"2 whoever"}},
		{"a.lua", "-- Nobody has it.\nlocal a = 1 -- nobody has it\nlocal b = '-- nobody'\n",
			[]string{"1 nobody", "2 nobody"}},
		{"a.css", `/* It is for nobody. */ a { content: "nobody is here" }
/*
 * The first line,
 * for nobody.
 */
`, []string{"1 nobody", "4 nobody"}},
	} {
		if got := hitsOf(t, c.file, c.src, 0); !slices.Equal(got, c.want) {
			t.Errorf("%s: got  %q\nwant %q", c.file, got, c.want)
		}
	}
}

// TestLongComment checks that a comment is one text over its lines, and that an empty one ends a paragraph.
func TestLongComment(t *testing.T) {
	const ten = "# one two three four five six seven eight nine ten\n"
	if got := hitsOf(t, "a.sh", ten+ten+ten+"# eleven\n", 0); !slices.Equal(got,
		[]string{"1 long sentence"}) {
		t.Errorf("one paragraph: %q", got)
	}
	if got := hitsOf(t, "a.sh", ten+ten+"#\n"+ten+"true\n"+ten+ten, 0); got != nil {
		t.Errorf("three paragraphs: %q", got)
	}
	if got := hitsOf(t, "a.sh", "# - "+ten[2:]+"# - "+ten[2:]+"# - "+ten[2:]+"# - "+ten[2:], 0); got != nil {
		t.Errorf("items of a list: %q", got)
	}
}
