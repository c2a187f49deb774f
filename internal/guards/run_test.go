package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// clampGuard is the guard of the fixture that TestFillStopsAtSize holds.
const clampGuard = "\tif level > size {\n\t\tlevel = size\n\t}\n"

// fixtureRunner returns a runner for the small module in testdata.
func fixtureRunner(t *testing.T) runner {
	t.Helper()
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "")
	return runner{dir: filepath.Join("testdata", "fixture"), timeout: 30 * time.Second}
}

func TestCheck(t *testing.T) {
	r := fixtureRunner(t)
	for _, c := range []struct {
		name, file, find, replace, test string
		want                            outcome
		detail                          string
	}{
		{"held", "tank.go", clampGuard, "", "^TestFillStopsAtSize$", holds, "fails without"},
		{"missed", "tank.go", clampGuard, "", "^TestFillAdds$", missed, "passes without"},
		{"one of two notices", "tank.go", clampGuard, "", "^TestFill", holds, "fails without"},
		{"does not build", "tank.go", clampGuard, "size :=", "^TestFillStopsAtSize$", broken,
			"without the guard: does not build: "},
		{"no such test", "tank.go", clampGuard, "", "^TestNothing$", broken,
			"as the code stands: no test ran"},
		{"only skipped", "tank.go", clampGuard, "", "^TestAlwaysSkips$", broken,
			"as the code stands: no test ran"},
		{"fails anyway", "tank.go", clampGuard, "", "^TestAlwaysFails$", broken,
			"as the code stands: the test fails"},
		{"twice in the file", "tank.go", "\treturn level\n", "", "^TestFillStopsAtSize$", broken,
			"stands 2 times"},
		{"not in the file", "tank.go", "no such text", "", "^TestFillStopsAtSize$", broken, "stands 0 times"},
		{"no such file", "pond.go", "x", "", "^TestFillStopsAtSize$", broken, "no such file"},
		{"no change", "tank.go", clampGuard, clampGuard, "^TestFillStopsAtSize$", broken, "changes nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := guard{mode: "1", file: c.file, find: c.find, replace: c.replace, pkg: ".", test: c.test}
			got := r.check(t.Context(), g)
			if got.outcome != c.want || !strings.Contains(got.detail, c.detail) {
				t.Errorf("got %s: %s; want %s: %s", got.outcome, got.detail, c.want, c.detail)
			}
		})
	}
}

func TestCheckCountsAHangAsAFailure(t *testing.T) {
	r := fixtureRunner(t)
	r.timeout = 2 * time.Second
	g := guard{mode: "1", file: "tank.go", find: "\t\tlevel--\n", pkg: ".", test: "^TestDrainEnds$"}
	if got := r.check(t.Context(), g); got.outcome != holds || got.detail != "hangs without the guard" {
		t.Errorf("got %s: %s", got.outcome, got.detail)
	}
}

func TestCheckLeavesTheFileAlone(t *testing.T) {
	r := fixtureRunner(t)
	path := filepath.Join(r.dir, "tank.go")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r.check(t.Context(), guard{file: "tank.go", find: clampGuard, pkg: ".", test: "^TestFillStopsAtSize$"})
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, after) {
		t.Error("tank.go changed")
	}
}

