package httplimit

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/textproto"
	"path"
	"strings"
)

// KeyFunc names what a request is limited by. Requests with equal keys share
// one quota, so a key must not hold anything that a client can vary for free.
// It is called once a request, from many goroutines at a time, and must not
// change the request.
//
// Middleware and Transport accept keys of any length: one of more than 256
// bytes is replaced by its SHA-256, as the key functions of this package do.
type KeyFunc func(*http.Request) string

// maxKey is the longest key, in bytes, that is kept as it is. A longer one is
// hashed, so that no header or path of a client decides how much memory its
// key takes. 256 bytes hold a full host name (253) and nearly every route.
const maxKey = 256

// unmatched is the key of all requests that no route takes. It holds no slash
// and can therefore not be a pattern of a ServeMux.
const unmatched = "(unmatched)"

// Constant returns a KeyFunc that puts all requests under one key: one quota
// for the whole handler.
func Constant(key string) KeyFunc {
	key = bound(key)
	return func(*http.Request) string { return key }
}

// Header returns a KeyFunc that limits by the value of a header, say an API
// token. The name's case does not matter; the value's does. Only the first
// line of a repeated header counts. Requests without the header share the key
// "" with those that send it empty.
//
// The client chooses the value. Use it behind something that has checked it,
// or a client has as many quotas as it can invent values. Values of more than
// 256 bytes are hashed.
func Header(name string) KeyFunc {
	name = textproto.CanonicalMIMEHeaderKey(name)
	return func(r *http.Request) string {
		if values := r.Header[name]; len(values) > 0 {
			return bound(values[0])
		}
		return ""
	}
}

// Host returns a KeyFunc that limits by host: the Host header of a request to a
// server, the URL's host of a request that a client sends. Letters are lowered,
// the trailing dot of a full name and the default ports 80 and 443 are dropped,
// other ports are kept. "Example.com.", "example.com:80" and "example.com" are
// one key.
//
// On a server the client chooses this header. Use it only where unknown hosts
// are turned away before.
func Host() KeyFunc { return host }

// Pattern returns a KeyFunc that limits by the pattern that mux chooses for the
// request, such as "GET /items/{id}", whatever stands in the wildcards. It asks
// mux, because http.Request.Pattern is still empty in a middleware round a
// ServeMux. All requests that mux has no route for share one key, as do those
// that it only redirects by CONNECT.
//
// With a nil mux the key is http.Request.Pattern, for a middleware round single
// routes, inside the ServeMux.
func Pattern(mux *http.ServeMux) KeyFunc {
	return func(r *http.Request) string { return bound(pattern(mux, r)) }
}

// MethodPattern returns a KeyFunc as Pattern does, but keeps the methods of one
// route apart: the key is the method, a space and the pattern without a method
// of its own. HEAD and GET on "GET /items" are two keys. Methods that are not
// in RFC 9110 or RFC 5789 count as one, "OTHER".
func MethodPattern(mux *http.ServeMux) KeyFunc {
	return func(r *http.Request) string {
		method, route := knownMethod(r.Method), pattern(mux, r)
		if rest, ok := strings.CutPrefix(route, method); ok && strings.HasPrefix(rest, " ") {
			return bound(route)
		}
		if i := strings.IndexByte(route, ' '); i >= 0 {
			route = strings.TrimLeft(route[i:], " \t")
		}
		return bound(method + " " + route)
	}
}

// pattern is the route of r in mux, or unmatched.
func pattern(mux *http.ServeMux, r *http.Request) string {
	route := r.Pattern
	if mux != nil {
		_, route = mux.Handler(r)
	}
	// A CONNECT that mux answers by adding a slash is reported with the path
	// that it is sent to, which the client chose, in place of a pattern.
	if r.Method == http.MethodConnect && route == path.Clean("/"+r.URL.Path)+"/" {
		return unmatched
	}
	if route == "" {
		return unmatched
	}
	return route
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

// host is the key function of Host and the default of Transport.
func host(r *http.Request) string {
	name := r.Host
	if r.RequestURI == "" && r.URL != nil && r.URL.Host != "" { // RequestURI is set by servers alone
		name = r.URL.Host
	}
	port := ""
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, ']') {
		name, port = name[:i], strings.TrimLeft(name[i+1:], "0")
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if port != "" && port != "80" && port != "443" {
		name += ":" + port
	}
	return bound(name)
}

// bound is key, or its hash when it is too long to be stored.
func bound(key string) string {
	if len(key) <= maxKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}
