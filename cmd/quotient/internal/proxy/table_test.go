package proxy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
)

// TestKeys: which requests share a quota of one.
func TestKeys(t *testing.T) {
	type ask []string // path and fields
	for _, row := range []struct {
		key           string
		first, second ask
		shared        bool
	}{
		{"path", ask{"/a"}, ask{"/a"}, true},
		{"path", ask{"/a"}, ask{"/b"}, false},
		{"pattern", ask{"/a"}, ask{"/b"}, true},
		{"client", ask{"/a"}, ask{"/b"}, true},
		{"client, untrusted", ask{"/a", "X-Forwarded-For", "192.0.2.1"},
			ask{"/a", "X-Forwarded-For", "192.0.2.2"}, true}, // the peer is the client, whatever it writes
		{"client", ask{"/a", "X-Forwarded-For", "192.0.2.1"},
			ask{"/a", "X-Forwarded-For", "192.0.2.2"}, false},
		{"client", ask{"/a", "X-Forwarded-For", "192.0.2.1"},
			ask{"/a", "X-Forwarded-For", "192.0.2.7, ::ffff:192.0.2.1"}, true},
		{"client", ask{"/a", "X-Forwarded-For", "2001:db8::1"},
			ask{"/a", "X-Forwarded-For", "2001:db8::2"}, true},
		{"host", ask{"/a", "Host", "a.host"}, ask{"/a", "Host", "A.host.:80"}, true},
		{"host", ask{"/a", "Host", "a.host"}, ask{"/a", "Host", "b.host"}, false},
		{"header:X-API-Key", ask{"/a", "X-Api-Key", "1"}, ask{"/b", "X-Api-Key", "1"}, true},
		{"header:X-API-Key", ask{"/a", "X-Api-Key", "1"}, ask{"/a", "X-Api-Key", "2"}, false},
		{"constant:all", ask{"/a"}, ask{"/b", "Host", "b.host"}, true},
	} {
		key, untrusted := strings.CutSuffix(row.key, ", untrusted")
		trusted := map[bool]string{false: "127.0.0.0/8", true: "10.0.0.0/8"}[untrusted]
		w := newWorld(t, fmt.Sprintf("[proxy]\nupstreams = [\"UPSTREAM\"]\ntrusted = [%q]%skey = %q\n",
			trusted, strict+all, key), ok)
		resp, _ := w.get(row.first[0], row.first[1:]...)
		want(t, "status of the first", resp.StatusCode, 200)
		resp, _ = w.get(row.second[0], row.second[1:]...)
		want(t, fmt.Sprint(row.key, row.first, row.second, " share a quota"), resp.StatusCode == 429,
			row.shared)
	}
}

const paid = `
[limiters.all.plans.paid]
rates = [{ name = "hour", events = 1000, per = "1h" }]
`

// TestPlanOfAHeader: a header names the plan only if a trusted peer has set it.
func TestPlanOfAHeader(t *testing.T) {
	for _, row := range []struct {
		trusted, plan string
		second        int
	}{
		{"127.0.0.0/8", "paid", 200}, {"127.0.0.0/8", "unknown", 429}, {"127.0.0.0/8", "", 429},
		{"10.0.0.0/8", "paid", 429},
	} {
		w := newWorld(t, fmt.Sprintf("[proxy]\nupstreams = [\"UPSTREAM\"]\ntrusted = [%q]\n", row.trusted)+
			strict+paid+all+
			"plan = \"header:X-Plan\"\n", ok)
		w.get("/", "X-Plan", row.plan)
		resp, _ := w.get("/", "X-Plan", row.plan)
		want(t, fmt.Sprintf("second of plan %q, %s is trusted,", row.plan, row.trusted), resp.StatusCode,
			row.second)
	}
}

