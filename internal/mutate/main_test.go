package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// changed returns, for a function of this body, what each mutant of a kind makes of a line.
func changed(t *testing.T, kind, head, body string) []string {
	t.Helper()
	ms, err := mutantsOf("x.go", []byte("package x\n\n"+head+" {\n"+body+"\n}\n"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range ms {
		if m.kind == kind {
			_, after, _ := strings.Cut(m.diff(), "  + ")
			got = append(got, strings.TrimSpace(after))
		}
	}
	return got
}

func TestMutants(t *testing.T) {
	for _, c := range []struct {
		kind, head, body string
		want             []string
	}{
		{"operator", "func f(a, b int) bool", "return a < b", []string{"return a <= b", "return a >= b"}},
		{"operator", "func f(a, b int) bool", "return a >= b", []string{"return a > b", "return a < b"}},
		{"operator", "func f(a, b int) bool", "return a == b", []string{"return a != b"}},
		{"operator", "func f(a, b bool) bool", "return a && b", []string{"return a || b"}},
		{"operator", "func f(a, b int) int", "return a * b", []string{"return a / b"}},
		{"operator", "func f(a int)", "a += 2", []string{"a -= 2"}},
		{"operator", "func f(a int)", "a++", []string{"a--"}},
		{"boundary", "func f() int", "return 0x10", []string{"return 17", "return 15"}},
		{"boundary", "func f()", "var _ [4]int", nil},
		{"boundary", "func f() string", `return "1"`, nil},
		{"condition", "func f(a, b int)", "if a < b || a == 0 {}", []string{"if !(a < b || a == 0) {}"}},
		{"removal", "func f(a int)", "a = 1", []string{""}},
		{"removal", "func f(a int)", "a--", []string{""}},
		{"removal", "func f(g func())", "g()", []string{""}},
		{"removal", "func f(a int)", "if a = 2; a > 1 {}", []string{"if ; a > 1 {}"}},
		{"removal", "func f(a chan int)", "b := <-a; <-a; select { case <-a: }; for range b {}", nil},
		{"removal", "func f(a int)", "switch a { case 1: a = 2 }", []string{"switch a { case 1:  }"}},
		{"return", "func f() (int, error, *int, T)", "return g()", []string{"return 0, nil, nil, *new(T)"}},
		{"return", "func f() (a, b bool)", "return true, a", []string{"return false, false"}},
		{"return", "func f() []int", "return nil", nil},
		{"return", "func f() [2]int", "return g", []string{"return *new([2]int)"}},
		{"return", "func f() string", "h(func() bool { return a }); return b",
			[]string{`h(func() bool { return false }); return b`, `h(func() bool { return a }); return ""`}},
		{"return", "func f() (a int)", "return", nil},
		{"branch", "func f()", "for { break }", []string{"for { continue }"}},
	} {
		if got := changed(t, c.kind, c.head, c.body); !slices.Equal(got, c.want) {
			t.Errorf("%s of %q: %q, want %q", c.kind, c.body, got, c.want)
		}
	}
}

func TestDiffOfSeveralLines(t *testing.T) {
	ms, err := mutantsOf("x.go", []byte("package x\n\nfunc f() {\n\tg(1,\n\t\tx)\n}\n"))
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(ms, func(m mutant) bool { return m.kind == "removal" })
	want := "  - \tg(1,\n  - \t\tx)\n  + \t\n"
	if got := ms[i].diff(); got != want || ms[i].line != 4 {
		t.Errorf("line %d:\n%swant\n%s", ms[i].line, got, want)
	}
}

func TestSeedDrawsTheSame(t *testing.T) {
	draw := func(seed uint64) string {
		ms, err := allMutants(".", []string{"main.go", "run.go"}, seed)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, m := range ms {
			ids = append(ids, m.id())
		}
		if distinct := slices.Compact(slices.Sorted(slices.Values(ids))); len(distinct) != len(ids) {
			t.Errorf("%d ids for %d mutants", len(distinct), len(ids))
		}
		return strings.Join(ids[:10], "\n")
	}
	first, again, other := draw(1), draw(1), draw(2)
	if first != again || first == other {
		t.Error("a seed does not say what is drawn")
	}
}

// play runs the command on the fixture.
func play(t *testing.T, args ...string) (string, error) {
	t.Helper()
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "")
	var out bytes.Buffer
	err := run(t.Context(),
		append([]string{"-dir", filepath.Join("testdata", "fixture"), "-files", "count.go"}, args...), &out)
	return out.String(), err
}

func TestRun(t *testing.T) {
	done := filepath.Join(t.TempDir(), "done")
	out, err := play(t, "-n", "0", "-timeout", "2s", "-done", done, "-least", "99")
	if err == nil || !strings.Contains(err.Error(), "% killed, want 99") {
		t.Errorf("error %v", err)
	}
	for _, want := range []string{
		"count.go:11 return: killed TestCountTo",
		"count.go:8 removal: timed out TestCountTo (2s)",
		"SURVIVED count.go:15 operator\n  - func loose(n int) bool { return n < 3 }\n  + func loose(n int) " +
			"bool { return n <= 3 }\n",
		"SURVIVED count.go:15 return\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	again, _ := play(t, "-n", "0", "-timeout", "2s", "-done", done)
	if sum := out[strings.LastIndex(strings.TrimSpace(out), "\n"):]; !strings.HasSuffix(again, sum) {
		t.Errorf("from the file of results: %swant %s", again, sum)
	}
}

func TestRunGoesOn(t *testing.T) {
	done := filepath.Join(t.TempDir(), "done")
	if _, err := play(t, "-n", "2", "-timeout", "2s", "-done", done); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(done)
	if err != nil {
		t.Fatal(err)
	}
	lies := bytes.ReplaceAll(text, []byte(`"timed out"`), []byte(`"killed"`))
	lies = bytes.ReplaceAll(lies, []byte(`"killed"`), []byte(`"SURVIVED"`))
	if err := os.WriteFile(done, lies, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := play(t, "-n", "2", "-timeout", "2s", "-done", done)
	if err != nil || !strings.Contains(out, "0 of 2 killed") {
		t.Errorf("it does not believe the file of results: %v\n%s", err, out)
	}
}

func TestRunRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"-n", "-1"}, {"-parallel", "0"}, {"more"}, {"-files", ""}, {"-files", "none.go"}, {"-run", "NoSuch"},
	} {
		if out, err := play(t, args...); err == nil {
			t.Errorf("%q: no error\n%s", args, out)
		}
	}
}
