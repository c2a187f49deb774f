package front

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// canary is sent right behind each request. If the server and the upstream agree where that one ends, it
// arrives as itself, or not at all.
const (
	canary       = "GET /canary HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
	canaryPassed = "GET /canary HTTP/1.1\r\nHost: h\r\n\r\n"
)

// smuggling is the table: what a client sends, the statuses of the answers and what reached the upstream,
// byte for byte. Refused requests reach it not at all, or broken off, and nothing behind them is answered.
var smuggling = []struct {
	name, sent string
	want       string // at the upstream; empty for nothing
	status     int    // of the refusal; 0: it passes
	by         string // "net/http" for what it refuses itself
}{
	{name: "plain", sent: "GET /a HTTP/1.1\r\nHost: h\r\n\r\n", want: "GET /a HTTP/1.1\r\nHost: h\r\n\r\n"},
	{name: "length", sent: "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
		want: "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"},
	{name: "chunks", sent: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n" +
		"hello\r\n0\r\n\r\n",
		want: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"},
	{name: "coding in capitals",
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: CHUNKED \r\n\r\n1\r\nx\r\n0\r\n\r\n",
		want: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"},
	{name: "length 0", sent: "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
		want: "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"},
	{name: "one more line end after a body",
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx\r\n",
		want: "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx"},

	{name: "bare LF after the request line", sent: "GET /a HTTP/1.1\nHost: h\r\n\r\n", status: 400},
	{name: "bare LF after a field", sent: "GET /a HTTP/1.1\r\nHost: h\nX: y\r\n\r\n", status: 400},
	{name: "bare LF ends the head", sent: "GET /a HTTP/1.1\r\nHost: h\r\n\n", status: 400},
	{name: "bare CR in a value", sent: "GET /a HTTP/1.1\r\nHost: h\r\nX: a\rContent-Length: 5\r\n\r\n",
		status: 400},
	{name: "two CRs", sent: "GET /a HTTP/1.1\r\nHost: h\r\r\n\r\n", status: 400},
	{name: "folded field", sent: "GET /a HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n", status: 400},
	{name: "folded coding",
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", status: 400},
	{name: "folded line like a field", sent: "GET /a HTTP/1.1\r\nHost: h\r\nX: a\r\n Y: b\r\n\r\n",
		status: 400},
	{name: "folded with a tab", sent: "GET /a HTTP/1.1\r\nHost: h\r\nX: a\r\n\tb\r\n\r\n", status: 400},
	{name: "field before the first", sent: "GET /a HTTP/1.1\r\n Host: h\r\nHost: h\r\n\r\n", status: 400},

	{name: "length, then coding", status: 400,
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n" +
			"\r\n0\r\n\r\n"},
	{name: "coding, then length", status: 400,
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n" +
			"\r\n0\r\n\r\n"},
	{name: "two equal lengths", status: 400,
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx"},
	{name: "two lengths", status: 400,
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx"},
	{name: "list of lengths", sent: "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1, 1\r\n\r\nx",
		status: 400},
	{name: "length with a plus", sent: "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\nx",
		status: 400},
	{name: "negative length", sent: "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\nx",
		status: 400},
	{name: "length in hex", sent: "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 0x1\r\n\r\nx", status: 400},
	{name: "length with a space", sent: "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1 1\r\n\r\nx",
		status: 400},
	{name: "huge length",
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\nx", status: 400},
	{name: "empty length", sent: "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length:\r\n\r\nx", status: 400},
	{name: "length with an underscore", sent: "POST /a HTTP/1.1\r\nHost: h\r\nContent_Length: 5\r\n\r\n",
		status: 400},
	{name: "coding with an underscore", status: 400,
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer_Encoding: chunked\r\nContent-Length: 5\r\n" +
			"\r\n0\r\n\r\n"},
	{name: "space before the colon", status: 400, by: "net/http",
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length : 1\r\n\r\nx"},
	{name: "coding with a space before the colon", status: 400, by: "net/http",
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n"},

	{name: "identity and a length", status: 400,
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: identity\r\nContent-Length: 1\r\n\r\nx"},
	{name: "identity alone", status: 501, by: "net/http",
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: identity\r\n\r\n"},
	{name: "xchunked", sent: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		status: 501, by: "net/http"},
	{name: "two codings", status: 501, by: "net/http",
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n" +
			"\r\n0\r\n\r\n"},
	{name: "two codings in a list", status: 501, by: "net/http",
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"},
	{name: "coding behind a vertical tab", status: 400, by: "net/http",
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n"},
	{name: "coding in HTTP/1.0", status: 400,
		sent: "POST /a HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n" +
			"\r\n0\r\n\r\n"},

	{name: "NUL in a value", sent: "GET /a HTTP/1.1\r\nHost: h\r\nX: a\x00b\r\n\r\n", status: 400,
		by: "net/http"},
	{name: "control byte in a value", sent: "GET /a HTTP/1.1\r\nHost: h\r\nX: a\x01b\r\n\r\n", status: 400,
		by: "net/http"},
	{name: "NUL in a name", sent: "GET /a HTTP/1.1\r\nHost: h\r\nX\x00: a\r\n\r\n", status: 400,
		by: "net/http"},
	{name: "empty name", sent: "GET /a HTTP/1.1\r\nHost: h\r\n: a\r\n\r\n", status: 400, by: "net/http"},
	{name: "no colon", sent: "GET /a HTTP/1.1\r\nHost: h\r\nX\r\n\r\n", status: 400},

	{name: "chunk extension", // it is for one hop, and ends here
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1;a=b\r\nx\r\n0;c\r\n\r\n",
		want: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"},
	{name: "LF in a chunk extension", status: cutOff,
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1;a\nx\r\n0\r\n\r\n"},
	{name: "control byte in a chunk extension", status: cutOff,
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1;\x01\r\nx\r\n0\r\n\r\n"},
	{name: "chunk size with 0x", status: cutOff,
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\nx\r\n0\r\n\r\n"},
	{name: "chunk size with a space", status: cutOff,
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1 \r\nx\r\n0\r\n\r\n"},
	{name: "chunk size that overflows", status: cutOff,
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000001\r\n" +
			"x\r\n0\r\n\r\n"},
	{name: "negative chunk size", status: cutOff,
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nx\r\n0\r\n\r\n"},
	{name: "empty chunk size", status: cutOff,
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\r\nx\r\n0\r\n\r\n"},
	{name: "bare LF after a chunk size", status: cutOff,
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\nx\r\n0\r\n\r\n"},
	{name: "no line end after a chunk", status: cutOff,
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy0\r\n\r\n"},
	{name: "no line end after the last chunk", status: cutOff, // the canary's request line is no trailer
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"},
	{name: "trailer",
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nTrailer: Sum\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n" +
			"0\r\nSum: 7\r\n\r\n",
		want: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: Sum\r\n\r\n1\r\nx\r\n" +
			"0\r\nSum: 7\r\n\r\n"},
	// net/http takes no trailer that is so long, and would go on behind it
	{name: "request in a trailer", status: cutOff,
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n" +
			"GET http://h/evil HTTP/1.1\r\nHst: h\r\nX: " + strings.Repeat("x", 8000) + "\r\n\r\n"},
	{name: "chunks of little more than extensions", status: cutOff, // as above
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" +
			strings.Repeat("1;"+strings.Repeat("x", 4000)+"\r\nx\r\n", 6) + "0\r\n\r\n"},
	{name: "length in a trailer", status: cutOff,
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n" +
			"Content-Length: 9\r\n\r\n"},
	{name: "coding in a trailer", status: cutOff,
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n" +
			"Transfer-Encoding: gzip\r\n\r\n"},
	{name: "Host in a trailer", status: cutOff,
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n" +
			"host: evil\r\n\r\n"},
	{name: "forwarded address in a trailer", status: cutOff,
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n" +
			"X-Forwarded-For: 1.2.3.4\r\n\r\n"},
	{name: "announced length in a trailer", status: 400, by: "net/http",
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nTrailer: Content-Length\r\nTransfer-Encoding: chunked\r\n\r\n" +
			"0\r\nContent-Length: 9\r\n\r\n"},
	{name: "folded trailer", status: cutOff,
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n" +
			"A: b\r\n c\r\n\r\n"},

	{name: "URL as the target", sent: "GET http://h/a HTTP/1.1\r\nHost: h\r\n\r\n",
		want: "GET /a HTTP/1.1\r\nHost: h\r\n\r\n"},
	{name: "URL and another Host", sent: "GET http://other/a HTTP/1.1\r\nHost: h\r\n\r\n", status: 400},
	{name: "URL with a user", sent: "GET http://u@h/a HTTP/1.1\r\nHost: u@h\r\n\r\n", status: 400},
	{name: "URL of another scheme", sent: "GET file://h/a HTTP/1.1\r\nHost: h\r\n\r\n", status: 400},
	{name: "two Hosts", sent: "GET /a HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n", status: 400, by: "net/http"},
	{name: "two equal Hosts", sent: "GET /a HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", status: 400,
		by: "net/http"},
	{name: "no Host", sent: "GET /a HTTP/1.1\r\n\r\n", status: 400, by: "net/http"},
	{name: "Host with a slash", sent: "GET /a HTTP/1.1\r\nHost: h/i\r\n\r\n", want: "", status: 400},
	{name: "Host with a space", sent: "GET /a HTTP/1.1\r\nHost: h i\r\n\r\n", status: 400, by: "net/http"},
	{name: "HTTP/0.9", sent: "GET /a\r\n", status: 400},
	{name: "HTTP/1.2", sent: "GET /a HTTP/1.2\r\nHost: h\r\n\r\n", status: 400},
	{name: "HTTP/2.0 in a request line", sent: "PRI * HTTP/2.0\r\nHost: h\r\n\r\n", status: 400},
	{name: "two spaces", sent: "GET  /a HTTP/1.1\r\nHost: h\r\n\r\n", status: 400},
	{name: "tab in the request line", sent: "GET\t/a HTTP/1.1\r\nHost: h\r\n\r\n", status: 400},
	{name: "space in the target", sent: "GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", status: 400},
	{name: "malformed method", sent: "G(T /a HTTP/1.1\r\nHost: h\r\n\r\n", status: 400, by: "net/http"},
	{name: "asterisk", sent: "GET * HTTP/1.1\r\nHost: h\r\n\r\n", status: 400},
	{name: "authority", sent: "CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n", status: 405},
	{name: "CONNECT with a path", sent: "CONNECT /a HTTP/1.1\r\nHost: h\r\n\r\n", status: 405},
	{name: "encoded slash", sent: "GET /a%2f..%2Fb HTTP/1.1\r\nHost: h\r\n\r\n",
		want: "GET /a%2f..%2Fb HTTP/1.1\r\nHost: h\r\n\r\n"},
	{name: "encoded backslash", sent: "GET /a%5Cb HTTP/1.1\r\nHost: h\r\n\r\n",
		want: "GET /a%5Cb HTTP/1.1\r\nHost: h\r\n\r\n"},
	{name: "encoded NUL", sent: "GET /a%00 HTTP/1.1\r\nHost: h\r\n\r\n",
		want: "GET /a%00 HTTP/1.1\r\nHost: h\r\n\r\n"},
	{name: "encoded line end", sent: "GET /a%0d%0aX:%20y HTTP/1.1\r\nHost: h\r\n\r\n",
		want: "GET /a%0d%0aX:%20y HTTP/1.1\r\nHost: h\r\n\r\n"},
	{name: "backslash", sent: "GET /a\\b HTTP/1.1\r\nHost: h\r\n\r\n", status: 400},
	{name: "malformed encoding", sent: "GET /%zz HTTP/1.1\r\nHost: h\r\n\r\n", status: 400, by: "net/http"},
	{name: "dots", sent: "GET /a/../b/./c HTTP/1.1\r\nHost: h\r\n\r\n",
		want: "GET /a/../b/./c HTTP/1.1\r\nHost: h\r\n\r\n"},
	{name: "two slashes", sent: "GET //host/path HTTP/1.1\r\nHost: h\r\n\r\n",
		want: "GET //host/path HTTP/1.1\r\nHost: h\r\n\r\n"},
	{name: "empty query", sent: "GET /a? HTTP/1.1\r\nHost: h\r\n\r\n",
		want: "GET /a? HTTP/1.1\r\nHost: h\r\n\r\n"},
	{name: "query", sent: "GET /a?b;c&%zz=| HTTP/1.1\r\nHost: h\r\n\r\n",
		want: "GET /a?b;c&%zz=| HTTP/1.1\r\nHost: h\r\n\r\n"},
	{name: "fragment behind a query", sent: "GET /a?b#c HTTP/1.1\r\nHost: h\r\n\r\n", status: 400},
	{name: "fragment", sent: "GET /a#b HTTP/1.1\r\nHost: h\r\n\r\n", status: 400},
	{name: "control byte in the target", sent: "GET /a\x01 HTTP/1.1\r\nHost: h\r\n\r\n", status: 400,
		by: "net/http"},
	{name: "byte above ASCII in the path", sent: "GET /\xe9 HTTP/1.1\r\nHost: h\r\n\r\n", status: 400},

	{name: "offer of h2c", // an offer may be left alone; the upstream must not see it
		sent: "GET /a HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n" +
			"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n",
		want: "GET /a HTTP/1.1\r\nHost: h\r\n\r\n"},
	{name: "offer of h2c among others", want: "GET /a HTTP/1.1\r\nHost: h\r\n\r\n",
		sent: "GET /a HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket, H2C\r\n\r\n"},
	{name: "Connection names Host", sent: "GET /a HTTP/1.1\r\nHost: h\r\nConnection: Host\r\n\r\n",
		status: 400},
	{name: "Connection names a length", status: 400,
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nConnection: close, Content-Length\r\n" +
			"Content-Length: 1\r\n\r\nx"},
	{name: "Connection names a coding", status: 400,
		sent: "POST /a HTTP/1.1\r\nHost: h\r\nConnection: Transfer-Encoding\r\n" +
			"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
	{name: "Connection names credentials", status: 400,
		sent: "GET /a HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, authorization\r\n" +
			"Authorization: Basic eA==\r\n\r\n"},
	{name: "Connection names a forwarded address", status: 400,
		sent: "GET /a HTTP/1.1\r\nHost: h\r\nConnection: X-Forwarded-For\r\n" +
			"X-Forwarded-For: 1.2.3.4\r\n\r\n"},
	{name: "Expect", sent: "POST /a HTTP/1.1\r\nHost: h\r\nExpect: 200-ok\r\nContent-Length: 1\r\n\r\nx",
		status: 417, by: "net/http"},
}

// cutOff stands for a request whose body turns out to be malformed: it may have begun to reach the upstream,
// and never comes to its end.
const cutOff = -1

var statusLine = regexp.MustCompile(`HTTP/1\.1 ([0-9]{3}) `)

func statuses(text string) (all []string) {
	for _, found := range statusLine.FindAllStringSubmatch(text, -1) {
		all = append(all, found[1])
	}
	return all
}

// TestSmuggling sends each row in one piece, byte by byte, and as the second request of a connection.
func TestSmuggling(t *testing.T) {
	if len(smuggling) < 40 {
		t.Fatalf("%d rows", len(smuggling))
	}
	for _, row := range smuggling {
		t.Run(row.name, func(t *testing.T) {
			u := record(t)
			s := serve(t, section(), u.proxy(t))
			for _, way := range []struct {
				name, before string
				parts        int
			}{
				{"whole", "", 1},
				{"bytes", "", 1 << 20},
				{"later", "GET /first HTTP/1.1\r\nHost: h\r\n\r\n", 1},
			} {
				t.Run(way.name, func(t *testing.T) {
					playRow(t, s, u, way.before, row.sent, row.want, row.status, way.parts)
				})
			}
		})
	}
}

func playRow(t *testing.T, s *running, u *recorder, before, sent, want string, status, parts int) {
	known := len(u.requests())
	c := dial(t, s.addr)
	text := before + sent + canary
	size := max(1, len(text)/parts)
	for part := range slices.Chunk([]byte(text), size) {
		if _, err := c.Write(part); err != nil {
			break // it has been refused
		}
	}
	answer, _ := io.ReadAll(c) // a reset is an end as well
	got := u.requests()[known:]
	wanted := []string{}
	wantStatus := []string{}
	if before != "" {
		wanted = append(wanted, before)
		wantStatus = append(wantStatus, "200")
	}
	switch {
	case status == 0:
		wanted = append(wanted, want, canaryPassed)
		wantStatus = append(wantStatus, "200", "200")
	case status > 0:
		wantStatus = append(wantStatus, fmt.Sprint(status))
	}
	if !slices.Equal(got, wanted) {
		t.Errorf("the upstream got\n%q\nwant\n%q", got, wanted)
	}
	all := statuses(string(answer))
	if status == cutOff { // 502, or the connection is closed
		if slices.Contains(all[min(len(all), len(wantStatus)):], "200") {
			t.Errorf("the answers are %v", all)
		}
		return
	}
	if !slices.Equal(all, wantStatus) {
		t.Errorf("the answers are %v, want %v\n%s", all, wantStatus, strings.TrimSpace(string(answer)))
	}
}
