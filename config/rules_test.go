package config_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/quotient-go/quotient/config"
	"pgregory.net/rapid"
)

// request is what rules are matched against: its path is canonical.
type request struct{ method, host, path string }

// requests are those of up to four segments over a few words, one of which no pattern names.
func requests() (all []request) {
	paths := []string{""}
	for i := 0; i < len(paths) && strings.Count(paths[i], "/") < 4; i++ {
		for _, word := range []string{"a", "b", "zz"} {
			paths = append(paths, paths[i]+"/"+word)
		}
	}
	paths[0] = "/"
	for _, method := range []string{"GET", "HEAD", "POST"} {
		for _, host := range []string{"h.test", "o.test"} {
			for _, path := range paths {
				all = append(all, request{method, host, path})
			}
		}
	}
	return all
}

// matches reports whether a pattern matches a request, by the words of net/http's documentation.
func matches(pattern string, r request) bool {
	method, rest, ok := strings.Cut(pattern, " ")
	if !ok {
		method, rest = "", pattern
	}
	i := strings.IndexByte(rest, '/')
	host, path := rest[:i], rest[i:]
	if method != "" && method != r.method && !(method == "GET" && r.method == "HEAD") ||
		host != "" && host != r.host {
		return false
	}
	if path == "/{$}" {
		return r.path == "/"
	}
	want, have := strings.Split(path[1:], "/"), strings.Split(r.path[1:], "/")
	if r.path == "/" {
		have = []string{""}
	}
	for i, w := range want {
		switch {
		case w == "{$}":
			return false // no canonical path has a slash at the end
		case i == len(want)-1 && (w == "" || strings.HasSuffix(w, "...}")):
			return len(have) > i // what is left, also nothing
		case i >= len(have) || have[i] == "" || w != have[i] && !strings.HasPrefix(w, "{"):
			return false
		}
	}
	return len(want) == len(have)
}

// first returns the first rule that matches a request; -1 for none.
func first(patterns []string, r request) int {
	for i, p := range patterns {
		if matches(p, r) {
			return i
		}
	}
	return -1
}

func drawPattern(t *rapid.T) string {
	p := rapid.SampledFrom([]string{"", "", "", "GET ", "HEAD "}).Draw(t, "method")
	p += rapid.SampledFrom([]string{"", "", "h.test"}).Draw(t, "host")
	segments := rapid.IntRange(0, 3).Draw(t, "segments")
	for i := range segments {
		p += "/" + rapid.SampledFrom([]string{"a", "b", fmt.Sprintf("{x%d}", i)}).Draw(t, "segment")
	}
	ends := []string{"", "/", "/", "/{rest...}", "/{$}"}
	first := 0
	if segments == 0 {
		first = 1
	}
	return p + rapid.SampledFrom(ends[first:]).Draw(t, "end")
}

// fileOf is a file with these rules, and a last one for all else.
func fileOf(patterns []string) string {
	text := "[limiters.api]\nin-flight = 1\n[proxy]\nupstreams = [\"http://127.0.0.1:8080\"]\n"
	for _, p := range patterns {
		text += fmt.Sprintf("[[proxy.rules]]\npattern = %q\nlimiter = \"api\"\n", p)
	}
	return text
}

// TestPropertyRules: in a file that is accepted the first rule that matches is the one that http.ServeMux
// chooses, and every rule is reached. In one that is refused, the error is true.
func TestPropertyRules(t *testing.T) {
	all := requests()
	rapid.Check(t, func(t *rapid.T) {
		patterns := append(rapid.SliceOfN(rapid.Custom(drawPattern), 0, 6).Draw(t, "patterns"), "/")
		_, err := config.Parse("q.toml", []byte(fileOf(patterns)))
		if err == nil {
			agree(t, patterns, all)
			return
		}
		var wrong config.Errors
		if !errors.As(err, &wrong) {
			t.Fatal(err)
		}
		for _, e := range wrong {
			var i int
			if _, err := fmt.Sscanf(e.Field, "proxy.rules[%d].pattern", &i); err != nil {
				t.Fatalf("%v", e)
			}
			justified(t, e, i, patterns, all)
		}
	})
}

