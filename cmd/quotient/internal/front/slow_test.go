package front

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/listen"
	"github.com/quotient-go/quotient/internal/tested"
)

// Sizes of the attacks, and how long a good client beside them may wait at most.
const (
	drippers  = 200
	goodBound = 5 * time.Second

	resets        = 5_000
	continuations = 20_000
	pings         = 50_000
)

// good is a client that behaves, with a connection for each request, while an attack goes on.
type good struct {
	stop  context.CancelFunc
	ended chan struct{}
	asked atomic.Int64
}

func behave(t *testing.T, addr string) *good {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	g := &good{stop: stop, ended: make(chan struct{})}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: goodBound}
	go func() {
		defer close(g.ended)
		for ctx.Err() == nil {
			r, err := client.Get("http://" + addr + "/good")
			if err != nil {
				t.Errorf("a good client: %v", err)
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			r.Body.Close()
			if r.StatusCode != http.StatusOK {
				t.Errorf("a good client got %s", r.Status)
			}
			g.asked.Add(1)
		}
	}()
	t.Cleanup(g.over)
	return g
}

// more waits until so many requests more have been answered.
func (g *good) more(t *testing.T, n int64) {
	t.Helper()
	from := g.asked.Load()
	waitFor(t, "a good client is served", func() bool { return t.Failed() || g.asked.Load() >= from+n })
}

func (g *good) over() { g.stop(); <-g.ended }

func TestSlowHeads(t *testing.T) {
	p := section()
	p.Timeouts.ReadHeader = 2 * time.Second
	p.Max.Connections = drippers / 2
	s := serve(t, p, ok)
	beside := behave(t, s.addr)
	conns := make([]net.Conn, drippers)
	for i := range conns {
		conns[i] = dial(t, s.addr)
		_, _ = io.WriteString(conns[i], crlf(get))
		if n := s.State().Connections; n > p.Max.Connections {
			t.Fatalf("%d connections are open", n)
		}
		if i%(drippers/10) == 0 { // less than there is room for come while a good one sends its head
			beside.more(t, 1)
		}
	}
	open := len(conns)
	for end := time.Now().Add(tested.Patience); open > 0; { // a byte now and then must not keep a connection
		if time.Now().After(end) {
			t.Fatalf("%d slow connections are open", open)
		}
		open = 0
		for _, c := range conns {
			if _, err := io.WriteString(c, "x"); err == nil {
				open++
			}
		}
		beside.more(t, 3)
	}
	if st := s.State(); st.Evicted == 0 {
		t.Errorf("State() = %+v: no slow connection made room", st)
	}
}

// TestSlowBody checks that a body may take longer than the time between two of its parts, and that one whose next part
// does not come ends in ErrSlowBody. The client learns it even if the handler, whose context has ended, thinks that it
// has gone.
func TestSlowBody(t *testing.T) {
	const between = time.Second
	each(t, func(p *config.Proxy) { p.Timeouts.ReadBody = between }, func(t *testing.T, p *sectionOf) {
		t.Parallel()
		var n int64
		got := make(chan error, 1)
		s := p.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).EnableFullDuplex()
			w.WriteHeader(http.StatusEarlyHints)
			var err error
			n, err = io.Copy(io.Discard, r.Body)
			got <- err
		}))
		body, feed := io.Pipe()
		defer feed.Close()
		status := make(chan string, 1)
		go func() {
			got, _ := fetch(p.client(t), "POST", p.url(s)+"/", body)
			status <- got
		}()
		sent := int64(0)
		for start := time.Now(); time.Since(start) < 3*between/2; <-time.After(between / 20) {
			send(t, feed, "x")
			sent++
		}
		if err := <-got; n != sent || !errors.Is(err, ErrSlowBody) || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the body ended after %d of %d bytes with %v", n, sent, err)
		}
		if text := <-status; text != "408 Request Timeout" {
			t.Errorf("the answer is %s", text)
		}
	})
}

// TestWaitIsNotCut checks that no time-out ends a request that waits for its turn, or an answer that is
// silent.
func TestWaitIsNotCut(t *testing.T) {
	const short = 100 * time.Millisecond
	all := func(p *config.Proxy) {
		p.Timeouts.ReadBody, p.Timeouts.Write, p.Timeouts.Idle = short, short, short
		p.Timeouts.ReadHeader = time.Second
	}
	each(t, all, func(t *testing.T, p *sectionOf) {
		t.Parallel()
		s := p.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			wait := func() {
				select {
				case <-time.After(3 * short):
				case <-r.Context().Done():
					t.Errorf("%s %s was cut while it waited", r.Method, r.URL)
				}
			}
			if r.URL.Path == "/read" {
				_, _ = io.Copy(io.Discard, r.Body)
			}
			wait()
			for range 3 {
				fmt.Fprint(w, "part\n")
				_ = http.NewResponseController(w).Flush()
				wait()
			}
		}))
		for _, way := range []struct{ method, path, body string }{
			{"GET", "/", ""},
			{"POST", "/read", "x"},
			{"POST", "/unread", "x"},
		} {
			_, text := fetch(p.client(t), way.method, p.url(s)+way.path, strings.NewReader(way.body))
			if text != "part\npart\npart\n" {
				t.Errorf("%s %s: %q", way.method, way.path, text)
			}
		}
	})
}

