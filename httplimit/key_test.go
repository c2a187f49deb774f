package httplimit

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
)

func TestPath(t *testing.T) {
	tests := []struct{ target, want string }{
		{"/", "/"}, {"//", "/"}, {"/.", "/"}, {"/..", "/"}, {"/;x=1", "/"}, {"/;", "/"}, {"/%2f", "/"},
		{"/a/b", "/a/b"},
		{"//a/b", "/a/b"}, {"/a//b", "/a/b"}, {"/a/b/", "/a/b"}, {"/a/b//", "/a/b"},
		{"/./a/b", "/a/b"}, {"/a/./b", "/a/b"}, {"/a/b/.", "/a/b"}, {"/%2e/a/b", "/a/b"},
		{"/x/../a/b", "/a/b"}, {"/../a/b", "/a/b"}, {"/a/x/..;y/b", "/a/b"}, {"/a/x/%2E%2e/b", "/a/b"},
		{"/%61/b", "/a/b"}, {"/a%2Fb", "/a/b"}, {"/a%5cb", "/a/b"}, {"/x%5C..%5Ca/b", "/a/b"}, {"/A/b", "/a/b"}, {"/%41/B", "/a/b"},
		{"/a;x=1/b", "/a/b"}, {"/a/b;x=1", "/a/b"}, {"/a/b;x=1;y=2", "/a/b"}, {"/a%3Bx/b", "/a/b"},
		{"/;x/a/b", "/a/b"}, {"/a/b?c=d", "/a/b"},
		{"/a/..b", "/a/..b"}, {"/.a/b.", "/.a/b."}, {"/...", "/..."},
		{"/%C3%89", "/é"}, {"/é", "/é"}, {"/%ff", "/\ufffd"}, {"/\u212a", "/k"}, {"/İ", "/i"},
		{"/%2561", "/%61"}, // undone once
		{"http://h/a/b/", "/a/b"}, {"*", "/*"},
	}
	for _, tt := range tests {
		tested.Want(t, fmt.Sprintf("Path of %q", tt.target), Path()(get(t, tt.target)), tt.want)
	}
	connect := &http.Request{Method: "CONNECT", URL: &url.URL{Host: "h:443"}}
	tested.Want(t, "Path of CONNECT", Path()(connect), "/")
}

// Whatever a client adds to a path that servers ignore, the key stays.
func TestPathVariantsShareOneKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		segments := rapid.SliceOfN(rapid.StringMatching(`[a-z0-9é_~-]{1,8}`), 1, 6).Draw(t, "segments")
		want := "/" + strings.Join(segments, "/")
		var target strings.Builder
		for _, segment := range segments {
			target.WriteString(rapid.SampledFrom([]string{"/", "//", "/./", "/x/../", "/;p/", "/%2e/",
				"/x/..;p/"}).Draw(t, "slash"))
			target.WriteString(variant(t, segment))
			target.WriteString(rapid.SampledFrom([]string{"", ";", ";p=1", "%3Bp"}).Draw(t, "parameter"))
		}
		target.WriteString(rapid.SampledFrom([]string{"", "/", "/.", "//", "?q", "/x/.."}).Draw(t, "end"))
		u, err := url.ParseRequestURI(target.String())
		if err != nil {
			t.Fatalf("target %q: %v", target.String(), err)
		}
		tested.Want(t, fmt.Sprintf("Path of %q", target.String()), Path()(&http.Request{URL: u}), want)
	})
}

// variant spells a segment with some letters capital and some bytes encoded.
func variant(t *rapid.T, segment string) string {
	var out strings.Builder
	for _, c := range segment {
		s := string(c)
		if rapid.Bool().Draw(t, "capital") {
			s = strings.ToUpper(s)
		}
		if rapid.Bool().Draw(t, "encoded") {
			s = percent(s)
		}
		out.WriteString(s)
	}
	return out.String()
}

// percent encodes every byte of s.
func percent(s string) string {
	const digits = "0123456789abcdef"
	var out strings.Builder
	for i := range len(s) {
		out.Write([]byte{'%', digits[s[i]>>4], digits[s[i]&15]})
	}
	return out.String()
}

