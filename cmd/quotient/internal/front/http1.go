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
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/quotient-go/quotient/internal/held"
)

const (
	// unwatched is how long a request may be at work before its client is watched for its end. Most are over by then,
	// and are not slowed down by a second reader of their connection.
	unwatched = 5 * time.Millisecond
	// lastRead and lastBytes bound what is read of a body that its handler has not read, to keep the connection.
	lastRead  = 5 * time.Second
	lastBytes = 256 << 10
	// lastWord is how long a client may go on to send before it loses what was said to it last.
	lastWord = time.Second / 2
)

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 4<<10) }}

// serve serves the requests of a connection, one after the other. One of HTTP/2 is net/http's from its preface on.
func (c *conn) serve(work context.Context, http2 *http.Server) {
	ctx, end := context.WithCancel(work)
	ctx = context.WithValue(held.With(ctx, &c.share), http.LocalAddrContextKey, c.LocalAddr())
	c.ctx, c.end = context.WithValue(ctx, connKey{}, c), end
	c.buffer()
	c.remote = c.RemoteAddr().String()
	c.watcher = time.AfterFunc(time.Hour, c.watch)
	c.watcher.Stop()
	for c.wait() {
		if c.framing.frames != nil {
			c.handOver(http2)
			return
		}
		r, err := c.readHead()
		if err != nil {
			c.turnAway()
			break
		}
		c.later = true
		x := newExchange(c, r)
		again := x.do()
		if x.taken { // the connection is the handler's
			return
		}
		c.server.places.Follow(c, http.StateIdle)
		if !again || c.server.closing.Load() {
			break
		}
	}
	_ = c.Close()
	c.release()
}

// buffer takes a buffer to read into.
func (c *conn) buffer() {
	c.in = readers.Get().(*bufio.Reader)
	c.in.Reset(c)
}

// release gives it back: nothing is left in it.
func (c *conn) release() {
	c.in.Reset(nil)
	readers.Put(c.in)
	c.in = nil
}

// wait waits for a request to begin, and bounds the time for its head.
func (c *conn) wait() bool {
	times := &c.server.proxy.Timeouts
	c.readErr = nil // of a watch
	if c.later && c.in.Buffered() == 0 {
		_ = c.SetReadDeadline(time.Now().Add(times.Idle))
	} else {
		_ = c.SetReadDeadline(time.Now().Add(times.ReadHeader))
	}
	if _, err := c.in.Peek(1); err != nil {
		c.turnAway()
		return false
	}
	if c.later {
		_ = c.SetReadDeadline(time.Now().Add(times.ReadHeader))
	}
	for c.framing.h2 && !c.framing.later && c.framing.frames == nil { // its first line is not whole
		if _, err := c.in.Peek(c.in.Buffered() + 1); errors.Is(err, bufio.ErrBufferFull) {
			break
		} else if err != nil {
			c.turnAway()
			return false
		}
	}
	return true
}

var errHead = errors.New("front: a malformed field")

// readHead reads the head of a request, behind line ends that some clients send after a body.
func (c *conn) readHead() (*http.Request, error) {
	for c.later {
		if line, err := c.in.Peek(2); err != nil || line[0] != '\r' {
			break
		}
		_, _ = c.in.Discard(2)
	}
	r, err := http.ReadRequest(c.in)
	if err != nil {
		return nil, err
	}
	c.server.places.Follow(c, http.StateActive)
	for name, lines := range r.Header {
		bad := func(v string) bool { return !httpguts.ValidHeaderFieldValue(v) }
		if !httpguts.ValidHeaderFieldName(name) || slices.ContainsFunc(lines, bad) {
			return nil, errHead
		}
	}
	return r, nil
}

// handOver gives a connection of HTTP/2, with what was read of it, to net/http.
func (c *conn) handOver(http2 *http.Server) {
	c.ahead, _ = c.in.Peek(c.in.Buffered())
	c.ahead = bytes.Clone(c.ahead)
	c.release()
	l := &single{conn: c}
	_ = http2.Serve(l) // it returns at once; the connection has a goroutine
	if l.conn != nil {
		_ = c.Close() // the server is closing
	}
}

// single is a listener that has one connection.
type single struct{ conn *conn }

