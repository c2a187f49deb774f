package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A module outside the repository builds with the lines that the README gives for go.mod. Its lines for
// poolsize/redis, with another directory, are enough for each nested module.
func TestReadmeInstalls(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile("(?s)```\n(require .*?)```").FindSubmatch(text)
	if lines == nil || !strings.Contains(string(lines[1]), "poolsize/redis") {
		t.Fatalf("README.md has no block that begins with require and has poolsize/redis: %s", lines)
	}
	r := &release{clone: root}
	modules, err := r.published(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tested := 0
	for _, m := range modules {
		imports := importsOf(t, nil, filepath.Join(root, m.dir), "./...")
		if len(imports) == 0 || m.dir == "." { // a command, or the module that all others need
			continue
		}
		tested++
		dir, mod := t.TempDir(), strings.ReplaceAll(string(lines[1]), "poolsize/redis", m.dir)
		mod = strings.ReplaceAll(mod, "../quotient", filepath.ToSlash(root))
		writeFile(t, filepath.Join(dir, "go.mod"), "module user\n\ngo 1.26.0\n\n"+mod)
		writeFile(t, filepath.Join(dir, "main.go"), program(append(imports, rootPath)))
		// The build list of one module may have versions that the workspace has not: the proxy is open.
		env := []string{"GOWORK=off", "GOFLAGS=-mod=mod"}
		if _, err := run(t.Context(), dir, env, "go", "build", "-o", os.DevNull, "."); err != nil {
			t.Errorf("%s: %v", m.dir, err)
		}
	}
	if tested < 11 {
		t.Errorf("%d nested modules were tested, want 11 or more", tested)
	}
}

// importsOf lists the packages of a pattern that programs of others may import.
func importsOf(t *testing.T, env []string, dir, pattern string) []string {
	t.Helper()
	format := `-f={{if and .GoFiles (ne .Name "main")}}{{.ImportPath}}{{end}}`
	out, err := run(t.Context(), dir, env, "go", "list", format, pattern)
	if err != nil {
		t.Fatal(err)
	}
	var imports []string
	for p := range strings.FieldsSeq(out) {
		if !strings.Contains("/"+p+"/", "/internal/") {
			imports = append(imports, p)
		}
	}
	return imports
}

// program is a program that imports packages and prints that it ran.
func program(imports []string) string {
	text := "package main\n\n"
	for _, p := range imports {
		text += "import _ \"" + p + "\"\n"
	}
	return text + "\nfunc main() { println(\"ran\") }\n"
}
