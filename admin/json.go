package admin

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// mostNested is how deep objects and lists of a body may be nested. An override, the deepest, needs four.
const mostNested = 8

// form is one JSON object of a request. It is stricter than encoding/json: names are exact, none may be
// unknown or come twice, values are of their type and in range, and the text is UTF-8. The first error stays;
// what is read after it is zero.
type form struct {
	path   string // of the object in the body, "" or ending in a dot
	values map[string]json.RawMessage
	bad    **Problem // shared by all objects of a body
}

// readForm reads a body that is one object with no other fields than names. An example says what is wanted
// where there is no object.
func readForm(body []byte, example string, names ...string) form {
	f := form{bad: new(*Problem)}
	malformed := func(detail string) form {
		f.fail(Problem{Detail: detail, Field: "body", Value: clip(strings.ToValidUTF8(string(body), "\uFFFD")), Range: example})
		return f
	}
	switch {
	case !utf8.Valid(body):
		return malformed("the body is not UTF-8")
	case nested(body) > mostNested:
		return malformed(fmt.Sprintf("the body is nested more than %d deep", mostNested))
	case !json.Valid(body):
		return malformed("the body is not one JSON value")
	case !strings.HasPrefix(strings.TrimLeft(string(body), " \t\r\n"), "{"):
		return malformed("the body is not a JSON object")
	}
	f.read(body, names)
	return f
}

// nested is the deepest nesting of objects and lists in a text, JSON or not.
func nested(text []byte) int {
	depth, deepest, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

// read takes in the fields of object, which is known to be JSON.
func (f *form) read(object []byte, names []string) {
	f.values = make(map[string]json.RawMessage, len(names))
	dec := json.NewDecoder(bytes.NewReader(object))
	_, _ = dec.Token() // the brace
	for dec.More() {
		token, _ := dec.Token()
		name, _ := token.(string)
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			f.fail(Problem{Detail: "the value is not JSON", Field: f.path + clip(name)})
			return
		}
		_, twice := f.values[name]
		switch {
		case !slices.Contains(names, name):
			f.fail(Problem{Detail: "there is no such field", Field: f.path + cmp.Or(clip(name), `""`), Value: clip(string(value)), Range: strings.Join(names, ", ")})
		case twice:
			f.fail(Problem{Detail: "the field comes twice", Field: f.path + name, Value: clip(string(value)), Range: "once"})
		}
		f.values[name] = value
	}
}

// fail notes the first error.
func (f *form) fail(p Problem) {
	if *f.bad == nil {
		p.Status = http.StatusBadRequest
		*f.bad = &p
	}
}

// problem is what was wrong, nil for nothing.
func (f *form) problem() *Problem { return *f.bad }

func (f *form) has(name string) bool { _, given := f.values[name]; return given }

func (f *form) null(name string) bool { return string(f.values[name]) == "null" }

// wrong says of the named field that it is not in range.
func (f *form) wrong(name, detail, wanted string) {
	if !f.has(name) {
		detail = "the field is missing"
	}
	f.fail(Problem{Detail: detail, Field: f.path + name, Value: clip(string(f.values[name])), Range: wanted})
}

// whole reads a whole number from low to high.
func (f *form) whole(name string, low, high int) int {
	wanted := fmt.Sprintf("a whole number from %d to %d", low, high)
	n := f.anyWhole(name, wanted)
	if n < low || n > high {
		f.wrong(name, "out of range", wanted)
		return 0
	}
	return n
}

// anyWhole reads a whole number of which the caller checks the range.
func (f *form) anyWhole(name, wanted string) int {
	n, err := strconv.Atoi(string(f.values[name]))
	if err == nil {
		return n
	}
	detail := "not a whole number"
	if strings.Trim(string(f.values[name]), "-0123456789") == "" {
		detail = "out of range"
	}
	f.wrong(name, detail, wanted)
	return 0
}

// number reads a finite number.
func (f *form) number(name, wanted string) float64 {
	text := string(f.values[name])
	x, err := strconv.ParseFloat(text, 64)
	if err == nil && !math.IsInf(x, 0) && !math.IsNaN(x) {
		return x
	}
	detail := "not a number"
	if text != "" && strings.ContainsRune("-0123456789", rune(text[0])) {
		detail = "out of range"
	}
	f.wrong(name, detail, wanted)
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
	raw := f.values[name]
	switch {
	case !bytes.HasPrefix(raw, []byte{'"'}) || json.Unmarshal(raw, &s) != nil:
		f.wrong(name, "not a string", wanted)
		return ""
	case halfPair(string(raw)):
		f.wrong(name, "a string that has half of a surrogate pair", wanted)
		return ""
	case len(s) > most:
		f.wrong(name, "too long", wanted)
		return ""
	}
	return s
}

// halfPair reports whether a JSON string escapes one half of a surrogate pair without the other. The decoder
// would make it another character.
func halfPair(raw string) bool {
	for i := 0; i+1 < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		if i++; raw[i] != 'u' || !utf16.IsSurrogate(escaped(raw[i-1:])) {
			continue
		}
		if utf16.DecodeRune(escaped(raw[i-1:]), escaped(raw[i+5:])) == utf8.RuneError {
			return true
		}
		i += 10
	}
	return false
}

// escaped is the code unit of an escape such as \u00e9 at the start of s, 0 if there is none.
func escaped(s string) rune {
	if len(s) < 6 || s[:2] != `\u` {
		return 0
	}
	n, err := strconv.ParseUint(s[2:6], 16, 16)
	if err != nil {
		return 0
	}
	return rune(n)
}

// object reads an object within the object.
func (f *form) object(name string, names ...string) form {
	return f.nested(f.path+name, f.values[name], names)
}

// list reads a list of objects.
func (f *form) list(name string, most int, names ...string) []form {
	var raws []json.RawMessage
	raw := f.values[name]
	wanted := fmt.Sprintf("a list of at most %d", most)
	if !bytes.HasPrefix(raw, []byte{'['}) || json.Unmarshal(raw, &raws) != nil {
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

func (f *form) nested(path string, raw json.RawMessage, names []string) form {
	inner := form{path: path + ".", bad: f.bad}
	if !bytes.HasPrefix(raw, []byte{'{'}) {
		f.fail(Problem{Detail: "not a JSON object", Field: path, Value: clip(string(raw)), Range: "an object with " + strings.Join(names, ", ")})
		return inner
	}
	inner.read(raw, names)
	return inner
}
