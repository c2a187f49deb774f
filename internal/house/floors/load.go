// Package floors holds the files of the root package on floors: a file may use what stands on its own
// floor or below. The table is in table.go. References that run up all the same stand in upward.txt, a list
// that only shrinks, or are defended where they stand by a comment that gives the reason:
//
//	l *Limiter //floor: a shard counts for its limiter
//
// The comment stands on the line of the reference, or alone on the line above it. One place is enough for all
// uses of the same object in the same file.
package floors

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Package is a package as the type checker sees it, without its tests.
type Package struct {
	Fset   *token.FileSet
	Files  map[string]*ast.File // by base name
	Source map[string][]byte    // by base name
	Info   *types.Info
	Types  *types.Package
}

// Load reads and checks the package in dir.
func Load(dir string) (*Package, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	source := map[string][]byte{}
	for _, p := range paths {
		if strings.HasSuffix(p, "_test.go") {
			continue
		}
		if source[filepath.Base(p)], err = os.ReadFile(p); err != nil {
			return nil, err
		}
	}
	return check(dir, source)
}

// check parses the sources and checks them as one package. The go command, in dir, finds what they import.
func check(dir string, source map[string][]byte) (*Package, error) {
	p := &Package{Fset: token.NewFileSet(), Files: map[string]*ast.File{}, Source: source, Info: &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{},
		Uses:  map[*ast.Ident]types.Object{},
	}}
	var files []*ast.File
	for _, name := range slices.Sorted(maps.Keys(source)) {
		f, err := parser.ParseFile(p.Fset, name, source[name], parser.ParseComments)
		if err != nil {
			return nil, err
		}
		p.Files[name] = f
		files = append(files, f)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: no Go file", dir)
	}
	exported, err := exports(dir, files)
	if err != nil {
		return nil, err
	}
	open := func(path string) (io.ReadCloser, error) { return os.Open(exported[path]) }
	conf := types.Config{Importer: importer.ForCompiler(p.Fset, "gc", open)}
	p.Types, err = conf.Check(files[0].Name.Name, p.Fset, files, p.Info)
	return p, err
}

// exports asks the go command for the files with the types of all that the files import. It needs no network
// where the package builds.
func exports(dir string, files []*ast.File) (map[string]string, error) {
	imported := map[string]bool{}
	for _, f := range files {
		for _, spec := range f.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return nil, err
			}
			imported[path] = path != "unsafe"
		}
	}
	exported := map[string]string{}
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}", "--"}
	for path, needed := range imported {
		if needed {
			args = append(args, path)
		}
	}
	if args[len(args)-1] == "--" {
		return exported, nil
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, stderr.Bytes())
	}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		exported[path] = file
	}
	return exported, nil
}
