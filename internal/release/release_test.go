package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fixture is a repository like this one, in small: config requires the root module, cmd requires both, and
// bench gets no version.
var fixture = map[string]string{
	"CHANGELOG.md":     "# Changelog\n\n## [Unreleased]\n\n## [0.1.0]\n- All of it.\n",
	"LICENSE":          "Do as you like.\n",
	"go.mod":           "module " + rootPath + "\n\ngo 1.26.0\n",
	"root.go":          "package quotient\n",
	"config/go.mod":    fixtureModule("config", ""),
	"config/config.go": "package config\n\nimport _ \"" + rootPath + "\"\n",
	"cmd/go.mod":       fixtureModule("cmd", "", "config"),
	"cmd/main.go":      "package main\n\nimport _ \"" + rootPath + "/config\"\n\nfunc main() {}\n",
	"bench/go.mod":     fixtureModule("bench", ""),
	"bench/bench.go":   "package bench\n\nimport _ \"" + rootPath + "\"\n",
}

// fixtureModule is the go.mod of dir, which requires and replaces modules of the repository.
func fixtureModule(dir string, requires ...string) string {
	text := "module " + rootPath + "/" + dir + "\n\ngo 1.26.0\n"
	for _, required := range requires {
		p := strings.TrimSuffix(rootPath+"/"+required, "/")
		text += "\nrequire " + p + " v0.0.0\n\nreplace " + p + " => ../" + required + "\n"
	}
	return text
}

// newFixture makes the repository of fixture, with changed files in place of its own.
func newFixture(t *testing.T, changed map[string]string) string {
	t.Helper()
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	repo := t.TempDir()
	for _, files := range []map[string]string{fixture, changed} {
		for name, text := range files {
			writeFile(t, filepath.Join(repo, name), text)
		}
	}
	git(t, repo, "init", "--quiet", "--initial-branch=main")
	git(t, repo, "config", "user.name", "A Maintainer")
	git(t, repo, "config", "user.email", "maintainer@example.com")
	git(t, repo, "add", ".")
	git(t, repo, "commit", "--quiet", "--message=all")
	return repo
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func git(t *testing.T, repo string, args ...string) string {
	t.Helper()
	out, err := run(t.Context(), repo, nil, "git", args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestReleaseIsOneCommitOffMain(t *testing.T) {
	repo := newFixture(t, nil)
	main := git(t, repo, "rev-parse", "main")
	tags, err := tag(t.Context(), repo, "v0.1.0", "2026-11-30")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"v0.1.0", "config/v0.1.0", "cmd/v0.1.0"}; !slices.Equal(tags, want) {
		t.Errorf("tags %v, want %v", tags, want)
	}
	for _, tag := range tags {
		if parent := git(t, repo, "rev-parse", tag+"^{commit}^"); parent != main {
			t.Errorf("%s: the parent of its commit is %s, want main, %s", tag, parent, main)
		}
	}
	if commits := git(t, repo, "rev-list", "--count", "--tags", "^main"); commits != "1" {
		t.Errorf("%s commits are tagged, want 1", commits)
	}
	if now := git(t, repo, "rev-parse", "main"); now != main {
		t.Errorf("main moved from %s to %s", main, now)
	}
	if status := git(t, repo, "status", "--porcelain"); status != "" {
		t.Errorf("files changed:\n%s", status)
	}
	log := git(t, repo, "show", "v0.1.0:CHANGELOG.md")
	if !strings.Contains(log, "\n## [0.1.0] - 2026-11-30\n") {
		t.Errorf("the changelog has no date:\n%s", log)
	}
	author := git(t, repo, "log", "-1", "--format=%an %ae", "v0.1.0")
	if author != "A Maintainer maintainer@example.com" {
		t.Errorf("the author is %s", author)
	}
}

func TestReleaseOfPublishedModulesHasNoReplace(t *testing.T) {
	repo := newFixture(t, nil)
	if _, err := tag(t.Context(), repo, "v0.1.0", "2026-11-30"); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		file      string
		has, hasn []string
	}{
		{"config/go.mod", []string{"require " + rootPath + " v0.1.0"}, []string{"replace", "v0.0.0"}},
		{"config/go.sum", []string{rootPath + " v0.1.0 h1:", rootPath + " v0.1.0/go.mod h1:"}, nil},
		{"cmd/go.mod", []string{rootPath + " v0.1.0", "/config v0.1.0"}, []string{"replace", "v0.0.0"}},
		{"cmd/go.sum", []string{rootPath + " v0.1.0 h1:", rootPath + "/config v0.1.0 h1:"}, nil},
		{"bench/go.mod", []string{"replace", "v0.0.0"}, []string{"v0.1.0"}},
	} {
		text := git(t, repo, "show", "v0.1.0:"+row.file)
		for _, want := range row.has {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q:\n%s", row.file, want, text)
			}
		}
		for _, not := range row.hasn {
			if strings.Contains(text, not) {
				t.Errorf("%s has %q:\n%s", row.file, not, text)
			}
		}
	}
}