// TestAnswerThatIsNotRead checks that a client that takes nothing of its answer is given up.
func TestAnswerThatIsNotRead(t *testing.T) {
	short := func(p *config.Proxy) { p.Timeouts.Write = 300 * time.Millisecond }
	each(t, short, func(t *testing.T, p *sectionOf) {
		ended := make(chan error, 1)
		s := p.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/good" {
				fmt.Fprint(w, "ok")
				return
			}
			part := make([]byte, 1<<20)
			for {
				if _, err := w.Write(part); err != nil {
					ended <- err
					return
				}
			}
		}))
		client := p.client(t)
		answer, err := client.Get(p.url(s) + "/endless")
		must(t, err)
		defer answer.Body.Close()
		for over := false; !over; { // on the same connection, if it is HTTP/2
			beside, err := client.Get(p.url(s) + "/good")
			if err != nil {
				t.Fatalf("a request beside: %v", err)
			}
			beside.Body.Close()
			select {
			case <-ended:
				over = true
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
}

// TestEarlyAnswer checks that a client that is slow to send a body gets an answer that does not need it at
// once.
func TestEarlyAnswer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	go func() { // an upstream that answers when it has read the head
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
			_, _ = io.Copy(io.Discard, c)
		}
	}()
	p := section()
	p.Timeouts.ReadBody = time.Hour
	s := serve(t, p, (&recorder{Listener: l}).proxy(t))
	c := dial(t, s.addr)
	_ = c.SetDeadline(time.Now().Add(lastRead - time.Second))
	send(t, c, crlf(post+"Content-Length: 1000000~~")+strings.Repeat("x", 8000))
	if r, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || r.StatusCode != 413 {
		t.Errorf("the answer is %v, %v", r, err)
	}
}

// raw2 is a client of HTTP/2 that sends what it likes.
type raw2 struct {
	*http2.Framer
	conn net.Conn
	text bytes.Buffer
	pack *hpack.Encoder
}

func dial2(t *testing.T, s *running) *raw2 {
	t.Helper()
	c := newRaw2(t, s)
	c.hello()
	return c
}

func newRaw2(t *testing.T, s *running) *raw2 {
	t.Helper()
	c := &raw2{conn: dial(t, s.addr)}
	c.Framer = http2.NewFramer(c.conn, c.conn)
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.pack = hpack.NewEncoder(&c.text)
	return c
}

func (c *raw2) hello() {
	_, _ = io.WriteString(c.conn, http2.ClientPreface)
	_ = c.WriteSettings()
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
	times := func(n int, send func() error) (err error) {
		for range n {
			if err = send(); err != nil {
				break
			}
		}
		return err
	}
	for name, flood := range map[string]func(c *raw2) error{
		"CONTINUATION": func(c *raw2) error {
			field := c.headers("x", strings.Repeat("y", 1000))
			if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1,
				BlockFragment: c.headers(head2("GET", "/")...)}); err != nil {
				return err
			}
			return times(continuations, func() error { return c.WriteContinuation(1, false, field) })
		},
		"PING whose answers are not read": func(c *raw2) error {
			return times(pings, func() error { return c.WritePing(false, [8]byte{}) })
		},
		"SETTINGS": func(c *raw2) error {
			return times(pings, func() error { return c.WriteSettings() })
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
			beside.more(t, 10)
			if err := <-over; err == nil && name == "CONTINUATION" {
				t.Error("the server takes all of it")
			}
			beside.more(t, 1)
		})
	}
}

// counted counts how often deadlines are set.
type counted struct {
	net.Conn
	reads, writes int
}

func (c *counted) SetReadDeadline(t time.Time) error {
	c.reads++
	return c.Conn.SetReadDeadline(t)
}

func (c *counted) SetWriteDeadline(t time.Time) error {
	c.writes++
	return c.Conn.SetWriteDeadline(t)
}

// piped is a connection whose parts have a second each, beyond its head, and its client.
func piped(t *testing.T) (*conn, *counted, net.Conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	s := &Server{}
	s.now.Store(&settings{readBody: time.Second, write: time.Second})
	raw := &counted{Conn: ours}
	c := newConn(s, raw)
	c.framing.off = true
	return c, raw, theirs
}

