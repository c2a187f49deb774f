package admin

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestDocumentHasTheRoutes: every route and method of the handler is in the document, and the other way
// round.
func TestDocumentHasTheRoutes(t *testing.T) {
	c := readContract(t)
	var served, written []string
	for _, rt := range routes {
		for _, method := range rt.methods {
			served = append(served, method+" "+strings.Replace(rt.path, "/assets/", "/assets/{file}", 1))
		}
		for _, method := range rt.methods {
			_, open := c.operation(rt.path, method)["security"]
			if open != rt.public {
				t.Errorf("%s %s: public %v, in the document %v", method, rt.path, rt.public, open)
			}
		}
	}
	for path, item := range c.at(c.root, "paths") {
		for method := range item.(map[string]any) {
			written = append(written, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(served)
	slices.Sort(written)
	if !slices.Equal(served, written) {
		t.Errorf("served  %v\nwritten %v", served, written)
	}
}

// TestDocumentsExamples: each example keeps to the schema beside it, and each example of a request is one
// that the handler accepts.
func TestDocumentsExamples(t *testing.T) {
	c := readContract(t)
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
	if examples < 32 {
		t.Errorf("only %d examples", examples)
	}
}

func TestDocumentsRequestsAreAccepted(t *testing.T) {
	c := readContract(t)
	for _, rt := range routes {
		for name, example := range c.at(c.operation(rt.path, http.MethodPut), "requestBody", "content",
			"application/json", "examples") {
			body, err := json.Marshal(example.(map[string]any)["value"])
			if err != nil {
				t.Fatal(err)
			}
			rec := request{method: "PUT", path: rt.path, body: string(body)}.send(quiet(t, newLimiter(t)))
			if rec.Code != 200 {
				t.Errorf("%s %s: %d %s", rt.path, name, rec.Code, rec.Body)
			}
			documented(t, c, rt.path, "PUT", rec.Code, rec.Header(), rec.Body.Bytes())
		}
	}
}

// TestDocumentsRangesAreTheHandlers: what the document's schemas of requests refuse, the handler refuses, and
// the other way round.
func TestDocumentsRangesAreTheHandlers(t *testing.T) {
	c := readContract(t)
	tests := map[string][]string{
		"/replicas": {
			`{"replicas":0}`, `{"replicas":1}`, `{"replicas":1000000}`, `{"replicas":1000001}`,
			`{"replicas":1.5}`, `{"replicas":"1"}`, `{}`,
			`{"replicas":1,"ordinal":-1}`, `{"replicas":1000000,"ordinal":1000000}`,
			`{"replicas":3,"weight":0}`, `{"replicas":3,"weight":3}`, `{"replicas":1000000,"weight":1000000}`,
			`{"replicas":1,"ttl_seconds":0}`, `{"replicas":1,"ttl_seconds":0.001}`,
			`{"replicas":1,"ttl_seconds":0.0009}`, `{"replicas":1,"ttl_seconds":31536000}`,
			`{"replicas":1,"ttl_seconds":31536001}`, `{"replicas":1,"x":1}`,
		},
		"/limit": {
			`{}`, `{"rates":[]}`, `{"deny":true}`, `{"deny":false}`, `{"in_flight":3}`,
			`{"rates":[],"in_flight":-1}`, `{"rates":[],"in_flight":1073741824}`,
			`{"rates":[],"in_flight":1073741825}`, `{"rates":{}}`, `{"rates":null}`, `{"rates":[{}]}`,
			`{"rates":[{"events":1}]}`,
			`{"rates":[{"events":1,"per_seconds":0}]}`, `{"rates":[{"events":1,"per_seconds":1e-9}]}`,
			`{"rates":[{"events":1e12,"per_seconds":1}]}`,
			`{"rates":[{"events":1.1e12,"per_seconds":1}]}`, `{"rates":[{"events":0,"per_seconds":1}]}`,
			`{"rates":[{"events":1,"per_seconds":9.2e9}]}`,
			`{"rates":[{"events":1,"per_seconds":9.3e9}]}`,
			`{"rates":[{"events":1,"per_seconds":1,"burst":1099511627776}]}`,
			`{"rates":[{"events":1,"per_seconds":1,"burst":1099511627777}]}`,
			`{"rates":[{"events":1,"per_seconds":1,"aligned":1}]}`,
			`{"rates":[{"events":1,"per_seconds":1,"name":"` + strings.Repeat("n", 129) + `"}]}`,
			`{"rates":[` + strings.Repeat(`{"events":1,"per_seconds":1},`, 16) +
				`{"events":1,"per_seconds":1}]}`,
			`{"rates":[` + strings.Repeat(`{"events":1,"per_seconds":1},`, 15) +
				`{"events":1,"per_seconds":1}]}`,
		},
		"/plan": {
			`{"plan":"paid"}`, `{"limit":null}`, `{"plan":"paid","limit":null}`, `{"plan":1,"limit":null}`,
			`{"plan":"","limit":null}`, `{"plan":"a","limit":{"deny":true}}`,
			`{"plan":"paid","limit":{}}`, `{"plan":"` + strings.Repeat("p", 64) + `","limit":null}`,
			`{"plan":"` + strings.Repeat("p", 65) + `","limit":null}`,
			`{"plan":"Paid","limit":null}`, `{"plan":"a b","limit":null}`,
			`{"plan":"0.a_b-c","limit":{"rates":[],"in_flight":3}}`, `{"plan":"ä","limit":null}`,
			`{"plan":"paid","limit":null,"x":1}`, `{"plan":null,"limit":null}`,
			`{"plan":"paid\n","limit":null}`,
		},
		"/override": {`{"key":"K"}`, `{"limit":null}`, `{"key":"K","limit":null}`, `{"key":1,"limit":null}`,
			`{"key":"","limit":{"deny":true}}`, `{"key":"K","limit":{}}`,
			`{"key":"` + strings.Repeat("k", 4097) + `","limit":null}`,
			`{"key_base64":"gA==","limit":null}`, `{"key_base64":"","limit":null}`,
			`{"key_base64":"gA","limit":null}`, `{"key_base64":"gB==","limit":null}`,
			`{"key_base64":"gA==","key":"K","limit":null}`, `{"key_base64":1,"limit":null}`},
		"/reset": {
			`{}`, `{"key":"K"}`, `{"key":""}`, `{"key":1}`, `{"key":null}`, `{"key":"K","limit":null}`,
			`{"key":"` + strings.Repeat("k", 4097) + `"}`,
			`{"key_base64":"gA=="}`, `{"key_base64":"gA"}`, `{"key_base64":"gA==","key":"K"}`,
		},
		"/dry-run": {`{}`, `{"dry_run":true}`, `{"dry_run":1}`, `{"dry_run":null}`, `{"dry_run":true,"x":1}`},
	}
	for path, bodies := range tests {
		schema := c.at(c.operation(path, "PUT"), "requestBody", "content", "application/json", "schema")
		for _, body := range bodies {
			var v any
			if err := json.Unmarshal([]byte(body), &v); err != nil {
				t.Fatal(err)
			}
			err := c.check("body", schema, v)
			rec := request{method: "PUT", path: path, body: body}.send(quiet(t, newLimiter(t)))
			if (err == nil) != (rec.Code == 200) {
				t.Errorf("%s %.80s: handler %d %s, document %v", path, body, rec.Code, rec.Body, err)
			}
			documented(t, c, path, "PUT", rec.Code, rec.Header(), rec.Body.Bytes())
		}
	}
}

// TestDocumentHasEveryStatus: a status that stands in the code stands in the document.
func TestDocumentHasEveryStatus(t *testing.T) {
	c := readContract(t)
	written := make(map[string]bool)
	for _, item := range c.at(c.root, "paths") {
		for method := range item.(map[string]any) {
			for status := range c.at(item.(map[string]any), method, "responses") {
				written[status] = true
			}
		}
	}
	byName := make(map[string]int)
	for status := range 600 {
		if text := http.StatusText(status); text != "" {
			byName[strings.NewReplacer(" ", "", "-", "", "'", "").Replace(text)] = status
		}
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || file == "client.go" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`http\.Status([A-Z]\w+)`).FindAllStringSubmatch(string(text),
			-1) {
			if name[1] == "Text" {
				continue
			}
			found++
			status := byName[name[1]]
			if status == 0 || !written[strconv.Itoa(status)] {
				t.Errorf("%s: %s (%d) is not in the document", file, name[1], status)
			}
		}
	}
	if found < 15 {
		t.Errorf("only %d statuses found in the code", found)
	}
}

// TestLiveAnswersKeepToTheDocument: a limiter that has been used in every way answers as the document says.
func TestLiveAnswersKeepToTheDocument(t *testing.T) {
	c := readContract(t)
	l := newLimiter(t)
	l.SetDryRun(true)
	h := quiet(t, l)
	for i := range 20 {
		l.Allow(fmt.Sprintf("key %d", i%3))
	}
	for _, req := range []request{
		{method: "PUT", path: "/replicas", body: `{"replicas":3,"ordinal":1,"ttl_seconds":60}`},
		{method: "PUT", path: "/override", body: `{"key_base64":"gA==","limit":{"deny":true}}`},
		{method: "PUT", path: "/override", body: `{"key":"key 1","limit":{"rates":[{"name":"a","unit":"tokens","events":5,"per_seconds":60}],"in_flight":3}}`},
		{method: "PUT", path: "/plan",
			body: `{"plan":"paid","limit":{"rates":[{"unit":"tokens","events":5,"per_seconds":60}],"in_flight":3}}`},
		{method: "PUT", path: "/plan", body: `{"plan":"stopped","limit":{"deny":true}}`},
		{method: "PUT", path: "/plan", body: `{"plan":"none","limit":null}`},
		{method: "GET", path: "/explain?key=key+1&plan=paid"},
		{method: "GET", path: "/explain?key=key+1&plan="},
		{method: "GET", path: "/explain?key=key+1&plan=none"},
		{method: "PUT", path: "/reset", body: `{"key":"key 1"}`},
		{method: "PUT", path: "/reset", body: `{"key":"none"}`},
		{method: "PUT", path: "/limit", body: `{"rates":[{"events":1,"per_seconds":60,"aligned":true},{"events":1e-9,"per_seconds":1}],"in_flight":1}`},
		{method: "PUT", path: "/dry-run", body: `{"dry_run":false}`},
		{method: "GET", path: "/state"}, {method: "HEAD", path: "/state"},
		{method: "GET", path: "/state?limiter=api"},
		{method: "GET", path: "/keys"}, {method: "GET", path: "/keys?top=2&limiter=api"},
		{method: "GET", path: "/keys?top=0"},
		{method: "GET", path: "/explain?key=key+1"}, {method: "GET", path: "/explain?key="},
		{method: "GET", path: "/explain"}, {method: "GET", path: "/explain?key_base64=gA=="},
		{method: "GET", path: "/events?x=1"},
		{method: "GET", path: "/state?limiter=none"}, {method: "GET", path: "/openapi.json"},
		{method: "HEAD", path: "/"}, {method: "GET", path: "/"},
		{method: "GET", path: "/assets/none"},
	} {
		rec := req.send(h)
		path, _, _ := strings.Cut(req.path, "?")
		documented(t, c, path, req.method, rec.Code, rec.Header(), rec.Body.Bytes())
	}
}
