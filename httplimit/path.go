package httplimit

import (
	"bytes"
	"net/http"
	"strings"
	"unicode/utf8"
)

// Path returns a KeyFunc that limits by the URL's path in one canonical form,
// so that no other spelling of a path has a quota of its own:
//
//   - percent-encoding is undone, once, also that of "/", ";" and ".";
//   - a path parameter (from ";" to the end of its segment) is dropped;
//   - empty segments, "." and a slash at the end are dropped, ".." takes the
//     segment before it away and never leaves the root;
//   - letters are lowered, by Unicode's simple mapping; bytes that are not UTF-8
//     become U+FFFD.
//
// The result starts with "/" and ends with one only when it is the root.
// "/a/b", "//a/./b/", "/%61/b", "/a;x=1/b", "/x/../a/b" and "/A/b" are all
// "/a/b". The query is no part of it.
//
// The form is coarser than the paths of most servers: two resources whose paths differ in case alone share a
// quota. It is meant for keys and for matching rules, not for serving files. A path that is canonical
// already costs no allocation. One of more than 256 bytes is hashed.
func Path() KeyFunc {
	return func(r *http.Request) string { return own(canonicalPath(r.URL.Path)) }
}

// CanonicalPath returns the form that Path documents. The argument is a decoded path, such as url.URL.Path.
// It is for matching rules: the result is never hashed.
func CanonicalPath(p string) string { return canonicalPath(p) }

// canonicalPath is the form that Path documents, of a path whose
// percent-encoding is undone.
func canonicalPath(p string) string {
	if isCanonical(p) {
		return p
	}
	out := make([]byte, 0, len(p)+1)
	for segment := range strings.SplitSeq(p, "/") {
		segment, _, _ = strings.Cut(segment, ";")
		switch segment {
		case "", ".":
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

// isCanonical reports whether canonicalPath would return p as it is.
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
		case c == ';' || 'A' <= c && c <= 'Z':
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