// CanonicalPath is what Path keys by, and is not hashed.
func TestCanonicalPath(t *testing.T) {
	long := "/" + strings.Repeat("a", 300)
	for p, want := range map[string]string{"//A/./b;x/": "/a/b", "": "/", long: long} {
		tested.Want(t, fmt.Sprintf("%q", p), CanonicalPath(p), want)
	}
}

func TestHost(t *testing.T) {
	for host, want := range map[string]struct{ served, asked string }{
		"example.com":          {"example.com", "example.com"},
		"EXAMPLE.com":          {"example.com", "example.com"},
		"example.com.":         {"example.com", "example.com"},
		"example.com:80":       {"example.com", "example.com"},
		"example.com.:443":     {"example.com", "example.com"},
		"example.com:":         {"example.com", "example.com"},
		"example.com:0443":     {"example.com", "example.com"},
		"example.com:8080":     {"example.com", "example.com:8080"},
		"example.com:08080":    {"example.com", "example.com:8080"},
		"example.com:x":        {"example.com", "example.com:x"}, // a server of Go takes it
		"example.com:80:81":    {"example.com", "example.com:80:81"},
		"1.2.3.4:5":            {"1.2.3.4", "1.2.3.4:5"},
		"[::1]":                {"[::1]", "[::1]"},
		"[::1]:80":             {"[::1]", "[::1]"},
		"[2001:DB8::1]:8443":   {"[2001:db8::1]", "[2001:db8::1]:8443"},
		"[2001:db8:0::1]x":     {"[2001:db8::1]", "[2001:db8:0::1]x"},
		"2001:db8::0:1":        {"[2001:db8::1]", "2001:db8::0:1"},
		"[fe80::1%25eth0]:5":   {"[fe80::1]", "[fe80::1%25eth0]:5"},
		"[::ffff:1.2.3.4]:443": {"1.2.3.4", "[::ffff:1.2.3.4]"},
		"[x]:5":                {"[x]", "[x]:5"},
		"":                     {},
	} {
		server := &http.Request{RequestURI: "/", URL: &url.URL{Path: "/"}, Host: host}
		client := &http.Request{URL: &url.URL{Scheme: "https", Host: host}}
		if got, asked := Host()(server), Host()(client); got != want.served || asked != want.asked {
			t.Errorf("Host of a server's request for %q is %q, of a client's %q; want %+v", host, got, asked, want)
		}
	}
	virtual := &http.Request{URL: &url.URL{Host: "10.0.0.1:8080"}, Host: "api.example.com"}
	tested.Want(t, "Host of a client's request", Host()(virtual), "10.0.0.1:8080")
	tested.Want(t, "Host without a URL", Host()(&http.Request{Host: "h"}), "h")
}

// A reverse proxy passes a request on with what its client wrote into Host, or with no Host at all.
// The key is where it goes.
func TestKeyBehindAReverseProxy(t *testing.T) {
	upstream := &url.URL{Scheme: "http", Host: "Upstream.example:80"}
	for name, rewrite := range map[string]func(*httputil.ProxyRequest){
		"no Host":   func(p *httputil.ProxyRequest) { p.SetURL(upstream) },
		"Host kept": func(p *httputil.ProxyRequest) { p.SetURL(upstream); p.Out.Host = p.In.Host },
	} {
		l := limiter(t, hourly)
		ask(&httputil.ReverseProxy{Rewrite: rewrite, Transport: &Transport{Base: newNoBase(), Limiter: l}}, get(t, "/"))
		tested.Want(t, name+": key", onlyKey(t, l), "upstream.example")
	}
}