func agree(t *rapid.T, patterns []string, all []request) {
	mux := http.NewServeMux()
	for _, p := range patterns {
		mux.HandleFunc(p, func(http.ResponseWriter, *http.Request) {})
	}
	reached := make(map[int]bool)
	for _, r := range all {
		i := first(patterns, r)
		reached[i] = true
		h, chosen := mux.Handler(&http.Request{Method: r.method, Host: r.host, URL: &url.URL{Path: r.path}})
		// the root of a subtree, whose path no other pattern names
		if _, ours := h.(http.HandlerFunc); !ours {
			if !matches(chosen, request{r.method, r.host, r.path + "/"}) &&
				!matches(chosen, request{r.method, r.host, r.path + "/zz"}) {
				t.Fatalf("%q of %q: http.ServeMux redirects to %q", r, patterns, chosen)
			}
			reached[slices.Index(patterns, chosen)] = true
			continue
		}
		if chosen != patterns[i] {
			t.Fatalf("%q of %q: the first is %q, http.ServeMux chooses %q", r, patterns, patterns[i], chosen)
		}
	}
	for i := range patterns {
		if !reached[i] {
			t.Fatalf("%q of %q is never reached", patterns[i], patterns)
		}
	}
}

func justified(t *rapid.T, e config.Error, i int, patterns []string, all []request) {
	switch {
	case strings.Contains(e.Text, "is never reached"), strings.Contains(e.Text, "never matches"):
		for _, r := range all {
			if first(patterns, r) == i {
				t.Fatalf("%v: %q reaches it in %q", e, r, patterns)
			}
		}
	case strings.Contains(e.Text, "overlaps with"):
		for _, r := range all {
			if matches(patterns[i], r) && first(patterns[:i], r) >= 0 {
				return
			}
		}
		t.Fatalf("%v: no request matches both in %q", e, patterns)
	default:
		t.Fatalf("%v in %q", e, patterns)
	}
}

// TestMappedNetworks: a network of IPv4 that is spelt as one of IPv6 is the same.
func TestMappedNetworks(t *testing.T) {
	f, err := config.Parse("q.toml", []byte(`[limiters.all]
in-flight = 1
[proxy]
upstreams = ["http://127.0.0.1:8080"]
trusted = ["::ffff:10.0.0.0/104", "::ffff:192.0.2.1", "::/0", "10.0.0.0/8", "2001:db8::/32"]
rules = [{ pattern = "/", limiter = "all" }]
`))
	must(t, err)
	const want = "[10.0.0.0/8 192.0.2.1/32 ::/0 10.0.0.0/8 2001:db8::/32]"
	if got := fmt.Sprint(f.Proxy.Trusted); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestManyRules: a file of the largest size is checked at once, also where many rules together match all that each of
// many others does. What is allocated is compared, since that is the same on a busy machine.
func TestManyRules(t *testing.T) {
	text := "[limiters.api]\ndeny = true\n[proxy]\nupstreams = [\"http://a\"]\n"
	rule := func(pattern string) {
		text += fmt.Sprintf("[[proxy.rules]]\npattern = %q\nlimiter = \"api\"\n", pattern)
	}
	for i := range 400 {
		rule(fmt.Sprintf("/%d/x/y", i))
	}
	rule("/{$}")
	for n := range 42 {
		path := ""
		for i := range n + 1 {
			path += fmt.Sprintf("/{a%d}", i)
		}
		rule(path)
	}
	for i := range 500 {
		rule(fmt.Sprintf("M%d /", i))
	}
	if n := testing.AllocsPerRun(1, func() { _, _ = config.Parse("q.toml", []byte(text)) }); n > 3e6 {
		t.Errorf("%.0f allocations", n)
	}
}