// ended wants a call to end at a deadline, so long after began.
func ended(t *testing.T, what string, err error, began time.Time, after time.Duration) {
	t.Helper()
	if took := time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || took != after {
		t.Errorf("%s: it ended after %v with %v, want %v and a deadline", what, took, err, after)
	}
}

func TestReadsEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, client := piped(t)
		one := make([]byte, 8)
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		go func() { _, _ = client.Write([]byte("x")) }()
		if n, err := c.Read(one); n != 1 || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
		began := time.Now()
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second)) // one second is armed
		_, err := c.Read(one)
		ended(t, "later than armed", err, began, 5*time.Second)

		began = time.Now()
		_ = c.SetReadDeadline(time.Now().Add(time.Second)) // what is armed has passed
		_, err = c.Read(one)
		ended(t, "after the end of another", err, began, time.Second)

		_ = c.SetReadDeadline(time.Time{})
		began = time.Now()
		time.AfterFunc(time.Minute, func() { _ = c.SetReadDeadline(longAgo()) })
		_, err = c.Read(one)
		ended(t, "broken off", err, began, time.Minute)

		_ = c.SetReadDeadline(time.Time{})
		began = time.Now()
		time.AfterFunc(time.Minute, func() { _, _ = client.Write([]byte("x")) })
		if n, err := c.Read(one); n != 1 || err != nil || time.Since(began) != time.Minute {
			t.Errorf("without a deadline: %d bytes, %v after %v", n, err, time.Since(began))
		}
	})
}

// only is a listener with one connection.
type only struct{ net.Conn }

func (l only) Accept() (net.Conn, error) { return l.Conn, nil }
func (l only) Addr() net.Addr            { return nil }

// TestSilenceEndsAnUpgradedConnection checks that only that does, by the time that is in force then.
func TestSilenceEndsAnUpgradedConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, client := piped(t)
		c.server.places = listen.New(1)
		_, err := c.server.places.Listener(only{c}).Accept()
		must(t, err)
		silence := func(d time.Duration) { c.server.now.Store(&settings{write: time.Second, stream: d}) }
		silence(time.Hour)
		c.upgrade()
		one := make([]byte, 1)
		for range 3 {
			for _, ends := range [][2]net.Conn{{client, c}, {c, client}} {
				time.Sleep(50 * time.Minute)
				go func() { _, _ = ends[0].Write(one) }()
				if n, err := ends[1].Read(one); n != 1 || err != nil {
					t.Fatalf("%d bytes, %v", n, err)
				}
			}
		}
		began := time.Now()
		silence(2 * time.Hour) // from the next look on, which is after an hour at most
		_, err = client.Read(one)
		if took := time.Since(began); err == nil || took != 2*time.Hour {
			t.Errorf("it ended after %v with %v, want 2 h and its end", took, err)
		}
		_ = c.Close()
	})
}

func TestWritesEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, client := piped(t)
		part := []byte("part")
		take := func(after time.Duration) {
			time.AfterFunc(after, func() { _, _ = io.ReadFull(client, make([]byte, len(part))) })
		}
		for _, row := range []struct {
			name          string
			silent, taken time.Duration
		}{
			{"at once", 0, 0},
			{"while one is armed that comes too early", 600 * time.Millisecond, 900 * time.Millisecond},
			{"after a silence", time.Hour, 900 * time.Millisecond},
		} {
			time.Sleep(row.silent)
			take(row.taken)
			if n, err := c.Write(part); n != len(part) || err != nil {
				t.Errorf("%s: %d bytes, %v", row.name, n, err)
			}
		}
		began := time.Now()
		_, err := c.Write(part)
		ended(t, "not taken", err, began, time.Second)
		began = time.Now()
		_ = c.SetWriteDeadline(time.Now().Add(time.Second / 2))
		_, err = c.Write(part)
		ended(t, "a handler's deadline", err, began, time.Second/2)
	})
}

// TestFewDeadlinesAreSet serves many requests on one connection.
func TestFewDeadlinesAreSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, client := answering(t, ok)
		raw := c.raw.(*counted)
		in := bufio.NewReader(client)
		const requests = 100
		for range requests {
			send(t, client, crlf(get+"~"))
			r, err := http.ReadResponse(in, nil)
			must(t, err)
			_, err = io.Copy(io.Discard, r.Body)
			must(t, err)
		}
		if raw.reads > 1 || raw.writes > 1 {
			t.Errorf("%d deadlines of reads and %d of writes were set for %d requests", raw.reads, raw.writes, requests)
		}
		client.Close()
		synctest.Wait()
	})
}
