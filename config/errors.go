package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/quotient-go/quotient/internal/shown"
)

// Error is one mistake in a file, with its position. A Part, or what makes a source, returns one without a File: it is
// put into its place then.
type Error struct {
	File         string // as Read or Parse was given it; empty for a File that a program made
	Line, Column int    // from 1, in characters; 0 where there is no text
	Field        string // limiters.api.rates[0].events; empty for a mistake in the TOML syntax
	Text         string // what is wrong
	Hint         string // what to do about it; may be empty
}

// Error returns the mistake on one line: "q.toml:3:1: limiters.api.rate: unknown field (did you mean
// rates?)". What is not printable is escaped.
func (e Error) Error() string {
	var b strings.Builder
	switch {
	case e.Line > 0:
		fmt.Fprintf(&b, "%s:%d:%d: ", e.File, e.Line, e.Column)
	case e.File != "":
		fmt.Fprintf(&b, "%s: ", e.File)
	}
	if e.Field != "" {
		fmt.Fprintf(&b, "%s: ", e.Field)
	}
	b.WriteString(e.Text)
	if e.Hint != "" {
		fmt.Fprintf(&b, " (%s)", e.Hint)
	}
	return shown.Line(b.String())
}

// Errors lists the mistakes in a file, in the order of its text: at least one, at most 20.
type Errors []Error

// Error returns the mistakes, one a line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// maxErrors is how many errors of one file are reported: more than one screen holds.
const maxErrors = 20

type report struct {
	name   string
	places *places // nil for a File that a program made
	errs   Errors
	kinds  int // how many errors are of values of the wrong kind: those have no other error

	lenient  bool // an unknown field is a warning
	warnings Errors
}

func (r *report) field(path, format string, args ...any) {
	r.add(r.places.value(path), path, "", format, args...)
}

func (r *report) hinted(path, hint, format string, args ...any) {
	r.add(r.places.value(path), path, hint, format, args...)
}

func (r *report) add(at place, path, hint, format string, args ...any) {
	for _, e := range r.errs[:r.kinds] {
		if within(e.Field, path) || e.Field != "" && within(path, e.Field) {
			return
		}
	}
	r.errs = append(r.errs, Error{
		File: r.name, Line: at.line, Column: at.column,
		Field: path, Text: fmt.Sprintf(format, args...), Hint: hint,
	})
}

// warn notes what is accepted and has no effect.
func (r *report) warn(at place, path, text string) {
	r.warnings = append(r.warnings, Error{File: r.name, Line: at.line, Column: at.column, Field: path, Text: text})
}

// err is all that was noted, in the order of the text; nil for nothing.
func (r *report) err() error {
	if len(r.errs) == 0 {
		return nil
	}
	r.errs = sorted(r.errs)
	return r.errs
}

// sorted are the first errors in the order of the text, each once.
func sorted(all Errors) Errors {
	slices.SortStableFunc(all, func(a, b Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Field, b.Field))
	})
	all = slices.CompactFunc(all, func(a, b Error) bool { return a == b })
	return all[:min(len(all), maxErrors)]
}

// clip is a value for an error: quoted, and not long.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}

// Located is an error of a field with its place in the text of f. Any other error stays as it is.
func (f *File) Located(err error) error {
	e, ok := errors.AsType[Error](err)
	if !ok || e.File != "" {
		return err
	}
	r := f.report()
	r.hinted(e.Field, e.Hint, "%s", e.Text)
	return r.err()
}

// within reports whether a path is that of outer, or of something in it.
func within(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// isOf reports whether a text holds nothing but letters, digits and some marks.
func isOf(s, marks string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		return !letter && !(c >= '0' && c <= '9') && !strings.ContainsRune(marks, c)
	})
}

func joined(words []string) string { return strings.Join(words, ", ") }

// kebab is the name of a Go field as a file spells it: MaxKeys is max-keys, ClientCA client-ca.
func kebab(name string) string {
	name = strings.NewReplacer("IPv6", "Ipv6-", "RateLimit", "Ratelimit").Replace(name) // one word each
	isLower := func(i int) bool { return i < len(name) && name[i] >= 'a' && name[i] <= 'z' }
	isUpper := func(i int) bool { return name[i] >= 'A' && name[i] <= 'Z' }
	var b strings.Builder
	for i := range len(name) {
		if i > 0 && isUpper(i) && (isLower(i-1) || isUpper(i-1) && isLower(i+1)) {
			b.WriteByte('-')
		}
		b.WriteByte(name[i])
	}
	return strings.ToLower(b.String())
}
