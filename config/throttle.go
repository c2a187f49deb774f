package config

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io/fs"
	"path/filepath"
)

// Names at the top of the two kinds of files. A file that has none of them is a throttle.toml if it is
// empty.
var (
	ownTables      = []string{"leases", "limiters", "pool", "proxy"}
	throttleTables = []string{
		"semaphores", "litter_collection_interval", "logging", "grace", "max_peers", "election",
	}
)

// ReadAny is Read for a file that may also be a throttle.toml: one with semaphores at its top and none of
// our sections. Such a file is read as the throttle service reads it. An unknown field of it is one of
// File.Warnings and no error.
func ReadAny(path string) (*File, error) {
	text, err := readWhole(path)
	if err != nil {
		return nil, err
	}
	f, err := ParseAny(path, text)
	if err != nil {
		return nil, err
	}
	f.Path = path
	return f, nil
}

// ReadThrottle is ReadAny for a lease server. A file that does not exist is read as an empty throttle.toml,
// with one of File.Warnings. Once the file exists, Config.Watch applies it.
func ReadThrottle(path string) (*File, error) {
	f, err := ReadAny(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if f, err = ParseAny(path, nil); err != nil {
		return nil, err
	}
	f.Path, f.absent = path, true
	f.Warnings = append(f.Warnings, Error{File: path, Text: "there is no such file"})
	return f, nil
}

// ParseAny is ReadAny for a text, as Parse is Read for one.
func ParseAny(name string, text []byte) (*File, error) {
	if !isThrottle(text) {
		f, err := Parse(name, text)
		if f != nil {
			f.any = true
		}
		return f, err
	}
	r := &report{name: name, lenient: true}
	f := parseThrottle(r, bytes.Clone(text))
	if f != nil {
		r.kinds = len(r.errs)
		f.check(r)
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	f.sum, f.any = sha256.Sum256(text), true
	f.Warnings = sorted(r.warnings)
	return f, nil
}

// isThrottle reports whether a text is a throttle.toml: of what is no TOML it does not matter.
func isThrottle(text []byte) bool {
	r := &report{}
	all := toTables(r, text)
	has := func(names []string) bool {
		for _, name := range names {
			if _, ok := all[name]; ok {
				return true
			}
		}
		return false
	}
	return len(r.errs) == 0 && !has(ownTables) && (len(all) == 0 || has(throttleTables))
}

// parseThrottle returns the settings of a throttle.toml, with all defaults; nil for what is no TOML.
func parseThrottle(r *report, text []byte) *File {
	all := toTables(r, text)
	if len(r.errs) > 0 {
		return nil
	}
	f := &File{Pool: defaultPool(), Leases: defaultLeases(), places: r.places, name: r.name}
	f.Pool.Replicas, f.Leases.throttle = 1, true
	f.Leases.readThrottle(value{r, "", all}, filepath.Dir(r.name))
	return f
}
