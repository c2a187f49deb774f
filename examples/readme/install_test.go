package readme

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const userProgram = `package main

import (
	"fmt"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/poolsize/redis"
)

func main() { fmt.Println(quotient.PerSecond(100), redis.Source{Fleet: "web"}.Fleet) }
`

// The README stays short, its code included.
func TestReadmeIsShort(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(strings.Fields(string(text))); n > 1100 {
		t.Errorf("README.md has %d words, want at most 1100", n)
	}
}

// A module outside the repository builds with the lines that the README gives for go.mod.
func TestReadmeInstalls(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile("(?s)```\n(require .*?)```").FindSubmatch(text)
	if lines == nil {
		t.Fatal("README.md has no block that begins with require")
	}
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	mod := "module user\n\ngo 1.26\n\n" + strings.ReplaceAll(string(lines[1]), "../quotient", here)
	for name, content := range map[string]string{"go.mod": mod, "main.go": userProgram} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", os.DevNull, ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GOPROXY=off", "GOSUMDB=off") // no network
	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
