// Package readme compiles and runs what the pages show.
package readme

import (
	"bytes"
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

var (
	fence   = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	code    = regexp.MustCompile("`[^`\n]*`")
	link    = regexp.MustCompile(`!?\[[^\]]*\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *#*$`)
	noSlug  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")
	nolint  = regexp.MustCompile(` *//nolint:.*`)
	indent  = regexp.MustCompile(`(?m)^[\t ]+`)
	rows    = regexp.MustCompile(`\n\n(\|[^\n]*)\n(?:[^|]|\|[ :]*[^ :-])`) // without the head of a table
)

// page is a Markdown file without its code.
func page(text string) string { return fence.ReplaceAllString(text, "") }

// anchors are the names that GitHub gives to the headings of a page.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(page(text), -1) {
		title := link.ReplaceAllStringFunc(m[1],
			func(l string) string { return l[strings.Index(l, "[")+1 : strings.Index(l, "]")] })
		slug := strings.ReplaceAll(noSlug.ReplaceAllString(strings.ToLower(title), ""), " ", "-")
		name := slug
		for n := 1; all[name]; n++ {
			name = slug + "-" + strconv.Itoa(n)
		}
		all[name] = true
	}
	return all
}

// broken says what is wrong with a link of the page at from; empty when nothing is.
func broken(files fs.FS, from, to string) string {
	file, anchor, _ := strings.Cut(to, "#")
	if strings.Contains(file, "://") || strings.HasPrefix(file, "mailto:") {
		return ""
	}
	target := path.Join(path.Dir(from), file)
	if file == "" {
		target = from
	}
	if _, err := fs.Stat(files, target); err != nil {
		return err.Error()
	}
	if anchor == "" || !strings.HasSuffix(target, ".md") {
		return ""
	}
	text, err := fs.ReadFile(files, target)
	if err != nil {
		return err.Error()
	}
	if !anchors(string(text))[anchor] {
		return "no heading #" + anchor + " in " + target
	}
	return ""
}