func (l *single) Accept() (net.Conn, error) {
	c := l.conn
	if l.conn = nil; c == nil {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (l *single) Close() error   { return nil }
func (l *single) Addr() net.Addr { return &net.TCPAddr{} }

// turnAway says why no request was read, unless the connection has ended, or is none of HTTP/1.
func (c *conn) turnAway() {
	f, ok := c.faultOf()
	if !ok {
		return
	}
	h := http.Header{
		"Content-Type": {"text/plain; charset=utf-8"}, "Connection": {"close"}, "Cache-Control": {"no-store"},
	}
	if f.status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	status := c.server.refused(h, c.headless(), f.status, f.why)
	if status == 0 {
		return
	}
	var text bytes.Buffer
	what := fmt.Sprint(status, " ", http.StatusText(status))
	text.WriteString("HTTP/1.1 " + what + "\r\n")
	_ = h.Write(&text)
	text.WriteString("\r\n" + what)
	_, _ = c.Write(text.Bytes())
	c.farewell()
}

// farewell lets a client that is still sending read what was said to it last.
func (c *conn) farewell() {
	_ = c.CloseWrite()
	_ = c.skip(time.Now().Add(lastWord))
}

// skip drops what comes, until a deadline or the end.
func (c *conn) skip(by time.Time) error {
	var dropped [512]byte
	for {
		if _, err := c.readBefore(dropped[:], by); err != nil {
			return err
		}
	}
}

// watched has the client watched from now on, soon, until unwatch: it says nothing more of this request.
func (c *conn) watched() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watching = true
	c.watcher.Reset(unwatched)
}

// watch ends the context of a request whose client goes. It reads a byte ahead, of the next request, to learn that.
// Meanwhile the connection has no buffer, because a request that is long at work may be one of very many that wait.
func (c *conn) watch() {
	c.mu.Lock()
	if !c.watching || c.watches != nil { // the timer of a request before this one was late
		c.mu.Unlock()
		return
	}
	over := make(chan struct{})
	c.watches = over
	c.mu.Unlock()
	defer close(over)
	if c.in.Buffered() == 0 {
		c.release()
	}
	n, err := c.Read(c.first[:])
	for n == 0 && err == nil {
		n, err = c.Read(c.first[:])
	}
	c.ahead = c.first[:n]
	if err != nil && c.framing.err == nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.end()
	}
}

// unwatch returns when nothing is read for watch any more.
func (c *conn) unwatch() {
	c.watcher.Stop()
	c.mu.Lock()
	over := c.watches
	c.watching, c.watches = false, nil
	c.mu.Unlock()
	if over != nil {
		c.interrupt(func() { <-over })
		if c.in == nil {
			c.buffer()
		}
	}
}

// interrupt ends a read, for which it waits. TLS may have to write before it reads on: a client that takes nothing then
// loses its connection.
func (c *conn) interrupt(wait func()) {
	c.readNoLater(time.Now())
	late := time.AfterFunc(c.server.now.Load().write, func() { _ = c.raw.Close() })
	wait()
	late.Stop()
	c.readNoLater(time.Time{})
}

// body is that of a request over HTTP/1.
type body struct {
	x       *exchange
	mu      sync.Mutex    // one read at a time
	in      io.Reader     // as net/http reads it
	head    *http.Request // which gets its trailers
	expects bool          // the client waits for 100 Continue
	begun   bool          // the handler reads it
	over    bool          // the handler has returned
	err     error
}

var errReturned = errors.New("front: the handler has returned")

// Read reads the body. Its errors but io.EOF are the client's fault, and its connection's end.
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return 0, errReturned
	}
	b.begun = true
	return b.read(p)
}

func (b *body) read(p []byte) (n int, err error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.expects {
		b.expects = false
		b.x.goOn()
	}
	n, b.err = b.in.Read(p)
	switch {
	case b.err == io.EOF && !b.over:
		b.x.request.Trailer = b.head.Trailer
		b.x.watched()
	case b.err != nil && b.x.framing.err == errNoRoom:
		b.err = errNoRoom // net/http has another for a trailer
	}
	return n, b.err
}

// Close does nothing: what is left is read when the handler has returned.
func (b *body) Close() error { return nil }

// stop ends a read that goes on for an upstream that has answered before, and those to come.
func (b *body) stop() {
	if !b.mu.TryLock() {
		b.x.interrupt(b.mu.Lock)
		if b.err != ErrSlowBody && errors.Is(b.err, os.ErrDeadlineExceeded) {
			b.err = errReturned // it was ended here
		}
	}
	b.over = true
	b.mu.Unlock()
}

// fault is the status for a body that did not come; 0 if it did, or was not read.
func (b *body) fault() int {
	switch {
	case b == nil || b.err == nil || b.err == io.EOF || b.err == errReturned:
		return 0
	case b.err == ErrSlowBody:
		return http.StatusRequestTimeout
	case b.err == errNoRoom:
		return http.StatusServiceUnavailable
	}
	return http.StatusBadRequest
}

// isLost reports whether it is known that the next request cannot be found behind it: the client may leave it out, or
// the handler leaves more than is read for the sake of the connection.
func (b *body) isLost() bool {
	if !b.mu.TryLock() { // it is being read
		return false
	}
	defer b.mu.Unlock()
	return b.err == errReturned || b.err == nil && (b.expects || (b.over || !b.begun) && b.x.framing.left > lastBytes)
}

// drain reads what is left, if it is not too long.
func (b *body) drain() {
	if b.err != nil {
		return
	}
	b.x.readNoLater(time.Now().Add(lastRead))
	defer b.x.readNoLater(time.Time{})
	buffer := make([]byte, 8<<10)
	for left := lastBytes; b.err == nil && left > 0; {
		n, _ := b.read(buffer)
		left -= n
	}
}

// serveHTTP1 hands a request to the handler, and reports whether it did not panic.
func (s *Server) serveHTTP1(x *exchange, r *http.Request) (well bool) {
	defer func() {
		if !well {
			s.recovered(recover(), r)
		}
	}()
	if expect := r.Header["Expect"]; len(expect) > 0 {
		switch {
		case !httpguts.HeaderValuesContainsToken(expect, "100-continue"):
			s.refuse(x, r, http.StatusExpectationFailed, whyExpectation, "the expectation is not known")
			return true
		case x.body != nil && r.ProtoAtLeast(1, 1):
			x.body.expects = true
		}
	}
	s.hand(x, r)
	return true
}
