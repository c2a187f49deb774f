package httplimit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/netip"
	"net/textproto"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/quotient-go/quotient/internal/field"
)

// KeyFunc returns the key that a request is limited by. Requests with equal keys share one quota, so a key
// must not contain anything that a client can vary for free. It is called once a request, from many
// goroutines at a time, and must not change the request.
//
// Middleware and Transport accept keys of any length. A key of more than 256 bytes is replaced by its
// SHA-256, as the key functions of this package do. A key that looks like such a hash is replaced too. So
// no key equals the hash of another key.
type KeyFunc func(*http.Request) string

// maxKey is the longest key, in bytes, that is kept as it is. A longer one is hashed, so that no header or path of a
// client decides how much memory its key takes. 256 bytes hold a full host name (253) and nearly every route.
const maxKey = 256

// unmatched is the key of all requests that no route takes. It holds no slash
// and can therefore not be a pattern of a ServeMux.
const unmatched = "(unmatched)"

// Constant returns a KeyFunc that puts all requests under one key: one quota
// for the whole handler. A key of more than 256 bytes is hashed.
func Constant(key string) KeyFunc {
	key = own(key)
	return func(*http.Request) string { return key }
}

// Header returns a KeyFunc that limits by the value of a field, such as a tenant. The name's case does not
// matter; the value's does. Only the first line counts, as for http.Header.Get: if the handler passes requests
// on to a server that reads the last one, or takes X_Tenant for X-Tenant, such requests must be refused before.
// Requests without the field share the key "" with those that send it empty.
//
// The client chooses the value. Use it behind something that has checked it, or a client has as many quotas as it can
// invent values. Values of more than 256 bytes are hashed.
//
// Header panics if no request can have a field of this name, as Host, which net/http keeps elsewhere, and if
// its name is that of a secret, as Authorization, X-API-Key or Cookie: keys are shown, so use Credential.
func Header(name string) KeyFunc {
	name = fieldName("Header", name)
	mustBe(!field.Secret(name), "Header(%q): keys are shown in errors, logs and to operators, "+
		"and this name is that of a secret: use Credential", name)
	return func(r *http.Request) string {
		if values := r.Header[name]; len(values) > 0 {
			return own(values[0])
		}
		return ""
	}
}

// fieldName is a name as net/http keeps it, for a function that reads the field.
func fieldName(of, name string) string {
	mustBe(field.IsName(name), "%s: %q is not the name of a header field", of, name)
	mustBe(!field.Apart(name), "%s: net/http does not keep %s among the header fields, "+
		"so that all requests would share one key", of, name)
	return textproto.CanonicalMIMEHeaderKey(name)
}

// Host returns a KeyFunc that limits by host: the Host header of a request to a server, the URL's host of a
// request that a client sends. A request that a server has received stays one when it is passed on, as
// httputil.ReverseProxy does: for its Transport leave Transport.Key nil. Letters are lowered, and dots at the
// end, as of a full name, are dropped.
//
// On a server the port is dropped, since clients can write any: "Example.com.", "example.com:8080" and
// "example.com" are one key. Addresses have one spelling, without a zone: "[::1]". Of a client's request only
// the ports 80 and 443 are dropped, since another port is another service.
//
// On a server the client chooses this header. Use it only where unknown hosts
// are turned away before. Hosts of more than 256 bytes are hashed.
func Host() KeyFunc { return host }

// Pattern returns a KeyFunc that limits by the pattern that mux chooses for the request, such as "GET /items/{id}",
// whatever stands in the wildcards. It asks mux, because http.Request.Pattern is still empty in a middleware round a
// ServeMux. All requests that mux has no route for share one key, and so do CONNECT requests that it only redirects.
// Patterns of more than 256 bytes are hashed.
//
// With a nil mux the key is http.Request.Pattern, for a middleware round single routes, inside the ServeMux.
func Pattern(mux *http.ServeMux) KeyFunc {
	return func(r *http.Request) string { return own(pattern(mux, r)) }
}

// MethodPattern returns a KeyFunc as Pattern does, but keeps the methods of one route apart. The key is the
// method, a space and the pattern without a method of its own. HEAD and GET on "GET /items" are two keys.
// Methods that are not in RFC 9110 or RFC 5789 count as one, "OTHER".
func MethodPattern(mux *http.ServeMux) KeyFunc {
	return func(r *http.Request) string {
		method, route := knownMethod(r.Method), pattern(mux, r)
		if rest, ok := strings.CutPrefix(route, method); ok && strings.HasPrefix(rest, " ") {
			return own(route)
		}
		if i := strings.IndexAny(route, " \t"); i >= 0 { // ServeMux takes both
			route = strings.TrimLeft(route[i:], " \t")
		}
		return own(method + " " + route)
	}
}

// pattern is the route of r in mux, or unmatched.
func pattern(mux *http.ServeMux, r *http.Request) string {
	route := r.Pattern
	if mux != nil {
		_, route = mux.Handler(r)
	}
	if route == "" || r.Method == http.MethodConnect && addsSlash(route, r.URL.Path) {
		return unmatched
	}
	return route
}

// addsSlash reports whether a route may be the path p with a slash added. A CONNECT that a mux answers by such a
// redirect is reported with the path that it is sent to, which the client chose, in place of a pattern. The path may
// have ended with an encoded slash already.
func addsSlash(route, p string) bool {
	return strings.HasSuffix(route, "/") && strings.TrimRight(route, "/") == strings.TrimRight(path.Clean("/"+p), "/")
}

