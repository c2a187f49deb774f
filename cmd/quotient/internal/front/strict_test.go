package front

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/held"
	"github.com/quotient-go/quotient/internal/tested"
)

// canary is sent right behind each request. If the server and the upstream agree where that one ends, it
// arrives as itself, or not at all.
const (
	canary       = "GET /canary HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
	canaryPassed = "GET /canary HTTP/1.1\r\nHost: h\r\n\r\n"
)

// Beginnings of requests, and what stands for a request that reaches the upstream as it was sent.
const (
	get     = "GET /a HTTP/1.1~Host: h~"
	post    = "POST /a HTTP/1.1~Host: h~"
	chunked = post + "Transfer-Encoding: chunked~~"
	same    = "="
)

// crlf is a text in which ~ stands for the end of a line.
func crlf(text string) string { return strings.ReplaceAll(text, "~", "\r\n") }

// cutOff stands for a request whose body turns out to be malformed: it may have begun to reach the upstream,
// and never comes to its end.
const cutOff = -1

// smuggling is the table: what a client sends, the status of a refusal or 0, and what reached the upstream,
// byte for byte. Refused requests reach it not at all, or broken off, and nothing behind them is answered.
var smuggling = []struct {
	name, sent string
	status     int
	want       string // at the upstream
}{
	// These pass.
	{"plain", get + "~", 0, same},
	{"length", post + "Content-Length: 5~~hello", 0, same},
	{"chunks", chunked + "5~hello~0~~", 0, same},
	{"coding in capitals", post + "Transfer-Encoding: CHUNKED ~~1~x~0~~", 0, chunked + "1~x~0~~"},
	{"length 0", post + "Content-Length: 0~~", 0, same},
	{"one more line end after a body", post + "Content-Length: 1~~x~", 0, post + "Content-Length: 1~~x"},
	// An extension of a chunk is for one hop, and ends here.
	{"chunk extension", chunked + "1;a=b~x~0;c~~", 0, chunked + "1~x~0~~"},
	{"trailer", post + "Trailer: Sum~Transfer-Encoding: chunked~~1~x~0~Sum: 7~~", 0,
		post + "Transfer-Encoding: chunked~Trailer: Sum~~1~x~0~Sum: 7~~"},
	{"URL as the target", "GET http://h/a HTTP/1.1~Host: h~~", 0, get + "~"},
	{"URL without a path", "GET http://h HTTP/1.1~Host: h~~", 0, "GET / HTTP/1.1~Host: h~~"},
	{"encoded slash", "GET /a%2f..%2Fb HTTP/1.1~Host: h~~", 0, same},
	{"what browsers leave as it is", "GET /a%2fb|c^?d|e HTTP/1.1~Host: h~~", 0, "GET /a%2fb%7Cc%5E?d|e HTTP/1.1~Host: h~~"},
	{"encoded backslash", "GET /a%5Cb HTTP/1.1~Host: h~~", 0, same},
	{"encoded NUL", "GET /a%00 HTTP/1.1~Host: h~~", 0, same},
	{"encoded line end", "GET /a%0d%0aX:%20y HTTP/1.1~Host: h~~", 0, same},
	{"dots", "GET /a/../b/./c HTTP/1.1~Host: h~~", 0, same},
	{"two slashes", "GET //host/path HTTP/1.1~Host: h~~", 0, same},
	{"empty query", "GET /a? HTTP/1.1~Host: h~~", 0, same},
	{"query", "GET /a?b;c&%zz=| HTTP/1.1~Host: h~~", 0, same},
	{"offer of h2c", // may be left alone; the upstream must not see it
		get + "Connection: Upgrade, HTTP2-Settings~Upgrade: h2c~HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA~~",
		0, get + "~"},
	{"offer of h2c among others", get + "Connection: Upgrade~Upgrade: websocket, H2C~~", 0, get + "~"},

	// We refuse these.
	{"bare LF after the request line", "GET /a HTTP/1.1\nHost: h~~", 400, ""},
	{"bare LF after a field", "GET /a HTTP/1.1~Host: h\nX: y~~", 400, ""},
	{"bare LF ends the head", get + "\n", 400, ""},
	{"bare CR in a value", get + "X: a\rContent-Length: 5~~", 400, ""},
	{"two CRs", "GET /a HTTP/1.1~Host: h\r~~", 400, ""},
	{"folded field", get + "X: a~ b~~", 400, ""},
	{"folded coding", post + "Transfer-Encoding:~ chunked~~0~~", 400, ""},
	{"folded line like a field", get + "X: a~ Y: b~~", 400, ""},
	{"folded with a tab", get + "X: a~\tb~~", 400, ""},
	{"field before the first", "GET /a HTTP/1.1~ Host: h~Host: h~~", 400, ""},
	{"length, then coding", post + "Content-Length: 4~Transfer-Encoding: chunked~~0~~", 400, ""},
	{"coding, then length", post + "Transfer-Encoding: chunked~Content-Length: 4~~0~~", 400, ""},
	{"two equal lengths", post + "Content-Length: 1~Content-Length: 1~~x", 400, ""},
	{"two lengths", post + "Content-Length: 1~Content-Length: 2~~x", 400, ""},
	{"list of lengths", post + "Content-Length: 1, 1~~x", 400, ""},
	{"length with a plus", post + "Content-Length: +1~~x", 400, ""},
	{"negative length", post + "Content-Length: -1~~x", 400, ""},
	{"length in hex", post + "Content-Length: 0x1~~x", 400, ""},
	{"length with a space", post + "Content-Length: 1 1~~x", 400, ""},
	{"huge length", post + "Content-Length: 99999999999999999999~~x", 400, ""},
	{"empty length", post + "Content-Length:~~x", 400, ""},
	{"length with an underscore", post + "Content_Length: 5~~", 400, ""},
	{"coding with an underscore", post + "Transfer_Encoding: chunked~Content-Length: 5~~0~~", 400, ""},
	{"identity and a length", post + "Transfer-Encoding: identity~Content-Length: 1~~x", 400, ""},
	{"coding in HTTP/1.0",
		"POST /a HTTP/1.0~Host: h~Connection: keep-alive~Transfer-Encoding: chunked~~0~~", 400, ""},
	{"no colon", get + "X~~", 400, ""},
	{"URL and another Host", "GET http://other/a HTTP/1.1~Host: h~~", 400, ""},
	{"URL with a user", "GET http://u@h/a HTTP/1.1~Host: u@h~~", 400, ""},
	{"URL of another scheme", "GET file://h/a HTTP/1.1~Host: h~~", 400, ""},
	{"Host with a slash", "GET /a HTTP/1.1~Host: h/i~~", 400, ""},
	{"HTTP/0.9", "GET /a~", 400, ""},
	{"HTTP/1.2", "GET /a HTTP/1.2~Host: h~~", 400, ""},
	{"HTTP/2.0 in a request line", "PRI * HTTP/2.0~Host: h~~", 400, ""},
	{"HTTP/2", http2.ClientPreface, 400, ""}, // where the section does not enable it
	{"two spaces", "GET  /a HTTP/1.1~Host: h~~", 400, ""},
	{"tab in the request line", "GET\t/a HTTP/1.1~Host: h~~", 400, ""},
	{"space in the target", "GET /a b HTTP/1.1~Host: h~~", 400, ""},
	{"asterisk", "GET * HTTP/1.1~Host: h~~", 400, ""},
	{"authority", "CONNECT h:80 HTTP/1.1~Host: h:80~~", 405, ""},
	{"CONNECT with a path", "CONNECT /a HTTP/1.1~Host: h~~", 405, ""},
	{"backslash", "GET /a\\b HTTP/1.1~Host: h~~", 400, ""},
	{"fragment behind a query", "GET /a?b#c HTTP/1.1~Host: h~~", 400, ""},
	{"fragment", "GET /a#b HTTP/1.1~Host: h~~", 400, ""},
	{"beside what they do not", "GET /a|{b} HTTP/1.1~Host: h~~", 400, ""},
	{"byte above ASCII in the path", "GET /\xe9 HTTP/1.1~Host: h~~", 400, ""},
	{"Connection names Host", get + "Connection: Host~~", 400, ""},
	{"Connection names a length", post + "Connection: close, Content-Length~Content-Length: 1~~x", 400, ""},
	{"Connection names a coding",
		post + "Connection: Transfer-Encoding~Transfer-Encoding: chunked~~0~~", 400, ""},
	{"Connection names credentials",
		get + "Connection: keep-alive, authorization~Authorization: Basic eA==~~", 400, ""},
	{"Connection names a forwarded address",
		get + "Connection: X-Forwarded-For~X-Forwarded-For: 1.2.3.4~~", 400, ""},

	// http.ReadRequest and readHead refuse these.
	{"space before the colon", post + "Content-Length : 1~~x", 400, ""},
	{"coding with a space before the colon", post + "Transfer-Encoding : chunked~~0~~", 400, ""},
	{"identity alone", post + "Transfer-Encoding: identity~~", 501, ""},
	{"xchunked", post + "Transfer-Encoding: xchunked~~0~~", 501, ""},
	{"two codings", post + "Transfer-Encoding: chunked~Transfer-Encoding: chunked~~0~~", 501, ""},
	{"two codings in a list", post + "Transfer-Encoding: gzip, chunked~~0~~", 501, ""},
	{"coding behind a vertical tab", post + "Transfer-Encoding: \x0bchunked~~0~~", 400, ""},
	{"NUL in a value", get + "X: a\x00b~~", 400, ""},
	{"control byte in a value", get + "X: a\x01b~~", 400, ""},
	{"NUL in a name", get + "X\x00: a~~", 400, ""},
	{"empty name", get + ": a~~", 400, ""},
	{"announced length in a trailer",
		post + "Trailer: Content-Length~Transfer-Encoding: chunked~~0~Content-Length: 9~~", 400, ""},
	{"two Hosts", get + "Host: i~~", 400, ""},
	{"two equal Hosts", get + "Host: h~~", 400, ""},
	{"no Host", "GET /a HTTP/1.1~~", 400, ""},
	{"Host with a space", "GET /a HTTP/1.1~Host: h i~~", 400, ""},
	{"malformed method", "G(T /a HTTP/1.1~Host: h~~", 400, ""},
	{"malformed encoding", "GET /%zz HTTP/1.1~Host: h~~", 400, ""},
	{"control byte in the target", "GET /a\x01 HTTP/1.1~Host: h~~", 400, ""},
	{"Expect", post + "Expect: 200-ok~Content-Length: 1~~x", 417, ""},

	// These turn out to be malformed on the way.
	{"LF in a chunk extension", chunked + "1;a\nx~0~~", cutOff, ""},
	{"control byte in a chunk extension", chunked + "1;\x01~x~0~~", cutOff, ""},
	{"chunk size with 0x", chunked + "0x1~x~0~~", cutOff, ""},
	{"chunk size with a space", chunked + "1 ~x~0~~", cutOff, ""},
	{"chunk size that overflows", chunked + "10000000000000001~x~0~~", cutOff, ""},
	{"negative chunk size", chunked + "-1~x~0~~", cutOff, ""},
	{"empty chunk size", chunked + "~x~0~~", cutOff, ""},
	{"bare LF after a chunk size", chunked + "1\nx~0~~", cutOff, ""},
	{"no line end after a chunk", chunked + "1~xy0~~", cutOff, ""},
	// The canary's request line is no trailer.
	{"no line end after the last chunk", chunked + "1~x~0~", cutOff, ""},
	// net/http takes no trailer, and no extensions, that are so long, and would go on behind them.
	{"request in a trailer",
		chunked + "1~x~0~GET http://h/evil HTTP/1.1~Hst: h~X: " + strings.Repeat("x", 8000) + "~~", cutOff, ""},
	{"chunks of little more than extensions",
		chunked + strings.Repeat("1;"+strings.Repeat("x", 4000)+"~x~", 6) + "0~~", cutOff, ""},
	{"length in a trailer", chunked + "1~x~0~Content-Length: 9~~", cutOff, ""},
	{"coding in a trailer", chunked + "1~x~0~Transfer-Encoding: gzip~~", cutOff, ""},
	{"Host in a trailer", chunked + "1~x~0~host: evil~~", cutOff, ""},
	{"forwarded address in a trailer", chunked + "1~x~0~X-Forwarded-For: 1.2.3.4~~", cutOff, ""},
	{"folded trailer", chunked + "1~x~0~A: b~ c~~", cutOff, ""},
}

