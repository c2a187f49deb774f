package front

import (
	"errors"
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

	"github.com/quotient-go/quotient/internal/held"
	"github.com/quotient-go/quotient/internal/tested"
)

// narrow is a server with room for a few large heads, whose handler waits for the end of a request or for release.
func narrow(t *testing.T, kind string) (s *running, release chan struct{}) {
	release = make(chan struct{})
	p := &sectionOf{section(), kind}
	p.Max.HeldBytes = 1 << 20
	return p.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/read":
			if _, err := io.Copy(io.Discard, r.Body); errors.Is(err, held.ErrNoRoom) {
				w.Header().Set("X-Error", err.Error())
			}
			return
		case "/wait":
			select {
			case <-r.Context().Done():
			case <-release:
			}
		}
		fmt.Fprint(w, "ok")
	})), release
}

func (s *running) holds(t *testing.T, what string, ok func(State) bool) {
	t.Helper()
	waitFor(t, what, func() bool {
		st := s.State()
		if st.Held > 1<<20 {
			t.Fatalf("%d bytes are held", st.Held)
		}
		return ok(st)
	})
}

func nothing(s State) bool { return s.Held == 0 }

// TestRoomForHeads checks that what is refused for want of room is answered, that small requests are served meanwhile,
// and that all is given back: at the end of a request, and of a connection.
func TestRoomForHeads(t *testing.T) {
	const big = 50_000
	const wait = "GET /wait HTTP/1.1\r\nHost: h\r\n"
	for name, text := range map[string]string{
		"an unfinished field":        wait + "X: " + strings.Repeat("x", big),
		"an unfinished request line": "GET /" + strings.Repeat("x", big),
		"unfinished fields":          wait + strings.Repeat("x: y\r\n", maxFields-1),
		"a head that waits":          wait + "X: " + strings.Repeat("x", big) + "\r\n\r\n",
		"fields behind a request":    crlf(get+"~") + wait + strings.Repeat("x:\r\n", maxFields-1),
		"fields that wait":           wait + strings.Repeat("x: y\r\n", maxFields-1) + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			s, release := narrow(t, "HTTP/1.1")
			beside := behave(t, s.addr)
			var conns []*net.TCPConn
			for range 40 {
				c := dial(t, s.addr)
				_, _ = io.WriteString(c, text)
				conns = append(conns, c)
			}
			s.holds(t, "some are refused", func(st State) bool { return st.Shed > 10 && st.Held > 1<<19 })
			beside.more(t, 10)
			if n := s.State().Shed; n > 40 {
				t.Errorf("%d were refused", n)
			}
			waitFor(t, "one more is told why", func() bool {
				c := dial(t, s.addr)
				_, _ = io.WriteString(c, text)
				_ = c.SetReadDeadline(time.Now().Add(time.Second / 5))
				said, _ := io.ReadAll(c)
				conns = append(conns, c)
				return strings.Contains(string(said), "HTTP/1.1 503 ") &&
					strings.Contains(string(said), "Retry-After: 1\r\n")
			})
			if strings.HasSuffix(text, "\r\n\r\n") {
				close(release)
				s.holds(t, "all is given back with the answers", nothing)
			}
			for _, c := range conns {
				c.Close()
			}
			s.holds(t, "all is given back", nothing)
		})
	}
}

func TestRoomForHTTP2(t *testing.T) {
	big := []string{"x", strings.Repeat("0", 24_000)}
	for name, fields := range map[string][]string{"heads": big, "small heads": nil} {
		t.Run(name, func(t *testing.T) {
			s, release := narrow(t, "h2c")
			beside := behave(t, s.addr)
			c := dial2(t, s)
			const last = 2*60 + 1
			for i := uint32(1); i <= last; i += 2 {
				must(t, c.request(i, true, head2("GET", "/wait", fields...)...))
			}
			if got := c.result(last); got != "503" {
				t.Errorf("the last stream ended with %s, want 503", got)
			}
			s.holds(t, "there is no room", func(st State) bool { return st.Shed > 10 && st.Held > 1<<18 })
			if n := s.State().Held; n > 1<<19 {
				t.Errorf("one connection holds %d bytes, and leaves others less than half", n)
			}
			another := dial2(t, s)
			must(t, another.request(1, true, head2("GET", "/", big...)...))
			if got := another.result(1); got != "200" {
				t.Errorf("a large head of another connection ended with %s", got)
			}
			beside.more(t, 10)
			tested.Not(t, s.Refusals()["no_room"] == 0, "there are refusals for other reasons alone: %v", s.Refusals())
			close(release)
			s.holds(t, "all is given back with the answers", nothing)
		})
	}
}

