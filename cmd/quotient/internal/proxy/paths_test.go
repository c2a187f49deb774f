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
	"http.ServeMux":    func(u *url.URL) []string { return segmentsOf(path.Clean(u.EscapedPath())) },
	"dots as they are": func(u *url.URL) []string { return segmentsOf(u.EscapedPath()) },
	"RFC 3986": func(u *url.URL) []string {
		base := &url.URL{Scheme: "http", Host: "h", Path: "/"}
		return segmentsOf(base.ResolveReference(&url.URL{Path: u.Path, RawPath: u.RawPath}).EscapedPath())
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
		return segmentsOf(path.Clean(strings.Join(all, "/")))
	},
	"Tomcat that decodes slashes": func(u *url.URL) []string {
		all := strings.Split(u.EscapedPath(), "/")
		for i := range all {
			all[i], _, _ = strings.Cut(all[i], ";")
		}
		text, _ := url.PathUnescape(strings.Join(all, "/"))
		return strings.Split(path.Clean(text), "/")
	},
	"Windows": func(u *url.URL) []string {
		all := strings.Split(path.Clean(strings.ReplaceAll(u.Path, `\`, "/")), "/")
		for i := range all {
			all[i] = strings.TrimRight(all[i], ". ")
		}
		return all
	},
	"parameters are dropped at the end": func(u *url.URL) []string {
		all := strings.Split(path.Clean(u.Path), "/")
		for i := range all {
			all[i], _, _ = strings.Cut(all[i], ";")
		}
		return all
	},
}

// segmentsOf are the segments of a path, each decoded.
func segmentsOf(escaped string) []string {
	all := strings.Split(escaped, "/")
	for i := range all {
		all[i], _ = url.PathUnescape(all[i])
	}
	return all
}

// eachDecoded are segments that are decoded once more.
func eachDecoded(segments []string) []string {
	for i := range segments {
		segments[i] = decoded(segments[i])
	}
	return segments
}

// FuzzReadings checks that no path that is passed on is one of /search/{q} to a server and of another rule to us, and
// that the reading of no way is the canonical path.
func FuzzReadings(f *testing.F) {
	for _, target := range []string{
		"/", "/search/cats", "/Search//cats/", "/search/cats%2fdogs", "/search/a%5Cb", "/search/;x", "/search/%3bx",
		"/search/..", "/search/%2e%2E", "/search/x%2f..%2f..", "/search/%2e%2e/../cats", "/search/%3bx/;y",
		"/search%2f;x", "/x/..;y/search/cats", "/search/%5c", "/search//../cats", "/x%2f../search/a",
		"/%2525/%zz", "/search;%2fx/cats", "/;%5c0",
		"/.well-known/%7e;a", "/search/%252e%252E", "/%2573earch/cats%25zz", "/search%252fx/cats", "/search/a%252f%25",
		"/search./cats", "/search/...", "/search/.. ", "/search%20/cats.%20.", "/search/x%2f%252e%252e", "/%25%32%35",
		"/%2573earch/a%2fb", "/%2573earch;/%3bx",
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
		again := &url.URL{RawPath: u.Path, Path: decoded(u.Path)} // of a server before that has decoded it
		for name, read := range readers {
			for _, segments := range [][]string{read(u), read(again), eachDecoded(read(u))} {
				segments = slices.DeleteFunc(segments, func(s string) bool { return s == "" })
				searches := len(segments) == 2 && strings.EqualFold(segments[0], "search")
				if searches && to.spec.rule.Pattern != "/search/{q}" {
					t.Errorf("%q is of %s, and %s reads %q", target, to.spec.rule.Pattern, name, segments)
				}
			}
		}
	})
}