var statusLine = regexp.MustCompile(`HTTP/1\.1 ([0-9]{3}) `)

func statuses(text string) (all []string) {
	for _, found := range statusLine.FindAllStringSubmatch(text, -1) {
		all = append(all, found[1])
	}
	return all
}

// TestSmuggling sends each row in one piece, byte by byte, and as the second request of a connection.
func TestSmuggling(t *testing.T) {
	for _, row := range smuggling {
		t.Run(row.name, func(t *testing.T) {
			u := record(t)
			s := serve(t, section(), u.proxy(t))
			sent, want := crlf(row.sent), crlf(row.want)
			if row.want == same {
				want = sent
			}
			for _, way := range []struct {
				name, before string
				parts        int
			}{{"whole", "", 1}, {"bytes", "", 1 << 20}, {"later", crlf("GET /first HTTP/1.1~Host: h~~"), 1}} {
				t.Run(way.name, func(t *testing.T) {
					playRow(t, s, u, way.before, sent, want, row.status, way.parts)
				})
			}
		})
	}
}

func playRow(t *testing.T, s *running, u *recorder, before, sent, want string, status, parts int) {
	known, refused := len(u.requests()), s.refusedSoFar()
	c := dial(t, s.addr)
	text := before + sent + canary
	for part := range slices.Chunk([]byte(text), max(1, len(text)/parts)) {
		if _, err := c.Write(part); err != nil {
			break // it has been refused
		}
	}
	answer, _ := io.ReadAll(c) // a reset is an end as well
	wanted, wantStatus := []string{}, []string{}
	if before != "" {
		wanted, wantStatus = append(wanted, before), append(wantStatus, "200")
	}
	switch {
	case status == 0:
		wanted, wantStatus = append(wanted, want, canaryPassed), append(wantStatus, "200", "200")
	case status > 0:
		wantStatus = append(wantStatus, fmt.Sprint(status))
	}
	if got := u.requests()[known:]; !slices.Equal(got, wanted) {
		t.Errorf("the upstream got\n%q\nwant\n%q", got, wanted)
	}
	all := statuses(string(answer))
	if got, want := s.refusedSoFar()-refused, min(1, max(0, status)); got != uint64(want) {
		t.Errorf("it was refused %d times before the handler had it, want %d", got, want)
	}
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

func (s *running) refusedSoFar() (all uint64) {
	for _, n := range s.Refusals() {
		all += n
	}
	return all
}

// TestRefusals holds what OnRefusal gets to know of each kind of refusal, and that it is called before the answer.
func TestRefusals(t *testing.T) {
	const many = "X: y~"
	endless := strings.Repeat("\x16\x03\x01\x40\x00\x01\x00\xff\xff"+strings.Repeat("x", 1<<14-4), 2) // a ClientHello
	secure := func(p *config.Proxy) { p.TLS = writePair(t, t.TempDir(), "server") }
	mutual := func(p *config.Proxy) { secure(p); p.TLS.ClientCA = p.TLS.Cert }
	behind := func(p *config.Proxy) { p.ProxyProtocol, p.Trusted = true, []netip.Prefix{loopback} }
	short := func(p *config.Proxy) { p.Timeouts.ReadHeader, p.Timeouts.Idle = time.Second/20, time.Second/20 }
	for _, row := range []struct {
		want string // empty: nothing
		sent string
		set  func(*config.Proxy)
		kind string // of the client: one that leaves when it has sent all, or of TLS
	}{
		{"400 head ", get + "X\x00: a~~", nil, ""},
		{"400 request_line ", "GET  /a HTTP/1.1~Host: h~~", nil, ""},
		{"400 version ", "GET /a HTTP/1.2~Host: h~~", nil, ""},
		{"400 line_end ", get + "\n", nil, ""},
		{"400 field ", get + "X: a~ b~~", nil, ""},
		{"400 field ", get + "X~~", nil, ""},
		{"400 field GET", get + "Connection: Host~~", nil, ""},
		{"400 length ", post + "Content-Length: x~~", nil, ""},
		{"400 coding ", "POST /a HTTP/1.0~Transfer-Encoding: chunked~~", nil, ""},
		{"501 coding ", post + "Transfer-Encoding: gzip~~", nil, ""},
		{"400 host ", "GET http://other/a HTTP/1.1~Host: h~~", nil, ""},
		{"400 host GET", "GET /a HTTP/1.1~Host: h/i~~", nil, ""},
		{"400 target GET", "GET /a\\b HTTP/1.1~Host: h~~", nil, ""},
		{"405 method CONNECT", "CONNECT h:80 HTTP/1.1~Host: h:80~~", nil, ""},
		{"400 method PRI", "PRI /a HTTP/1.1~Host: h~~", nil, ""},
		{"417 expectation POST", post + "Expect: 200-ok~Content-Length: 1~~x", nil, ""},
		{"431 too_long ", get + "X: " + strings.Repeat("x", 70<<10), nil, ""},
		{"431 too_many_fields ", get + strings.Repeat(many, maxFields), nil, ""},
		{"503 no_room ", get + "X: " + strings.Repeat("x", 30<<10), func(p *config.Proxy) { p.Max.HeldBytes = 1 }, ""},
		{"0 slow_head ", get, short, ""},
		{"0 slow_head ", "GET", short, ""},
		{"0 tls ", get + "~", secure, ""},
		{"0 tls ", "", mutual, "tls"},
		{"0 no_room ", endless, func(p *config.Proxy) { secure(p); p.Max.HeldBytes = 1 }, ""},
		{"0 version ", get + "~", secure, "h2"},
		{"0 proxy_protocol ", get + "~", behind, ""},
		{"0 proxy_protocol ", "PROXY TCP4 192.0.2.7~", behind, ""},
		{"400 version ", v1 + "GET /a HTTP/1.2~~", behind, ""},

		{"", get + "Connection: close~~", nil, ""},
		{"", chunked + "x~", nil, ""}, // the handler has had it
		{"", "", short, ""},
		{"", get + "~", short, ""}, // and then it is silent
		{"", get, nil, "leaves"},
		{"", "", behind, "leaves"},
		{"", "", secure, "leaves"},
		{"", "\x16\x03\x01\x02", secure, "leaves"},
	} {
		t.Run(row.want+row.kind, func(t *testing.T) {
			p, got := section(), make(chan string, 10)
			if row.set != nil {
				row.set(p)
			}
			s := serve(t, p, ok, OnRefusal(func(h http.Header, r *http.Request, status int, reason string) {
				h.Set("X-Note", "noted")
				got <- fmt.Sprint(status, " ", reason, " ", r.Method)
				host, _, _ := net.SplitHostPort(r.RemoteAddr)
				tested.Not(t, host != "127.0.0.1" && host != "192.0.2.7", "the client is %q", r.RemoteAddr)
			}), AnswerBy(func(_ http.Header, status int) int { return status + 2 }))
			answer := s.saidTo(t, crlf(row.sent), row.kind)
			if status, err := strconv.Atoi(row.want[:min(3, len(row.want))]); err == nil {
				begins := fmt.Sprintf("HTTP/1.1 %d ", status+2)
				tested.Want(t, "the answer's status", strings.HasPrefix(answer, begins), true)
			}
			tested.Want(t, "a field of the answer", strings.Contains(answer, "X-Note: noted\r\n"),
				row.want != "" && row.want[0] != '0')
			if row.want != "" {
				tested.Want(t, "the refusal", tested.Event(t, got), row.want)
			}
			s.end()
			must(t, <-s.over)
			tested.Want(t, "refusals more", len(got), 0)
			if _, why, _ := strings.Cut(strings.TrimSpace(row.want), " "); why != "" {
				why, _, _ = strings.Cut(why, " ")
				tested.Want(t, "counted as "+why, s.Refusals()[why], 1)
			}
		})
	}
}

// saidTo is said of a client of a kind: one that leaves when it has sent all, or speaks TLS or what h2 is for that.
func (s *running) saidTo(t *testing.T, sent, kind string) string {
	c := net.Conn(dial(t, s.addr))
	switch kind {
	case "tls":
		c = tls.Client(c, trusting())
	case "h2":
		c = tls.Client(c, trusting("h2"))
	}
	_, _ = io.WriteString(c, sent)
	if kind == "leaves" {
		_ = c.(*net.TCPConn).CloseWrite()
	}
	text, _ := io.ReadAll(c)
	return string(text)
}

// TestRefusalsOfHTTP2 are those that net/http leaves to us.
func TestRefusalsOfHTTP2(t *testing.T) {
	p, got := section(), make(chan string, 1)
	p.H2C = true
	c := dial2(t, serve(t, p, ok, OnRefusal(func(_ http.Header, r *http.Request, status int, reason string) {
		got <- fmt.Sprint(status, reason, r.URL.Path)
	})))
	must(t, c.request(1, true, head2("GET", "/a", slices.Repeat([]string{"x", "y"}, maxFields+1)...)...))
	tested.Want(t, "the result", c.result(1), "431")
	tested.Want(t, "the refusal", <-got, "431too_many_fields/a")
}

// TestQuestionsAboutCalls: who asks about a call of gRPC over HTTP/2 would take its answer's 200 for an admission.
func TestQuestionsAboutCalls(t *testing.T) {
	p := section()
	p.H2C = true
	c := dial2(t, serve(t, p, ok, AnswerBy(func(http.Header, int) int { return 403 })))
	many := slices.Repeat([]string{"x", "y"}, maxFields)
	must(t, c.request(1, true, head2("GET", "/a", append(many, "content-type", "application/grpc")...)...))
	tested.Want(t, "the result", c.result(1), "403")
}

// head2 is a request over HTTP/2 for a path, with more fields.
func head2(method, path string, more ...string) []string {
	return append([]string{":method", method, ":scheme", "http", ":authority", "h", ":path", path}, more...)
}

func authority(name string) []string {
	return []string{":method", "GET", ":scheme", "http", ":authority", name, ":path", "/a"}
}

// TestSmugglingHTTP2 is the table for HTTP/2. The requests that reach the upstream there are HTTP/1.1.
func TestSmugglingHTTP2(t *testing.T) {
	for _, row := range []struct {
		name         string
		sent         []string
		body, result string
		want         string // at the upstream
	}{
		// These pass.
		{"plain", head2("GET", "/a?b"), "", "200", "GET /a?b HTTP/1.1~Host: h~~"},
		{"length", head2("POST", "/a", "content-length", "2"), "xy", "200", post + "Content-Length: 2~~xy"},
		{"no length", head2("POST", "/a"), "xy", "200", chunked + "2~xy~0~~"},
		{"the same Host", head2("GET", "/a", "host", "h"), "", "200", get + "~"},
		// We refuse these.
		{"two lengths", head2("POST", "/a", "content-length", "2", "content-length", "3"), "xy", "400", ""},
		{"length that is no number", head2("POST", "/a", "content-length", "x"), "", "400", ""},
		{"underscore", head2("POST", "/a", "content_length", "5"), "", "400", ""},
		{"space in the path", head2("GET", "/a b"), "", "400", ""},
		{"what browsers leave as it is", head2("GET", "/a|b"), "", "200", "GET /a%7Cb HTTP/1.1~Host: h~~"},
		{"version in the query", head2("GET", "/a? HTTP/1.0"), "", "400", ""},
		{"asterisk", head2("GET", "*"), "", "400", ""},
		{"fragment", head2("GET", "/a#b"), "", "400", ""},
		{"space in the method", head2("GET /b", "/a"), "", "400", ""},
		{"PRI", head2("PRI", "/a"), "", "400", ""},
		{"CONNECT", []string{":method", "CONNECT", ":authority", "h:80"}, "", "405", ""},
		{"another Host", head2("GET", "/a", "host", "i"), "", "400", ""},
		{"path in the authority", authority("h/b"), "", "400", ""},
		{"space in the authority", authority("h b"), "", "400", ""},
		{"too many fields", head2("GET", "/a", slices.Repeat([]string{"x", "y"}, maxFields+1)...), "", "431", ""},
		{"too many fields of a call of gRPC", head2("POST", "/a", append(slices.Repeat([]string{"x", "y"}, maxFields+1),
			"content-type", "application/grpc")...), "", "200", ""},
		// http.ReadRequest and readHead refuse these.
		{"length too small", head2("POST", "/a", "content-length", "1"), "xy", "reset", ""},
		{"length too large", head2("POST", "/a", "content-length", "3"), "xy", "502", ""},
		{"Transfer-Encoding", head2("POST", "/a", "transfer-encoding", "chunked"), "0\r\n\r\n", "400", ""},
		{"TE", head2("GET", "/a", "te", "gzip"), "", "400", ""},
		{"Connection", head2("GET", "/a", "connection", "close"), "", "400", ""},
		{"Upgrade", head2("GET", "/a", "upgrade", "h2c"), "", "400", ""},
		{"Keep-Alive", head2("GET", "/a", "keep-alive", "1"), "", "400", ""},
		{"name in capitals", head2("GET", "/a", "X-Y", "z"), "", "reset", ""},
		{"line end in a name", head2("GET", "/a", "x: y\r\nz", "z"), "", "reset", ""},
		{"line end in a value", head2("GET", "/a", "x", "y\r\nContent-Length: 5"), "", "reset", ""},
		{"colon in a name", head2("GET", "/a", "x:y", "z"), "", "reset", ""},
		{"line end in the path", head2("GET", "/a HTTP/1.1\r\nHost: i\r\n\r\n"), "", "reset", ""},
		{"path without a slash", head2("GET", "a"), "", "reset", ""},
		{"two paths", head2("GET", "/a", ":path", "/b"), "", "reset", ""},
		{"two methods", head2("GET", "/a", ":method", "POST"), "", "reset", ""},
		{"unknown pseudo field", head2("GET", "/a", ":x", "y"), "", "reset", ""},
		{"pseudo field after a field",
			[]string{":method", "GET", "x", "y", ":scheme", "http", ":path", "/a"}, "", "reset", ""},
		{"no path", []string{":method", "GET", ":scheme", "http"}, "", "reset", ""},
		{"user in the authority", authority("u@h"), "", "reset", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			u := record(t)
			p := section()
			p.H2C = true
			c := dial2(t, serve(t, p, u.proxy(t)))
			must(t, c.request(1, row.body == "", row.sent...))
			if row.body != "" {
				must(t, c.WriteData(1, true, []byte(row.body)))
			}
			if got := c.result(1); got != row.result && !(row.result == "reset" && got == "goaway") {
				t.Errorf("the result is %s, want %s", got, row.result)
			}
			if got := strings.Join(u.requests(), " and "); got != crlf(row.want) {
				t.Errorf("the upstream got\n%q\nwant\n%q", got, crlf(row.want))
			}
		})
	}
}

