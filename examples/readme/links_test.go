package readme

import (
	"encoding/xml"
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

// pages calls visit for each Markdown file of the repository.
func pages(t *testing.T, visit func(name, text string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := strings.HasPrefix(d.Name(), ".") && name != root
		if d.IsDir() && (hidden || d.Name() == "testdata" || d.Name() == "node_modules") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".md") {
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
	files, found := os.DirFS(root), 0
	pages(t, func(name, text string) {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(page(text), "x"), -1) {
			found++
			if why := broken(files, name, m[1]); why != "" {
				t.Errorf("%s: link to %s: %s", name, m[1], why)
			}
		}
	})
	if found < 100 {
		t.Errorf("only %d links were found", found)
	}
}

// TestBroken checks that the test above can fail.
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

// Pictures that are written by hand parse, and say in words what they show.
func TestPicturesHaveWords(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "docs", "pictures", "*.svg"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d pictures, %v", len(files), err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var picture struct {
			Title string `xml:"title"`
			Desc  string `xml:"desc"`
		}
		if err := xml.Unmarshal(text, &picture); err != nil || picture.Title == "" || picture.Desc == "" {
			t.Errorf("%s: title %q, desc %q, %v", f, picture.Title, picture.Desc, err)
		}
	}
}
