package proxy

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"

	"github.com/quotient-go/quotient/httplimit"
)

// FuzzTarget: what goes upstream is the target of the client but for bytes that no URI may hold, and it has
// the same key there.
func FuzzTarget(f *testing.F) {
	for _, target := range []string{
		"/", "//", "/a%2Fb\"", "/A/../b;x=1", "/a?b#c", "/\xff", "/%zz", "http://h/a|b", "http://h?c",
		"//h/{", "/[",
	} {
		f.Add(target)
	}
	f.Fuzz(func(t *testing.T, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || strings.ContainsAny(target, " \t") {
			return // no server takes it
		}
		in := &http.Request{Method: http.MethodGet, URL: u, RequestURI: target}
		if misfit(in) != 0 {
			return
		}
		own := *u
		out := &http.Request{URL: &own}
		keepTarget(out, in)
		sent := out.URL.RequestURI()
		if out.URL.Scheme != "" { // of an absolute form; the transport sets its own
			out.URL.Scheme, out.URL.Host = "http", "up"
			sent = out.URL.RequestURI()
		}
		again, err := url.ParseRequestURI(sent)
		if err != nil {
			t.Fatalf("%q goes on as %q: %v", target, sent, err)
		}
		if was, is := httplimit.CanonicalPath(u.Path), httplimit.CanonicalPath(again.Path); was != is {
			t.Errorf("%q goes on as %q, of the key %q and not %q", target, sent, is, was)
		}
		if again.RawQuery != u.RawQuery {
			t.Errorf("%q goes on as %q", target, sent)
		}
		path, _, _ := strings.Cut(target, "?")
		if target[0] == '/' &&
			!strings.ContainsFunc(path, func(c rune) bool { return c > '~' || !mayStand(byte(c)) }) &&
			sent != target {
			t.Errorf("%q goes on as %q", target, sent)
		}
	})
}

// FuzzTogether: whatever an upstream sends, the client gets fields of one form.
func FuzzTogether(f *testing.F) {
	f.Add(`"minute";r=5`, `"minute";q=9;w=60`, "")
	f.Add("limit=1, remaining=2, reset=3", "1;w=60", "")
	f.Add("", "", "7")
	f.Add("((", "a", "x")
	f.Fuzz(func(t *testing.T, limit, policy, remaining string) {
		theirs := make(http.Header)
		for name, value := range map[string]string{
			"Ratelimit":             limit,
			"Ratelimit-Policy":      policy,
			"X-Ratelimit-Remaining": remaining,
		} {
			if value != "" {
				theirs.Set(name, value)
			}
		}
		ours := headerOf("Ratelimit: \"minute\";r=50;t=30\nRatelimit-Policy: \"minute\";q=100;w=60")
		got := make(http.Header)
		joined := together(linesOf(ours), linesOf(theirs))
		joined.set(got)
		list, err := httpsfv.UnmarshalList(got["Ratelimit"])
		single := len(got["X-Ratelimit-Remaining"]) > 0
		if err == nil && single && len(list) > 0 && contains(list, "minute") &&
			len(theirs["Ratelimit"]) == 0 {
			t.Errorf("of %v two forms are left: %v", theirs, got)
		}
		if len(got["Ratelimit"]) == 0 && !single {
			t.Errorf("of %v nothing is left", theirs)
		}
	})
}
