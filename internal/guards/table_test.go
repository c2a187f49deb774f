package main

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	got, err := parse("# a comment\n" + fixtureTable)
	if err != nil {
		t.Fatal(err)
	}
	want := []mode{
		{section: "Tanks", id: "1", title: "Overflow", must: "Stops at the size.", guards: []guard{{
			mode: "1", file: "tank.go", pkg: ".", test: "^TestFillStopsAtSize$",
			find: "\tif level > size {", replace: "\tif false {",
		}}},
		{section: "Tanks", id: "2", title: "Spring", must: "Nothing is known."},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestParseKeepsLinesInside(t *testing.T) {
	const head = "mode: 1 a\nmust: b\nguard: c\npackage: d\ntest: e\n"
	got, err := parse(head + "find:\n\ta\n\n\tb\nreplace:\n\n")
	if err != nil {
		t.Fatal(err)
	}
	if g := got[0].guards[0]; g.find != "\ta\n\n\tb" || g.replace != "" {
		t.Errorf("find %q, replace %q", g.find, g.replace)
	}
}

func TestParseRefuses(t *testing.T) {
	const head = "mode: 1 a\nmust: b\n"
	const row = head + "guard: c\npackage: d\ntest: e\nfind:\nf\n"
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "no failure mode"},
		{"stray text", "hello", "neither a key"},
		{"text after a one-line key", head + "more", "neither a key"},
		{"no number", "mode: Overflow", "not a number and a title"},
		{"the same mode twice", head + "mode: 1 c", "line 3: mode: 1 is there twice"},
		{"no must", "mode: 1 a", "mode 1: must is missing"},
		{"must twice", head + "must: c", "must: given twice"},
		{"must before mode", "must: c", "before the first mode"},
		{"test before guard", head + "test: c", "before the first guard"},
		{"no find", head + "guard: c\npackage: d\ntest: e\n", "find is missing"},
		{"no test", head + "guard: c\npackage: d\nfind:\nf\n", "test is missing"},
		{"no package", head + "guard: c\ntest: d\nfind:\nf\n", "package is missing"},
		{"text beside find", head + "guard: c\nfind: d", "starts on the next line"},
		{"find twice", row + "find:\ng\n", "find: given twice"},
		{"bad expression", strings.Replace(row, "test: e", "test: (", 1), "test: error parsing"},
		{"many packages", strings.Replace(row, "package: d", "package: ./...", 1), "not one package"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := parse(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want %q", err, c.want)
			}
		})
	}
}

func TestPick(t *testing.T) {
	modes := []mode{{id: "1"}, {id: "34a"}, {id: "5"}}
	got, err := pick(modes, "5, 34a")
	if err != nil || len(got) != 2 || got[0].id != "5" || got[1].id != "34a" {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := pick(modes, ""); err != nil || len(got) != 3 {
		t.Errorf("got %v, %v; want all", got, err)
	}
}

// TestCommittedTable checks that the table of this module can be read and lists every mode once.
func TestCommittedTable(t *testing.T) {
	text, err := os.ReadFile("guards.txt")
	if err != nil {
		t.Fatal(err)
	}
	modes, err := parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(modes) != 48 {
		t.Errorf("got %d failure modes, want 1 to 41, 19a to 19c, 20a, 22a, 22b and 34a", len(modes))
	}
	for _, m := range modes {
		if m.section == "" {
			t.Errorf("mode %s stands in no section", m.id)
		}
	}
}