// TestManyFields holds the bounds of a head, over HTTP/1.
func TestManyFields(t *testing.T) {
	s := serve(t, section(), ok)
	beside := behave(t, s.addr)
	for name, fields := range map[string]string{
		"in bytes": "X: " + strings.Repeat("x", 100<<10) + "\r\n",
		"in all":   strings.Repeat("X: "+strings.Repeat("x", 1000)+"\r\n", 100),
		"count":    strings.Repeat("X: y\r\n", maxFields+1),
		"endless":  strings.Repeat("x", 10<<20),
	} {
		c := dial(t, s.addr)
		go func() { _, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n"+fields+"\r\n") }()
		text, _ := io.ReadAll(c)
		if !strings.HasPrefix(string(text), "HTTP/1.1 431 ") {
			t.Errorf("%s: the answer is %.100q", name, text)
		}
	}
	beside.more(t, 10)
}

// TestNothingIsReadBehindABrokenBody checks that what follows a body that net/http gives up is not taken for
// a request. net/http goes on with what it has, where the handler did not read that far.
func TestNothingIsReadBehindABrokenBody(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"unread": func(http.ResponseWriter, *http.Request) {},
		"read":   func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) },
		"answer first": func(w http.ResponseWriter, r *http.Request) {
			control := http.NewResponseController(w)
			_ = control.EnableFullDuplex()
			_ = control.Flush()
			_, _ = io.Copy(io.Discard, r.Body)
		},
		"answer alone": func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).EnableFullDuplex()
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		},
		"read in part": func(_ http.ResponseWriter, r *http.Request) { _, _ = r.Body.Read(make([]byte, 1)) },
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var paths []string
			s := serve(t, section(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				paths = append(paths, r.URL.Path)
				mu.Unlock()
				handler(w, r)
			}))
			evil := "GET /evil HTTP/1.1\r\nHost: h\r\n\r\n"
			chunk := fmt.Sprintf("%x;%s\r\n%s\r\n", len(evil), strings.Repeat("x", 1000), evil)
			s.said(t, crlf(chunked)+strings.Repeat(chunk, 30)+"0\r\n\r\n"+canary)
			if name == "answer alone" { // net/http leaves a long body where it is, and goes on there
				s.said(t, crlf(post+"Content-Length: 1000000~~")+strings.Repeat(evil, 100))
				s.said(t, crlf(post+"Content-Length: 1000000~Expect: 100-continue~~")+strings.Repeat(evil, 100))
			}
			mu.Lock()
			defer mu.Unlock()
			if slices.Contains(paths, "/evil") {
				t.Errorf("the handler got %q", paths)
			}
		})
	}
	// A request whose body broke is not answered with 200 because a handler, whose context has ended, says
	// nothing.
	s := serve(t, section(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	if text := s.said(t, crlf(chunked+"xyz~")); !strings.HasPrefix(text, "HTTP/1.1 400 ") {
		t.Errorf("the answer is %q", text)
	}
}

// passes returns what framing passes on of a text that comes in parts of some size, and the places where a
// request ends.
func passes(text string, size int) (passed string, ends []int) {
	f := framing{most: 1 << 20, share: &held.Share{Room: new(held.Room), Free: 1 << 40}}
	for part := range slices.Chunk([]byte(text), size) {
		n := len(part)
		_ = f.check(part, &n)
		passed += string(part[:n])
		if f.err != nil {
			break
		}
		if size == 1 && f.later && f.state == atStart {
			ends = append(ends, len(passed))
		}
	}
	return passed, ends
}

// FuzzFraming checks that it does not matter in which parts the bytes come. And net/http, which reads what
// is passed on, finds the end of each request where framing does.
func FuzzFraming(f *testing.F) {
	for _, row := range smuggling {
		f.Add(crlf(row.sent) + canary)
	}
	for _, text := range []string{
		"0\"\"", "0 * HTTP/1.0~0: ", "0 * HTTP/1.0~0:~:~ 0", "0  HTTP/0.A", strings.Repeat("\x99", 16),
		"000 000000000000 HTTP/1.0~~" + strings.Repeat("0", 50),
	} {
		f.Add(crlf(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		passed, ends := passes(text, 1)
		for _, size := range []int{2, 7, max(1, len(text))} {
			// More or less of a request line that is refused may have gone, but never its end.
			other, _ := passes(text, size)
			a, b := strings.LastIndexByte(passed, '\n'), strings.LastIndexByte(other, '\n')
			if passed[:a+1] != other[:b+1] {
				t.Fatalf("in parts of %d bytes\n%q passes, else\n%q", size, other, passed)
			}
		}
		under := strings.NewReader(passed)
		in := bufio.NewReader(under)
		for {
			r, err := http.ReadRequest(in)
			if err != nil || r.Method == "PRI" {
				return
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
			if end := len(passed) - under.Len() - in.Buffered(); !slices.Contains(ends, end) {
				t.Fatalf("net/http takes %q for a request; framing finds ends at %v, not at %d", passed[:end],
					ends, end)
			}
		}
	})
}

var happy = []byte(crlf("GET /a/b?c=d HTTP/1.1~Host: h~User-Agent: x~Accept: */*~Accept-Encoding: gzip~X-Y: z~~"))

// TestHappyPathAllocatesNothing holds for a request without a body that comes in one piece.
func TestHappyPathAllocatesNothing(t *testing.T) {
	f := framing{most: 1 << 20, share: &held.Share{Room: new(held.Room), Free: 1 << 40}}
	if n := testing.AllocsPerRun(100, func() {
		n := len(happy)
		if err := f.check(happy, &n); err != nil || n != len(happy) || f.state != atStart {
			t.Fatal(err, n, f.state)
		}
	}); n > 0 {
		t.Errorf("framing allocates %v times", n)
	}
	r := httptest.NewRequest("GET", "/a/b?c=d", nil)
	for _, field := range []string{"User-Agent", "Accept", "Accept-Encoding"} {
		r.Header.Set(field, "x")
	}
	r.Header.Set("Connection", "keep-alive")
	if n := testing.AllocsPerRun(100, func() {
		if status, _, text := refusal(r, false); status != 0 {
			t.Fatal(text)
		}
	}); n > 0 {
		t.Errorf("refusal allocates %v times", n)
	}
}
