package main

import (
	"bytes"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quotient-go/quotient/internal/house/floors"
)

// module writes a module of one package and returns its directory.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module example.com/house\n\ngo 1.26\n"
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOWORK", "off")
	return dir
}

const list = "internal/house/floors/upward.txt"

// TestRun prints figures, fails above a bound only with -check, and lets the list grow only with -grow.
func TestRun(t *testing.T) {
	dir := module(t, map[string]string{
		"limiter.go": "// Package house is small.\npackage house\n\n" +
			"type Limiter struct{ A int }\n\nfunc New() *Limiter { return nil }\n",
		"bucket.go": "package house\n\nfunc (l *Limiter) refill() { l.A++ }\n",
		"x_test.go": "package house\n\n// " + strings.Repeat("é", 108) + "\n",
		"deep/y_test.go": "package deep\n\n// " + strings.Repeat("x", 108) +
			strings.Repeat("\n", 449),
		"deep/z_test.go":          "package deep\n" + strings.Repeat("\n", 449),
		"deep/testdata/v_test.go": "package v\n\n// " + strings.Repeat("x", 108) + strings.Repeat("\n", 449),
		list:                      floors.Header,
	})
	var out bytes.Buffer
	if err := run([]string{"-dir", dir}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2  files ", "9  lines\n", "5  lines of code ", "2  functions\n",
		"2  lines of code on the floors gate", "1  files on the floors gate", "1  lines of the longest",
		"0  lines over 110 columns ", "2  lines over 110 columns in tests", "1  test files over 450 lines",
		"2  exported names",
		"1  exported fields", "2  references that run up, undefended", "1  pairs of files"} {
		if !strings.Contains(out.String(), "  "+want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	err := run([]string{"-dir", dir, "-check"}, &out)
	if err == nil || !strings.Contains(err.Error(), "3 figures") {
		t.Errorf("-check with two references that run up, wide lines and a long file: got %v", err)
	}
	if err := run([]string{"-dir", dir, "-update"}, &out); err == nil {
		t.Error("-update let the list grow")
	}
	if err := run([]string{"-dir", dir, "-update", "-grow"}, &out); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, list))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"bucket.go Limiter", "bucket.go Limiter.A"}
	if got := floors.Parse(string(text)); !slices.Equal(got, want) {
		t.Errorf("got the list %q", got)
	}
}

// TestKindTests finds what asks for a rule's kind, in the field and in a variable, and nothing like it.
func TestKindTests(t *testing.T) {
	const rules = `package p

type (
	schedule struct{}
	ruleKind int
	resource interface{ left() int }
	bucket   struct{ turn *int }
	rule     struct{ window *schedule; kind ruleKind; name string; turn *int }
)

func (*bucket) left() int { return 0 }
func (*schedule) left() int { return 0 }
`
	for _, c := range []struct {
		body string
		want int
	}{
		{"_ = r.window == nil", 1},
		{"_ = nil != (r.window)", 1},
		{"if w := r.window; w != nil { return }", 1},
		{"switch { case r.window != nil: case r.turn != nil: }", 2},
		{"switch r.kind { case 1: }", 1},
		{"_ = r.kind == 2", 1},
		{"switch x.(type) { case *bucket: }", 1},
		{"_, _ = x.(*bucket)", 1},
		{"_ = x.(interface{ right() })", 1},
		{"_ = r.name == \"\"", 0},
		{"_ = b.turn == nil && x != nil", 1}, // of the same type as a rule's turn
		{"_, _ = any(b).(*bucket)", 0},
		{"_ = x.left() == 0", 0},
		{"w := r.window; w.left()", 0},
	} {
		body := "package p\n\nfunc f(r *rule, x resource, b *bucket) { " + c.body + " }\n"
		for file, want := range map[string]int{"gate.go": c.want, "replay.go": 0, "setting.go": 0} {
			p, err := floors.Load(module(t, map[string]string{"types.go": rules, file: body}))
			if err != nil {
				t.Fatalf("%s: %v", c.body, err)
			}
			if got := kindTests(p); len(got) != want || got.functions() != min(want, 1) {
				t.Errorf("%s: %s: got %v, want %d", file, c.body, got, want)
			}
		}
	}
}

func TestCodeLines(t *testing.T) {
	const src = "package p // here\n\n/* no\n\tcode */\nvar x = `one\n\ntwo`\n\n// none\nfunc f() {\n}\n"
	if got := codeLines([]byte(src)); got != 6 {
		t.Errorf("got %d lines of code, want 6", got)
	}
}

func TestWideLines(t *testing.T) {
	fits, wide := "\t//"+strings.Repeat("é", 104), "\t//"+strings.Repeat("é", 105)
	got := wideLines("a.go", []byte(fits+"\n"+wide+"\n"+fits+"\r\n"+wide+"\n"+wide), map[int]bool{5: true})
	if want := []string{"a.go:2: 111 columns", "a.go:4: 111 columns"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestRawLines finds the raw strings that cannot be wrapped, and no other.
func TestRawLines(t *testing.T) {
	fits, wide := "`"+strings.Repeat("é", 99)+"`", "`"+strings.Repeat("é", 100)+"`"
	src := "package p\n\nvar (\n\ta = " + fits + "\n\tb = " + wide + "\n\tc = `one\ntwo`\n\td = \"" +
		wide + "\"\n)\n"
	if got, want := rawLines([]byte(src)), (map[int]bool{5: true, 6: true, 7: true}); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestExported(t *testing.T) {
	for _, c := range []struct {
		src           string
		names, fields int
	}{
		{"const A, b = 1, 2; var C int", 2, 0},
		{"type T struct { A, B int; c int; io.Reader; d }", 1, 4},
		{"type t struct { A int }; func (t) Do() {}", 0, 0},
		{"type I interface { Do() }; type f func()", 1, 0},
		{"func F() {}; func (t *T[K]) Do() {}; func (t T) do() {}; func (t *t) Do() {}", 2, 0},
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "", "package p; "+c.src, 0)
		if err != nil {
			t.Fatal(err)
		}
		if names, fields := exported(f); names != c.names || fields != c.fields {
			t.Errorf("%s: got %d names, %d fields, want %d, %d", c.src, names, fields, c.names, c.fields)
		}
	}
}
