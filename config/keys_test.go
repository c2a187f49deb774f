package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quotient-go/quotient/config"
)

// TestCheckKey: which texts are keys of a rule, and which key an error asks for.
func TestCheckKey(t *testing.T) {
	sum, hash := "credential:46e38e9ce4c432c3ca84636e27ba6242", strings.Repeat("ab", 32)
	long := strings.Repeat("a", 300)
	const many, named = "a client is an address", "bars between them"
	for rule, rows := range map[string][][2]string{ // text, and what the error has
		`pattern = "/v1/"`: {
			{"/v1/slow", ""}, {"/v1", ""}, {"/V1/Slow", `"/v1/slow"?`}, {"v1//slow/", `"/v1/slow"?`},
			{"/v2/slow", "pattern matches it"}, {"/v1/post", "pattern matches it"},
			{"http://a/v1/", "pattern matches it"},
			{"v1/a", `"/v1/a"?`}, {"/v1/%61%2Fb", `"/v1/a/b"?`}, {"/v1/%C3%89", `"/v1/é"?`}, {"/v1/a%20b", `"/v1/a b"?`},
			{"/v1/../v1/./a", `"/v1/a"?`}, {"/v1/a?b=1&c", `"/v1/a"?`}, {"/v1/what?", ""}, {"/v1/100%", ""}, {"/v1/c#", ""},
			{"/v1/%2e%2e/v2", "pattern matches it"},
			{"", "pattern matches it"}, {"/v1/" + long, `did you mean "sha256:`}, {"sha256:" + hash, ""},
		},
		`pattern = "GET shop.example/v3/"`: {{"/v3/slow", ""}, {"/v3/", `"/v3"?`}, {"/v2", "pattern matches it"}},
		`pattern = "/{x}/{y}/{z}"`:         {{"/a/b/c", ""}, {"http://a/b", "pattern matches it"}},
		`pattern = "/v1/"` + "\n" + `key = "pattern"`: {
			{"/v1/", ""}, {"/V1/", `"/v1/"?`}, {"/v1/slow", `the key of the rule is "/v1/"`},
		},
		`key = "constant:all"`: {{"all", ""}, {"All", `"all"?`}, {"x", `the key of the rule is "all"`}},
		`key = "client"`: {
			{"192.0.2.1", ""}, {"2001:db8::/64", ""}, {"(no address)", ""}, {"2001:db8::1", `"2001:db8::/64"?`},
			{"192.0.2.1:80", `"192.0.2.1"?`}, {"192.0.2.1/32", `"192.0.2.1"?`}, {"2001:db8::1/128", `"2001:db8::/64"?`},
			{"[2001:DB8::]:80", `"2001:db8::/64"?`}, {"::ffff:192.0.2.1", `"192.0.2.1"?`}, {"10.0.0.0/8", many},
			{" 192.0.2.1", `"192.0.2.1"?`}, {"2001:0db8:0:0::/64", `"2001:db8::/64"?`},
			{"::ffff:10.0.0.0/104", many}, {"2001:db8::/32", many}, {"192.0.2.01", many}, {"", many}, {"shop", many},
		},
		`key = "host"`: {
			{"shop.example", ""}, {"[::1]", ""}, {"", ""}, {"shop_1", ""}, {"shop.example:443", `"shop.example"?`},
			{"shop.example:8080", `"shop.example"?`}, {"Shop.Example.", `"shop.example"?`}, {"::1", `"[::1]"?`}, {"SHOP ", `"shop"?`},
			{"*.shop.example", "no wildcard"}, {"https://shop.example", "no wildcard"},
			{"bücher.example", "no wildcard"},
		},
		`pattern = "shop.example/"` + "\n" + `key = "host"`: {{"shop.example", ""}, {"other.example", "no wildcard"}},
		`key = "header:X-Tenant"`: {
			{"acme", ""}, {"Acme|1", ""}, {"", ""}, {" acme", `"acme"?`}, {"a\nb", "no control bytes"},
			{long, `did you mean "sha256:`}, {"sha256:" + hash, ""},
		},
		`key = "credential"`: {{sum, ""}, {"(no credential)", ""}, {strings.ToUpper(sum), sum}, {"abc", "is its hash"}},
		`key = "cookie:a"`:   {{sum, ""}, {"abc", "is its hash"}, {sum + "0", "is its hash"}},
		`key = "query:a"`:    {{"Any thing\n", ""}, {"", ""}, {long, "at most 256 bytes"}},
		`key = "claim:a"`:    {{"Any thing", ""}, {long, "at most 256 bytes"}, {"sha256:key:" + hash, ""}},
		`key = ["host", "path"]`: {
			{"shop.example|/v2/slow", ""}, {"shop.example:443|/V2", `"shop.example|/v2"?`}, {"shop.example", named},
			{"shop.example|/v2|x", named}, {"*.shop.example|/v2", named}, {"|/v2", ""}, {"sha256:key:" + hash, ""},
			{"a.b|/v2/" + long, `"a.b|sha256:`}, {`a.b|/v2/\|x`, ""}, {`a.b|/v2\x`, `"a.b|/v2/x"?`},
		},
		`key = ["query:a", "query:b"]`: {{`a\|b|c\\d`, ""}, {`a|c\d`, `"a|c\\\\d"?`}, {long + "|", named}},
		`key = "header:X-Tenant"` + "\n" + `or = "client"`: {
			{"header:X-Tenant|acme", ""}, {"client|192.0.2.1", ""}, {"acme", `"header:X-Tenant|acme"?`},
			{"header:X-Tenant|", "a key is as"}, {"client|10.0.0.0/8", "a key is as"},
			{"client|192.0.2.1:80", `"client|192.0.2.1"?`}, {"sha256:key:" + hash, ""},
		},
		`key = "cookie:a"` + "\n" + `or = ["client", "host"]`: {
			{"cookie:a|" + sum, ""}, {"cookie:a|(no credential)", "a key is as"}, {"client, host|192.0.2.1|a.b", ""},
		},
		`key = "constant:x"` + "\n" + `also = [{ limiter = "api", key = "client" }]`: {{"192.0.2.1", ""}, {"x", many}},
	} {
		if !strings.Contains(rule, "pattern = ") {
			rule += "\npattern = \"/{x}\""
			if strings.Contains(rule, "path") {
				rule = strings.Replace(rule, "/{x}", "/v2/", 1)
			}
		}
		before := "[[proxy.rules]]\npattern = \"/v1/post\"\nexempt = true\n"
		if strings.Contains(rule, "shop.example/") {
			before = "" // one with a host must not be behind it
		}
		limiter := "api"
		if strings.Contains(rule, "also = ") {
			limiter = "other"
		}
		f, err := config.Parse("q.toml", fmt.Appendf(nil, `[limiters]
api.in-flight = 1
other.in-flight = 1
[proxy]
upstreams = ["http://127.0.0.1:8080"]
jwt.key-file = "key"
%s[[proxy.rules]]
limiter = %q
%s
[[proxy.rules]]
pattern = "/"
limiter = "other"
`, before, limiter, rule))
		must(t, err)
		for _, row := range rows {
			err := f.CheckKey("api", row[0])
			if (err == nil) != (row[1] == "") || err != nil && !strings.Contains(err.Error(), row[1]) {
				t.Errorf("%s: %q: %v, want %q", rule, row[0], err, row[1])
			}
		}
		must(t, f.CheckKey("absent", "x"))
	}
	must(t, new(config.File).CheckKey("api", "x"))
}
