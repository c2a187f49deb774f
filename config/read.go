package config

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/quotient-go/quotient/internal/files"
)

// maxFile bounds a file, in bytes.
const maxFile = 1 << 20

// Read reads a regular file of at most 1 MiB and checks it. A file system that does not answer for two seconds is an
// error. If the text has mistakes, the error is an Errors with all
// of them, up to 20. Names of files in it are relative to its folder.
func Read(path string) (*File, error) { return readBy(Parse, path) }

func readBy(parse func(string, []byte) (*File, error), path string) (*File, error) {
	text, err := readWhole(context.Background(), path)
	if err != nil {
		return nil, err
	}
	f, err := parse(path, text)
	if err != nil {
		return nil, err
	}
	f.Path = path
	return f, nil
}

func readWhole(ctx context.Context, path string) ([]byte, error) {
	text, _, err := files.Read(ctx, path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return text, nil
}

// Parse is Read for a text. Errors have the name as their file. The File has no Path: Config.Watch does not
// follow it.
func Parse(name string, text []byte) (*File, error) {
	return parseBy((*File).read, &report{name: name}, text)
}

func parseBy(read func(*File, value), r *report, text []byte) (*File, error) {
	all := toTables(r, bytes.Clone(text))
	f := &File{
		Pool: Pool{Weight: 1, HoldDown: time.Minute}, Limiters: make(map[string]Limiter), places: r.places,
		name: r.name, sum: sha256.Sum256(text),
	}
	if len(r.errs) == 0 { // else it is no TOML
		read(f, value{r, "", all})
		f.locate(filepath.Dir(r.name))
		r.kinds = len(r.errs)
		f.check(r)
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	f.Warnings = sorted(r.warnings)
	return f, nil
}

// locate has the names of files, and of sockets, be relative to a folder where they are.
func (f *File) locate(dir string) {
	names := []*string{}
	if p := f.Proxy; p != nil {
		for _, t := range []*TLS{p.TLS, p.Admin.TLS} {
			if t != nil {
				names = append(names, &t.Cert, &t.Key, &t.ClientCA)
			}
		}
		if p.JWT != nil {
			names = append(names, &p.JWT.KeyFile)
		}
		for _, t := range []*UpstreamTLS{&p.UpstreamTLS, &p.Admin.PeersTLS} {
			names = append(names, &t.CA, &t.Cert, &t.Key)
		}
		names = append(names, &p.Admin.TokenFile, &p.Admin.ReadOnlyTokenFile, &p.Admin.Overrides)
		names = append(names, &p.Log.SecretFile)
		p.Listen, p.Admin.Listen = behind(dir, "unix:", p.Listen), behind(dir, "unix:", p.Admin.Listen)
		p.Admin.Peers = behind(dir, "file:", p.Admin.Peers)
	}
	if d := f.Decide; d != nil {
		for i := range d.RateLimitFiles {
			names = append(names, &d.RateLimitFiles[i])
		}
		d.GRPC, d.HTTP = behind(dir, "unix:", d.GRPC), behind(dir, "unix:", d.HTTP)
	}
	if f.Leases != nil && f.Leases.Election != nil {
		names = append(names, &f.Leases.Election.PasswordFile)
	}
	for _, name := range names {
		*name = behind(dir, "", *name)
	}
	f.Pool.Source = behind(dir, "file:", f.Pool.Source)
}

// behind is a name behind a prefix, if it has that, as one that stands in a file of dir.
func behind(dir, prefix, name string) string {
	path, ok := strings.CutPrefix(name, prefix)
	if !ok || path == "" || filepath.IsAbs(path) {
		return name
	}
	return prefix + filepath.Join(dir, path)
}

// toTables reads a text into tables, and finds its places. Mistakes in its TOML are noted.
func toTables(r *report, text []byte) map[string]any {
	if len(text) > maxFile {
		r.add(place{1, 1}, "", "", "the file is larger than %d bytes", maxFile)
		return nil
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // editors on Windows begin a file so
	l := newLines(text)
	at, err := index(text, l)
	if err != nil {
		r.add(place{1, 1}, "", "", "%v", err)
		return nil
	}
	r.places = at
	return unmarshal(r, text, l)
}

func (f *File) check(r *report) {
	f.checkPool(r)
	f.checkLimiters(r)
	if f.Proxy != nil {
		f.checkProxy(r)
	}
	if f.Decide != nil {
		f.checkDecide(r)
	}
	if f.Leases != nil {
		f.Leases.check(r)
	}
}

// report collects what is wrong with a file that was read.
func (f *File) report() *report { return &report{name: f.name, places: f.places} }

// checked is check for a File that a program has made or changed.
func (f *File) checked() error {
	r := f.report()
	f.check(r)
	return r.err()
}

func between[T int | int64 | time.Duration](r *report, path string, v, least, most T) {
	if v < least || v > most {
		r.field(path, "%v is not between %v and %v", v, least, most)
	}
}

func oneOf(r *report, path, word string, known ...string) {
	if !slices.Contains(known, word) {
		r.hinted(path, didYouMean(word, known), "%s is not one of %s", clip(word), joined(known))
	}
}
