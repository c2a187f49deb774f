package readme

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A page of a package fits one screen.
const (
	packageLines = 40 // the code included
	packageWords = 200
)

// packagePages are folders whose README these tests hold. Any other README of a package is held too.
var packagePages = []string{
	"poolsize", "poolsize/dns", "poolsize/file", "poolsize/redis", "poolsize/etcd", "poolsize/kube",
	"poolsize/gossip", "poolsize/pooltest", "lease", "lease/etcd", "config", "cmd/quotient", "policy",
	"httplimit", "ginlimit", "echolimit", "echolimit-v4", "grpclimit", "examples",
	"admin",
}

var (
	goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")
	nolint  = regexp.MustCompile(` *//nolint:.*`)
	indent  = regexp.MustCompile(`(?m)^[\t ]+`)
)

// bare is code without indentation, and without the words for a linter.
func bare(code string) string { return indent.ReplaceAllString(nolint.ReplaceAllString(code, ""), "") }

// compiled returns the Go files of a folder and of those directly below it, bare.
func compiled(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	for _, pattern := range []string{"*.go", "*/*.go"} {
		files, err := filepath.Glob(filepath.Join(root, dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			all.WriteString(bare(string(text)))
		}
	}
	return all.String()
}

// faults returns what is wrong with the README of a package: its length, its links, its code.
func faults(text, sources, module string) (all []string) {
	if n := strings.Count(text, "\n"); n > packageLines {
		all = append(all, "more lines than a screen has")
	}
	if n := len(strings.Fields(page(text))); n > packageWords {
		all = append(all, "too many words")
	}
	if !strings.Contains(text, "docs/") {
		all = append(all, "no link to a page of docs")
	}
	installs := strings.Contains(text, "go get "+module+"\n") || strings.Contains(text, "go build -o ")
	if module != "" && !installs {
		all = append(all, "does not show how to install "+module)
	}
	for _, b := range goBlock.FindAllStringSubmatch(text, -1) {
		if !strings.Contains(sources, bare(b[1])) {
			all = append(all, "stands in no compiled file of the folder:\n"+b[1])
		}
	}
	return all
}

// moduleOf returns the path of the module that a folder is the root of; empty where it is not a root.
func moduleOf(dir string) string {
	text, err := os.ReadFile(filepath.Join(root, dir, "go.mod"))
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimPrefix(line, "module ")
}

// TestPackagePages holds the README of each package: one screen, a link to docs, an install line if the
// package is a module of its own, and code that is compiled.
func TestPackagePages(t *testing.T) {
	var found []string
	pages(t, func(name, text string) {
		dir := path.Dir(name)
		first, _, _ := strings.Cut(dir, "/")
		if path.Base(name) != "README.md" || slices.Contains([]string{".", "docs", "bench"}, first) {
			return
		}
		found = append(found, dir)
		for _, fault := range faults(text, compiled(t, dir), moduleOf(dir)) {
			t.Errorf("%s: %s", name, fault)
		}
	})
	for _, dir := range packagePages {
		if !slices.Contains(found, dir) {
			t.Errorf("%s has no README.md", dir)
		}
	}
}

// TestFaults checks that the test above can fail.
func TestFaults(t *testing.T) {
	const good = "# x\n\n[docs](../docs/x.md)\n\ngo get example.com/x\n\n```go\nif x {\n\ty()\n}\n```\n"
	const source = "func f() {\n\tif x {\n\t\ty() //nolint:errcheck // no\n\t}\n}\n"
	for _, c := range []struct {
		text   string
		faults int
	}{
		{good, 0},
		{strings.Replace(good, "docs/x.md", "x.md", 1), 1},
		{strings.Replace(good, "y()", "z()", 1), 1},
		{strings.Replace(good, "example.com/x", "example.com/y", 1), 1},
		{good + strings.Repeat("word ", packageWords), 1},
		{good + strings.Repeat("\n", packageLines), 1},
	} {
		if got := faults(c.text, bare(source), "example.com/x"); len(got) != c.faults {
			t.Errorf("%q: %q, want %d faults", c.text, got, c.faults)
		}
	}
}
