package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// patience bounds every exchange: a request that was not answered by then is lost.
const patience = 5 * time.Minute

// A client is one connection that asks for one path after the other. It is written by hand, so that little of
// what is measured is its own work.
type client struct {
	addr string
	ctx  context.Context // ends the connection, also while an answer is waited for; nil for never
	conn net.Conn
	stop func() bool // what ends conn with ctx
	in   *bufio.Reader
	out  []byte
}

// ask sends one request and reads the answer to it. It dials where there is no connection, and closes one
// that is broken, or that the server wants to close.
func (c *client) ask(target string) (status int, err error) {
	if err := c.send(target); err != nil {
		return 0, err
	}
	return c.answer()
}

// send sends one request.
func (c *client) send(target string) error {
	if c.conn == nil {
		if err := c.dial(); err != nil {
			return err
		}
	}
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	c.out = append(append(append(c.out[:0], "GET "...), target...), " HTTP/1.1\r\nHost: bench\r\n\r\n"...)
	_, err := c.conn.Write(c.out)
	if err != nil {
		c.close()
	}
	return err
}

func (c *client) dial() error {
	d := net.Dialer{Timeout: 10 * time.Second}
	conn, err := d.Dial("tcp", c.addr)
	if err != nil {
		return err
	}
	if c.ctx != nil {
		c.stop = context.AfterFunc(c.ctx, func() { _ = conn.Close() })
	}
	c.conn, c.in = conn, bufio.NewReaderSize(conn, 2<<10)
	return nil
}

// close ends the connection, if there is one.
func (c *client) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
	if c.stop != nil {
		c.stop()
	}
}

// answer reads one answer and passes over its body.
func (c *client) answer() (status int, err error) {
	status, length, last, err := readHead(c.in)
	if err == nil {
		_, err = c.in.Discard(length)
	}
	if err != nil || last {
		c.close()
	}
	return status, err
}

// readHead reads the head of an answer: its status, the length of its body, and whether it is the
// connection's last.
func readHead(in *bufio.Reader) (status, length int, last bool, err error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return 0, 0, false, err
	}
	if len(line) < len("HTTP/1.1 200") {
		return 0, 0, false, fmt.Errorf("no status line: %q", line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, 0, false, fmt.Errorf("no status: %q", line)
	}
	length = -1
	for {
		if line, err = in.ReadSlice('\n'); err != nil {
			return 0, 0, false, err
		}
		name, value, _ := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte(":"))
		switch value = bytes.TrimSpace(value); {
		case len(name) == 0 && length < 0:
			return 0, 0, false, fmt.Errorf("an answer with status %d has no Content-Length", status)
		case len(name) == 0:
			return status, length, last, nil
		case is(name, "content-length"):
			if length, err = strconv.Atoi(string(value)); err != nil || length < 0 {
				return 0, 0, false, fmt.Errorf("Content-Length: %q", value)
			}
		case is(name, "connection"):
			last = is(value, "close")
		}
	}
}

func is(b []byte, lower string) bool {
	return len(b) == len(lower) && strings.EqualFold(string(b), lower)
}

// An upstream is what all proxies stand before. It answers each request for a target with three bytes when
// arrive has returned.
type upstream struct {
	addr   string
	arrive func(target []byte)
	l      net.Listener
	all    sync.WaitGroup

	mu    sync.Mutex // guards what follows
	ended bool
	conns map[net.Conn]struct{}
}

// serveUpstream starts an upstream on the loopback interface.
func serveUpstream(arrive func(target []byte)) (*upstream, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	u := &upstream{addr: l.Addr().String(), arrive: arrive, l: l, conns: make(map[net.Conn]struct{})}
	u.all.Go(u.accept)
	return u, nil
}

func (u *upstream) accept() {
	for {
		conn, err := u.l.Accept()
		if err != nil {
			return
		}
		u.mu.Lock()
		if u.ended {
			_ = conn.Close()
		} else {
			u.conns[conn] = struct{}{}
			u.all.Go(func() { u.serve(conn) })
		}
		u.mu.Unlock()
	}
}

var ok = []byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nok\n")

// serve answers the requests of one connection, which have no body.
func (u *upstream) serve(conn net.Conn) {
	defer func() {
		_ = conn.Close()
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.conns, conn)
	}()
	in := bufio.NewReaderSize(conn, 8<<10)
	var target []byte
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		parts := bytes.SplitN(line, []byte(" "), 3)
		if len(parts) != 3 {
			return
		}
		target = append(target[:0], parts[1]...)
		for len(bytes.TrimRight(line, "\r\n")) > 0 {
			if line, err = in.ReadSlice('\n'); err != nil {
				return
			}
		}
		u.arrive(target)
		if _, err := conn.Write(ok); err != nil {
			return
		}
	}
}

// close ends the upstream and waits until no request is in it: arrive must return.
func (u *upstream) close() {
	_ = u.l.Close()
	u.mu.Lock()
	u.ended = true
	for conn := range u.conns {
		_ = conn.Close()
	}
	u.mu.Unlock()
	u.all.Wait()
}
