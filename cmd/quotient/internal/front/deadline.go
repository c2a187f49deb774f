package front

import (
	"errors"
	"os"
	"time"
)

// deadline is that of the reads or the writes of a connection. To set one takes a timer of the runtime, and
// net/http sets that of reads six times a request. So it is set only where the one that is armed comes later
// than what is wanted, or has passed. A deadline that comes too early ends nothing: the call goes on until
// the wanted deadline.
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
