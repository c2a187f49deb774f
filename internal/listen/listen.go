// Package listen bounds how many connections a server has open. When there is no room for a new one, the
// connection that is missed least is closed for it: silence holds no place, and work that was begun keeps its own.
package listen

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quotient-go/quotient/internal/rest"
)

const (
	// StrangerIdle is how long a stranger may have its answer and send no other request.
	StrangerIdle = 5 * time.Second
	// strangerBuffer is what the kernel keeps for a stranger that does not read; by itself it takes megabytes.
	strangerBuffer = 64 << 10
)

// Places knows the connections that are open. It does not wrap them, since a server looks at their type for
// TLS: the server says what becomes of them. The fields must not change after the first call of Listener.
type Places struct {
	// Kept are the places that strangers cannot take. A caller is a stranger until Welcome; with 0, nobody is.
	// A stranger has to give way even when it is at work, and may be idle for StrangerIdle.
	Kept int
	// Wait has Accept wait while there is no room. Otherwise the new connection is closed.
	Wait bool
	// Crowded is called when a connection was closed for want of room, once a second at most. It may be nil.
	Crowded func(State)

	most atomic.Int64

	mu       sync.Mutex
	open     map[net.Conn]*place // those too that were closed, until the server has noticed
	ranks    [4]place            // heads of rings: a ring has the longest in it first
	taken    int                 // of open, without those that were closed
	known    int                 // of taken
	upgraded int                 // of taken
	evicted  uint64
	refused  uint64
	said     time.Time // when Crowded was called
	ended    bool      // no more connections are let in
	changed  chan struct{}
	empty    chan struct{} // is closed when nothing is open; nil unless wanted
}

// place is one connection.
type place struct {
	in             *Places
	conn           net.Conn
	known          bool // its caller
	calm           bool // it is between two requests; or before its first, if there are no strangers
	upgraded       bool
	gone           bool        // it was closed for another, or at the end
	end            *time.Timer // of a stranger that is calm
	before, behind *place
}

// The ranks say who goes first.
const (
	calmStranger = iota
	calmKnown    // as long as more than Kept callers are known
	stranger
	stays
)

// New has room for so many connections.
func New(most int) *Places {
	p := &Places{open: make(map[net.Conn]*place), changed: make(chan struct{}, 1)}
	p.SetMost(most)
	for i := range p.ranks {
		p.ranks[i].before, p.ranks[i].behind = &p.ranks[i], &p.ranks[i]
	}
	return p
}

// SetMost changes for how many connections there is room. If it falls, the next new one makes others leave.
func (p *Places) SetMost(n int) { p.most.Store(int64(n)) }

// Listener gives each connection of l a place.
func (p *Places) Listener(l net.Listener) net.Listener {
	closed := make(chan struct{})
	end := sync.OnceValue(func() error { close(closed); return l.Close() })
	return &listener{Listener: l, places: p, closed: closed, close: end}
}

type listener struct {
	net.Listener
	places *Places
	closed chan struct{}
	close  func() error
}

// Close also ends an Accept that waits for room.
func (l *listener) Close() error { return l.close() }

// Accept waits for a connection that finds a place.
func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			l.places.shed() // net/http tries again soon
		}
		if err != nil {
			return nil, err
		}
		if in, err := l.admit(conn); in || err != nil {
			return conn, err
		}
	}
}

// admit gives a connection its place, or closes it.
func (l *listener) admit(conn net.Conn) (in bool, err error) {
	for !l.places.enter(conn) {
		if !l.places.Wait {
			_ = cut(conn)
			return false, nil
		}
		select {
		case <-l.places.changed:
		case <-l.closed:
			_ = cut(conn)
			return false, net.ErrClosed
		}
	}
	return true, nil
}

// enter takes a place, if there is one or one can be made.
func (p *Places) enter(conn net.Conn) bool {
	p.mu.Lock()
	defer p.unlockAndSay(p.evicted + p.refused)
	most := int(p.most.Load())
	if p.ended {
		return false
	}
	for p.taken >= most || p.Kept > 0 && p.taken-p.known >= most-p.Kept {
		if !p.evict() {
			if !p.Wait {
				p.refused++
			}
			return false
		}
	}
	if p.Wait && len(p.open) >= most {
		return false // what was closed for this one has not ended yet
	}
	c := &place{in: p, conn: conn, known: p.Kept == 0}
	if tcp, ok := bare(conn).(*net.TCPConn); ok && !c.known {
		_ = tcp.SetWriteBuffer(strangerBuffer)
	}
	c.before, c.behind = c, c
	p.open[conn] = c
	p.taken++
	if c.known {
		p.known++
	}
	c.put(c.known)
	return true
}

// shed makes room for what the process needs otherwise.
func (p *Places) shed() {
	p.mu.Lock()
	defer p.unlockAndSay(p.evicted + p.refused)
	p.evict()
}

// unlockAndSay unlocks p.mu, and reports if connections have been closed since there were so many.
func (p *Places) unlockAndSay(before uint64) {
	now := time.Now()
	say := p.Crowded != nil && p.evicted+p.refused > before && now.Sub(p.said) >= time.Second
	if say {
		p.said = now
	}
	state := p.state()
	p.mu.Unlock()
	if say {
		p.Crowded(state)
	}
}

