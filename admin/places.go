package admin

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// Bounds of the connections of Serve. 256 strangers at a time are more than the browsers of any team. A
// connection that has its answer and sends no request within five seconds is not about to.
const (
	maxConns     = 512
	maxStrangers = 256
	strangerIdle = 5 * time.Second
	sendBuffer   = 64 << 10 // bytes that the kernel keeps for one that does not read; by itself it takes megabytes
)

// places is a listener with so many connections at a time. A connection is a stranger's until a request on it
// has passed the door to something that is not public. When there is no place for a new one, the one that is
// missed least is closed. It does not wrap connections, since a server looks at their type for TLS; the
// server says what becomes of them.
type places struct {
	net.Listener
	closed  chan struct{}
	close   func() error
	evicted func() // is called for each connection that was closed for another; may be nil

	mu      sync.Mutex
	taken   map[net.Conn]*visitor // but for those that are being closed for others
	known   int                   // of taken
	open    int                   // connections that have not ended
	changed chan struct{}         // has room for one: something has changed, for Accept
}

// visitor is one connection.
type visitor struct {
	in    *places
	conn  net.Conn
	known bool
	idle  bool        // it has been answered, and there is no other request yet
	since time.Time   // when it came, or was idle last
	end   *time.Timer // of a stranger that is idle
}

func newPlaces(l net.Listener) *places {
	p := &places{
		Listener: l, closed: make(chan struct{}),
		taken: make(map[net.Conn]*visitor), changed: make(chan struct{}, 1),
	}
	p.close = sync.OnceValue(func() error { close(p.closed); return l.Close() })
	return p
}

// Accept waits for a connection, and then for a place.
func (p *places) Accept() (net.Conn, error) {
	conn, err := p.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if tcp, ok := bare(conn).(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(sendBuffer)
	}
	for !p.enter(conn) {
		select {
		case <-p.changed:
		case <-p.closed:
			_ = conn.Close()
			return nil, net.ErrClosed
		}
	}
	return conn, nil
}

// Close also ends an Accept that waits for a place.
func (p *places) Close() error { return p.close() }

// enter gives a stranger a place, if there is one or one can be made.
func (p *places) enter(conn net.Conn) bool {
	entered, evicted := p.try(conn)
	if evicted && p.evicted != nil {
		p.evicted()
	}
	return entered
}

// try makes room and takes it. A connection that is closed for another has ended when the server reports that.
func (p *places) try(conn net.Conn) (entered, evicted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.taken)-p.known >= maxStrangers || len(p.taken) >= maxConns {
		least := p.least()
		if least == nil {
			return false, false
		}
		p.drop(least)
		reset(least.conn)
		evicted = true
	}
	if p.open >= maxConns {
		return false, evicted
	}
	p.open++
	p.taken[conn] = &visitor{in: p, conn: conn, since: time.Now()}
	return true, evicted
}

// least is the connection that is missed least; nil if there is none that could go. Among equals it is the
// one that came first, or has been idle the longest.
func (p *places) least() (least *visitor) {
	lowest := stays
	for _, c := range p.taken {
		if rank := p.rank(c); rank < lowest || least != nil && rank == lowest && c.since.Before(least.since) {
			least, lowest = c, rank
		}
	}
	return least
}

const stays = 3

// rank is by how much a connection is missed, up to stays. Strangers never drive known callers out of the
// places that those have for themselves.
func (p *places) rank(c *visitor) int {
	switch {
	case c.idle && !c.known:
		return 0
	case c.idle && p.known > maxConns-maxStrangers:
		return 1
	case !c.known:
		return 2
	}
	return stays
}

// drop takes the place away from a connection.
func (p *places) drop(c *visitor) {
	delete(p.taken, c.conn)
	if c.known {
		p.known--
	}
	c.stay()
}

// follow is for http.Server.ConnState.
func (p *places) follow(conn net.Conn, state http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.taken[conn] // nil: it was closed for another
	switch state {
	case http.StateActive:
		if c != nil {
			c.stay()
		}
		return
	case http.StateIdle:
		if c != nil {
			c.rest()
		}
	case http.StateClosed, http.StateHijacked:
		p.open--
		if c != nil {
			p.drop(c)
		}
	}
	select {
	case p.changed <- struct{}{}:
	default: // it is known already that something has
	}
}

// stay notes that a connection is at work, or has ended.
func (c *visitor) stay() {
	c.idle = false
	if c.end != nil {
		c.end.Stop()
	}
}

// rest notes that a connection is idle. A stranger's is closed soon; the server's IdleTimeout is for the
// others.
func (c *visitor) rest() {
	c.idle, c.since = true, time.Now()
	if !c.known {
		c.end = time.AfterFunc(strangerIdle, func() { cut(c.conn) })
	}
}

type visitorKey struct{}

// remember is for http.Server.ConnContext: requests know their connection's place.
func (p *places) remember(ctx context.Context, conn net.Conn) context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	return context.WithValue(ctx, visitorKey{}, p.taken[conn])
}

// welcome notes that the caller at the other end of a request's connection is known. It does nothing under a
// server of the caller's own.
func welcome(r *http.Request) {
	c, _ := r.Context().Value(visitorKey{}).(*visitor)
	if c == nil {
		return
	}
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	if !c.known && c.in.taken[c.conn] == c {
		c.known = true
		c.in.known++
	}
}

// cut closes a connection without a farewell, which a peer that reads nothing could delay.
func cut(conn net.Conn) { _ = bare(conn).Close() }

// reset is cut, and what has not been sent is dropped: the kernel would keep it for a peer that reads
// nothing.
func reset(conn net.Conn) {
	if tcp, ok := bare(conn).(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	cut(conn)
}

// bare is a connection without its TLS.
func bare(conn net.Conn) net.Conn {
	if t, ok := conn.(*tls.Conn); ok {
		return t.NetConn()
	}
	return conn
}
