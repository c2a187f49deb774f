package wire

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// conn is one connection, and what is known of the request that it has now.
type conn struct {
	t     *Transport
	net   net.Conn
	raw   net.Conn         // below TLS
	tls   *tls.Conn        // nil without
	peek  syscall.RawConn  // of raw; nil where it cannot be looked at
	look  func(fd uintptr) // has quiet say what peek sees, made once
	quiet bool
	r     *bufio.Reader
	w     *bufio.Writer
	cut   func() // closes it at once, made once
	used  bool   // for another request before
	since time.Time

	left int64 // of the heads, in bytes; less than 0: a body is read
	read int64 // bytes since the request began

	mu     sync.Mutex
	headed bool      // the head of the answer has come
	by     time.Time // reads end; zero: never
	armed  time.Time // what the connection has for that; it may be earlier
	parts  int       // of the exchange that are not over: its answer, and its request if that has a body
	spent  bool      // there is no request after this
}

var (
	errSpoke = errors.New("the server spoke before it was asked")
	errHead  = errors.New("the head of the answer is too long")
	errLate  = fmt.Errorf("the head of the answer did not come in time: %w", os.ErrDeadlineExceeded)
)

func newConn(t *Transport, nc net.Conn) *conn {
	c := &conn{t: t, net: nc, raw: nc, left: -1}
	if c.tls, _ = nc.(*tls.Conn); c.tls != nil {
		c.raw = c.tls.NetConn()
	}
	if s, ok := c.raw.(syscall.Conn); ok {
		c.peek, _ = s.SyscallConn()
		c.look = func(fd uintptr) { c.quiet = quiet(fd) }
	}
	c.cut = func() { _ = c.raw.Close() }
	c.r = bufio.NewReaderSize((*reads)(c), t.Buffer)
	c.w = bufio.NewWriterSize(nc, t.Buffer)
	return c
}

// drop closes a connection and gives its place back.
func (c *conn) drop() {
	_ = c.net.Close()
	c.t.leave()
}

// fit reports whether nothing has come on a connection that waits for a request: no byte, and no end.
func (c *conn) fit() bool { return c.peek == nil || c.peek.Control(c.look) == nil && c.quiet }

// clean reports whether nothing is left behind an answer in a buffer of ours.
func (c *conn) clean() bool {
	if c.r.Buffered() > 0 {
		return false
	}
	if c.tls == nil {
		return true
	}
	return c.mute(time.Unix(1, 0))
}

// silent reports whether nothing has come on a new connection. With TLS there may be what belongs to its handshake.
func (c *conn) silent() bool {
	quiet := c.fit()
	switch {
	case c.tls == nil:
		return quiet
	case quiet:
		return c.clean()
	}
	return c.mute(time.Now().Add(time.Millisecond)) // what has come is read at once
}

// mute reports whether TLS has no data until then. It does not say what it holds, but gives that before it reads.
func (c *conn) mute(until time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.raw.SetReadDeadline(until)
	n, err := c.tls.Read(make([]byte, 1))
	c.armed = time.Time{}
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && c.raw.SetReadDeadline(c.armed) == nil
}

// closedBefore reports whether the server has closed the connection before it answered with a byte.
func (c *conn) closedBefore(ctx context.Context, err error) bool {
	return c.read == 0 && ctx.Err() == nil && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE))
}

// reads is a connection as its buffer reads it. A deadline is set once for many requests: where it is too early, the
// read goes on.
type reads conn

func (c *reads) Read(p []byte) (int, error) {
	if c.left >= 0 {
		if c.left == 0 {
			return 0, errHead
		}
		p = p[:min(int64(len(p)), c.left)]
	}
	for {
		n, err := c.net.Read(p)
		if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
			if (*conn)(c).tooEarly() {
				continue
			}
			return 0, errLate
		}
		c.read += int64(n)
		if c.left >= 0 {
			c.left -= int64(n)
		}
		return n, err
	}
}

// awaitHead gives the head of the answer its time, from now on, unless it has come.
func (c *conn) awaitHead() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.headed || c.t.Head == 0 {
		return
	}
	c.by = time.Now().Add(c.t.Head)
	if c.armed.IsZero() || c.by.Before(c.armed) {
		c.armed = c.by
		_ = c.net.SetReadDeadline(c.by)
	}
}

// hasHead ends the time for the head.
func (c *conn) hasHead() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left, c.headed, c.by = -1, true, time.Time{}
}

// tooEarly reports whether a read that a deadline has ended should go on, and arms what ends it then.
func (c *conn) tooEarly() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.by.IsZero() && !time.Now().Before(c.by) {
		return false
	}
	c.armed = c.by
	return c.net.SetReadDeadline(c.by) == nil
}