// One credential has one quota, however it is spelt, and stands nowhere.
func TestCredential(t *testing.T) {
	const jwt = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhbm4ifQ"
	long := strings.Repeat("x", 1<<16)
	of := map[string]string{} // key to the first spelling
	for _, spellings := range [][]string{
		{"Bearer abc", "bearer abc", "BEARER  abc", "Bearer\tabc", " Bearer abc\u00a0", "Bearer abc other", "Bearer abc\x85r", "Bearer\u00a0abc"},
		{"Basic YW5uOnc=", "basic YW5uOnc", "Basic YW5uOnd="},
		{"Bearer " + jwt + ".AAAA", "Bearer " + jwt + ".AAAB"},
		{"Bearer abD"}, {"Bearer"}, {"abc", "abc\x85"}, {"Abc"}, {"a.b.c"}, {"a.b.d"}, {"Basic YW5uOng="},
		{long}, {long + "y"},
		{"", " ", "\u00a0", "Basic YW5u!Onc=", "Basic YW5uOnc==AAAA", "Bearer " + jwt + ".A!AAA", `Digest username="a"`,
			"Digest nc=00000001, x", "OAuth a=b"},
	} {
		want := CredentialKey(spellings[0])
		for _, s := range spellings {
			r := &http.Request{Header: http.Header{"Authorization": {s}}}
			if got := Credential("authorization")(r); got != want {
				t.Errorf("%.80q has the key %q, and %.80q the key %q", s, got, spellings[0], want)
			}
		}
		if of[want] != "" || own(want) != want {
			t.Errorf("the key of %.80q and %.80q is %q", spellings[0], of[want], want)
		}
		of[want] = spellings[0]
	}
	for _, lines := range [][]string{nil, {"Bearer a", "Bearer b"}} {
		r := &http.Request{Header: http.Header{"X-Api-Key": lines}}
		tested.Want(t, fmt.Sprintf("%q has the key", lines), Credential("X-API-Key")(r), noCredential)
	}
	// As printf %s 'bearer abc' | sha256sum has it.
	if got, want := CredentialKey("Bearer abc"), "credential:46e38e9ce4c432c3ca84636e27ba6242"; got != want {
		t.Errorf("the key is %q, want %q", got, want)
	}
	r := &http.Request{Header: http.Header{"Authorization": {"Bearer abc"}}}
	if key := Credential("Authorization"); testing.AllocsPerRun(100, func() { key(r) }) > 1 {
		t.Error("a key costs more than one allocation")
	}
}

func TestKeysAreBounded(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	r := get(t, "/"+long)
	r.Host = long
	r.Header.Set("X-Tenant", long)
	mux := http.NewServeMux()
	mux.HandleFunc("/"+long, func(http.ResponseWriter, *http.Request) {})
	for name, key := range map[string]KeyFunc{
		"Path": Path(), "Host": Host(), "Header": Header("X-Tenant"), "Constant": Constant(long),
		"Pattern": Pattern(mux), "MethodPattern": MethodPattern(mux),
	} {
		got := key(r)
		if len(got) > maxKey || !strings.HasPrefix(got, "sha256:") {
			t.Errorf("%s: key of %d bytes %.20q, want a hash", name, len(got), got)
		}
	}
}

// A client that sends the text of another one's hash must not share its bucket, wherever the
// key is hashed.
func TestLongKeyAndItsHashAreTwoKeys(t *testing.T) {
	token := func(r *http.Request) string { return r.Header.Get("X-Tenant") } // as a user writes it
	// of is the key of a request that something serves under a limiter.
	of := func(r *http.Request, serve func(*quotient.Limiter, http.Handler)) (key string) {
		l := limiter(t, oneSlot)
		serve(l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { key = onlyKey(t, l) }))
		return key
	}
	middleware := func(f KeyFunc) KeyFunc {
		return func(r *http.Request) string {
			return of(r, func(l *quotient.Limiter, next http.Handler) { ask(Middleware(l, f)(next), r) })
		}
	}
	transport := func(f KeyFunc) KeyFunc {
		return func(r *http.Request) string {
			return of(r, func(l *quotient.Limiter, next http.Handler) {
				roundTrip(t, &Transport{Limiter: l, Base: recorder{next}, Key: f}, r)
			})
		}
	}
	around := func(r *http.Request) string {
		return of(r, func(l *quotient.Limiter, next http.Handler) {
			Around(l)(httptest.NewRecorder(), r, token(r), next)
		})
	}
	for name, way := range map[string]KeyFunc{
		"Header": Header("X-Tenant"), "Header and Middleware": middleware(Header("X-Tenant")),
		"own function, Middleware": middleware(token), "own function, Around": around,
		"own function, Transport": transport(token), "Header and Transport": transport(Header("X-Tenant")),
		"Constant, as grpclimit does": func(r *http.Request) string { return Constant(token(r))(nil) },
	} {
		r := get(t, "/")
		of := map[string]string{} // key to value
		for value, n := long, 0; n < 5; n++ {
			r.Header.Set("X-Tenant", value)
			key := way(r)
			tested.Not(t, of[key] != "", "%s: %.90q and %.90q share the key %q", name, of[key], value, key)
			tested.Not(t, len(key) > maxKey, "%s: key of %d bytes", name, len(key))
			of[key], value = value, key // what an attacker sends that has seen the key
		}
	}
}

