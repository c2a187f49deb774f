// Package readme compiles and runs what the README shows.
package readme

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// snippets are the pages whose Go blocks are compiled, and how many blocks they have at the least.
var snippets = map[string]int{
	"README.md":           4,
	"docs/cookbook.md":    40,
	"docs/coming-from.md": 15,
	"docs/kubernetes.md":  3,
	"docs/leases.md":      2,
	"docs/pool-size.md":   1,
	"docs/adaptive.md":    3,
}

// Every Go block of these pages stands, to the letter, in a file that the compiler sees. A block that shows another library is marked
// as such: its fence says "go before".
func TestSnippetsCompile(t *testing.T) {
	var sources strings.Builder
	for _, pattern := range []string{"*_test.go", "../*/*.go", "../../*limit/*_test.go", "../../poolsize/*/example_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			sources.Write(text)
		}
	}
	for name, least := range snippets {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(text, -1)
		if len(blocks) < least {
			t.Errorf("%s: %d Go blocks, want %d", name, len(blocks), least)
		}
		for _, b := range blocks {
			if !strings.Contains(sources.String(), string(b[1])) {
				t.Errorf("%s: stands in no compiled file:\n%s", name, b[1])
			}
		}
	}
}