// knownMethod is method, or "OTHER" for one that a client may have made up.
func knownMethod(method string) string {
	switch method {
	case "":
		return http.MethodGet // as http.Request documents for clients
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return "OTHER"
}

// host is the key function of Host.
func host(r *http.Request) string {
	if r.RequestURI != "" { // it is set by servers alone
		return own(servedHost(strings.ToLower(r.Host)))
	}
	return target(r)
}

// servedHost is the form of a host in lower case that Host documents for servers. What does not belong to a host
// is dropped: some servers do so too.
func servedHost(name string) string {
	name = strings.TrimRight(name, ".")
	bare, bracketed := strings.CutPrefix(name, "[")
	if bracketed {
		bare, _, _ = strings.Cut(bare, "]")
	}
	if bracketed || strings.Count(name, ":") > 1 {
		if addr, err := netip.ParseAddr(bare); err == nil {
			if addr = addr.Unmap().WithZone(""); addr.Is6() {
				return "[" + addr.String() + "]"
			}
			return addr.String()
		}
	}
	name, _, _ = strings.Cut(name, ":")
	return strings.TrimRight(name, ".")
}

// target is the host that a client sends r to, and the default key of Transport.
func target(r *http.Request) string {
	if r.URL == nil || r.URL.Host == "" {
		return canonicalHost(r.Host)
	}
	return canonicalHost(r.URL.Host)
}

// canonicalHost is the form that Host documents for clients.
func canonicalHost(name string) string {
	name, port := strings.TrimRight(strings.ToLower(name), "."), ""
	if i := strings.LastIndexByte(name, ':'); i >= 0 && takesPort(name[:i]) &&
		strings.Trim(name[i+1:], "0123456789") == "" {
		name, port = name[:i], strings.TrimLeft(name[i+1:], "0")
	}
	name = strings.TrimRight(name, ".")
	if port != "" && port != "80" && port != "443" {
		name += ":" + port
	}
	return own(name)
}

// takesPort reports whether a port may follow: what has colons of its own stands in brackets.
func takesPort(name string) bool { return strings.HasSuffix(name, "]") || !strings.Contains(name, ":") }

// The forms of what stands in place of a key. A key that looks like one is replaced too: else a client could
// send the text of another one's hash, and share its bucket. The result of a key function of this package
// goes through bound as well, which must not hash it again. So there are two forms, each of its own length.
const (
	ownHash   = "sha256:"     // by a key function of this package
	boundHash = "sha256:key:" // of what any key function has returned
)

// own is the key of a function of this package: what it has found, or its hash.
func own(key string) string {
	if len(key) <= maxKey && !isHash(key, ownHash) && !isHash(key, boundHash) {
		return key
	}
	return hashed(key, ownHash)
}

// bound is what any key function has returned, or its hash. It leaves alone what own returns.
func bound(key string) string {
	if len(key) <= maxKey && !isHash(key, boundHash) {
		return key
	}
	return hashed(key, boundHash)
}

func isHash(key, form string) bool {
	return len(key) == len(form)+2*sha256.Size && strings.HasPrefix(key, form)
}

func hashed(key, form string) string {
	sum := sha256.Sum256([]byte(key))
	return form + hex.EncodeToString(sum[:])
}

// Path returns a KeyFunc that limits by the URL's path in one canonical form,
// so that no other spelling of a path has a quota of its own:
//
//   - percent-encoding is undone, once, also that of "/", ";" and ".", and a backslash is a slash;
//   - a path parameter (from ";" to the end of its segment) is dropped;
//   - empty segments, "." and a slash at the end are dropped, ".." takes the
//     segment before it away and never leaves the root;
//   - letters are lowered, by Unicode's simple mapping; bytes that are not UTF-8
//     become U+FFFD.
//
// The result starts with "/" and ends with one only when it is the root. "/a/b", "//a/./b/", "/%61/b", "/a;x=1/b",
// "/x/../a/b" and "/A/b" are all "/a/b". The query is no part of it.
//
// The form is coarser than the paths of most servers: two resources whose paths differ in case alone share a
// quota. It is meant for keys and for matching rules, not for serving files. A path that is canonical
// already costs no allocation. One of more than 256 bytes is hashed.
func Path() KeyFunc {
	return func(r *http.Request) string { return own(CanonicalPath(r.URL.Path)) }
}

// CanonicalPath returns the form that Path documents. The argument is a decoded path, such as url.URL.Path.
// It is for matching rules: the result is never hashed.
func CanonicalPath(p string) string {
	if isCanonical(p) {
		return p
	}
	out := make([]byte, 0, len(p)+1)
	for segment := range strings.FieldsFuncSeq(p, func(c rune) bool { return c == '/' || c == '\\' }) {
		segment, _, _ = strings.Cut(segment, ";")
		switch segment {
		case "", ".": // "" of nothing but parameters
		case "..":
			out = out[:max(0, bytes.LastIndexByte(out, '/'))]
		default:
			out = append(append(out, '/'), segment...)
		}
	}
	if len(out) == 0 {
		return "/"
	}
	return strings.ToLower(string(out))
}

// isCanonical reports whether CanonicalPath would return p as it is.
func isCanonical(p string) bool {
	if p == "/" {
		return true
	}
	if p == "" || p[0] != '/' {
		return false
	}
	ascii := true
	for i := range len(p) {
		switch c := p[i]; {
		case c == '/':
			if i+1 == len(p) || p[i+1] == '/' || p[i+1] == '.' && isDots(p[i+1:]) {
				return false
			}
		case c == ';' || c == '\\' || 'A' <= c && c <= 'Z':
			return false
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return ascii || strings.ToLower(p) == p
}

// isDots reports whether the segment at the front of rest is "." or "..".
func isDots(rest string) bool {
	segment, _, _ := strings.Cut(rest, "/")
	return segment == "." || segment == ".."
}
