package front

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/quotient-go/quotient/internal/held"
)

const (
	// writePart is how much of an answer has proxy.timeouts.write to be taken.
	writePart = 64 << 10
	// lastRead bounds how long net/http reads what a request has left of its body, to keep the connection.
	lastRead = 5 * time.Second
	// lastWord is how long a client may go on to send before it loses what was said about a head that is refused.
	lastWord = time.Second / 2
	// ahead is how many bytes net/http reads while a request is at work, to learn when its client goes.
	ahead = 1
)

// conn is one connection as net/http sees it: bytes in the clear, with TLS below where there is TLS. It sets a
// deadline for each part of a body of HTTP/1, and for each part of an answer. A deadline of the server or of a
// handler that is earlier stays. The client's bytes go through framing until the connection is HTTP/2, or upgraded.
type conn struct {
	net.Conn          // raw, or the TLS over it
	raw      net.Conn // may read a PROXY header
	server   *Server
	tls      *tls.Conn // nil without
	records  *records  // below it
	framing  framing
	share    held.Share // what its requests hold
	streams  streams

	secure *tls.ConnectionState // after the handshake, which the first Read does

	mu      sync.Mutex
	readBy  time.Time // what the server or a handler has set; zero: nothing
	writeBy time.Time
	lastBy  time.Time // no read of this request's body ends later, since its handler has returned
	partBy  time.Time // nor one of this part of it; zero: the next bytes are not of a body
	reads   deadline
	writes  deadline
	life    *time.Timer // of an upgraded one, until it is closed
	spoke   time.Time   // when bytes last came or went over that

	inBody atomic.Bool  // the next bytes are of a request's body
	broken atomic.Bool  // it is not known where the last one ends
	fault  atomic.Int32 // the status for a body that did not come; 0: it is malformed
}

func newConn(s *Server, raw net.Conn) *conn {
	c := &conn{Conn: raw, raw: raw, server: s}
	c.share.Room, c.share.Free = &s.room, step
	c.streams.share, c.streams.block = &c.share, byteCost*int64(s.proxy.Max.HeaderBytes)
	c.streams.most = s.proxy.Max.Streams
	c.framing.share, c.framing.streams = &c.share, &c.streams
	c.framing.h2 = s.proxy.H2C
	if t := s.tlsConfig(); t != nil {
		c.records = &records{Conn: raw, share: &c.share}
		c.tls = tls.Server(c.records, t)
		c.Conn = c.tls
	}
	return c
}

var errBadPreface = errors.New("front: HTTP/2 was agreed on, and does not come")

// handshake is bounded by the deadline for a head, which the server sets before it reads.
func (c *conn) handshake() error {
	_ = c.raw.SetWriteDeadline(time.Now().Add(c.server.proxy.Timeouts.ReadHeader))
	c.mu.Lock()
	c.reads.begin(c.readEnd(), c.Conn.SetReadDeadline)
	c.mu.Unlock()
	if err := c.tls.HandshakeContext(context.Background()); err != nil {
		return err
	}
	_ = c.raw.SetWriteDeadline(time.Time{})
	c.records.rest()
	state := c.tls.ConnectionState()
	c.secure = &state
	c.framing.h2 = state.NegotiatedProtocol == "h2"
	c.framing.onlyH2 = c.framing.h2
	return nil
}

// slowBody is the error of a read of a body that waited too long for the next part.
type slowBody struct{}

func (slowBody) Error() string   { return "the client was too slow to send its body" }
func (slowBody) Timeout() bool   { return true }
func (slowBody) Temporary() bool { return false }
func (slowBody) Unwrap() error   { return os.ErrDeadlineExceeded }

// ErrSlowBody is the error of a request's body whose next part did not come within proxy.timeouts.read-body.
var ErrSlowBody error = slowBody{}

// Read returns nothing that framing refuses.
func (c *conn) Read(p []byte) (int, error) {
	if c.tls != nil && c.secure == nil {
		if err := c.handshake(); err != nil {
			return 0, err
		}
	}
	if c.framing.err != nil {
		return 0, c.refused(p)
	}
	ours := len(p) > ahead && c.framing.inBody()
	var by time.Time
	if ours {
		by = time.Now().Add(c.server.now.Load().readBody)
	}
	n, err := c.readBefore(p, by)
	if err != nil && ours {
		c.broken.Store(true)
		if errors.Is(err, os.ErrDeadlineExceeded) && !c.readIsOver() {
			c.fault.Store(http.StatusRequestTimeout)
			err = ErrSlowBody
		}
	}
	bad := c.framing.check(p, &n)
	c.inBody.Store(c.framing.inBody())
	if bad != nil && n == 0 {
		return 0, c.refused(p)
	}
	return n, err
}

