//go:build unix

package readme

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var lasted = regexp.MustCompile(`\b[0-9]+s\b`)

// sameButTime reports whether two texts differ in nothing but whole seconds.
func sameButTime(a, b string) bool {
	return lasted.ReplaceAllString(a, "1s") == lasted.ReplaceAllString(b, "1s")
}

// newModules returns a folder with a clone of the repository in it, and the environment of a new module
// there. Modules that have been downloaded before are not downloaded again.
func newModules(t *testing.T) (dir string, env []string) {
	t.Helper()
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if err := os.Symlink(here, filepath.Join(dir, "quotient")); err != nil {
		t.Skip(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	cache, proxy, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	downloaded := "file://" + filepath.ToSlash(filepath.Join(cache, "cache", "download"))
	return dir, []string{"GOWORK=off", "GOFLAGS=-mod=mod", "GOPROXY=" + downloaded + "," + proxy}
}

// Every program of the quickstart is written, built and run as the page says, and prints what the page shows.
func TestQuickstart(t *testing.T) {
	dir, env := newModules(t)
	addr := freeAddr(t)
	here := strings.NewReplacer("localhost:8080", addr)
	programs := 0
	(&player{
		page: "docs/quickstart.md", here: here, same: sameButTime,
		before: func(b block) {
			first, _, _ := strings.Cut(b.text, "\n")
			name, ok := strings.CutPrefix(first, "// ")
			if b.language != "go" || !ok || filepath.Ext(name) != ".go" {
				t.Fatalf("a block of %q that begins with %q: want Go with the name of a file",
					b.language, first)
			}
			file := filepath.Join(dir, "tour", name)
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(here.Replace(b.text)), 0o600); err != nil {
				t.Fatal(err)
			}
			programs++
		},
		server: func(command string) []string {
			if command == "go run ./server" {
				return []string{"localhost:8080"}
			}
			return nil
		},
	}).play(t, newShell(t, dir, env...))
	if programs != 3 {
		t.Errorf("%d programs, want 3", programs)
	}
}
