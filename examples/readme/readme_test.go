// Package readme compiles and runs what the README shows.
package readme

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every Go block of the README stands, to the letter, in a file that the compiler sees.
func TestReadmeSnippetsCompile(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var sources strings.Builder
	for _, pattern := range []string{"*_test.go", "../*/*.go"} {
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
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(readme, -1)
	if len(blocks) < 3 {
		t.Fatalf("%d Go blocks in the README", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(sources.String(), string(b[1])) {
			t.Errorf("stands in no compiled file:\n%s", b[1])
		}
	}
}

// Every relative link of the README leads somewhere.
func TestReadmeLinks(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`\]\(([^)#]+)\)`).FindAllSubmatch(readme, -1) {
		link := string(m[1])
		if strings.Contains(link, "://") {
			continue
		}
		if _, err := os.Stat(filepath.Join("..", "..", filepath.FromSlash(link))); err != nil {
			t.Errorf("link to %s: %v", link, err)
		}
	}
}