// evict closes the connection that is missed least: of its rank, the one that has been in it the longest.
func (p *Places) evict() bool {
	for rank := range stays {
		c := p.ranks[rank].behind
		if c == &p.ranks[rank] || rank == calmKnown && p.known <= p.Kept {
			continue
		}
		c.drop()
		p.evicted++
		return true
	}
	return false
}

// put moves a connection to the end of the ring of its rank.
func (c *place) put(calm bool) {
	rank := stays
	switch c.calm = calm; {
	case calm && !c.known:
		rank = calmStranger
	case calm:
		rank = calmKnown
	case !c.known:
		rank = stranger
	}
	c.before.behind, c.behind.before = c.behind, c.before
	head := &c.in.ranks[rank]
	c.before, c.behind = head.before, head
	head.before.behind, head.before = c, c
}

// vacate gives the place of a connection back.
func (c *place) vacate() {
	p := c.in
	c.before.behind, c.behind.before = c.behind, c.before
	c.gone = true
	p.taken--
	if c.known {
		p.known--
	}
	if c.upgraded {
		p.upgraded--
	}
	c.stir()
	p.sayEmpty()
}

// drop closes a connection. For a stranger the kernel keeps nothing that has not been sent: it could be one
// that reads nothing.
func (c *place) drop() {
	c.vacate()
	if tcp, ok := bare(c.conn).(*net.TCPConn); ok && !c.known {
		_ = tcp.SetLinger(0)
	}
	_ = cut(c.conn)
}

// stir notes that a stranger is not idle any more.
func (c *place) stir() {
	if c.end != nil {
		c.end.Stop()
	}
}

// Follow is for http.Server.ConnState. A hijacked connection keeps its place until Leave.
func (p *Places) Follow(conn net.Conn, state http.ConnState) {
	if state == http.StateClosed {
		p.Leave(conn)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.open[conn]
	if c == nil || c.gone {
		return
	}
	switch state {
	case http.StateActive:
		c.stir()
		if c.calm {
			c.put(false)
		}
	case http.StateIdle:
		c.put(true)
		if !c.known { // the server's IdleTimeout is for the others
			c.end = time.AfterFunc(StrangerIdle, func() { _ = cut(conn) })
		}
		rest.Wake(p.changed)
	case http.StateHijacked:
		c.put(false)
		c.upgraded = true
		p.upgraded++
	}
}

// Leave gives a place back; it may be called again.
func (p *Places) Leave(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.open[conn]
	if c == nil {
		return
	}
	delete(p.open, conn)
	if !c.gone {
		c.vacate()
	}
	rest.Wake(p.changed)
}

type placeKey struct{}

// Remember is for http.Server.ConnContext: requests know their connection's place, for Welcome.
func (p *Places) Remember(ctx context.Context, conn net.Conn) context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	return context.WithValue(ctx, placeKey{}, p.open[conn])
}

// Welcome notes that the caller at the other end of a request's connection is no stranger. It does nothing
// under another server.
func Welcome(r *http.Request) {
	c, _ := r.Context().Value(placeKey{}).(*place)
	if c == nil {
		return
	}
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	if !c.known && !c.gone {
		c.known = true
		c.in.known++
		c.put(c.calm)
	}
}

// Empty is closed when nothing is open any more.
func (p *Places) Empty() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	empty := make(chan struct{})
	p.empty = empty
	p.sayEmpty()
	return empty
}

func (p *Places) sayEmpty() {
	if p.empty != nil && p.taken == 0 {
		close(p.empty)
		p.empty = nil
	}
}

// Wane lets no more connections in, and closes those without a request at work.
func (p *Places) Wane() { p.clear(false) }

// Clear lets no more connections in, and closes all.
func (p *Places) Clear() { p.clear(true) }

func (p *Places) clear(all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for _, c := range p.open {
		if !c.gone && (all || c.calm) {
			c.drop()
		}
	}
}

// Drop closes a connection.
func (p *Places) Drop(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.open[conn]; c != nil && !c.gone {
		c.drop()
	}
}

// State says what is open, and what was closed for want of room.
type State struct {
	Most     int    // for how many there is room
	Open     int    // connections
	Known    int    // of these, of callers that are not strangers
	Upgraded int    // of these
	Evicted  uint64 // connections that were closed to make room
	Refused  uint64 // new ones that found no room
}

// State returns how many connections there are.
func (p *Places) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state()
}

func (p *Places) state() State {
	return State{
		Most: int(p.most.Load()), Open: p.taken, Known: p.known, Upgraded: p.upgraded,
		Evicted: p.evicted, Refused: p.refused,
	}
}

// cut closes a connection without the farewell of TLS, which a peer that reads nothing could delay.
func cut(conn net.Conn) error { return bare(conn).Close() }

// bare is a connection without its TLS.
func bare(conn net.Conn) net.Conn {
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok {
		return t.NetConn()
	}
	return conn
}