// refused is the error of a read after what framing has refused. A read that only looks ahead must not fail
// for the sake of the next request, and must not pass on what comes.
func (c *conn) refused(p []byte) error {
	if len(p) <= ahead {
		return c.skip(time.Time{})
	}
	status, retry := 0, ""
	switch c.framing.err {
	case errMany, errLong:
		status = http.StatusRequestHeaderFieldsTooLarge
	case errNoRoom:
		status, retry = http.StatusServiceUnavailable, "Retry-After: 1\r\n"
	}
	if status == http.StatusServiceUnavailable && c.framing.state == inTrailer {
		c.fault.Store(int32(status)) // there is a handler that answers
	}
	if status == 0 || c.framing.state > inFields || c.framing.off {
		return c.framing.err
	}
	_, _ = io.WriteString(c, fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\n"+
		"Connection: close\r\nCache-Control: no-store\r\n%[3]s\r\n%[1]d %[2]s", status, http.StatusText(status), retry))
	_ = c.CloseWrite()
	_ = c.skip(time.Now().Add(lastWord))
	return io.EOF // net/http says nothing more
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

// readIsOver reports whether a deadline of the server or of a handler has passed.
func (c *conn) readIsOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.readBy.IsZero() && !time.Now().Before(c.readBy)
}

// Write gives each part of an answer its time, and none to the silence between.
func (c *conn) Write(p []byte) (n int, err error) {
	for {
		part := p[n:min(len(p), n+writePart)]
		m, err := c.writeInTime(part)
		n += m
		if err != nil || n == len(p) {
			c.disarmWrite()
			return n, err
		}
	}
}

// answered notes that the handler of a request of HTTP/1 has returned. net/http then reads the rest of its body, and
// may take what follows for a request when that fails: it must not with chunks, which can be malformed.
func (c *conn) answered(w http.ResponseWriter, r *http.Request, body *earlyBody) {
	if body == nil || body.ended.Load() {
		return
	}
	if r.ContentLength < 0 {
		c.broken.Store(true)
		w.Header().Set("Connection", "close") // if it is not too late
	}
	switch {
	case body.reading.Load() > 0: // for an upstream that has answered before: net/http would wait for that read
		c.readNoLater(time.Now())
	case c.inBody.Load():
		c.readNoLater(time.Now().Add(lastRead))
	}
}

func (c *conn) readNoLater(by time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastBy = by
	_ = c.reads.change(c.readEnd(), c.Conn.SetReadDeadline)
}

// rest notes that a request is over, and reports whether the connection is fit for another one.
func (c *conn) rest() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastBy = time.Time{}
	if c.framing.whole == 0 && !c.framing.off { // its end was not read, so what follows is no request
		c.broken.Store(true)
	}
	c.framing.rest()
	return !c.broken.Load()
}

// upgrade notes that the connection speaks another protocol from now on.
func (c *conn) upgrade() {
	c.framing.off = true
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spoke = time.Now()
	c.life = time.AfterFunc(c.server.now.Load().stream, c.silent)
}

// silent ends an upgraded connection unless something has come or gone meanwhile.
func (c *conn) silent() {
	c.mu.Lock()
	left := c.server.now.Load().stream - time.Since(c.spoke)
	if left > 0 && c.life != nil {
		c.life.Reset(left)
	}
	c.mu.Unlock()
	if left <= 0 {
		c.server.places.Drop(c)
	}
}

// noteSpoke notes that n bytes have come or gone. The caller holds c.mu.
func (c *conn) noteSpoke(n int) {
	if n > 0 && c.life != nil {
		c.spoke = time.Now()
	}
}

// Close gives the place back.
func (c *conn) Close() error {
	c.server.places.Leave(c)
	c.share.End()
	c.mu.Lock()
	if c.life != nil {
		c.life.Stop()
		c.life = nil
	}
	c.mu.Unlock()
	return c.Conn.Close()
}

// NetConn is the connection without TLS, which ends without a farewell.
func (c *conn) NetConn() net.Conn { return c.raw }

