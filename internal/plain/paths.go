package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// expand returns the files that the paths name, of the kinds that are read. A path that names none is an error: a check
// that reads nothing would always pass.
func expand(paths []string) ([]string, error) {
	if len(paths) == 0 {
		return nil, fmt.Errorf("no path given")
	}
	var files []string
	for _, path := range paths {
		found, err := filesOf(path)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("%s: no file that can be read here", path)
		}
		files = append(files, found...)
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}

// filesOf returns the files of one path.
func filesOf(path string) ([]string, error) {
	dir, deep := strings.CutSuffix(filepath.ToSlash(path), "/...")
	dir = filepath.Clean(dir)
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{dir}, nil
	}
	var files []string
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && p != dir && (!deep || skipped(name)):
			return fs.SkipDir
		case !d.IsDir() && (slices.Contains(kinds, filepath.Ext(name)) || commentMark(name) != ""):
			files = append(files, p)
		}
		return nil
	})
	return files, err
}

// skipped reports whether directories of that name hold no text of ours.
func skipped(name string) bool {
	return name == "testdata" || name == "vendor" || name == "node_modules" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")
}

// kinds are the files that are read for more than their comments: Go, pages, and the texts of the page for
// operators and of dashboards.
var kinds = []string{".go", ".html", ".js", ".json", ".md"}
