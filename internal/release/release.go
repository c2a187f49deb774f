package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// rootPath is the path of the root module. Its repository is at https:// and this path.
const rootPath = "github.com/quotient-go/quotient"

// release makes one version in a clone.
type release struct {
	version version
	clone   string // a clone of the repository, where the commit is made
	cache   string // a module cache for this release alone, since its versions are not final
	proxies string // where the modules of others come from: GOPROXY
}

// tag makes a release of the repository in repo, and returns its tags, that of the root module first.
// After an error the repository has none of them.
func tag(ctx context.Context, repo, name, date string) (tags []string, err error) {
	v, err := parseVersion(name)
	if err != nil {
		return nil, err
	}
	changelog, err := check(ctx, repo, v, date)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "release")
	if err != nil {
		return nil, err
	}
	r := &release{version: v, clone: filepath.Join(dir, "clone"), cache: filepath.Join(dir, "modules")}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := r.copyRepo(ctx, repo); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(r.clone, "CHANGELOG.md"), []byte(changelog), 0o600); err != nil {
		return nil, err
	}
	tags, err = r.commit(ctx)
	if err != nil {
		return nil, err
	}
	fetch := []string{"fetch", "--quiet", "--atomic", "--no-tags", r.clone}
	for _, tag := range tags {
		fetch = append(fetch, "refs/tags/"+tag+":refs/tags/"+tag)
	}
	_, err = run(ctx, repo, nil, "git", fetch...)
	return tags, err
}

// check refuses a release that cannot be made, and returns the changelog with the date of the release.
func check(ctx context.Context, repo string, v version, date string) (changelog string, err error) {
	branch, err := run(ctx, repo, nil, "git", "rev-parse", "--abbrev-ref", "HEAD")
	if err != nil {
		return "", err
	}
	if branch != "main" {
		return "", fmt.Errorf("the branch is %q, want main", branch)
	}
	status, err := run(ctx, repo, nil, "git", "status", "--porcelain")
	if err != nil {
		return "", err
	}
	if status != "" {
		return "", fmt.Errorf("files are not committed:\n%s", status)
	}
	tags, err := run(ctx, repo, nil, "git", "tag", "--list")
	if err != nil {
		return "", err
	}
	if err := checkNew(v, strings.Fields(tags)); err != nil {
		return "", err
	}
	text, err := run(ctx, repo, nil, "git", "show", "HEAD:CHANGELOG.md")
	if err != nil {
		return "", err
	}
	return dated(text+"\n", v, date)
}

// copyRepo clones main of repo without its tags, and copies the settings that a commit and a tag need.
func (r *release) copyRepo(ctx context.Context, repo string) error {
	top, err := run(ctx, repo, nil, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	clone := []string{"clone", "--quiet", "--shared", "--no-tags", "--branch=main", top, r.clone}
	if _, err := run(ctx, repo, nil, "git", clone...); err != nil {
		return err
	}
	for _, key := range []string{"user.name", "user.email", "user.signingkey", "gpg.format",
		"commit.gpgsign", "tag.gpgsign"} {
		value, err := run(ctx, repo, nil, "git", "config", "--default=", "--get", key)
		if err != nil {
			return err
		}
		if value == "" {
			continue
		}
		if _, err := r.git(ctx, "config", key, value); err != nil {
			return err
		}
	}
	env, err := run(ctx, repo, nil, "go", "env", "GOMODCACHE", "GOPROXY")
	cache, proxies, _ := strings.Cut(env, "\n")
	r.proxies = "file://" + filepath.ToSlash(cache) + "/cache/download," + proxies
	return err
}

// commit makes the release commit and its tags, and returns their names. The go command reads each module
// from its tag, as it will for users, so the hashes in go.sum are those that users see. A module is tagged
// before the modules that require it are written. At the end all tags move to the final commit, which leaves
// each module as it was: a module has no files of nested ones.
func (r *release) commit(ctx context.Context) (tags []string, err error) {
	all, err := r.published(ctx)
	if err != nil {
		return nil, err
	}
	order, err := rounds(all)
	if err != nil {
		return nil, err
	}
	amend, message := "--allow-empty", "--message=Release "+r.version.String()
	for _, round := range order {
		for _, m := range round {
			if err := r.write(ctx, m); err != nil {
				return nil, err
			}
		}
		if _, err := r.git(ctx, "add", "--all"); err != nil {
			return nil, err
		}
		if _, err := r.git(ctx, "commit", "--quiet", amend, message); err != nil {
			return nil, err
		}
		amend = "--amend"
		for _, m := range round {
			tags = append(tags, m.tag(r.version))
			if _, err := r.git(ctx, "-c", "tag.gpgsign=false", "tag", m.tag(r.version)); err != nil {
				return nil, err
			}
		}
	}
	for _, tag := range tags {
		if _, err := r.git(ctx, "tag", "--force", "--annotate", "--message="+tag, tag); err != nil {
			return nil, err
		}
	}
	return tags, nil
}

// write has a module require the modules of the repository at the version of the release, and replace none.
func (r *release) write(ctx context.Context, m module) error {
	edit := []string{"mod", "edit"}
	for _, p := range m.requires {
		edit = append(edit, "-require="+p+"@"+r.version.String())
	}
	for _, p := range m.replaces {
		edit = append(edit, "-dropreplace="+p)
	}
	if len(edit) == 2 {
		return nil
	}
	if _, err := r.goCommand(ctx, m.dir, edit...); err != nil {
		return err
	}
	_, err := r.goCommand(ctx, m.dir, "mod", "tidy")
	return err
}

// git runs git in the clone.
func (r *release) git(ctx context.Context, args ...string) (string, error) {
	return run(ctx, r.clone, nil, "git", args...)
}

// goCommand runs the go command in a directory of the clone.
func (r *release) goCommand(ctx context.Context, dir string, args ...string) (string, error) {
	return run(ctx, filepath.Join(r.clone, dir), r.env(), "go", args...)
}

// env has the go command read the modules of this repository from the tags of the clone, by git.
func (r *release) env() []string {
	return []string{"GOWORK=off", "GOFLAGS=-mod=mod -modcacherw", "GOMODCACHE=" + r.cache,
		"GOPROXY=" + r.proxies, "GOPRIVATE=", "GONOPROXY=" + rootPath, "GONOSUMDB=" + rootPath,
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://" + filepath.ToSlash(r.clone) + ".insteadOf",
		"GIT_CONFIG_VALUE_0=https://" + rootPath}
}

// run runs a command in dir and returns what it printed, without spaces at the ends.
func run(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		said := strings.TrimSpace(stderr.String())
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, said)
	}
	return strings.TrimSpace(string(out)), nil
}
