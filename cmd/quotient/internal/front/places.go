package front

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// places knows the connections that are open. When there is no room for a new one, the one that has been without a
// request for the longest time is closed for it. That one is idle between two requests, or its head has not come
// whole. When all are at work, the new one is closed. So silence holds no place, and work that was begun keeps its own.
type places struct {
	log  *slog.Logger
	most atomic.Int64

	mu       sync.Mutex
	open     map[*conn]struct{}
	calm     calmList // those without a request at work
	closed   bool     // to new ones
	upgraded int
	evicted  uint64
	refused  uint64
	crowded  time.Time     // of the last line in the log
	empty    chan struct{} // is closed when nothing is open; nil unless wanted
}

// enter takes a place, if there is one or one can be made.
func (p *places) enter(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	for int64(len(p.open)) >= p.most.Load() {
		if !p.evictLocked() {
			p.refused++
			p.sayLocked()
			return false
		}
	}
	if p.open == nil {
		p.open = make(map[*conn]struct{})
	}
	p.open[c] = struct{}{}
	c.placed = true
	p.calmLocked(c, true)
	return true
}

// evict closes the connection that has been calm for the longest time.
func (p *places) evict() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.evictLocked()
}

func (p *places) evictLocked() bool {
	c := p.calm.first
	if c == nil {
		return false
	}
	p.leaveLocked(c)
	_ = c.raw.Close() // without the farewell of TLS, which a peer that reads nothing would delay
	p.evicted++
	p.sayLocked()
	return true
}

// sayLocked writes a line a second at most.
func (p *places) sayLocked() {
	if now := time.Now(); now.Sub(p.crowded) >= time.Second {
		p.crowded = now
		p.log.Warn("all places for connections are taken (proxy.max.connections)",
			"open", len(p.open), "evicted", p.evicted, "refused", p.refused)
	}
}

// follow is for http.Server.ConnState.
func (p *places) follow(nc net.Conn, state http.ConnState) {
	c, ok := nc.(*conn)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !c.placed {
		return
	}
	switch state {
	case http.StateActive:
		p.calmLocked(c, false)
	case http.StateIdle:
		if !c.rest() {
			p.leaveLocked(c)
			_ = c.raw.Close()
			return
		}
		p.calmLocked(c, true)
	case http.StateHijacked:
		p.calmLocked(c, false)
		c.upgrade()
		p.upgraded++
	}
}

func (p *places) calmLocked(c *conn, calm bool) {
	if c.calm {
		p.calm.remove(c)
	}
	if calm {
		p.calm.add(c)
	}
}

// leave gives a place back; it may be called again.
func (p *places) leave(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaveLocked(c)
}

func (p *places) leaveLocked(c *conn) {
	if !c.placed {
		return
	}
	delete(p.open, c)
	c.placed = false
	p.calmLocked(c, false)
	if c.life != nil {
		c.life.Stop()
		p.upgraded--
	}
	p.emptyLocked()
}

func (p *places) emptyLocked() {
	if p.empty != nil && len(p.open) == 0 {
		close(p.empty)
		p.empty = nil
	}
}

// left is closed when nothing is open any more.
func (p *places) left() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	empty := make(chan struct{})
	p.empty = empty
	p.emptyLocked()
	return empty
}

// wane takes no more connections, and closes those without a request at work.
func (p *places) wane() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.clear(false)
}

// clear closes the connections without a request at work, or all.
func (p *places) clear(all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		if all || c.calm {
			p.leaveLocked(c)
			_ = c.raw.Close()
		}
	}
}

func (p *places) state() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return State{Connections: len(p.open), Upgraded: p.upgraded, Evicted: p.evicted, Refused: p.refused}
}

// listener gives each connection a place.
type listener struct {
	net.Listener
	server *Server
}

// Accept waits for a connection that finds a place.
func (l listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			l.server.places.evict() // net/http tries again soon
		}
		if err != nil {
			return nil, err
		}
		c := newConn(l.server, raw)
		if l.server.places.enter(c) {
			return c, nil
		}
		_ = raw.Close()
	}
}

// calmList is a list of connections, the one that has been in it for the longest time in front. Each request
// takes its connection out and puts it back: container/list would allocate each time.
type calmList struct{ first, last *conn }

func (l *calmList) add(c *conn) {
	c.calm, c.before, c.behind = true, l.last, nil
	if l.last == nil {
		l.first = c
	} else {
		l.last.behind = c
	}
	l.last = c
}

func (l *calmList) remove(c *conn) {
	if c.before == nil {
		l.first = c.behind
	} else {
		c.before.behind = c.behind
	}
	if c.behind == nil {
		l.last = c.before
	} else {
		c.behind.before = c.before
	}
	c.calm, c.before, c.behind = false, nil, nil
}
