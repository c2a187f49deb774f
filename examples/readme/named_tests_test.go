package readme

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every test that a page names exists, in a file that go test reads.
func TestNamedTestsExist(t *testing.T) {
	declared := map[string]bool{}
	declaration := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		for _, m := range declaration.FindAllSubmatch(text, -1) {
			declared[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	code := regexp.MustCompile("`(Test[A-Z]\\w+)`")
	pages(t, func(name, text string) {
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