// files calls visit for each file of the repository with that ending, by its name from the top.
func files(t *testing.T, ending string, visit func(name, text string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := strings.HasPrefix(d.Name(), ".") && name != root
		if d.IsDir() && (hidden || d.Name() == "testdata" || d.Name() == "node_modules") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ending) {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		visit(filepath.ToSlash(rel), string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Every relative link of every page leads to a file, and every anchor to a heading.
func TestLinks(t *testing.T) {
	tree, found := os.DirFS(root), 0
	files(t, ".md", func(name, text string) {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(page(text), "x"), -1) {
			found++
			if why := broken(tree, name, m[1]); why != "" {
				t.Errorf("%s: link to %s: %s", name, m[1], why)
			}
		}
	})
	if found < 100 {
		t.Errorf("only %d links were found", found)
	}
}

// TestTables checks that no blank line cuts a table in two, of which the second is no table.
func TestTables(t *testing.T) {
	files(t, ".md", func(name, text string) {
		for _, m := range rows.FindAllStringSubmatch(page(text), -1) {
			t.Errorf("%s: no table has the row %s", name, m[1])
		}
	})
}

// TestBroken checks that the test of links can fail.
func TestBroken(t *testing.T) {
	const text = "# A `code` title: 1.5 x\n\n## Two\n\n## Two\n\n```\n# not a heading\n```\n"
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.md"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for to, good := range map[string]bool{
		"#a-code-title-15-x": true, "#two": true, "a.md#two-1": true, "a.md": true,
		"https://example.com/none": true, "../x/a.md": false,
		"#two-2": false, "#not-a-heading": false, "b.md": false, "b.md#two": false, "#Two": false,
	} {
		if why := broken(os.DirFS(dir), "a.md", to); (why == "") != good {
			t.Errorf("%s: %q", to, why)
		}
	}
}

// snippets are how many Go blocks some pages have at the least.
var snippets = map[string]int{
	"README.md":           3,
	"docs/cookbook.md":    14,
	"docs/coming-from.md": 4,
	"docs/kubernetes.md":  1,
	"docs/leases.md":      1,
	"docs/pool-size.md":   2,
	"docs/adaptive.md":    3,
}

// runAsPrograms are pages whose Go blocks are whole programs; a test writes, builds and runs them.
var runAsPrograms = map[string]bool{"docs/quickstart.md": true}

// Every Go block of every page stands, but for its indentation, in a file that the compiler sees. A block
// that shows another library is marked as such: its fence says "go before".
func TestSnippetsCompile(t *testing.T) {
	var sources strings.Builder
	files(t, ".go", func(_, text string) { sources.WriteString(text) })
	compiled := bare(sources.String())
	found := map[string]int{}
	files(t, ".md", func(name, text string) {
		if runAsPrograms[name] || name == "CHANGELOG.md" {
			return
		}
		for _, b := range goBlock.FindAllStringSubmatch(text, -1) {
			found[name]++
			if name == "README.md" && !strings.HasPrefix(b[1], "package ") {
				t.Errorf("%s: not a whole file:\n%s", name, b[1])
			}
			if !strings.Contains(compiled, bare(b[1])) {
				t.Errorf("%s: stands in no compiled file:\n%s", name, b[1])
			}
		}
	})
	for name, least := range snippets {
		if found[name] < least {
			t.Errorf("%s: %d Go blocks, want %d", name, found[name], least)
		}
	}
}

// bare is code without indentation, and without the words for a linter.
func bare(code string) string { return indent.ReplaceAllString(nolint.ReplaceAllString(code, ""), "") }

// tours are how many Go blocks the comments of some packages have.
var tours = map[string]int{".": 8, "policy": 3, "httplimit": 6, "config": 3, "lease": 3, "admin": 4}

// Every Go block of a package's comment stands, but for its indentation, in the examples of these packages: those of
// policy may not import its callers. Its links lead to names, and it has all options.
func TestToursCompile(t *testing.T) {
	var examples strings.Builder
	for dir := range tours {
		text, err := os.ReadFile(filepath.Join(root, dir, "example_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		examples.Write(text)
	}
	for dir, want := range tours {
		if got := tour(t, packageOf(t, dir), bare(examples.String())); got != want {
			t.Errorf("%s: %d Go blocks, want %d", dir, got, want)
		}
	}
}

// packageOf is the documentation of a package.
func packageOf(t *testing.T, dir string) *doc.Package {
	t.Helper()
	sources, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	fset, parsed := token.NewFileSet(), []*ast.File{}
	for _, name := range sources {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, f)
	}
	pkg, err := doc.NewFromFiles(fset, parsed, dir)
	if err != nil {
		t.Fatal(err)
	}
	return pkg
}

// isGo reports whether text would be a file of Go behind a package clause.
func isGo(text string) bool {
	_, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+text, parser.SkipObjectResolution)
	return err == nil
}

// tour checks the comment of a package, and returns how many Go blocks it has.
func tour(t *testing.T, pkg *doc.Package, examples string) (blocks int) {
	t.Helper()
	for _, b := range pkg.Parser().Parse(pkg.Doc).Content {
		code, ok := b.(*comment.Code)
		if !ok {
			continue
		}
		if !isGo("func _() {\n"+code.Text+"\n}") && !isGo(code.Text) {
			continue // of another language
		}
		if blocks++; !strings.Contains(examples, bare(code.Text)) {
			t.Errorf("package %s: stands in no example:\n%s", pkg.Name, code.Text)
		}
	}
	for _, of := range pkg.Types {
		for _, f := range of.Funcs {
			if strings.HasSuffix(of.Name, "Option") && !strings.Contains(pkg.Doc, "["+f.Name+"]") {
				t.Errorf("package %s: the comment does not name the option %s", pkg.Name, f.Name)
			}
		}
	}
	if dead := regexp.MustCompile(`\[\*?[A-Z][\w.]*\]`).FindAllString(string(pkg.Text(pkg.Doc)), -1); dead != nil {
		t.Errorf("package %s: links to no name: %v", pkg.Name, dead)
	}
	return blocks
}

// Every test that a page names exists, in a file that go test reads.
func TestNamedTestsExist(t *testing.T) {
	declared := map[string]bool{}
	declaration := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	files(t, "_test.go", func(_, text string) {
		for _, m := range declaration.FindAllStringSubmatch(text, -1) {
			declared[m[1]] = true
		}
	})
	named := 0
	code := regexp.MustCompile("`(Test[A-Z]\\w+)`")
	files(t, ".md", func(name, text string) {
		for _, m := range code.FindAllStringSubmatch(text, -1) {
			if named++; !declared[m[1]] {
				t.Errorf("%s names %s, which no file declares", name, m[1])
			}
		}
	})
	if named < 40 {
		t.Errorf("%d tests are named, want at least 40", named)
	}
	bounds, err := os.ReadFile(filepath.Join(root, "docs", "bounds.md"))
	if n := bytes.Count(bounds, []byte("`TestProperty")); err != nil || n < 30 {
		t.Errorf("docs/bounds.md names %d properties, want at least 30: %v", n, err)
	}
}
