package proxy

import (
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/httplimit"
)

// readers are servers, each by how it takes a target apart.
var readers = map[string]func(u *url.URL) []string{
	"http.ServeMux":    func(u *url.URL) []string { return decoded(path.Clean(u.EscapedPath())) },
	"dots as they are": func(u *url.URL) []string { return decoded(u.EscapedPath()) },
	"RFC 3986": func(u *url.URL) []string {
		base := &url.URL{Scheme: "http", Host: "h", Path: "/"}
		return decoded(base.ResolveReference(&url.URL{Path: u.Path, RawPath: u.RawPath}).EscapedPath())
	},
	"WSGI":  func(u *url.URL) []string { return strings.Split(u.Path, "/") },
	"nginx": func(u *url.URL) []string { return strings.Split(path.Clean(u.Path), "/") },
	"IIS": func(u *url.URL) []string {
		return strings.Split(path.Clean(strings.ReplaceAll(u.Path, `\`, "/")), "/")
	},
	"Tomcat": func(u *url.URL) []string {
		all := strings.Split(u.EscapedPath(), "/")
		for i := range all {
			all[i], _, _ = strings.Cut(all[i], ";")
		}
		return decoded(path.Clean(strings.Join(all, "/")))
	},
	"Tomcat that decodes slashes": func(u *url.URL) []string {
		all := strings.Split(u.EscapedPath(), "/")
		for i := range all {
			all[i], _, _ = strings.Cut(all[i], ";")
		}
		text, _ := url.PathUnescape(strings.Join(all, "/"))
		return strings.Split(path.Clean(text), "/")
	},
	"parameters are dropped at the end": func(u *url.URL) []string {
		all := strings.Split(path.Clean(u.Path), "/")
		for i := range all {
			all[i], _, _ = strings.Cut(all[i], ";")
		}
		return all
	},
}

// decoded are the segments of a path, each decoded.
func decoded(escaped string) []string {
	all := strings.Split(escaped, "/")
	for i := range all {
		all[i], _ = url.PathUnescape(all[i])
	}
	return all
}

// FuzzReadings checks that no path that is passed on is one of /search/{q} to a server and of another rule to us, and
// that the reading of no way is the canonical path.
func FuzzReadings(f *testing.F) {
	for _, target := range []string{
		"/", "/search/cats", "/Search//cats/", "/search/cats%2fdogs", "/search/a%5Cb", "/search/;x", "/search/%3bx",
		"/search/..", "/search/%2e%2E", "/search/x%2f..%2f..", "/search/%2e%2e/../cats", "/search/%3bx/;y",
		"/search%2f;x", "/x/..;y/search/cats", "/search/%5c", "/search//../cats", "/x%2f../search/a", "/%2525/%zz", "/search;%2fx/cats", "/;%5c0",
		"/.well-known/%7e;a",
	} {
		f.Add(target)
	}
	file, err := config.Parse("q.toml", []byte(loose+`
[proxy]
upstreams = ["http://127.0.0.1:1"]
rules = [{ pattern = "/search/{q}", limiter = "all" }, { pattern = "/", limiter = "all" }]
`))
	must(f, err)
	table, err := newTable(file)
	must(f, err)
	f.Fuzz(func(t *testing.T, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || target == "" || target[0] != '/' || u.Path == "" || u.Path[0] != '/' {
			return
		}
		if got, want := reading(u, 0), httplimit.CanonicalPath(u.Path); got != want {
			t.Fatalf("%q is read as %q, and canonical as %q", target, got, want)
		}
		to, clear := table.find(&http.Request{Method: "GET", URL: u, RequestURI: target})
		if !clear {
			return
		}
		for name, read := range readers {
			segments := slices.DeleteFunc(read(u), func(s string) bool { return s == "" })
			searches := len(segments) == 2 && strings.EqualFold(segments[0], "search")
			if searches && to.spec.rule.Pattern != "/search/{q}" {
				t.Errorf("%q is of %s, and %s reads %q", target, to.spec.rule.Pattern, name, segments)
			}
		}
	})
}
