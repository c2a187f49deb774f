package admin

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/quotient-go/quotient/internal/tested"
)

// TestDocumentHasTheRoutes: every route and method of the handler is in the document, and the other way
// round.
func TestDocumentHasTheRoutes(t *testing.T) {
	c := document()
	var served, written []string
	for _, rt := range routes {
		for _, method := range rt.methods {
			served = append(served, method+" "+strings.Replace(rt.path, "/assets/", "/assets/{file}", 1))
		}
		for _, method := range rt.methods {
			_, open := c.operation(rt.path, method)["security"]
			tested.Want(t, fmt.Sprintf("%s %s: public", method, rt.path), open, rt.public)
		}
	}
	for path, item := range c.at(c.root, "paths") {
		for method := range item.(map[string]any) {
			written = append(written, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(served)
	slices.Sort(written)
	tested.Not(t, !slices.Equal(served, written), "served  %v\nwritten %v", served, written)
}

// TestDocumentsExamples: each example keeps to the schema beside it, and each example of a request is one
// that the handler accepts.
func TestDocumentsExamples(t *testing.T) {
	c := document()
	examples := 0
	var walk func(at string, v any)
	walk = func(at string, v any) {
		object, _ := v.(map[string]any)
		for _, item := range object {
			walk(at, item)
		}
		schema, ok := object["schema"].(map[string]any)
		if !ok {
			return
		}
		all := map[string]any{}
		if example, has := object["example"]; has {
			all["example"] = map[string]any{"value": example}
		}
		maps.Copy(all, c.at(object, "examples"))
		for name, example := range all {
			examples++
			if err := c.check(name, schema, example.(map[string]any)["value"]); err != nil {
				t.Errorf("%s: %v", at, err)
			}
		}
	}
	for path, item := range c.at(c.root, "paths") {
		walk(path, item)
	}
	walk("responses", c.at(c.root, "components", "responses"))
	tested.Not(t, examples < 32, "only %d examples", examples)
}

func TestDocumentsRequestsAreAccepted(t *testing.T) {
	c := document()
	for _, rt := range routes {
		for name, example := range c.at(c.operation(rt.path, http.MethodPut), "requestBody", "content",
			"application/json", "examples") {
			body, err := json.Marshal(example.(map[string]any)["value"])
			must(t, err)
			rec := putting(rt.path, string(body)).send(t, quiet(t, newLimiter(t)))
			tested.Want(t, fmt.Sprintf("%s %s: %s", rt.path, name, rec.Body), rec.Code, 200)
		}
	}
}

// beyondSchemas are what depends on another field, or on how a value is written.
var beyondSchemas = regexp.MustCompile(`^/replicas [45]$| 4e0$| 1e-13$| 5e-324$|\\u?d[8c]|é`)

// TestDocumentsRangesAreTheHandlers: the document's schemas of requests take the ends of each range, as the
// handler does, and refuse what TestAttackBodies has the handler refuse, but for what two fields say together.
func TestDocumentsRangesAreTheHandlers(t *testing.T) {
	c := document()
	holds := func(path, body string) error {
		var v any
		must(t, json.Unmarshal([]byte(body), &v))
		schema := c.at(c.operation(path, "PUT"), "requestBody", "content", "application/json", "schema")
		return c.check("body", schema, v)
	}
	for _, tt := range []struct{ path, body, values string }{
		{"/replicas", `{"replicas":%s}`, `1 1000000`},
		{"/replicas", `{"replicas":1000000,"ordinal":%s}`, `0 1000000`},
		{"/replicas", `{"replicas":1000000,"weight":%s}`, `1 1000000`},
		{"/replicas", `{"replicas":1,"ttl_seconds":%s}`, `0.001 31536000`},
		{"/limit", `{"rates":[],"in_flight":%s}`, `1 1073741824 0,"unlimited":true`},
		{"/limit", `{"unlimited":true%s}`, `,"deny":false,"rates":[]`},
		{"/limit", `{"rates":[{"events":1,"per_seconds":%s}]}`, `1e-9 9.2e9`},
		{"/limit", `{"rates":[{"events":%s,"per_seconds":1}]}`, `1.1e-13 1e12`},
		{"/limit", `{"rates":[{"per_seconds":1,"events":1,"burst":%s}]}`, `0 ` + strconv.Itoa(mostBurst)},
		{"/limit", `{"deny":%s}`, `true true,"rates":[],"in_flight":-0`},
		{"/plan", `{"plan":%s,"limit":null}`, `"paid" "0.a_b-c" "` + strings.Repeat("p", 64) + `"`},
		{"/plan", `{"plan":"a","limit":%s}`, `null {"deny":true} {"rates":[],"in_flight":3}`},
		{"/override", `{"key":%s,"limit":null}`, `"K" "" "` + strings.Repeat("k", 4096) + `"`},
		{"/override", `{"key_base64":%s,"limit":null}`, `"gA==" ""`},
		{"/override", `{"key":"K","limit":{"deny":true},"ttl_seconds":%s}`, `0.001 31536000`},
		{"/reset", `{"key":%s}`, `"K" ""`}, {"/reset", `{"key_base64":%s}`, `"gA=="`},
		{"/dry-run", `{"dry_run":%s}`, `true false`},
	} {
		for value := range strings.FieldsSeq(tt.values) {
			body := fmt.Sprintf(tt.body, value)
			rec := putting(tt.path, body).send(t, quiet(t, newLimiter(t)))
			if err := holds(tt.path, body); err != nil || rec.Code != 200 {
				t.Errorf("%s %.80s: handler %d %s, document %v", tt.path, body, rec.Code, rec.Body, err)
			}
		}
	}
	for _, f := range fields {
		for _, value := range f.bad {
			var v any
			if f.path == "/leases/break" || json.Unmarshal([]byte(value), &v) != nil {
				continue // a number beyond float64
			}
			body := fmt.Sprintf(f.body, value)
			if holds(f.path, body) == nil && !beyondSchemas.MatchString(f.path+" "+value) {
				t.Errorf("the document takes %s %.200s", f.path, body)
			}
		}
	}
}

// TestLiveAnswersKeepToTheDocument: a limiter that has been used in every way answers as the document says.
func TestLiveAnswersKeepToTheDocument(t *testing.T) {
	l := newLimiter(t)
	l.SetDryRun(true)
	h := quiet(t, l)
	for i := range 20 {
		l.Allow(fmt.Sprintf("key %d", i%3))
	}
	for _, req := range []request{
		putReplicas(`{"replicas":3,"ordinal":1,"ttl_seconds":60}`),
		putting("/override", `{"key":"key 1","limit":`+oneUnit+`}`),
		putting("/plan", `{"plan":"paid","limit":`+oneUnit+`}`), putting("/plan", `{"plan":"none","limit":null}`),
		putting("/limit", `{"rates":[{"events":1,"per_seconds":60,"aligned":true},{"events":1e-9,"per_seconds":1}]}`),
		get("/explain?key=key+1&plan=paid"), get("/explain?key=key+1&plan=none"), get("/explain?key="),
		putting("/reset", `{"key":"key 1"}`), putting("/reset", `{"key":"none"}`),
		{method: "HEAD", path: "/state"}, get("/state"), get("/keys?top=2&limiter=api"),
	} {
		req.send(t, h) // holds it to the document
	}
}

// contract is the OpenAPI document.
type contract struct{ root map[string]any }

// document is the OpenAPI document.
var document = sync.OnceValue(func() contract {
	var root map[string]any
	if err := json.Unmarshal(openAPI, &root); err != nil {
		panic(err)
	}
	return contract{root}
})

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
	"minItems": func(v, arg any) bool {
		l, ok := v.([]any)
		return !ok || float64(len(l)) >= arg.(float64)
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
func documented(t testing.TB, path, method string, rec *httptest.ResponseRecorder) {
	t.Helper()
	c, rt := document(), among(routes, path)
	if rt == nil || !slices.Contains(rt.methods, method) {
		return // it has no place in the document
	}
	answer := c.at(c.operation(rt.path, method), "responses", strconv.Itoa(rec.Code))
	if answer == nil {
		t.Errorf("%s %s answers %d, which is not in the document: %s", method, path, rec.Code, rec.Body)
		return
	}
	media, _, _ := strings.Cut(rec.Header().Get("Content-Type"), ";")
	if method == http.MethodHead || rec.Code == http.StatusNotModified || media == "text/event-stream" ||
		!strings.HasSuffix(media, "json") || rec.Header().Get("Content-Encoding") != "" {
		return
	}
	schema := c.at(answer, "content", media, "schema")
	var v any
	if err := json.Unmarshal(rec.Body.Bytes(), &v); err != nil || schema == nil {
		t.Errorf("%s %s: %d with %s, schema %v, %v", method, path, rec.Code, media, schema, err)
		return
	}
	if err := c.check("body", schema, v); err != nil {
		t.Errorf("%s %s: %d: %v", method, path, rec.Code, err)
	}
}
