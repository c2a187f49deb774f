package admin

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// form is one JSON object of a request. Names are exact, none may be unknown or come twice, values are of
// their type and in range, and the text is UTF-8. The library finds the members and would refuse the unknown
// ones too, but it does not know what a Problem says: which field is to blame, and what is wanted there. The
// first error stays; what is read after it is zero.
type form struct {
	path   string // of the object in the body, "" or ending in a dot
	values map[string]jsontext.Value
	bad    **Problem // shared by all objects of a body
}

// readForm reads a body that is one object with no other fields than names. An example says what is wanted
// where there is no object.
func readForm(body []byte, example string, names ...string) form {
	f := form{bad: new(*Problem)}
	var object jsontext.Value
	// text looks at the halves of surrogate pairs, which are not UTF-8 either
	err := json.Unmarshal(body, &object, jsontext.AllowInvalidUTF8(true))
	detail := ""
	switch {
	case !utf8.Valid(body):
		detail = "the body is not UTF-8"
	case errors.Is(err, jsontext.ErrDuplicateName):
		f.fail(Problem{Detail: "the field comes twice", Field: pathOf(err), Range: "once"})
		return f
	case err != nil:
		detail = "the body is not one JSON value"
	case object.Kind() != '{':
		detail = "the body is not a JSON object"
	default:
		f.read(object, names)
		return f
	}
	sent := clip(strings.ToValidUTF8(string(body), "\uFFFD"))
	f.fail(Problem{Detail: detail, Field: "body", Value: sent, Range: example})
	return f
}

// pathOf is where in a body a syntactic error is, such as rates[1].burst.
func pathOf(err error) (path string) {
	var at *jsontext.SyntacticError
	if !errors.As(err, &at) {
		return ""
	}
	for name := range at.JSONPointer.Tokens() {
		if _, err := strconv.ParseUint(name, 10, 16); err == nil {
			path += "[" + name + "]"
			continue
		}
		path += "." + cmp.Or(clip(name), `""`)
	}
	return strings.TrimPrefix(path, ".")
}

// read takes in the fields of object, which is known to be JSON.
func (f *form) read(object jsontext.Value, names []string) {
	_ = json.Unmarshal(object, &f.values, jsontext.AllowInvalidUTF8(true))
	for _, name := range slices.Sorted(maps.Keys(f.values)) {
		if !slices.Contains(names, name) {
			f.fail(Problem{
				Detail: "there is no such field", Field: f.path + cmp.Or(clip(name), `""`),
				Value: clip(string(f.values[name])), Range: strings.Join(names, ", "),
			})
		}
	}
}

// fail notes the first error.
func (f *form) fail(p Problem) {
	if *f.bad == nil {
		p.Status = http.StatusBadRequest
		*f.bad = &p
	}
}

// result is what was read from a form, or what was wrong and nothing else.
func result[T any](f form, v T) (T, *Problem) {
	if *f.bad != nil {
		return *new(T), *f.bad
	}
	return v, nil
}

func (f *form) has(name string) bool { _, given := f.values[name]; return given }

// optional reads a field that may be left out.
func optional[T any](f *form, name string, read func(name string) T) (v T) {
	if f.has(name) {
		v = read(name)
	}
	return v
}

func (f *form) null(name string) bool { return f.values[name].Kind() == 'n' }

// wrong says of the named field that it is not in range.
func (f *form) wrong(name, detail, wanted string) {
	if !f.has(name) {
		detail = "the field is missing"
	}
	f.fail(Problem{Detail: detail, Field: f.path + name, Value: clip(string(f.values[name])), Range: wanted})
}

// whole reads a whole number from low to high.
func (f *form) whole(name string, low, high int) int {
	return f.wholeIn(name, fmt.Sprintf("a whole number from %d to %d", low, high), low, high)
}

// anyWhole reads a whole number of a limit, which checks the range.
func (f *form) anyWhole(name string) int {
	return f.wholeIn(name, ranges[name], math.MinInt, math.MaxInt)
}

func (f *form) wholeIn(name, wanted string, low, high int) int {
	n, err := strconv.Atoi(string(f.values[name]))
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && (n < low || n > high):
		f.wrong(name, "out of range", wanted)
	case err != nil:
		f.wrong(name, "not a whole number", wanted)
	default:
		return n
	}
	return 0
}

// number reads a finite number.
func (f *form) number(name, wanted string) float64 {
	x, err := strconv.ParseFloat(string(f.values[name]), 64)
	switch {
	case f.values[name].Kind() != '0':
		f.wrong(name, "not a number", wanted)
	case err != nil:
		f.wrong(name, "out of range", wanted)
	default:
		return x
	}
	return 0
}

// truth reads true or false.
func (f *form) truth(name string) bool {
	switch string(f.values[name]) {
	case "true":
		return true
	case "false":
		return false
	}
	f.wrong(name, "not a truth value", "true or false")
	return false
}

// text reads a string of at most so many bytes.
func (f *form) text(name string, most int) string {
	var s string
	wanted := fmt.Sprintf("a string of at most %d bytes", most)
	switch raw := f.values[name]; {
	case raw.Kind() != '"':
		f.wrong(name, "not a string", wanted)
	case json.Unmarshal(raw, &s) != nil:
		f.wrong(name, "a string that has half of a surrogate pair", wanted)
	case len(s) > most:
		f.wrong(name, "too long", wanted)
	default:
		return s
	}
	return ""
}

// list reads a list of objects.
func (f *form) list(name string, most int, names ...string) []form {
	var raws []jsontext.Value
	wanted := fmt.Sprintf("a list of at most %d", most)
	if json.Unmarshal(f.values[name], &raws, jsontext.AllowInvalidUTF8(true)) != nil || f.null(name) {
		f.wrong(name, "not a list", wanted)
		return nil
	}
	if len(raws) > most {
		f.wrong(name, fmt.Sprintf("%d are more than %d", len(raws), most), wanted)
		return nil
	}
	forms := make([]form, 0, len(raws))
	for i, raw := range raws {
		forms = append(forms, f.nested(fmt.Sprintf("%s%s[%d]", f.path, name, i), raw, names))
	}
	return forms
}

func (f *form) nested(path string, raw jsontext.Value, names []string) form {
	inner := form{path: path + ".", bad: f.bad}
	if raw.Kind() != '{' {
		f.fail(Problem{Detail: "not a JSON object", Field: path, Value: clip(string(raw)), Range: "an object with " + strings.Join(names, ", ")})
		return inner
	}
	inner.read(raw, names)
	return inner
}
