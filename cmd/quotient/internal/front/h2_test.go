package front

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	resets        = 5_000
	continuations = 20_000
	pings         = 50_000
)

// raw2 is a client of HTTP/2 that sends what it likes.
type raw2 struct {
	*http2.Framer
	conn net.Conn
	text bytes.Buffer
	pack *hpack.Encoder
}

func dial2(t *testing.T, s *running) *raw2 {
	t.Helper()
	c := &raw2{conn: dial(t, s.addr)}
	send(t, c.conn, http2.ClientPreface)
	c.Framer = http2.NewFramer(c.conn, c.conn)
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.pack = hpack.NewEncoder(&c.text)
	if err := c.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return c
}

// headers makes a header block of pairs of names and values.
func (c *raw2) headers(pairs ...string) []byte {
	c.text.Reset()
	for pair := range slices.Chunk(pairs, 2) {
		_ = c.pack.WriteField(hpack.HeaderField{Name: pair[0], Value: pair[1]})
	}
	return bytes.Clone(c.text.Bytes())
}

func (c *raw2) request(stream uint32, end bool, pairs ...string) error {
	return c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: c.headers(pairs...),
		EndStream: end, EndHeaders: true})
}

// result waits for what becomes of a stream: a status, "reset", "goaway" or "closed".
func (c *raw2) result(stream uint32) string {
	for {
		f, err := c.ReadFrame()
		if err != nil {
			return "closed"
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			if f.StreamID == stream {
				return f.PseudoValue("status")
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == stream {
				return "reset"
			}
		case *http2.GoAwayFrame:
			if f.ErrCode != http2.ErrCodeNo {
				return "goaway"
			}
		}
	}
}

// head is a request for a path with more fields.
func head2(method, path string, more ...string) []string {
	return append([]string{":method", method, ":scheme", "http", ":authority", "h", ":path", path}, more...)
}

// TestSmugglingHTTP2 is the table for HTTP/2. The requests that reach the upstream there are HTTP/1.1.
func TestSmugglingHTTP2(t *testing.T) {
	for _, row := range []struct {
		name   string
		sent   []string
		body   string
		want   string // at the upstream
		result string
		by     string
	}{
		{name: "plain", sent: head2("GET", "/a?b"), want: "GET /a?b HTTP/1.1\r\nHost: h\r\n\r\n",
			result: "200"},
		{name: "length", sent: head2("POST", "/a", "content-length", "2"), body: "xy", result: "200",
			want: "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nxy"},
		{name: "no length", sent: head2("POST", "/a"), body: "xy", result: "200",
			want: "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nxy\r\n0\r\n\r\n"},
		{name: "length too small", sent: head2("POST", "/a", "content-length", "1"), body: "xy",
			result: "reset", by: "net/http"},
		{name: "length too large", sent: head2("POST", "/a", "content-length", "3"), body: "xy",
			result: "502", by: "net/http"},
		{name: "two lengths", sent: head2("POST", "/a", "content-length", "2", "content-length", "3"),
			body: "xy", result: "400"},
		{name: "length that is no number", sent: head2("POST", "/a", "content-length", "x"), result: "400"},
		{name: "Transfer-Encoding", sent: head2("POST", "/a", "transfer-encoding", "chunked"),
			body: "0\r\n\r\n", result: "400", by: "net/http"},
		{name: "TE", sent: head2("GET", "/a", "te", "gzip"), result: "400", by: "net/http"},
		{name: "Connection", sent: head2("GET", "/a", "connection", "close"), result: "400", by: "net/http"},
		{name: "Upgrade", sent: head2("GET", "/a", "upgrade", "h2c"), result: "400", by: "net/http"},
		{name: "Keep-Alive", sent: head2("GET", "/a", "keep-alive", "1"), result: "400", by: "net/http"},
		{name: "name in capitals", sent: head2("GET", "/a", "X-Y", "z"), result: "reset", by: "net/http"},
		{name: "line end in a name", sent: head2("GET", "/a", "x: y\r\nz", "z"), result: "reset",
			by: "net/http"},
		{name: "line end in a value", sent: head2("GET", "/a", "x", "y\r\nContent-Length: 5"),
			result: "reset", by: "net/http"},
		{name: "colon in a name", sent: head2("GET", "/a", "x:y", "z"), result: "reset", by: "net/http"},
		{name: "underscore", sent: head2("POST", "/a", "content_length", "5"), result: "400"},
		{name: "space in the path", sent: head2("GET", "/a b"), result: "400"},
		{name: "version in the query", sent: head2("GET", "/a? HTTP/1.0"), result: "400"},
		{name: "line end in the path", sent: head2("GET", "/a HTTP/1.1\r\nHost: i\r\n\r\n"), result: "reset",
			by: "net/http"},
		{name: "path without a slash", sent: head2("GET", "a"), result: "reset", by: "net/http"},
		{name: "asterisk", sent: head2("GET", "*"), result: "400"},
		{name: "fragment", sent: head2("GET", "/a#b"), result: "400"},
		{name: "space in the method", sent: head2("GET /b", "/a"), result: "400"},
		{name: "PRI", sent: head2("PRI", "/a"), result: "400"},
		{name: "CONNECT", sent: []string{":method", "CONNECT", ":authority", "h:80"}, result: "405"},
		{name: "another Host", sent: head2("GET", "/a", "host", "i"), result: "400"},
		{name: "the same Host", sent: head2("GET", "/a", "host", "h"),
			want: "GET /a HTTP/1.1\r\nHost: h\r\n\r\n", result: "200"},
		{name: "two paths", sent: head2("GET", "/a", ":path", "/b"), result: "reset", by: "net/http"},
		{name: "two methods", sent: head2("GET", "/a", ":method", "POST"), result: "reset", by: "net/http"},
		{name: "unknown pseudo field", sent: head2("GET", "/a", ":x", "y"), result: "reset", by: "net/http"},
		{name: "pseudo field after a field",
			sent: []string{":method", "GET", "x", "y", ":scheme", "http", ":path", "/a"}, result: "reset",
			by: "net/http"},
		{name: "no path", sent: []string{":method", "GET", ":scheme", "http"}, result: "reset",
			by: "net/http"},
		{name: "user in the authority",
			sent:   []string{":method", "GET", ":scheme", "http", ":authority", "u@h", ":path", "/a"},
			result: "reset", by: "net/http"},
		{name: "path in the authority",
			sent:   []string{":method", "GET", ":scheme", "http", ":authority", "h/b", ":path", "/a"},
			result: "400"},
		{name: "space in the authority",
			sent:   []string{":method", "GET", ":scheme", "http", ":authority", "h b", ":path", "/a"},
			result: "400"},
		{name: "too many fields", sent: head2("GET", "/a", slices.Repeat([]string{"x", "y"}, maxFields+1)...),
			result: "431"},
	} {
		t.Run(row.name, func(t *testing.T) {
			u := record(t)
			p := section()
			p.H2C = true
			c := dial2(t, serve(t, p, u.proxy(t)))
			if err := c.request(1, row.body == "", row.sent...); err != nil {
				t.Fatal(err)
			}
			if row.body != "" {
				if err := c.WriteData(1, true, []byte(row.body)); err != nil {
					t.Fatal(err)
				}
			}
			if got := c.result(1); got != row.result && !(row.result == "reset" && got == "goaway") {
				t.Errorf("the result is %s, want %s", got, row.result)
			}
			var want []string
			if row.want != "" {
				want = []string{row.want}
			}
			if got := u.requests(); !slices.Equal(got, want) {
				t.Errorf("the upstream got\n%q\nwant\n%q", got, want)
			}
		})
	}
}

// TestPrefaceOfHTTP2 checks that HTTP/2 is used where the section enables it, and by TLS only when it was
// agreed on.
func TestPrefaceOfHTTP2(t *testing.T) {
	s := serve(t, section(), ok)
	c := dial(t, s.addr)
	send(t, c, http2.ClientPreface)
	if text, _ := io.ReadAll(c); !strings.HasPrefix(string(text), "HTTP/1.1 400 ") {
		t.Errorf("the answer is %q", text)
	}
}

// TestRapidReset checks that a client that resets each of its requests at once does not keep others out.
func TestRapidReset(t *testing.T) {
	var now, most atomic.Int64
	p := section()
	p.H2C = true
	s := serve(t, p, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/good" {
			fmt.Fprint(w, "ok")
			return
		}
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-r.Context().Done()
	}))
	beside := behave(t, s.addr)
	for range 3 {
		c := dial2(t, s)
		go func() { _, _ = io.Copy(io.Discard, c.conn) }()
		for i := range uint32(resets) {
			if c.request(2*i+1, true, head2("GET", "/bad")...) != nil ||
				c.WriteRSTStream(2*i+1, http2.ErrCodeCancel) != nil {
				break // the server has had enough
			}
		}
		beside.more(t, 5)
	}
	if n := most.Load(); n > 3*int64(p.Max.Streams) {
		t.Errorf("%d requests were at work at the same time", n)
	}
}