// onlyKey is the one key that a limiter knows.
func onlyKey(t *testing.T, l *quotient.Limiter) string {
	t.Helper()
	var keys []string
	for state := range l.Keys() {
		keys = append(keys, state.Key)
	}
	if len(keys) != 1 {
		t.Fatalf("keys %q, want one", keys)
	}
	return keys[0]
}

func TestPattern(t *testing.T) {
	mux := http.NewServeMux()
	for _, p := range []string{"/items/{id}", "GET /users/{name}", "POST  /users/{name}", "h.example/x",
		"/tree/", "/one/{x}/", "GET\t/tab", "/{$}"} {
		mux.HandleFunc(p, func(http.ResponseWriter, *http.Request) {})
	}
	tests := []struct{ method, host, target, want, withMethod string }{
		{"GET", "a", "/items/1", "/items/{id}", "GET /items/{id}"},
		{"PUT", "a", "/items/2", "/items/{id}", "PUT /items/{id}"},
		{"GET", "a", "//items/2", "/items/{id}", "GET /items/{id}"},
		{"", "a", "/items/2", "/items/{id}", "GET /items/{id}"},
		{"MADEUP", "a", "/items/2", "/items/{id}", "OTHER /items/{id}"},
		{"get", "a", "/items/2", "/items/{id}", "OTHER /items/{id}"},
		{"GET", "a", "/users/bob", "GET /users/{name}", "GET /users/{name}"},
		{"HEAD", "a", "/users/bob", "GET /users/{name}", "HEAD /users/{name}"},
		{"POST", "a", "/users/bob", "POST  /users/{name}", "POST  /users/{name}"},
		{"PUT", "a", "/users/bob", unmatched, "PUT " + unmatched},
		{"GET", "h.example:80", "/x", "h.example/x", "GET h.example/x"},
		{"GET", "a", "/tree", "/tree/", "GET /tree/"},
		{"GET", "a", "/tree/1/2", "/tree/", "GET /tree/"},
		{"GET", "a", "/", "/{$}", "GET /{$}"},
		{"GET", "a", "/nothing/1", unmatched, "GET " + unmatched},
		{"GET", "a", "/nothing/2", unmatched, "GET " + unmatched},
		{"CONNECT", "a", "/tree", unmatched, "CONNECT " + unmatched},
		{"CONNECT", "a", "/one/a%2F", unmatched, "CONNECT " + unmatched},
		{"CONNECT", "a", "/one/a%2F%2F", unmatched, "CONNECT " + unmatched},
		{"CONNECT", "a", "/tree/1", "/tree/", "CONNECT /tree/"},
		{"GET", "a", "/tab", "GET\t/tab", "GET /tab"},
		{"HEAD", "a", "/tab", "GET\t/tab", "HEAD /tab"},
	}
	for _, tt := range tests {
		r := get(t, tt.target)
		r.Method, r.Host = tt.method, tt.host
		tested.Want(t, fmt.Sprintf("Pattern of %s %s%s", tt.method, tt.host, tt.target), Pattern(mux)(r), tt.want)
		if got := MethodPattern(mux)(r); got != tt.withMethod {
			t.Errorf("MethodPattern of %s %s%s = %q, want %q", tt.method, tt.host, tt.target, got,
				tt.withMethod)
		}
	}
}

// Inside the mux the request carries its pattern.
func TestPatternOfASingleRoute(t *testing.T) {
	mux := http.NewServeMux()
	var keys []string
	mux.HandleFunc("GET /items/{id}", func(_ http.ResponseWriter, r *http.Request) {
		keys = append(keys, Pattern(nil)(r), MethodPattern(nil)(r))
	})
	mux.ServeHTTP(httptest.NewRecorder(), get(t, "/items/7"))
	if len(keys) != 2 || keys[0] != "GET /items/{id}" || keys[1] != "GET /items/{id}" {
		t.Errorf("keys = %q, want the route's pattern twice", keys)
	}
	tested.Want(t, "key outside of a mux", Pattern(nil)(get(t, "/")), unmatched)
}
