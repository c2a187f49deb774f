package proxy

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/tested"
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
		{"host", ask{"/a", "Host", "a.host"}, ask{"/a", "Host", "a.host:8080"}, true},
		{"host", ask{"/a", "Host", "[::1]"}, ask{"/a", "Host", "[0::1]:81"}, true},
		{"host", ask{"/a", "Host", "a.host"}, ask{"/a", "Host", "b.host"}, false},
		{"header:X-Tenant", ask{"/a", "X-Tenant", "1"}, ask{"/b", "X-Tenant", "1"}, true},
		{"header:X-Tenant", ask{"/a", "X-Tenant", "1"}, ask{"/a", "X-Tenant", "2"}, false},
		{"credential", ask{"/a", "Authorization", "Bearer a"}, ask{"/b", "Authorization", "BEARER  a"}, true},
		{"credential", ask{"/a", "Authorization", "Bearer a"}, ask{"/b", "Authorization", "Bearer b"}, false},
		{"credential:X-API-Key", ask{"/a", "X-Api-Key", "1"}, ask{"/b", "X-Api-Key", "1"}, true},
		{"credential:X-API-Key", ask{"/a", "X-Api-Key", "1"}, ask{"/a", "X-Api-Key", "2"}, false},
		{"constant:all", ask{"/a"}, ask{"/b", "Host", "b.host"}, true},
		{"cookie:id", ask{"/a", "Cookie", "x=1; id=a"}, ask{"/b", "Cookie", "id=\"a\"; id=b"}, true},
		{"cookie:id", ask{"/a", "Cookie", "id=a"}, ask{"/a", "Cookie", "xid=a; id=b; id=a"}, false},
		{"cookie:id", ask{"/a", "Cookie", "x=1"}, ask{"/b"}, true},
		{"query:id", ask{"/a?x&id=a+b"}, ask{"/b?i%64=a%20b"}, true},
		{"query:id", ask{"/a?id=b"}, ask{"/a?id=b&id=a"}, false},
		{"query:id", ask{"/a?id=c&id=c"}, ask{"/a?id=b&i%64=a"}, true}, // both have none
		{"query:id", ask{"/a?id=a&%zz"}, ask{"/a?id=b;x"}, true},       // both have none
		{"client, path", ask{"/a"}, ask{"/a?x"}, true},
		{"client, path", ask{"/a"}, ask{"/b"}, false},
		{"client, path", ask{"/a", "X-Forwarded-For", "192.0.2.1"},
			ask{"/a", "X-Forwarded-For", "192.0.2.2"}, false},
		{"header:X-A, header:X-B", ask{"/", "X-A", "a|b"}, ask{"/", "X-A", "a", "X-B", "b|"}, false},
		{"header:X-A, header:X-B", ask{"/", "X-A", "a|", "X-B", "b"}, ask{"/", "X-A", "a", "X-B", "|b"}, false},
		{"header:X-A, header:X-B", ask{"/", "X-A", `a\`, "X-B", "b"}, ask{"/", "X-A", `a\|b`}, false},
		{"header:X-A or client", ask{"/"}, ask{"/b"}, true},
		{"header:X-A or client", ask{"/", "X-A", "1"}, ask{"/", "X-A", "1", "X-Forwarded-For", "192.0.2.1"}, true},
		{"header:X-A or client", ask{"/"}, ask{"/", "X-A", "127.0.0.1"}, false},
		{"header:X-A or client", ask{"/"}, ask{"/", "X-A", "client|127.0.0.1"}, false},
		{"header:X-A or client", ask{"/"}, ask{"/", "X-A", ""}, true},
		{"credential or path", ask{"/a"}, ask{"/b", "Authorization", `Digest a="b"`}, false},
		{"cookie:id or path", ask{"/a"}, ask{"/b", "Cookie", "id="}, false},
		{"query:a, path or query:a, path|v", ask{"/p?a=v"}, ask{"/p?a,%20path|v=/p"}, false},
		{"header:X-A, path or client", ask{"/a"}, ask{"/b"}, true},
		{"header:X-A, path or client", ask{"/a", "X-A", "1"}, ask{"/b", "X-A", "1"}, false},
		{"client, /56", ask{"/", "X-Forwarded-For", "2001:db8::1"},
			ask{"/", "X-Forwarded-For", "2001:db8:0:ff::1"}, true},
		{"client, /56", ask{"/", "X-Forwarded-For", "2001:db8::1"},
			ask{"/", "X-Forwarded-For", "2001:db8:0:100::1"}, false},
	} {
		key, untrusted := strings.CutSuffix(row.key, ", untrusted")
		trusted := map[bool]string{false: "127.0.0.0/8", true: "10.0.0.0/8"}[untrusted]
		key, wide := strings.CutSuffix(key, ", /56")
		bits := map[bool]int{false: 64, true: 56}[wide]
		key, or, _ := strings.Cut(key, " or ")
		w := newWorld(t, fmt.Sprintf("[proxy]\nupstreams = [\"UPSTREAM\"]\ntrusted = [%q]\nipv6-prefix = %d%s"+
			"key = ['%s']\nor = %q\n", trusted, bits, strict+all, strings.ReplaceAll(key, ", ", "', '"), or), ok)
		resp, _ := w.get(row.first[0], row.first[1:]...)
		want(t, "status of the first", resp.StatusCode, 200)
		resp, _ = w.get(row.second[0], row.second[1:]...)
		want(t, fmt.Sprint(row.key, row.first, row.second, " share a quota"), resp.StatusCode == 429,
			row.shared)
	}
}

// TestFieldsThatARuleReadsAreThereOnce: it is not known which of several an upstream reads.
func TestFieldsThatARuleReadsAreThereOnce(t *testing.T) {
	for _, row := range []struct {
		rule, trusted string
		fields        []string
		status        int
	}{
		{`key = "header:X-Tenant"`, "", []string{"X-Tenant", "a"}, 200},
		{`key = "header:X-Tenant"`, "", nil, 200},
		{`key = "header:X-Tenant"`, "", []string{"X-Tenant", "a", "X-Tenant", "b"}, 400},
		{`key = "header:X-Tenant"`, "", []string{"X-Tenant", "a", "X_Tenant", "b"}, 400},
		{`key = "header:X-Tenant"`, "", []string{"x_TENANT", "b"}, 400},
		{`key = "header:X-Tenant"`, "", []string{"X.Tenant", "b"}, 400},
		{`key = "header:X-Tenant"`, "", []string{"X-Tenants", "b", "X_Tenan", "b", "X0Tenant", "b"}, 200},
		{`key = "header:X-Tenant"`, "", []string{"X-Other", "a", "X-Other", "b", "X_Other", "c"}, 200},
		{`key = "header:X-Tenant"`, "", []string{"X-Tenant", "a", "Trailer", "x_tenant"}, 400},
		{`key = "header:X-Tenant"`, "", []string{"X-Tenant", "a", "Trailer", "x_other"}, 200},
		{`key = "credential"`, "", []string{"Authorization", "a", "Authorization", "b"}, 400},
		{`key = "credential:X-API-Key"`, "", []string{"X-Api-Key", "a", "X_API_Key", "b"}, 400},
		{`plan = "header:X-Plan"`, "127.0.0.0/8", []string{"X-Plan", "a", "X-Plan", "b"}, 400},
		{`plan = "header:X-Plan"`, "127.0.0.0/8", []string{"X_Plan", "a"}, 400},
		{`plan = "header:X-Plan"`, "10.0.0.0/8", []string{"X-Plan", "a", "X-Plan", "b"}, 200}, // it is not read
	} {
		w := newWorld(t, fmt.Sprintf("[proxy]\nupstreams = [\"UPSTREAM\"]\ntrusted = [%q]%s%s\n",
			cmp.Or(row.trusted, "10.0.0.0/8"), loose+all, row.rule), ok)
		text := "POST / HTTP/1.1\nHost: h\nConnection: close\nTransfer-Encoding: chunked\n"
		for i := 0; i < len(row.fields); i += 2 {
			text += row.fields[i] + ": " + row.fields[i+1] + "\n"
		}
		resp, body := w.raw(text + "\n0\n\n")
		want(t, fmt.Sprint("status of ", row.rule, row.fields), resp.StatusCode, row.status)
		if row.status == 400 {
			wantProblem(t, row.rule, resp, body, 400)
			want(t, "the detail names the field: "+body, strings.Contains(body, "must be there once"), true)
		}
	}
}

// TestNoReadingOfAPathLeavesItsRule: whatever an upstream takes a path for, a request that its handler gets
// has been limited by the rule that is for it, or was refused.
func TestNoReadingOfAPathLeavesItsRule(t *testing.T) {
	const file = strict + `
[limiters.loose]
rates = [{ events = 1_000_000, per = "1s" }]
[[proxy.rules]]
pattern = "GET /search/{q}"
limiter = "all"
key = "pattern"
[[proxy.rules]]
pattern = "/"
limiter = "loose"
`
	search := http.NewServeMux() // one way to read a path; others are in paths_test.go
	search.HandleFunc("GET /search/{q}", ok)
	search.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	w := newWorld(t, file, search.ServeHTTP)
	lax := newWorld(t, "[proxy]\nambiguous-paths = true\nupstreams = [\"UPSTREAM\"]\n"+file, search.ServeHTTP)
	for _, row := range []struct {
		target      string
		status, lax int
	}{
		{"/search/cats", 200, 200},
		{"/search/dogs", 429, 429},
		{"/search/cats%2fdogs", 400, 200},
		{"/search/cats%2Fdogs", 400, 200},
		{"/search/cats%5cdogs", 400, 200},
		{"/search/;x=1", 400, 200},
		{"/search/%3bx", 400, 200},
		{"/search/%2e", 400, 200},
		{"/search/%2E%2e", 400, 200},
		{"/search/x%2f..%2f..", 400, 200},
		{"/search%2fcats", 400, 429},
		{"/search/cats;x=1", 429, 429},
		{"/search/cats%20dogs", 429, 429},
		{"/%73earch/cats/", 429, 429},
		{"//search/./cats", 400, 429},
		{"/a%2fb/c;x", 404, 404}, // one rule in any case
		{"/.well-known/x%2fy", 404, 404},
		{"/search//../cats", 400, 307},
		{"/search/cats%0a", 400, 429},
		{"/search/cats%2500", 400, 429},
		{"/search%252fcats", 400, 404}, // decoded twice
		{"/%2573earch/cats%zz", 400, 400},
		{"/%2573earch/a%2fb", 400, 404},
		{"/%2573earch;/%3bx", 400, 404},
		{"/%2573earch/cats%25zz", 400, 404},
		{"/search/100%25", 429, 429},
		{"/search/100%2525", 429, 429},
		{"/search/...", 400, 429}, // of Windows
		{"/search./cats", 400, 404},
		{"/x/search%20", 404, 404},
		{"/search/e.g.", 429, 429},
		{"/" + strings.Repeat("a/", 1<<10) + "x%2fy", 400, 404}, // too long to look at all readings
		{"/a;b%3bc%2fd%5ce/../%2e", 400, 307},                   // too odd
	} {
		text := "GET " + row.target + " HTTP/1.1\nHost: other\nConnection: close\n\n"
		resp, _ := w.raw(text)
		want(t, "status of "+row.target, resp.StatusCode, row.status)
		resp, _ = lax.raw(text)
		want(t, "with ambiguous-paths the status of "+row.target, resp.StatusCode, row.lax)
	}
	for line, status := range map[string]int{
		"get /search/cats": 400, "Get /search/x%2fy": 400, "get /other": 404, "post /search/cats": 404,
		"head /other": 405, "trace /other": 405, "connect /other": 405,
	} {
		resp, _ := w.raw(line + " HTTP/1.1\nHost: other\nConnection: close\n\n")
		want(t, "status of "+line, resp.StatusCode, status)
	}
	resp, _ := lax.raw("get /search/cats HTTP/1.1\nHost: other\nConnection: close\n\n")
	want(t, "with ambiguous-paths the status of a method in lower case", resp.StatusCode, 400)
}

// TestUpstreamsThatReadPathsInTheirOwnWay: what a file says of them finds the rule, and what it settles is passed.
func TestUpstreamsThatReadPathsInTheirOwnWay(t *testing.T) {
	const file = loose + `
[[proxy.rules]]
pattern = "/projects/{id}"
exempt = true
[[proxy.rules]]
pattern = "/login"
exempt = true
[proxy.paths]
`
	for _, row := range []struct {
		settings, target, rule string // "": it is refused
	}{
		{"", "/projects/a%2Fb", ""},
		{`encoded-slash = "text"`, "/projects/a%2Fb", "/projects/{id}"},
		{`encoded-slash = "text"`, "/projects/a%2Fb/c", "/"},
		{`encoded-slash = "text"`, "/projects/a%5Cb", ""},
		{`encoded-slash = "slash"`, "/projects/a%2Fb", "/"},
		{`encoded-slash = "slash"`, "/projects/a%252Fb", ""},
		{"", `/projects/a\b`, ""},
		{`backslash = "text"`, "/projects/a%5Cb", "/projects/{id}"},
		{`backslash = "slash"`, `/projects/a\b`, "/"},
		{"", "/login;jsessionid=A1", ""},
		{`semicolon = "dropped"`, "/login;jsessionid=A1", "/login"},
		{`semicolon = "dropped"`, "/login;a%2Fb", "/login"},
		{`semicolon = "dropped"`, "/login%3Bjsessionid=A1", ""}, // Tomcat takes it as text
		{`semicolon = "text"`, "/login;jsessionid=A1", "/"},
		{`semicolon = "text"`, "/projects/;", "/projects/{id}"},
		{"", "/projects/a%252Fb", ""},
		{`encoded-percent = "text"`, "/projects/a%252Fb", "/projects/{id}"},
		{`encoded-percent = "decoded"`, "/projects/%2561", "/projects/{id}"},
		{`encoded-percent = "decoded"`, "/%256Cogin", "/login"},
		{"encoded-percent = \"decoded\"\nencoded-slash = \"slash\"", "/projects/a%252Fb", "/"},
		{"encoded-percent = \"decoded\"\nencoded-slash = \"text\"", "/projects/a%2Fb", "/projects/{id}"},
		{"encoded-percent = \"decoded\"\nencoded-slash = \"text\"", "/projects/a%252Fb", "/projects/{id}"},
		{"encoded-percent = \"decoded\"\nsemicolon = \"dropped\"", "/projects/%3Bx", ""},
		{"encoded-percent = \"decoded\"\nsemicolon = \"dropped\"", "/%256Cogin;x", "/login"},
		{`encoded-percent = "decoded"`, "/login%2500", ""}, // some servers end it there
		{"encoded-slash = \"text\"\nsemicolon = \"dropped\"", "/projects/a%2Fb;x=1", "/projects/{id}"},
		{"encoded-slash = \"text\"\n[proxy]\nambiguous-paths = true", "/projects/a%2Fb;x%5C", "/projects/{id}"},
	} {
		settings, lax := strings.CutSuffix(row.settings, "\n[proxy]\nambiguous-paths = true")
		f, err := config.Parse("q.toml", fmt.Appendf(nil, "[proxy]\nupstreams = [\"http://h\"]\nambiguous-paths = %v\n%s%s%s",
			lax, file, settings, all))
		must(t, err)
		table, err := newTable(f)
		must(t, err)
		u, err := url.ParseRequestURI(row.target)
		must(t, err)
		rule := ""
		if to, clear := table.find(&http.Request{Method: "GET", URL: u}); clear {
			rule = to.spec.rule.Pattern
		}
		want(t, "with "+row.settings+" the rule of "+row.target, rule, row.rule)
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
		{"/api/a", "/API/a", "//api//a", "/api/./a", "/api/x/../a", "/api/a/", "/%61pi/a", "/api/a;y",
			"/api/%2e/a", "/api/b/%2e%2e/a", "/api/b%2f%2e%2e/a", "http://other/api/a", "/api/a?b", "/API/A"},
		{"/api", "/api/", "/api//", "/API"},
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
	tested.Event(t, entered)
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
	section.Rules = slices.Clone(section.Rules)
	section.Rules[1].Refusal = &config.Refusal{Status: 420, Body: "no", Type: config.PlainText}
	w.reload(&file)
	want(t, "the route stays with another refusal", w.proxy.now.Load().routes["/"] == before.routes["/"], false)
	section.Fields = "off"
	w.reload(&file)
	want(t, "the route stays with other fields", w.proxy.now.Load().routes["/"] == before.routes["/"], false)
	stop()
	want(t, "status of the first", tested.Event(t, first), 200)
	want(t, "status of the waiter", tested.Event(t, second), 200)
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

// TestWeight: each request of a rule counts as its weight, and two rules share what they count.
func TestWeight(t *testing.T) {
	const rules = "[[proxy.rules]]\nlimiter = \"a\"\nkey = \"client\"\npattern = "
	w := newWorld(t, "[proxy]\nupstreams = [\"UPSTREAM\"]\n"+rules+"\"/export\"\nweight = 3\n"+rules+"\"/\"\n"+
		`[limiters.a]
mode = "refuse"
rates = [{ events = 5, per = "1000h", kind = "window" }]
`, func(http.ResponseWriter, *http.Request) {})
	for _, row := range []struct {
		path   string
		status int
	}{{"/export", 200}, {"/export", 429}, {"/a", 200}, {"/a", 200}, {"/a", 429}} {
		resp, _ := w.get(row.path)
		want(t, row.path, resp.StatusCode, row.status)
	}
}