func TestReleaseRefuses(t *testing.T) {
	for _, row := range []struct {
		name, version string
		changed       map[string]string
		prepare       func(t *testing.T, repo string)
		want          string
	}{
		{name: "no version", version: "", want: `VERSION is ""`},
		{name: "not semver", version: "0.1.0", want: `VERSION is "0.1.0"`},
		{name: "leading zero", version: "v0.01.0", want: `VERSION is "v0.01.0"`},
		{name: "pre-release", version: "v0.1.0-rc.1", want: `VERSION is "v0.1.0-rc.1"`},
		{name: "another module path", version: "v2.0.0", want: `VERSION is "v2.0.0"`},
		{name: "exists", version: "v0.1.0", want: "the tag v0.1.0 exists",
			prepare: func(t *testing.T, repo string) { git(t, repo, "tag", "v0.1.0") }},
		{name: "one module has it", version: "v0.1.0", want: "the tag config/v0.1.0 exists",
			prepare: func(t *testing.T, repo string) { git(t, repo, "tag", "config/v0.1.0") }},
		{name: "lower than the last", version: "v0.1.0", want: "the last release is v0.10.0",
			prepare: func(t *testing.T, repo string) {
				git(t, repo, "tag", "v0.10.0")
				git(t, repo, "tag", "v0.9.0")
			}},
		{name: "changed file", version: "v0.1.0", want: "not committed:\nM root.go",
			prepare: func(t *testing.T, repo string) {
				writeFile(t, filepath.Join(repo, "root.go"), "package quotient // changed\n")
			}},
		{name: "new file", version: "v0.1.0", want: "not committed:\n?? new.go",
			prepare: func(t *testing.T, repo string) {
				writeFile(t, filepath.Join(repo, "new.go"), "package quotient\n")
			}},
		{name: "another branch", version: "v0.1.0", want: `the branch is "next", want main`,
			prepare: func(t *testing.T, repo string) { git(t, repo, "switch", "--quiet", "--create=next") }},
		{name: "no section", version: "v0.2.0", want: `CHANGELOG.md needs one line "## [0.2.0]"`},
		{name: "requires a module without versions", version: "v0.1.0",
			want:    "cmd requires [" + rootPath + "/bench]",
			changed: map[string]string{"cmd/go.mod": fixtureModule("cmd", "bench")}},
		{name: "replaces another module", version: "v0.1.0", want: "config/go.mod replaces example.com/x",
			changed: map[string]string{
				"config/go.mod": fixtureModule("config", "") + "replace example.com/x => ../x\n"}},
		{name: "zip that the go command refuses", version: "v0.1.0", want: `"nul" disallowed`,
			changed: map[string]string{"testdata/nul": "a name that Windows reserves\n"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			repo := newFixture(t, row.changed)
			if row.prepare != nil {
				row.prepare(t, repo)
			}
			before := git(t, repo, "show-ref")
			_, err := tag(t.Context(), repo, row.version, "2026-11-30")
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("error %v, want one with %q", err, row.want)
			}
			if after := git(t, repo, "show-ref"); after != before {
				t.Errorf("a refused release left\n%s\nwhere\n%s\nwas", after, before)
			}
		})
	}
}

func TestRoundsRefuseACycle(t *testing.T) {
	a := module{path: rootPath + "/a", requires: []string{rootPath + "/b"}}
	b := module{path: rootPath + "/b", requires: []string{rootPath + "/a"}}
	if _, err := rounds([]module{a, b}); err == nil {
		t.Error("no error for two modules that require each other")
	}
}

// The table of modules without versions names directories that have a module.
func TestUnpublishedModulesExist(t *testing.T) {
	for dir, why := range unpublished {
		if _, err := os.Stat(filepath.Join("../..", dir, "go.mod")); err != nil || why == "" {
			t.Errorf("unpublished has %q because %q: %v", dir, why, err)
		}
	}
}