// CloseWrite tells the client that nothing follows, so that it reads an answer that came before its request's end.
func (c *conn) CloseWrite() error {
	raw := c.raw
	if p, ok := raw.(*proxyproto.Conn); ok {
		raw = p.Raw()
	}
	if c.tls != nil && c.secure != nil {
		return c.tls.CloseWrite()
	}
	if w, ok := raw.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

type connKey struct{}

// connOf is the connection on which a request has come; nil under another server.
func connOf(r *http.Request) *conn {
	c, _ := r.Context().Value(connKey{}).(*conn)
	return c
}

// recordBytes is more than a record has (RFC 8446, 5.2), which is all that a connection keeps of data.
const recordBytes = 20 << 10

// records is what TLS reads. Package crypto/tls puts the messages of a handshake together, and can be sent one at
// any time.
type records struct {
	net.Conn
	share *held.Share
	read  int   // since the last data
	taken int64 // for it
}

// Read takes room for what is more than one record without data in it.
func (r *records) Read(p []byte) (int, error) {
	if free := recordBytes - r.read; free > 0 {
		p = p[:min(len(p), free)] // crypto/tls reads ahead of its record
	}
	n, err := r.Conn.Read(p)
	if r.read += n; r.read > recordBytes {
		if !r.share.Take(byteCost * int64(n)) {
			return 0, errNoRoom
		}
		r.taken += byteCost * int64(n)
	}
	return n, err
}

// rest gives it back: there is data, or the end.
func (r *records) rest() {
	r.share.Give(r.taken)
	r.read, r.taken = 0, 0
}

// deadline is that of the reads or the writes of a connection. To set one takes a timer of the runtime, and net/http
// sets that of reads six times a request. So it is set only where the one that is armed comes later than what is
// wanted, or has passed. A deadline that comes too early ends nothing: the call goes on until the wanted deadline.
type deadline struct {
	armed time.Time // at the connection; zero: none
	spent bool      // it has passed
	waits bool      // a call is at work
}

// begin arms what a call that begins wants.
func (d *deadline) begin(want time.Time, set func(time.Time) error) {
	d.waits = true
	if d.spent || sooner(want, d.armed) {
		d.put(want, set)
	}
}

// change arms what is wanted from now on, if a call is at work: others have begin.
func (d *deadline) change(want time.Time, set func(time.Time) error) (err error) {
	if d.waits && sooner(want, d.armed) {
		err = d.put(want, set)
	}
	return err
}

// early arms what is wanted after a call was ended at the deadline, and reports whether it has to go on.
func (d *deadline) early(want time.Time, set func(time.Time) error) bool {
	if !sooner(d.armed, want) || time.Now().Before(d.armed) { // the latter was not ours
		d.spent = true
		return false
	}
	_ = d.put(want, set)
	return true
}

func (d *deadline) put(want time.Time, set func(time.Time) error) error {
	d.armed, d.spent = want, false
	return set(want)
}

// sooner reports whether a ends a call that b would not have ended yet; zero means no deadline.
func sooner(a, b time.Time) bool { return !a.IsZero() && (b.IsZero() || a.Before(b)) }

// earlier is the first of two deadlines; zero means no deadline.
func earlier(a, b time.Time) time.Time {
	if sooner(b, a) {
		return b
	}
	return a
}

// readBefore reads until the earliest of by and what else ends a read.
func (c *conn) readBefore(p []byte, by time.Time) (int, error) {
	c.mu.Lock()
	c.partBy = by
	c.reads.begin(c.readEnd(), c.Conn.SetReadDeadline)
	c.mu.Unlock()
	for {
		n, err := c.Conn.Read(p)
		c.mu.Lock()
		if n == 0 && err != nil && errors.Is(err, os.ErrDeadlineExceeded) &&
			c.reads.early(c.readEnd(), c.Conn.SetReadDeadline) {
			c.mu.Unlock()
			continue
		}
		c.reads.waits = false
		c.noteSpoke(n)
		c.mu.Unlock()
		if c.records != nil {
			c.records.rest()
		}
		return n, err
	}
}

// readEnd is when a read has to end. The caller holds c.mu.
func (c *conn) readEnd() time.Time { return earlier(earlier(c.partBy, c.readBy), c.lastBy) }

// writeInTime writes a part of an answer within its time. TLS cannot go on after a write that a deadline has ended.
func (c *conn) writeInTime(part []byte) (n int, err error) {
	c.mu.Lock()
	end := time.Now().Add(c.server.now.Load().write)
	c.writes.spent = c.writes.spent || c.tls != nil
	c.writes.begin(earlier(end, c.writeBy), c.Conn.SetWriteDeadline)
	c.mu.Unlock()
	for {
		m, err := c.Conn.Write(part[n:])
		n += m
		c.mu.Lock()
		if err != nil && errors.Is(err, os.ErrDeadlineExceeded) && c.tls == nil &&
			c.writes.early(earlier(end, c.writeBy), c.Conn.SetWriteDeadline) {
			c.mu.Unlock()
			continue
		}
		c.writes.waits = false
		c.noteSpoke(n)
		c.mu.Unlock()
		return n, err
	}
}

// disarmWrite is for TLS, which also writes while it reads.
func (c *conn) disarmWrite() {
	if c.tls != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		_ = c.writes.put(c.writeBy, c.Conn.SetWriteDeadline)
	}
}

// SetReadDeadline sets when reads end.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readBy = t
	return c.reads.change(c.readEnd(), c.Conn.SetReadDeadline)
}

// SetWriteDeadline sets when writes end.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writeBy = t
	if c.tls != nil {
		return c.writes.put(t, c.Conn.SetWriteDeadline)
	}
	return c.writes.change(t, c.Conn.SetWriteDeadline)
}

// SetDeadline sets both.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}
