package proxy

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient/config"
)

// spelled is a path that has an escape or a query still when it is decoded.
var spelled = regexp.MustCompile(`%[0-9A-Fa-f]{2}|\?[^/?]*=`)

// TestPropertyKeysCanBeOverridden: what a rule makes of a request is a key by config.File.CheckKey too, so that no
// override is refused of a key that a request has.
func TestPropertyKeysCanBeOverridden(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pick := func(from ...string) string { return rapid.SampledFrom(from).Draw(t, "one") }
		key := func() string {
			all := []string{}
			for range rapid.IntRange(1, 3).Draw(t, "parts") {
				all = append(all, fmt.Sprintf("%q", pick("path", "pattern", "client", "host", "header:X-A",
					"credential", "cookie:a", "query:a", `constant:\|`)))
			}
			return "[" + strings.Join(all, ", ") + "]"
		}
		or := ""
		if rapid.Bool().Draw(t, "or") {
			or = "or = " + key()
		}
		f, err := config.Parse("q.toml", fmt.Appendf(nil, "[proxy]\nupstreams = [\"http://h\"]\nipv6-prefix = %d\n"+
			"paths.encoded-slash = %q\n%s[[proxy.rules]]\npattern = %q\nlimiter = \"all\"\nkey = %s\n%s\n%s",
			rapid.IntRange(1, 128).Draw(t, "bits"), pick("", "text"), one,
			pick("/a/{x}", "GET /a/", "a.test/", "/a/{$}", "/a"), key(), or, all))
		if err != nil {
			t.Skip(err)
		}
		table, err := newTable(f)
		must(t, err)
		value := rapid.StringOfN(rapid.RuneFrom([]rune(`ab|\ ;/Aé%2?=`)), 0, 300, 300)
		r := &http.Request{
			Method: pick("GET", "POST"), Host: pick("a.test", "A.test:80", "[::1]:80", "b.", ""), RequestURI: "/",
			RemoteAddr: pick("192.0.2.1:1", "[2001:db8::1]:2", "[::ffff:192.0.2.1]:3", "[fe80::1%e0]:4", "@"), Header: http.Header{
				"X-A": {strings.Trim(value.Draw(t, "header"), " ") + pick("", "\xff", "a\ta")}, "Cookie": {"a=" + pick("", "b")},
				"Authorization": {pick("", "Bearer x", "Digest a=b")},
			},
			URL: &url.URL{
				Path:     "/" + pick("", "a", "a/") + value.Draw(t, "path") + pick("", "\xff"),
				RawQuery: "a=" + url.QueryEscape(value.Draw(t, "query")+pick("", "\x00\xff")),
			},
		}
		if rapid.Bool().Draw(t, "encoded") {
			r.URL.Path, r.URL.RawPath = "/a/b/c", "/a/b%2Fc"
		}
		to, _ := table.find(r)
		is := to.asks[0].key(r)
		if len(is) > 256 { // httplimit hashes it
			is = "sha256:key:" + strings.Repeat("0", 64)
		}
		if spelled.MatchString(r.URL.Path) {
			return // a key of it is taken for another spelling
		}
		if err := f.CheckKey("all", is); err != nil {
			t.Fatalf("%s: %v", to.spec.rule.Key, err)
		}
	})
}