// TestVariantsOfAPathShareAQuota: no other spelling of a path has a quota of its own, nor another rule.
func TestVariantsOfAPathShareAQuota(t *testing.T) {
	const file = strict + `
[limiters.loose]
rates = [{ events = 1_000_000, per = "1s" }]
[[proxy.rules]]
pattern = "some.host/b"
limiter = "all"
key = "constant:host"
[[proxy.rules]]
pattern = "/api/"
limiter = "all"
[[proxy.rules]]
pattern = "/"
limiter = "loose"
`
	for _, paths := range [][]string{
		{"/api/a", "/API/a", "//api//a", "/api/./a", "/x/../api/a", "/api/a/", "/%61pi/a", "/api%2Fa",
			"/api;x=1/a;y", "/api/%2e/a", "/api/b/%2e%2e/a", "http://other/api/a", "/api/a?b", "/API/A"},
		{"/api", "/api/", "/api//", "/API;x"},
	} {
		w := newWorld(t, file, ok)
		for i, path := range paths {
			status := http.StatusTooManyRequests
			if i == 0 {
				status = http.StatusOK
			}
			resp, _ := w.raw("GET " + path + " HTTP/1.1\nHost: other\nConnection: close\n\n")
			want(t, "status of "+path, resp.StatusCode, status)
		}
	}
	w := newWorld(t, file, ok)
	for i, host := range []string{"some.host", "SOME.host", "some.host.", "some.host:80", "some.host:8080"} {
		resp, _ := w.get("/b", "Host", host)
		want(t, "refused at "+host, resp.StatusCode == http.StatusTooManyRequests, i > 0)
	}
}

// TestReload: what waits goes on waiting, a rule that stays keeps its handler, and a bad file changes
// nothing.
func TestReload(t *testing.T) {
	up, entered, stop := holding(t)
	w := newWorld(t, one+all, up)
	first := w.later(t.Context(), "")
	event(t, entered)
	second := w.later(t.Context(), "")
	w.waiting(1)
	before := w.proxy.now.Load()
	file := *w.conf.File()
	section := *file.Proxy
	file.Proxy = &section
	section.Rules = slices.Concat([]config.Rule{{Pattern: "/new/", Exempt: true}}, section.Rules)
	section.Max.BodyBytes = 10
	w.reload(&file)
	after := w.proxy.now.Load()
	want(t, "the route that stays", after.routes["/"], before.routes["/"])
	want(t, "a new route", after.routes["/new/"] != nil, true)
	resp, _ := w.do(w.ask(http.MethodPost, "/new/a", strings.NewReader(strings.Repeat("a", 11))))
	want(t, "status of a long body", resp.StatusCode, http.StatusRequestEntityTooLarge)
	broken := section
	broken.JWT = &config.JWT{KeyFile: "/does/not/exist"}
	if _, err := w.proxy.Prepare(&config.File{Limiters: file.Limiters, Proxy: &broken}); err == nil {
		t.Error("a file whose key cannot be read was prepared")
	}
	want(t, "the table", w.proxy.now.Load(), after)
	if _, err := w.proxy.Prepare(&config.File{}); err == nil {
		t.Error("a file without a proxy was prepared")
	}
	section.Fields = "off"
	w.reload(&file)
	want(t, "the route stays with other fields", w.proxy.now.Load().routes["/"] == before.routes["/"], false)
	stop()
	want(t, "status of the first", event(t, first), 200)
	want(t, "status of the waiter", event(t, second), 200)
}

// TestBeforeAFile: without a file the answer is 503, and so it is when the limiter was taken out by hand.
func TestBeforeAFile(t *testing.T) {
	w := newWorld(t, loose+all, ok)
	p := New(new(quotient.Registry), nil, nil)
	w.front.Config.Handler = p
	resp, body := w.get("/")
	wantProblem(t, "no file", resp, body, http.StatusServiceUnavailable)
	commit, err := p.Prepare(w.conf.File())
	must(t, err)
	commit()
	resp, body = w.get("/")
	wantProblem(t, "no limiter", resp, body, http.StatusServiceUnavailable)
}