// TestRoomForHTTP2ThatIsReset counts requests that net/http lets wait until the handlers of others, which were reset,
// have returned. It says nothing of those that it drops.
func TestRoomForHTTP2ThatIsReset(t *testing.T) {
	p, release := section(), make(chan struct{})
	p.H2C, p.Max.Streams = true, 4
	var atWork atomic.Int64
	s := serve(t, p, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { atWork.Add(1); <-release }))
	c := dial2(t, s)
	all := uint32(2*p.Max.Streams*3 + 1)
	for i := uint32(1); i < all; i += 2 {
		must(t, c.request(i, true, head2("GET", "/")...))
		must(t, c.WriteRSTStream(i, http2.ErrCodeCancel))
		if i == uint32(2*p.Max.Streams-1) {
			waitFor(t, "they are at work", func() bool { return atWork.Load() == int64(p.Max.Streams) })
		}
	}
	want := 2 * int64(p.Max.Streams) * byteCost * int64(p.Max.HeaderBytes)
	waitFor(t, "those that wait are counted", func() bool { return s.State().Held >= want })
	close(release)
	must(t, c.request(all, true, head2("GET", "/")...))
	if got := c.result(all); got != "200" {
		t.Errorf("the last stream ended with %s", got)
	}
	waitFor(t, "all is given back", func() bool { return s.State().Held == 0 })
}

// TestRoomForHTTP2ThatIsRefused: net/http keeps nothing of what it refuses, so it takes no more than what may wait.
func TestRoomForHTTP2ThatIsRefused(t *testing.T) {
	p, release := section(), make(chan struct{})
	p.H2C, p.Max.Streams = true, 4
	s := serve(t, p, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	c := dial2(t, s)
	const last = 2*100 + 1
	for i := uint32(1); i <= last; i += 2 {
		must(t, c.request(i, true, head2("GET", "/")...))
	}
	c.result(last)
	if n, most := s.State().Held, 18*byteCost*int64(p.Max.HeaderBytes); n > most {
		t.Errorf("%d bytes are held for what was refused, want at most %d", n, most)
	}
	close(release)
	waitFor(t, "all is given back", func() bool { return s.State().Held == 0 })
}

// TestRoomForUploads checks that all bodies of a connection take the room of one buffer, where it is not known how
// long they are, and what they are long where it is.
func TestRoomForUploads(t *testing.T) {
	s, release := narrow(t, "h2c")
	c := dial2(t, s)
	post := head2("POST", "/wait")
	for i := uint32(1); i < 10; i += 2 {
		must(t, c.request(i, false, post...))
	}
	want := int64(streamBuffer + 4*streamCost - step)
	s.holds(t, "one buffer is counted", func(st State) bool { return st.Held >= want && st.Held < want+20_000 })
	d := dial2(t, s)
	must(t, d.request(1, false, append(post, "content-length", "65536", "trailer", "x")...))
	want += uploadBuffer - step + byteCost*int64(s.proxy.Max.HeaderBytes)
	s.holds(t, "a length, and an announced trailer", func(st State) bool { return st.Held >= want && st.Held < want+2e4 })
	close(release)
	s.holds(t, "all is given back", nothing)
}

// TestRoomWithoutAnEnd counts what net/http and crypto/tls put together: heads frame by frame, and messages of TLS.
func TestRoomWithoutAnEnd(t *testing.T) {
	for kind, begin := range map[string]func(*raw2){
		"h2c": func(c *raw2) {
			c.hello()
			_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.headers(head2("GET", "/")...)})
		},
		"h2": func(c *raw2) {
			message := append([]byte{1, 0, 0xff, 0}, make([]byte, 60_000)...)
			for part := range slices.Chunk(message, 16_000) {
				_, _ = c.conn.Write(append([]byte{22, 3, 1, byte(len(part) >> 8), byte(len(part))}, part...))
			}
		},
	} {
		t.Run(kind, func(t *testing.T) {
			s, _ := narrow(t, kind)
			var all []*raw2
			for range 30 {
				all = append(all, newRaw2(t, s))
				begin(all[len(all)-1])
				if len(all) == 1 {
					s.holds(t, "the first is counted", func(st State) bool { return st.Held > 100_000 })
				}
			}
			s.holds(t, "there is no room", func(st State) bool { return st.Shed > 10 && st.Held > 1<<19 })
			if kind == "h2c" {
				behave(t, s.addr).more(t, 10)
				must(t, all[0].WriteContinuation(1, true, nil))
				if got := all[0].result(1); got != "200" {
					t.Errorf("the first ended with %s", got)
				}
			}
			for _, c := range all {
				c.conn.Close()
			}
			s.holds(t, "all is given back", nothing)
		})
	}
}

