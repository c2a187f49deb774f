package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
)

// unpublished lists the directories of modules that get no version, each with the reason.
var unpublished = map[string]string{
	"admin/browser":  "it has tests alone, which drive a browser",
	"bench":          "its programs measure a checkout",
	"deploy/proxy":   "it has tests of manifests alone",
	"examples/fleet": "it is a program to read and to run in a checkout",
	"tools":          "it pins the linters of a checkout",
}

// module is one module of the repository.
type module struct {
	dir      string   // from the root of the repository, with slashes; "." is the root module
	path     string   // the module path
	requires []string // modules of the repository that it requires, by path
	replaces []string // modules that it replaces, as -dropreplace of go mod edit takes them
}

// tag is the name of the tag of a version of m.
func (m module) tag(v version) string { return path.Join(m.dir, v.String()) }

// isPublished reports whether the module in dir gets a version.
func isPublished(dir string) bool {
	_, listed := unpublished[dir]
	return !listed && !slices.Contains(strings.Split(dir, "/"), "testdata")
}

// published returns the modules in the clone that get a version, the root module first.
func (r *release) published(ctx context.Context) ([]module, error) {
	files, err := r.git(ctx, "ls-files", "--", "go.mod", "*/go.mod")
	if err != nil {
		return nil, err
	}
	dirs := []string{"."}
	for _, file := range strings.Fields(files) {
		if dir := path.Dir(file); dir != "." && isPublished(dir) {
			dirs = append(dirs, dir)
		}
	}
	var all []module
	for _, dir := range dirs {
		m, err := r.readModule(ctx, dir)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// readModule reads the go.mod of a directory.
func (r *release) readModule(ctx context.Context, dir string) (module, error) {
	text, err := r.goCommand(ctx, dir, "mod", "edit", "-json")
	if err != nil {
		return module{}, err
	}
	type version struct{ Path, Version string }
	var file struct {
		Module  version
		Require []version
		Replace []struct{ Old version }
	}
	if err := json.Unmarshal([]byte(text), &file); err != nil {
		return module{}, fmt.Errorf("%s/go.mod: %w", dir, err)
	}
	m := module{dir: dir, path: file.Module.Path}
	for _, required := range file.Require {
		if isOwn(required.Path) {
			m.requires = append(m.requires, required.Path)
		}
	}
	for _, replaced := range file.Replace {
		if !isOwn(replaced.Old.Path) {
			return m, fmt.Errorf("%s/go.mod replaces %s, which users would not see", dir, replaced.Old.Path)
		}
		m.replaces = append(m.replaces, strings.TrimSuffix(replaced.Old.Path+"@"+replaced.Old.Version, "@"))
	}
	return m, nil
}

// isOwn reports whether a module path is one of this repository.
func isOwn(p string) bool { return p == rootPath || strings.HasPrefix(p, rootPath+"/") }

// rounds orders modules so that each requires modules of earlier rounds alone. The modules of a round stand
// in the order of all.
func rounds(all []module) ([][]module, error) {
	var order [][]module
	ready := map[string]bool{}
	for left := all; len(left) > 0; {
		var now, later []module
		for _, m := range left {
			waits := slices.ContainsFunc(m.requires, func(p string) bool { return !ready[p] })
			if waits {
				later = append(later, m)
			} else {
				now = append(now, m)
			}
		}
		if len(now) == 0 {
			return nil, fmt.Errorf("%s requires %v: each must be published, and none may require it",
				later[0].path, later[0].requires)
		}
		for _, m := range now {
			ready[m.path] = true
		}
		order, left = append(order, now), later
	}
	return order, nil
}
