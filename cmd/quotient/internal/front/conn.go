package front

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/quotient-go/quotient/internal/held"
)

// writePart is how much of an answer has proxy.timeouts.write to be taken.
const writePart = 64 << 10

// conn is one connection as its server sees it: bytes in the clear, with TLS below where there is TLS. It sets a
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
	ahead    []byte // has yet to be read, and framing has seen it

	secure *tls.ConnectionState // after the handshake, which the first Read does

	// What http1.go serves it with.
	ctx     context.Context // of its requests
	end     context.CancelFunc
	in      *bufio.Reader
	remote  string
	later   bool  // a request has come
	readErr error // of the last read
	watcher *time.Timer
	first   [1]byte // of the next request, that came while this one was at work

	mu       sync.Mutex
	watching bool
	watches  chan struct{} // is closed when a watch that reads is over; nil: none does
	readBy   time.Time     // what the server or a handler has set; zero: nothing
	writeBy  time.Time
	lastBy   time.Time // no read ends later, since the handler has returned
	partBy   time.Time // nor one of this part of it; zero: the next bytes are not of a body
	reads    deadline
	writes   deadline
	life     *time.Timer // of an upgraded one, until it is closed
	spoke    time.Time   // when bytes last came or went over that
}

func newConn(s *Server, raw net.Conn) *conn {
	c := &conn{Conn: raw, raw: raw, server: s}
	c.share.Room, c.share.Free = &s.room, step
	c.streams.share, c.streams.block = &c.share, byteCost*int64(s.proxy.Max.HeaderBytes)
	c.streams.most = s.proxy.Max.Streams
	c.framing.share, c.framing.streams = &c.share, &c.streams
	c.framing.h2, c.framing.most = s.proxy.H2C, s.proxy.Max.HeaderBytes
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
	if len(c.ahead) > 0 {
		n := copy(p, c.ahead)
		c.ahead = c.ahead[n:]
		return n, nil
	}
	if c.tls != nil && c.secure == nil {
		if err := c.handshake(); err != nil {
			c.readErr = err
			return 0, err
		}
	}
	if c.framing.err != nil {
		return 0, c.framing.err
	}
	var by time.Time
	if c.framing.inBody() {
		by = time.Now().Add(c.server.now.Load().readBody)
	}
	n, err := c.readBefore(p, by)
	if n > 0 {
		err = nil // TLS says its end with the last bytes, and again; bufio would keep it from us
	}
	c.readErr = err
	if !by.IsZero() && errors.Is(err, os.ErrDeadlineExceeded) && !time.Now().Before(by) {
		err = ErrSlowBody
	}
	if bad := c.framing.check(p, &n); bad != nil && n == 0 {
		return 0, bad
	}
	return n, err
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

// readNoLater bounds the reads of what a request has left; zero takes the bound back.
func (c *conn) readNoLater(by time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastBy = by
	_ = c.reads.change(c.readEnd(), c.Conn.SetReadDeadline)
}

// rest notes that a request is over, and reports whether all of it was read.
func (c *conn) rest() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readBy, c.writeBy = time.Time{}, time.Time{} // what the handler has set
	if len(c.framing.whole) == 0 {                 // its end was not read, so what follows is no request
		return false
	}
	c.framing.rest()
	return true
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
	if c.end != nil {
		c.end()
	}
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
	share  *held.Share
	read   int   // since the last data
	taken  int64 // for it
	failed bool  // the last read did
}

// Read takes room for what is more than one record without data in it.
func (r *records) Read(p []byte) (int, error) {
	if free := recordBytes - r.read; free > 0 {
		p = p[:min(len(p), free)] // crypto/tls reads ahead of its record
	}
	n, err := r.Conn.Read(p)
	r.failed = err != nil
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

// deadline is that of the reads or the writes of a connection. To set one takes a timer of the runtime, and several
// are wanted for a request. So it is set only where the one that is armed comes later than what is
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