// TestFloodsOfHTTP2 checks that others are served beside a connection that sends nothing but frames that
// cost the server something, and that it ends where it would cost memory.
func TestFloodsOfHTTP2(t *testing.T) {
	for name, flood := range map[string]func(c *raw2) error{
		"CONTINUATION": func(c *raw2) error {
			field := c.headers("x", strings.Repeat("y", 1000))
			if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1,
				BlockFragment: c.headers(head2("GET", "/")...)}); err != nil {
				return err
			}
			for range continuations {
				if err := c.WriteContinuation(1, false, field); err != nil {
					return err
				}
			}
			return nil
		},
		"PING whose answers are not read": func(c *raw2) error {
			for range pings {
				if err := c.WritePing(false, [8]byte{}); err != nil {
					return err
				}
			}
			return nil
		},
		"SETTINGS": func(c *raw2) error {
			for range pings {
				if err := c.WriteSettings(); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := section()
			p.H2C = true
			p.Timeouts.Write = time.Second
			s := serve(t, p, ok)
			beside := behave(t, s.addr)
			c := dial2(t, s)
			over := make(chan error, 1)
			go func() { over <- flood(c) }()
			for range 10 {
				beside.more(t, 1)
			}
			if err := <-over; err == nil && name == "CONTINUATION" {
				t.Error("the server takes all of it")
			}
			beside.more(t, 1)
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
