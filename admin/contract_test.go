package admin

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// contract is the OpenAPI document.
type contract struct{ root map[string]any }

func readContract(t testing.TB) contract {
	t.Helper()
	var root map[string]any
	if err := json.Unmarshal(openAPI, &root); err != nil {
		t.Fatal(err)
	}
	return contract{root}
}

// at is the object under a path of names, with references followed; nil if there is none.
func (c contract) at(from map[string]any, names ...string) map[string]any {
	for _, name := range names {
		from, _ = c.follow(from)[name].(map[string]any)
	}
	return c.follow(from)
}

func (c contract) follow(object map[string]any) map[string]any {
	if ref, ok := object["$ref"].(string); ok {
		return c.at(c.root, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
	return object
}

// operation is what the document says of a method of a route.
func (c contract) operation(path, method string) map[string]any {
	if path == "/assets/" {
		path = "/assets/{file}"
	}
	return c.at(c.root, "paths", path, strings.ToLower(method))
}

// check returns what is wrong with a value under a schema: a small, strict part of JSON Schema. A schema word
// that it does not know is an error, and so is a member that the schema does not name.
func (c contract) check(at string, schema map[string]any, v any) error {
	schema = c.follow(schema)
	var errs []error
	for word, arg := range schema {
		rule, known := words[word]
		if !known {
			return fmt.Errorf("%s: schema word %q is not known", at, word)
		}
		if rule != nil && !rule(v, arg) {
			errs = append(errs, fmt.Errorf("%s: %v is not %s %v", at, v, word, arg))
		}
	}
	if list, ok := v.([]any); ok && schema["items"] != nil {
		for i, item := range list {
			errs = append(errs, c.check(fmt.Sprintf("%s[%d]", at, i), schema["items"].(map[string]any), item))
		}
	}
	if object, ok := v.(map[string]any); ok && schema["type"] == "object" {
		errs = append(errs, c.members(at, schema, object))
	}
	if some, ok := schema["anyOf"].([]any); ok {
		errs = append(errs, c.anyOf(at, some, v))
	}
	if some, ok := schema["oneOf"].([]any); ok {
		held := slices.DeleteFunc(slices.Clone(some),
			func(one any) bool { return c.anyOf(at, []any{one}, v) != nil })
		if len(held) != 1 {
			errs = append(errs, fmt.Errorf("%s: %v holds to %d of %v", at, v, len(held), some))
		}
	}
	return errors.Join(errs...)
}

func (c contract) members(at string, schema, object map[string]any) error {
	var errs []error
	properties, _ := schema["properties"].(map[string]any)
	more, _ := schema["additionalProperties"].(map[string]any)
	for name, v := range object {
		switch p, named := properties[name].(map[string]any); {
		case named:
			errs = append(errs, c.check(at+"."+name, p, v))
		case more != nil:
			errs = append(errs, c.check(at+"."+name, more, v))
		case properties != nil:
			errs = append(errs, fmt.Errorf("%s.%s: not in the schema", at, name))
		}
	}
	return errors.Join(errs...)
}

func (c contract) anyOf(at string, schemas []any, v any) error {
	var errs []error
	for _, schema := range schemas {
		inner := c.follow(schema.(map[string]any))
		err := c.check(at, inner, v)
		// only what properties say of members that are there
		if object, ok := v.(map[string]any); ok && inner["type"] == nil {
			for name, p := range properties(inner) {
				if member, has := object[name]; has {
					err = errors.Join(err, c.check(at+"."+name, p.(map[string]any), member))
				}
			}
		}
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func properties(schema map[string]any) map[string]any {
	p, _ := schema["properties"].(map[string]any)
	return p
}

// words are those of JSON Schema that the document uses; nil for those that check itself knows or that only
// describe.
var words = map[string]func(v, arg any) bool{
	"description": nil, "properties": nil, "items": nil, "anyOf": nil, "oneOf": nil,
	"additionalProperties": nil, "default": nil,
	"type":             isType,
	"const":            func(v, arg any) bool { return v == arg },
	"enum":             func(v, arg any) bool { return slices.Contains(arg.([]any), v) },
	"minimum":          compare(func(v, arg float64) bool { return v >= arg }),
	"maximum":          compare(func(v, arg float64) bool { return v <= arg }),
	"exclusiveMinimum": compare(func(v, arg float64) bool { return v > arg }),
	"maxLength": func(v, arg any) bool {
		s, ok := v.(string)
		return !ok || float64(utf8.RuneCountInString(s)) <= arg.(float64)
	},
	"maxItems": func(v, arg any) bool {
		l, ok := v.([]any)
		return !ok || float64(len(l)) <= arg.(float64)
	},
	"maxProperties": func(v, arg any) bool {
		o, ok := v.(map[string]any)
		return !ok || float64(len(o)) <= arg.(float64)
	},
	"pattern": func(v, arg any) bool {
		s, ok := v.(string)
		return !ok || regexp.MustCompile(arg.(string)).MatchString(s)
	},
	"contentEncoding": func(v, arg any) bool {
		s, _ := v.(string)
		raw, err := base64.StdEncoding.DecodeString(s)
		return arg == "base64" && err == nil && base64.StdEncoding.EncodeToString(raw) == s
	},
	"format": func(v, arg any) bool {
		s, _ := v.(string)
		_, err := time.Parse(time.RFC3339Nano, s)
		return arg == "date-time" && err == nil
	},
	"required": func(v, arg any) bool {
		o, ok := v.(map[string]any)
		for _, name := range arg.([]any) {
			_, has := o[name.(string)]
			ok = ok && has
		}
		return ok
	},
}

func compare(holds func(v, arg float64) bool) func(v, arg any) bool {
	return func(v, arg any) bool {
		x, ok := v.(float64)
		return !ok || holds(x, arg.(float64))
	}
}

func isType(v, arg any) bool {
	switch v := v.(type) {
	case nil:
		return arg == "null"
	case bool:
		return arg == "boolean"
	case string:
		return arg == "string"
	case float64:
		return arg == "number" || arg == "integer" && v == math.Trunc(v)
	case []any:
		return arg == "array"
	}
	return arg == "object"
}

// documented fails unless the document knows this answer of a route: its status, its content type and its
// body. It is called for every answer that the tests of this package get.
func documented(t testing.TB, c contract, path, method string, status int, header http.Header, body []byte) {
	t.Helper()
	rt := find(path)
	if rt == nil || !slices.Contains(rt.methods, method) {
		return // it has no place in the document
	}
	answer := c.at(c.operation(rt.path, method), "responses", strconv.Itoa(status))
	if answer == nil {
		t.Errorf("%s %s answers %d, which is not in the document: %s", method, path, status, body)
		return
	}
	media, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	if method == http.MethodHead || status == http.StatusNotModified || media == "text/event-stream" ||
		!strings.HasSuffix(media, "json") {
		return
	}
	schema := c.at(answer, "content", media, "schema")
	var v any
	if err := json.Unmarshal(body, &v); err != nil || schema == nil {
		t.Errorf("%s %s: %d with %s, schema %v, %v", method, path, status, media, schema, err)
		return
	}
	if err := c.check("body", schema, v); err != nil {
		t.Errorf("%s %s: %d: %v", method, path, status, err)
	}
}
