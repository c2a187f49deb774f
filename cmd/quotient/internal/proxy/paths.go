package proxy

import (
	"bytes"
	"math/bits"
	"net/url"
	"regexp"
	"strings"

	"github.com/quotient-go/quotient/config"
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
	ends                    // dots and blanks at the end of a segment are dropped, as on Windows
	twice                   // all is decoded twice, after segments were divided and parameters dropped
	before                  // with twice: the path has been decoded as a whole before anything else
)

// settled are the ways that a file settles, and those of them that its upstreams go.
func settled(p config.Paths) (known, gone int) {
	for _, of := range []struct {
		is, word    string
		known, gone int
	}{
		{p.EncodedSlash, "text", slashes, slashes}, {p.EncodedSlash, "slash", slashes, 0},
		{p.Backslash, "text", backslashes, backslashes}, {p.Backslash, "slash", backslashes, 0},
		{p.Semicolon, "text", early | parameters, parameters}, {p.Semicolon, "dropped", early, early},
		{p.EncodedPercent, "text", twice | before, 0}, {p.EncodedPercent, "decoded", twice | before, twice},
	} {
		if of.is == of.word {
			known, gone = known|of.known, gone|of.gone
		}
	}
	return known, gone
}

// mostOddities bounds how many of them a path may have that are not settled: each doubles the ways to read it.
const mostOddities = 4

// oddities are those of the ways that may make a difference for a path.
func oddities(u *url.URL, canonical string) (odd int) {
	if strings.IndexByte(u.Path, '%') >= 0 {
		if again := (&url.URL{RawPath: u.Path, Path: decoded(u.Path)}); again.Path != u.Path {
			odd = twice | before | odditiesOnce(again, "")
		}
	}
	return odd | odditiesOnce(u, canonical)
}

func odditiesOnce(u *url.URL, canonical string) (odd int) {
	raw := u.RawPath
	if strings.Contains(raw, "%2f") || strings.Contains(raw, "%2F") {
		odd = slashes
	}
	if endsOdd(u.Path) {
		odd |= ends
	}
	if u.Path == canonical {
		return odd
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

// endsOdd reports whether a segment ends with a dot or a blank.
func endsOdd(path string) bool {
	for i := range len(path) {
		last := i+1 == len(path) || strings.IndexByte(`/\;`, path[i+1]) >= 0
		if last && (path[i] == '.' || path[i] == ' ') {
			return true
		}
	}
	return false
}

// longestOdd bounds a path that has any, in bytes: each way to read it costs time.
const longestOdd = 2 << 10

// readable reports whether a path has few enough oddities to look at them all. One with a control character has not:
// some servers end the path there.
func readable(path string, odd, gone int) bool {
	if odd != 0 && len(path) > longestOdd {
		return false
	}
	if (odd|gone)&twice != 0 {
		path = decoded(path)
	}
	return bits.OnesCount(uint(odd)) <= mostOddities &&
		!strings.ContainsFunc(path, func(c rune) bool { return c < ' ' || c == 0x7f })
}

var encodedByte = regexp.MustCompile("%[0-9A-Fa-f]{2}")

// decoded is a text without encoded bytes. Other percent signs stay, as some servers have it.
func decoded(text string) string {
	return encodedByte.ReplaceAllStringFunc(text, func(code string) string {
		plain, _ := url.PathUnescape(code) // it is valid
		return plain
	})
}

// reading is a path in lower case as a server reads it. A segment that no canonical path has becomes ";", which only
// a wildcard of a pattern matches. The reading of no way is the canonical path.
func reading(u *url.URL, ways int) string {
	path, times := u.RawPath, 1
	if ways&twice != 0 {
		times = 2
	}
	if path == "" || times == 2 && ways&before != 0 {
		path, times = u.Path, times-1 // without RawPath, of what matters here only \ and % were encoded
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
		if times > 0 && segment != "." && segment != ".." {
			for range times {
				segment = decoded(segment)
			}
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
		if ways&ends != 0 && !isDots {
			part = strings.TrimRight(part, ". ")
		}
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
