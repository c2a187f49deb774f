package readme

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The README stays short, its code included.
func TestReadmeIsShort(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(strings.Fields(string(text))); n > 1000 {
		t.Errorf("README.md has %d words, want at most 1000", n)
	}
}
