package config

import (
	"errors"
	"io/fs"
	"slices"
)

// Names at the top of the two kinds of files. A file that has none of them is a throttle.toml if it is empty.
var (
	ownTables      = []string{"decide", "leases", "limiters", "pool", "proxy"}
	throttleTables = []string{
		"semaphores", "litter_collection_interval", "logging", "grace", "max_peers", "election",
	}
)

// ReadAny is Read for a file that may also be a throttle.toml: one with semaphores at its top and none of
// our sections. Such a file is read as the throttle service reads it. An unknown field of it is one of
// File.Warnings and no error.
func ReadAny(path string) (*File, error) { return readBy(ParseAny, path) }

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
	r, read := &report{name: name}, (*File).read
	if isThrottle(text) {
		r.lenient, read = true, (*File).readThrottle
	}
	f, err := parseBy(read, r, text)
	if f != nil {
		f.any = true
	}
	return f, err
}

// isThrottle reports whether a text is a throttle.toml: of what is no TOML it does not matter.
func isThrottle(text []byte) bool {
	r := &report{}
	all := toTables(r, text)
	has := func(names []string) bool { return slices.ContainsFunc(names, value{is: all}.has) }
	return len(r.errs) == 0 && !has(ownTables) && (len(all) == 0 || has(throttleTables))
}

// readThrottle reads the tables of a throttle.toml.
func (f *File) readThrottle(v value) {
	f.Limiters, f.Leases = nil, defaultLeases()
	f.Leases.throttle = true
	f.Leases.read(v)
}
