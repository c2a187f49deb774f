// Package readme compiles and runs what the README shows.
package readme

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// snippets are how many Go blocks some pages have at the least.
var snippets = map[string]int{
	"README.md":           4,
	"docs/cookbook.md":    40,
	"docs/coming-from.md": 15,
	"docs/kubernetes.md":  3,
	"docs/leases.md":      2,
	"docs/pool-size.md":   1,
	"docs/adaptive.md":    3,
}

// runAsPrograms are pages whose Go blocks are whole programs; a test writes, builds and runs them.
var runAsPrograms = map[string]bool{"docs/quickstart.md": true}

// Every Go block of every page stands, but for its indentation, in a file that the compiler sees. A block
// that shows another library is marked as such: its fence says "go before".
func TestSnippetsCompile(t *testing.T) {
	compiled := bare(goSources(t))
	found := map[string]int{}
	pages(t, func(name, text string) {
		if runAsPrograms[name] || name == "CHANGELOG.md" {
			return
		}
		for _, b := range goBlock.FindAllStringSubmatch(text, -1) {
			found[name]++
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

// goSources are all Go files of the repository.
func goSources(t *testing.T) string {
	t.Helper()
	var sources strings.Builder
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := strings.HasPrefix(d.Name(), ".") && name != root
		if d.IsDir() && (hidden || d.Name() == "testdata" || d.Name() == "node_modules") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(name)
		sources.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sources.String()
}
