package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// A wire is one connection that sends one request after the other. It is written by hand, so that little of
// what is measured is its own work. It dials where there is no connection.
type wire struct {
	addr string
	ctx  context.Context // ends the connection, also while an answer is waited for; nil for never
	// within bounds every request; 0 is patience.
	within time.Duration

	conn net.Conn
	stop func() bool // what ends conn with ctx
	in   *bufio.Reader
	out  []byte
	body []byte
}

// reply is an answer. Its text is valid until the next request.
type reply struct {
	status   int
	token    uint64   // Fencing-Token
	broken   []string // Lease-Broken, as it came
	location string
	text     []byte
}

// errNotSent is of a request that the server cannot have seen.
var errNotSent = errors.New("not sent")

// ask sends a request and reads its answer.
func (w *wire) ask(method, target, body string) (reply, error) {
	if w.conn == nil {
		if err := w.dial(); err != nil {
			return reply{}, fmt.Errorf("%w: %w", errNotSent, err)
		}
	}
	w.out = fmt.Appendf(w.out[:0], "%s %s HTTP/1.1\r\nHost: bench\r\n", method, target)
	if body != "" {
		w.out = fmt.Appendf(w.out, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	} else if method != "GET" {
		w.out = append(w.out, "Content-Length: 0\r\n"...)
	}
	w.out = append(append(w.out, "\r\n"...), body...)
	return w.exchange()
}

// exchange sends what is in out, and reads the answer.
func (w *wire) exchange() (a reply, err error) {
	if err = w.conn.SetDeadline(time.Now().Add(cmp.Or(w.within, patience))); err == nil {
		_, err = w.conn.Write(w.out)
	}
	if err == nil {
		a, err = w.read()
	}
	if err != nil {
		w.close()
	}
	return a, err
}

func (w *wire) dial() error {
	d := net.Dialer{Timeout: 10 * time.Second}
	ctx := w.ctx
	if ctx == nil {
		ctx = context.Background()
	}
	conn, err := d.DialContext(ctx, "tcp", w.addr)
	if err != nil {
		return err
	}
	w.conn, w.in = conn, bufio.NewReaderSize(conn, 1024)
	w.stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
	return nil
}

func (w *wire) close() {
	if w.conn != nil {
		w.stop()
		_ = w.conn.Close()
		w.conn = nil
	}
}

// read reads an answer that has a Content-Length.
func (w *wire) read() (a reply, err error) {
	line, err := w.in.ReadSlice('\n')
	if err != nil {
		return a, err
	}
	if len(line) < 12 {
		return a, fmt.Errorf("the status line is %q", line)
	}
	if a.status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return a, err
	}
	length, last := -1, false
	for {
		line, err = w.in.ReadSlice('\n')
		if err != nil {
			return a, err
		}
		name, value, _ := strings.Cut(strings.TrimSpace(string(line)), ": ")
		if name == "" {
			break
		}
		switch strings.ToLower(name) {
		case "content-length":
			length, err = strconv.Atoi(value)
		case "fencing-token":
			a.token, err = strconv.ParseUint(value, 10, 64)
		case "lease-broken":
			a.broken = append(a.broken, value)
		case "location":
			a.location = value
		case "connection":
			last = value == "close"
		}
		if err != nil {
			return a, fmt.Errorf("%s: %w", name, err)
		}
	}
	return w.readBody(a, length, last)
}

func (w *wire) readBody(a reply, length int, last bool) (reply, error) {
	if length < 0 || length > 1<<20 {
		return a, fmt.Errorf("an answer of status %d has %d bytes", a.status, length)
	}
	if cap(w.body) < length {
		w.body = make([]byte, length)
	}
	a.text = w.body[:length]
	if _, err := io.ReadFull(w.in, a.text); err != nil {
		return a, err
	}
	if last {
		w.close()
	}
	return a, nil
}

// want is ask for one status only.
func (w *wire) want(status int, method, target, body string) (reply, error) {
	a, err := w.ask(method, target, body)
	if err == nil && a.status != status {
		err = fmt.Errorf("%s %s: status %d, want %d: %s", method, target, a.status, status, a.text)
	}
	return a, err
}

// create makes a peer and returns its id.
func (w *wire) create(expiresIn time.Duration) (uint64, error) {
	a, err := w.want(200, "POST", "/new_peer", lasting(expiresIn))
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(string(a.text), 10, 64)
}

// lasting is the body of a request that sets how long a peer lasts.
func lasting(d time.Duration) string { return fmt.Sprintf(`{"expires_in":"%dms"}`, d.Milliseconds()) }