func TestCheckEndsWithItsContext(t *testing.T) {
	r := fixtureRunner(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got := r.check(ctx, guard{file: "tank.go", find: clampGuard, pkg: ".", test: "^TestFillStopsAtSize$"})
	if got.outcome != broken || !strings.Contains(got.detail, "canceled") {
		t.Errorf("got %s: %s", got.outcome, got.detail)
	}
}

func TestCheckAllKeepsTheOrder(t *testing.T) {
	r := fixtureRunner(t)
	g := guard{file: "tank.go", find: clampGuard, pkg: ".", test: "^TestFillStopsAtSize$"}
	none := guard{file: "tank.go", find: "no such text", pkg: ".", test: "^TestFillAdds$"}
	fails, skips := g, g
	fails.test, skips.test = "^TestAlwaysFails$", "^TestAlwaysSkips$" // beside tests that pass
	got := r.checkAll(t.Context(), []guard{g, none, g, fails, skips}, 2)
	for i, want := range []outcome{holds, broken, holds, broken, broken} {
		if got[i].outcome != want {
			t.Errorf("result %d: got %s: %s, want %s", i, got[i].outcome, got[i].detail, want)
		}
	}
}

func TestPart(t *testing.T) {
	guards := make([]guard, 7)
	for i := range guards {
		guards[i].mode = string(rune('a' + i))
	}
	modes := func(c config) (s string) {
		for _, g := range c.ofPart(guards) {
			s += g.mode
		}
		return s
	}
	for flag, want := range map[string]string{"1/1": "abcdefg", "1/3": "adg", "3/3": "cf", "2/9": "b"} {
		if c, err := parseFlags([]string{"-part", flag}); err != nil || modes(c) != want {
			t.Errorf("%s: %q, %v, want %q", flag, modes(c), err, want)
		}
	}
	for _, bad := range []string{"", "0/3", "4/3", "1", "x/y"} {
		if _, err := parseFlags([]string{"-part", bad}); err == nil {
			t.Errorf("-part %q is no error", bad)
		}
	}
	if all := modes(config{}); all != "abcdefg" {
		t.Errorf("without a part %q", all)
	}
}

const fixtureTable = `
section: Tanks
mode: 1 Overflow
must: Stops at the size.
guard: tank.go
package: .
test: ^TestFillStopsAtSize$
find:
	if level > size {
replace:
	if false {

mode: 2 Spring
must: Nothing is known.
`

// runIn writes the fixture's table to a file and runs the command with it.
func runIn(t *testing.T, args ...string) (string, error) {
	t.Helper()
	r := fixtureRunner(t)
	table := filepath.Join(t.TempDir(), "table.txt")
	if err := os.WriteFile(table, []byte(fixtureTable), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err := run(t.Context(), append([]string{"-dir", r.dir, "-table", table}, args...), &out)
	return out.String(), err
}

func TestRunPrintsATable(t *testing.T) {
	out, err := runIn(t)
	if err != nil {
		t.Fatal(err)
	}
	want := "mode | guard   | test                    | result\n" +
		"1    | tank.go | . ^TestFillStopsAtSize$ | ok: fails without the guard\n" +
		"modes without a guard: 2\n"
	if out != want {
		t.Errorf("got\n%swant\n%s", out, want)
	}
}

func TestRunRefuses(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-only", "3"}, `there is no mode "3"`},
		{[]string{"-only", "2"}, "no guard was checked"},
		{[]string{"-parallel", "0"}, "-parallel 0: must be at least 1"},
		{[]string{"more"}, `unexpected argument "more"`},
		{[]string{"-table", "none.txt"}, "no such file"},
		{[]string{"-stale", "none.md"}, "no such file"},
	} {
		if _, err := runIn(t, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got error %v, want %q", c.args, err, c.want)
		}
	}
}

func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		outcomes []outcome
		ok       bool
	}{
		{nil, false},
		{[]outcome{holds, holds}, true},
		{[]outcome{holds, missed}, false},
		{[]outcome{broken, holds}, false},
	} {
		var results []result
		for _, o := range c.outcomes {
			results = append(results, result{outcome: o})
		}
		if err := verdict(results); (err == nil) != c.ok {
			t.Errorf("%v: got %v", c.outcomes, err)
		}
	}
}

func TestGuardCells(t *testing.T) {
	for _, c := range []struct {
		packages []string
		want     string
	}{
		{nil, "none yet |"},
		{[]string{"."}, "1 | root"},
		{[]string{".", "./lease", ".", "./lease/etcd"}, "4 | root, `lease`, `lease/etcd`"},
	} {
		var guards []guard
		for _, p := range c.packages {
			guards = append(guards, guard{pkg: p})
		}
		if got := guardCells(guards); got != c.want {
			t.Errorf("%v: got %q, want %q", c.packages, got, c.want)
		}
	}
}

// A text with a bar does not end its cell.
func TestPageKeepsBars(t *testing.T) {
	text := page([]mode{{section: "Tanks", id: "1", title: "This|that", must: "Stops | or not."}})
	if want := `| 1 | This\|that | Stops \| or not. | none yet | |`; !bytes.Contains(text, []byte(want)) {
		t.Errorf("the page lacks %q:\n%s", want, text)
	}
}

func TestStalePage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	if _, err := runIn(t, "-docs", file); err != nil {
		t.Fatal(err)
	}
	if _, err := runIn(t, "-stale", file); err != nil {
		t.Errorf("fresh page: %v", err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"## Tanks\n\n| ", "\n| 1 | Overflow | Stops at the size. | 1 | root |\n",
		"\n| 2 | Spring | Nothing is known. | none yet | |\n"} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := runIn(t, "-stale", file); err == nil {
		t.Error("a changed page passes as fresh")
	}
}
