package proxy

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/quotient-go/quotient/config"
)

// browsed is an upstream that has fields for browsers on one path.
func browsed(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/theirs":
		w.Header().Set("Access-Control-Allow-Origin", "theirs")
		w.Header().Set("Vary", "Accept")
	case "/broken":
		panic(http.ErrAbortHandler)
	case "/upgrade":
		echo(w, r)
	}
}

// corsOf are the fields of an answer for browsers, each with its values.
func corsOf(h http.Header) string {
	found := make(http.Header)
	for name, lines := range h {
		if short, ok := strings.CutPrefix(name, "Access-Control-"); ok || name == "Vary" {
			found[short] = lines
		}
	}
	return textOf(found)
}

// TestCORS: what browsers get to know of our own answers. Those of the upstream have its own fields.
func TestCORS(t *testing.T) {
	const a, b = "https://a.test", "http://b.test:8080"
	const both = "origins = [\"" + a + "\", \"" + b + "\"]\n"
	const vary, expose = "Vary: Origin", "\nExpose-Headers: Retry-After"
	const drafts, single = ", Ratelimit-Policy, Ratelimit\n",
		", X-Ratelimit-Limit, X-Ratelimit-Remaining, X-Ratelimit-Reset\n"
	const own = "refusal.fields = { X-B = \"1\", X-A = \"2\" }\n"
	const forA, forB = "Allow-Origin: " + a + expose, "Allow-Origin: " + b + expose
	for _, row := range []struct {
		what, cors, fields, rule string
		request                  string // the second to /twice is refused
		origins                  []string
		want                     string
	}{
		{"refused", both, "", "", "GET /twice", []string{b}, forB + drafts + vary},
		{"an own refusal", both, "", own, "GET /twice", []string{a},
			forA + drafts + "Expose-Headers: X-A, X-B\n" + vary},
		{"an own refusal without fields", both, "", "refusal.status = 420\n", "GET /twice", []string{a},
			forA + drafts + vary},
		{"an own refusal for another", both, "", own, "GET /twice", nil, vary},
		{"a preflight", both, "", "", "OPTIONS /twice", []string{a}, forA + drafts + vary},
		{"with credentials", both + "credentials = true", "", "", "GET /twice", []string{a},
			"Allow-Credentials: true\n" + forA + drafts + vary},
		{"another origin", both + "credentials = true", "", "", "GET /twice", []string{a + ".test"}, vary},
		{"no origin", both, "", "", "GET /twice", nil, vary},
		{"an origin without a name", both, "", "", "GET /twice", []string{"null"}, vary},
		{"two origins", both, "", "", "GET /twice", []string{a, b}, vary},
		{"any origin", "origins = [\"*\"]", "off", "", "GET /twice", []string{"null"}, "Allow-Origin: *" + expose},
		{"without RateLimit fields", both, "off", "", "GET /twice", []string{a}, forA + "\n" + vary},
		{"with others", both, "x-ratelimit", "", "GET /twice", []string{a}, forA + single + vary},
		{"ambiguous", both, "", "", "GET /a%2f..", []string{a}, forA + drafts + vary},
		{"not passed on", both, "", "", "TRACE /", []string{a}, forA + drafts + vary},
		{"too long", both, "", "", "POST /", []string{a}, forA + drafts + vary},
		{"malformed", both, "", "", "GET /\\", []string{a}, forA + drafts + vary},
		{"malformed, of another origin", both, "", "", "GET /\\", []string{a + ".test"}, vary},
		{"a malformed head", both, "", "", "GET  /", []string{a}, vary},
		{"a malformed head, for any origin", "origins = [\"*\"]", "off", "", "GET  /", nil, "Allow-Origin: *" + expose},
		{"broken off", both, "", "", "GET /broken", []string{a}, forA + drafts + vary},
		{"upstream's", both + "credentials = true", "", "", "GET /theirs", []string{a},
			"Allow-Origin: theirs\nVary: Accept"},
		{"upstream's without any", both, "", "", "GET /", []string{a}, ""},
		{"upgraded", both, "", "", "GET /upgrade", []string{a}, ""},
	} {
		w := newWorld(t, "[proxy]\nupstreams = [\"UPSTREAM\"]\nmax.body-bytes = 1\nfields = \""+
			cmp.Or(row.fields, "draft-11")+"\"\n[proxy.cors]\n"+row.cors+strict+
			"[[proxy.rules]]\npattern = \"/a/\"\nexempt = true\n"+all+row.rule, browsed)
		w.behindFront()
		text := row.request + " HTTP/1.1\nHost: h\nConnection: close, Upgrade\nUpgrade: echo\n"
		for _, origin := range row.origins {
			text += "Origin: " + origin + "\n"
		}
		if strings.HasPrefix(text, "POST") {
			text += "Content-Length: 2\n"
		}
		resp, _ := w.raw(text + "\n")
		if strings.Contains(text, "/twice") {
			resp, _ = w.raw(text + "\n")
			want(t, row.what+": it is refused", resp.StatusCode >= 420, true)
		}
		want(t, row.what, corsOf(resp.Header), row.want)
	}
}

// TestPreflights: they count as any request, unless those of the origins are exempt.
func TestPreflights(t *testing.T) {
	const asks = "Origin: https://a.test\nAccess-Control-Request-Method: PUT\n"
	for _, row := range []struct {
		origins, exempt, text string
		status                int // of the second
	}{
		{"https://a.test", "true", "OPTIONS / HTTP/1.1\n" + asks, 200},
		{"*", "true", "OPTIONS / HTTP/1.1\n" + asks, 200},
		{"https://a.test", "false", "OPTIONS / HTTP/1.1\n" + asks, 429},
		{"https://b.test", "true", "OPTIONS / HTTP/1.1\n" + asks, 429},
		{"https://a.test", "true", "GET / HTTP/1.1\n" + asks, 429},
		{"https://a.test", "true", "OPTIONS / HTTP/1.1\n" + asks + "Content-Length: 1\n", 429},
		{"https://a.test", "true", "OPTIONS / HTTP/1.1\n" + asks + "Transfer-Encoding: chunked\n", 429},
		{"https://a.test", "true", "OPTIONS / HTTP/1.1\nOrigin: https://a.test\n", 429},
		{"*", "true", "OPTIONS / HTTP/1.1\nAccess-Control-Request-Method: PUT\n", 429},
	} {
		w := newWorld(t, fmt.Sprintf("[proxy]\nupstreams = [\"UPSTREAM\"]\n[proxy.cors]\norigins = [%q]\n"+
			"exempt-preflights = %s\n%s", row.origins, row.exempt, strict+all), ok)
		w.get("/")
		resp, _ := w.raw(row.text + "Host: h\nConnection: close\n\n0\n\n")
		want(t, fmt.Sprintf("%+v: status", row), resp.StatusCode, row.status)
	}
}

// TestCORSReloads: the origins are those of the file in force.
func TestCORSReloads(t *testing.T) {
	w := newWorld(t, strict+all, ok)
	w.get("/")
	file := *w.conf.File()
	section := *file.Proxy
	file.Proxy = &section
	for _, origins := range [][]string{{"https://a.test"}, {"https://b.test"}, nil} {
		if section.CORS = nil; origins != nil {
			section.CORS = &config.CORS{Origins: origins}
		}
		w.reload(&file)
		resp, _ := w.get("/", "Origin", "https://b.test")
		want(t, "status", resp.StatusCode, 429)
		want(t, "the origin", resp.Header.Get(allowOrigin) != "", len(origins) > 0 && origins[0] == "https://b.test")
	}
}
