package main

import (
	"archive/zip"
	"encoding/json"
	"flag"
	"io"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

var install = flag.Bool("install", false, "make a release in a clone and install all its modules, a minute")

// installed is a release of this repository in a clone, and a proxy that has its modules.
type installed struct {
	version string
	modules []module
	dir     string              // where programs of users lie, each in a folder
	env     []string            // has the go command take our modules from the proxy
	sums    map[string]download // what the go command made of the tags, by module path
}

// download is what go mod download prints of a module.
type download struct{ Zip, Sum, GoModSum, Error string }

// Each published module of a release can be got, built and run by a module that knows nothing of this
// repository. The proxy is what the go command makes of the tags. The modules of others come from the
// machine's module cache.
func TestReleaseInstalls(t *testing.T) {
	if !*install {
		t.Skip("needs -args -install: make release-check")
	}
	in := newInstalled(t)
	for _, m := range in.modules {
		t.Run(m.dir, func(t *testing.T) {
			in.checkZip(t, m)
			in.checkProgram(t, m)
		})
	}
	t.Run("go install", in.checkCommand)
}

// newInstalled makes a release in a clone of what is committed here, and the proxy.
func newInstalled(t *testing.T) *installed {
	dir, repo := t.TempDir(), filepath.Join(t.TempDir(), "repo")
	here := git(t, ".", "rev-parse", "--show-toplevel")
	git(t, ".", "clone", "--quiet", "--shared", "--no-tags", here, repo)
	git(t, repo, "switch", "--quiet", "--force-create=main")
	for key, value := range map[string]string{"user.name": "A Test", "user.email": "test@example.com",
		"commit.gpgsign": "false", "tag.gpgsign": "false"} {
		git(t, repo, "config", key, value)
	}
	in := &installed{version: "v0.1.0", dir: dir, sums: map[string]download{}}
	start := time.Now()
	tags, err := tag(t.Context(), repo, in.version, "2026-11-30")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d modules are tagged after %v", len(tags), time.Since(start))
	git(t, repo, "checkout", "--quiet", in.version)
	r := &release{clone: repo, cache: filepath.Join(dir, "tags"), proxies: "off"}
	if in.modules, err = r.published(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, m := range in.modules {
		out, err := run(t.Context(), dir, r.env(), "go", "mod", "download", "-json", m.path+"@"+in.version)
		if err != nil {
			t.Fatalf("%s: %v\n%s", m.path, err, out)
		}
		var d download
		if err := json.Unmarshal([]byte(out), &d); err != nil || d.Error != "" {
			t.Fatalf("%s: %v %s", m.path, err, d.Error)
		}
		in.sums[m.path] = d
	}
	others, err := run(t.Context(), dir, nil, "go", "env", "GOMODCACHE")
	if err != nil {
		t.Fatal(err)
	}
	// -trimpath and no C, as make cross builds: so packages of others are built once for both.
	in.env = []string{"GOWORK=off", "GOFLAGS=-mod=mod -modcacherw -trimpath", "CGO_ENABLED=0", "GOSUMDB=off",
		"GOPRIVATE=", "GONOPROXY=", "GOBIN=" + filepath.Join(dir, "bin"),
		"GOMODCACHE=" + filepath.Join(dir, "modules"),
		"GOPROXY=" + proxyIn(r.cache) + "," + proxyIn(others) + ",off"}
	return in
}

// proxyIn is a module cache as an address of GOPROXY.
func proxyIn(cache string) string { return "file://" + filepath.ToSlash(cache) + "/cache/download" }

// checkZip requires that a module's zip has a licence and no other module, and that go.mod replaces nothing.
// The hashes of our modules in go.sum must be those that the go command computes from the tags.
func (in *installed) checkZip(t *testing.T, m module) {
	files := readZip(t, in.sums[m.path].Zip, m.path+"@"+in.version+"/")
	for name := range files {
		if strings.HasSuffix(name, "/go.mod") {
			t.Errorf("the zip has a module inside: %s", name)
		}
	}
	if !strings.Contains(files["LICENSE"], "Apache License") {
		t.Errorf("the zip has no licence: %v", slices.Sorted(maps.Keys(files)))
	}
	if len(m.replaces) > 0 || strings.Contains(files["go.mod"], "replace") {
		t.Errorf("go.mod replaces %v", m.replaces)
	}
	for _, required := range m.requires {
		sums := in.sums[required]
		for _, line := range []string{" " + sums.Sum, "/go.mod " + sums.GoModSum} {
			if line = required + " " + in.version + line + "\n"; !strings.Contains(files["go.sum"], line) {
				t.Errorf("go.sum lacks the line %s", line)
			}
		}
	}
}

// readZip is the text of each file in a zip, by its name without prefix.
func readZip(t *testing.T, name, prefix string) map[string]string {
	z, err := zip.OpenReader(name)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	files := map[string]string{}
	for _, f := range z.File {
		in, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(f.Name, prefix)] = string(text)
	}
	return files
}

// checkProgram gets a module in an empty one, and builds and runs a program that imports all its packages.
func (in *installed) checkProgram(t *testing.T, m module) {
	dir := filepath.Join(in.dir, "users", m.dir)
	writeFile(t, filepath.Join(dir, "go.mod"), "module user\n\ngo 1.26.0\n")
	in.run(t, dir, "go", "get", m.path+"@"+in.version)
	imports := importsOf(t, in.env, dir, m.path+"/...")
	if len(imports) == 0 && !strings.HasPrefix(m.dir, "cmd/") {
		t.Fatal("no package to import")
	}
	writeFile(t, filepath.Join(dir, "main.go"), program(imports))
	in.run(t, dir, "go", "build", "-o", "program", ".")
	in.run(t, dir, filepath.Join(dir, "program"))
	t.Logf("%d packages", len(imports))
}

// checkCommand installs the command as users do, and has it print its version.
func (in *installed) checkCommand(t *testing.T) {
	in.run(t, in.dir, "go", "install", rootPath+"/cmd/quotient@"+in.version)
	name := filepath.Join(in.dir, "bin", "quotient")
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	if got := in.run(t, in.dir, name, "--version"); !strings.HasPrefix(got, "quotient "+in.version+" ") {
		t.Errorf("quotient --version printed %q, want version %s", got, in.version)
	}
}

func (in *installed) run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	out, err := run(t.Context(), dir, in.env, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
