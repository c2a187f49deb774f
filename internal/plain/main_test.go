package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tree writes files below a new directory and returns it.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestExpand(t *testing.T) {
	dir := tree(t, map[string]string{
		"a.go": "", "a.md": "", "a.txt": "", "sub/b.go": "", "sub/Makefile": "", "sub/c.yaml": "",
		"sub/testdata/c.go": "", ".git/d.md": "", "_old/e.go": "", "empty/f.txt": "",
	})
	for _, c := range []struct {
		paths, want []string
	}{
		{[]string{""}, []string{"a.go", "a.md"}},
		{[]string{"/..."}, []string{"a.go", "a.md", "sub/Makefile", "sub/b.go", "sub/c.yaml"}},
		{[]string{"/a.go", "/sub", ""}, []string{"a.go", "a.md", "sub/Makefile", "sub/b.go", "sub/c.yaml"}},
		{[]string{"/a.txt"}, []string{"a.txt"}},
		{[]string{"/empty"}, nil},
		{[]string{"/missing"}, nil},
		{nil, nil},
	} {
		var paths, got []string
		for _, p := range c.paths {
			paths = append(paths, dir+p)
		}
		files, err := expand(paths)
		for _, f := range files {
			rel, err := filepath.Rel(dir, f)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, filepath.ToSlash(rel))
		}
		if !slices.Equal(got, c.want) || (err != nil) != (c.want == nil) {
			t.Errorf("%q: %q, %v; want %q", c.paths, got, err, c.want)
		}
	}
}

func TestRun(t *testing.T) {
	excused := "package p\n\n// nobody\n//\n//plain:ok a quotation\nvar x int\n"
	files := map[string]string{
		"bad.go":  "// Package p, nobody.\npackage p\n\n// x hears nobody.\nvar x int\n",
		"good.md": "All is well.\n",
	}
	six := []string{"e1.go", "e2.go", "e3.go", "e4.go", "e5.go", "e6.go"}
	for _, name := range six {
		files[name] = excused
	}
	dir := tree(t, files)
	in := func(names ...string) []string {
		var paths []string
		for _, name := range names {
			paths = append(paths, filepath.Join(dir, name))
		}
		return paths
	}
	for _, c := range []struct {
		name  string
		files []string
		count bool
		clean bool
		want  []string
	}{
		{"nothing wrong", in("good.md"), false, true, nil},
		{"hits", in("bad.go", "good.md"), false, false,
			[]string{"bad.go:1: nobody: ", "bad.go:4: hears: ", "bad.go:4: nobody: "}},
		{"counts", in("bad.go"), true, false, []string{"     2  nobody", "     1  hears", "     3  in all"}},
		{"five excuses", in(six[:5]...), false, true, nil},
		{"six excuses", in(six...), false, false, []string{"6 lines are excused"}},
	} {
		var out strings.Builder
		clean, err := run(&out, c.files, 0, c.count)
		if err != nil || clean != c.clean {
			t.Errorf("%s: clean %v, error %v", c.name, clean, err)
		}
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if out.Len() == 0 {
			lines = nil
		}
		ok := len(lines) == len(c.want)
		for i := 0; ok && i < len(lines); i++ {
			ok = strings.Contains(lines[i], c.want[i])
		}
		if !ok {
			t.Errorf("%s: printed %q, want %q", c.name, lines, c.want)
		}
	}
}
