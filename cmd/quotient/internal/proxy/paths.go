package proxy

import (
	"bytes"
	"math/bits"
	"net/url"
	"strings"
)

// The ways in which servers read a path differently from the canonical one. That is decoded first; then slashes and
// backslashes divide segments, a segment ends at ";", and "." and ".." are resolved.
const (
	slashes     = 1 << iota // one that is encoded is a part of its segment
	backslashes             // they are a part of their segment
	early                   // what follows a ";" that is not encoded is dropped before anything is decoded
	parameters              // other than that, ";" is a part of its segment
	dots                    // "." and ".." are segments like others
	encodedDots             // they are, unless they stood there before anything was decoded
	empties                 // ".." takes away an empty segment too (RFC 3986, 5.2.4)
)

// mostOddities bounds how many of them a path may have: each doubles the ways to read it.
const mostOddities = 4

// oddities are those of the ways that may make a difference for a path.
func oddities(u *url.URL, canonical string) (odd int) {
	raw := u.RawPath
	if strings.Contains(raw, "%2f") || strings.Contains(raw, "%2F") {
		odd = slashes
	}
	if u.Path == canonical && odd == 0 {
		return 0
	}
	if strings.Contains(u.Path, `\`) {
		odd |= backslashes
	}
	if strings.Contains(u.Path, ";") {
		odd |= parameters
		if raw != "" && strings.Contains(raw, ";") || odd&backslashes != 0 {
			odd |= early
		}
	}
	if strings.Contains(u.Path, "/.") || strings.Contains(u.Path, `\.`) {
		odd |= dots
	}
	if odd&dots != 0 && strings.Contains(u.Path, "//") {
		odd |= empties
	}
	if odd&dots != 0 && raw != "" {
		odd |= encodedDots
	}
	return odd
}

// longestOdd bounds a path that has any, in bytes: each way to read it costs time.
const longestOdd = 2 << 10

// readable reports whether a path has few enough oddities to look at them all. One with a control character has not:
// some servers end the path there.
func readable(path string, odd int) bool {
	return (odd == 0 || len(path) <= longestOdd) && bits.OnesCount(uint(odd)) <= mostOddities &&
		!strings.ContainsFunc(path, func(c rune) bool { return c < ' ' || c == 0x7f })
}

// reading is a path in lower case as a server reads it. A segment that no canonical path has becomes ";", which only
// a wildcard of a pattern matches. The reading of no way is the canonical path.
func reading(u *url.URL, ways int) string {
	path, encoded := u.RawPath, true
	if path == "" {
		path, encoded = u.Path, false // of what matters here only backslashes were encoded
	}
	var out []byte
	for segment := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if segment == "" && ways&empties != 0 {
			out = append(out, '/')
			continue
		}
		if ways&early != 0 {
			segment, _, _ = strings.Cut(segment, ";")
		}
		of := ways
		if encoded && segment != "." && segment != ".." {
			segment, _ = url.PathUnescape(segment) // net/http has done so
			if ways&encodedDots != 0 {
				of |= dots
			}
		}
		out = appendSegment(out, segment, of)
	}
	if ways&empties != 0 {
		out = []byte("/" + strings.Join(strings.FieldsFunc(string(out), func(c rune) bool { return c == '/' }), "/"))
	}
	if len(out) == 0 {
		return "/"
	}
	return strings.ToLower(string(out))
}

// appendSegment appends what is between two slashes that are not encoded.
func appendSegment(out []byte, segment string, ways int) []byte {
	divides := func(c rune) bool {
		return c == '/' && ways&slashes == 0 || c == '\\' && ways&backslashes == 0
	}
	for part := range strings.FieldsFuncSeq(segment, divides) {
		if ways&parameters == 0 {
			part, _, _ = strings.Cut(part, ";")
		}
		isDots := part == "." || part == ".."
		switch {
		case part == "":
		case isDots && ways&dots == 0:
			if part == ".." {
				out = out[:max(0, bytes.LastIndexByte(out, '/'))]
			}
		case isDots, strings.ContainsAny(part, `/\;`):
			out = append(out, "/;"...)
		default:
			out = append(append(out, '/'), part...)
		}
	}
	return out
}
