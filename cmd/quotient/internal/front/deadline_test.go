package front

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

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

// TestFewDeadlinesAreSet goes through what net/http sets for each request.
func TestFewDeadlinesAreSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, raw, client := piped(t)
		head := make([]byte, 8)
		const requests = 100
		for range requests {
			_ = c.SetReadDeadline(time.Now().Add(time.Minute)) // idle
			go func() { _, _ = client.Write([]byte("head")) }()
			if _, err := c.Read(head); err != nil {
				t.Fatal(err)
			}
			_ = c.SetReadDeadline(time.Time{})
			_ = c.SetReadDeadline(time.Now().Add(time.Second)) // head
			_ = c.SetReadDeadline(time.Time{})
			read := make(chan error)
			go func() { _, err := c.Read(head[:1]); read <- err }() // until the client goes
			synctest.Wait()
			go func() { _, _ = io.ReadFull(client, make([]byte, 4)) }()
			if _, err := c.Write([]byte("said")); err != nil {
				t.Fatal(err)
			}
			_ = c.SetReadDeadline(longAgo())
			if err := <-read; !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
			_ = c.SetReadDeadline(time.Time{})
		}
		if raw.reads > 2*requests || raw.writes > 1 {
			t.Errorf("%d deadlines of reads and %d of writes were set for %d requests", raw.reads,
				raw.writes, requests)
		}
	})
}