// TestOneRecordIsRead checks that TLS has no more than a record at a time, where there is no room for more.
func TestOneRecordIsRead(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() { _, _ = theirs.Write(make([]byte, 9*recordBytes)) }()
	r := &records{Conn: ours, share: &held.Share{Room: new(held.Room)}}
	for i, want := range []int{recordBytes, recordBytes, 0} {
		n, err := r.Read(make([]byte, 2*recordBytes))
		if n != want || (err == errNoRoom) != (n == 0) {
			t.Errorf("%d: %d bytes, %v, want %d", i, n, err, want)
		}
		if i == 0 {
			r.rest() // it had data
		}
	}
}

// TestLongLinesAreNotKept checks that a line takes no more memory as it grows, and is read as if it did.
func TestLongLinesAreNotKept(t *testing.T) {
	long := strings.Repeat("x", 50_000)
	blank := strings.Repeat(" ", 50_000)
	for text, want := range map[string]error{
		"GET /" + long + " HTTP/1.1~":                 nil,
		"GET /" + long + " " + long + " HTTP/1.1~":    errVersion,
		"GET /" + long + " HTTP/1.1" + blank + "~":    errVersion,
		long + " / HTTP/1.1~":                         errRequest,
		"GET http://" + long + "/ HTTP/1.1~":          errLong,
		"GET " + long + "http://h/ HTTP/1.1~":         errLong,
		"GET http://h/" + long + " HTTP/1.1~":         nil,
		"GET /" + long + "\r" + long + " HTTP/1.1~":   errLineEnd,
		get + "X: " + long + "~":                      nil,
		get + "X: " + long + "\n":                     errLineEnd,
		get + long + ": x~":                           errLong,
		get + long + "~":                              errLong,
		get + " " + long + ": x~":                     errFolded,
		post + "Content-Length: " + blank + "5~":      errLong,
		post + "Content-Length: 5" + blank + "5~":     errLong,
		post + "Transfer-Encoding: " + blank + "~":    errLong,
		get + "Host: h" + blank + "~":                 errLong,
		chunked + "5;" + long + "~":                   errChunk,
		chunked + "0~X: " + long + "~":                nil,
		chunked + "0~Host" + blank + ": x~":           errLong,
		chunked + "0~Host: " + long + "~":             errTrailer,
		get + strings.Repeat("x: y~", 255):            nil,
		get + strings.Repeat("x: y~", 256):            errMany,
		chunked + "0~" + strings.Repeat("x: y~", 255): errMany,
	} {
		text = crlf(text)
		for _, size := range []int{1, 4096, len(text)} {
			f := framing{most: 1 << 20, share: &held.Share{Room: new(held.Room), Free: 1 << 40}}
			for at := 0; at < len(text) && f.err == nil; at += size {
				part := []byte(text[at:min(at+size, len(text))])
				n := len(part)
				_ = f.check(part, &n)
				if cap(f.line) > 2*maxKept {
					t.Fatalf("%.40q: %d bytes are kept", text, cap(f.line))
				}
			}
			if f.err != want {
				t.Errorf("%.40q in parts of %d: %v, want %v", text, size, f.err, want)
			}
		}
	}
}

// TestRoomIsChangedByAReload checks that it is among what needs no restart, and that what finds none is told so, in a
// trailer as in a head.
func TestRoomIsChangedByAReload(t *testing.T) {
	s, _ := narrow(t, "HTTP/1.1")
	big := "GET /" + strings.Repeat("x", 50_000)
	send(t, dial(t, s.addr), big)
	s.holds(t, "it is held", func(st State) bool { return st.Held > 100_000 })
	p := s.proxy
	p.Max.HeldBytes = 150_000
	s.put(&p)
	trailer := crlf(strings.Replace(chunked, "/a", "/read", 1)+"1~x~0~") + strings.Repeat("x: y\r\n", maxFields-1)
	for text, more := range map[string]string{big: "", trailer: "X-Error: " + errNoRoom.Error()} {
		said := s.said(t, text)
		if !strings.HasPrefix(said, "HTTP/1.1 503 ") || !strings.Contains(said, "Retry-After: 1\r\n") ||
			!strings.Contains(said, more) {
			t.Errorf("the answer is %q", said)
		}
	}
}
