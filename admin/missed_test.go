package admin

import (
	"net"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// loopbackConn is a connection in memory that seems to have come over the loopback interface.
type loopbackConn struct{ net.Conn }

func (loopbackConn) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9090} }
func (loopbackConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 5} }

// watched reports when the other end has closed it.
type watched struct {
	net.Conn
	ended chan time.Time
}

func (w watched) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if err != nil {
		w.end()
	}
	return n, err
}

// Close is what a client does when the server asks it to leave.
func (w watched) Close() error {
	w.end()
	return w.Conn.Close()
}

func (w watched) end() {
	select {
	case w.ended <- time.Now():
	default:
	}
}

// TestWhoIsMissedLeast: the order in which connections are closed for others, and that known callers keep
// their places.
func TestWhoIsMissedLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces(&pipes{conns: make(chan net.Conn), closed: make(chan struct{})})
		evicted := 0
		p.evicted = func() { evicted++ }
		var conns []net.Conn
		ends := func(conn net.Conn) bool { // as the server says of one that was closed
			_, stays := p.taken[conn]
			if !stays {
				p.follow(conn, http.StateClosed)
			}
			return !stays
		}
		come := func(known, idle bool) *visitor {
			t.Helper()
			time.Sleep(time.Millisecond)
			conn, there := net.Pipe()
			t.Cleanup(func() { _ = there.Close() })
			entered := p.enter(conn)
			conns = slices.DeleteFunc(conns, ends)
			if !entered && !p.enter(conn) {
				t.Fatal("no place")
			}
			conns = append(conns, conn)
			c := p.taken[conn]
			if p.follow(conn, http.StateActive); known {
				req, _ := http.NewRequestWithContext(p.remember(t.Context(), conn), http.MethodGet, "/", nil)
				welcome(req)
			}
			if idle {
				p.follow(conn, http.StateIdle)
			}
			return c
		}
		goes := func(c *visitor, what string) {
			t.Helper()
			before := evicted
			come(false, false)
			if p.taken[c.conn] == c || evicted != before+1 {
				t.Errorf("%s stays, and %d were closed", what, evicted-before)
			}
		}
		oldest := come(false, false)
		early, late := come(false, true), come(false, true)
		p.follow(early.conn, http.StateActive)
		time.Sleep(time.Millisecond)
		p.follow(early.conn, http.StateIdle) // now it is idle for a shorter time
		for range maxStrangers - 3 {
			come(false, false)
		}
		goes(late, "the stranger that is idle for the longest time")
		goes(early, "the other idle one")
		goes(oldest, "the first of those that are at work")
		first := come(true, true) // drives a stranger out before it is known
		for range maxConns {
			come(true, true)
		}
		if p.taken[first.conn] == first || p.known > maxConns {
			t.Errorf("of %d known callers the first stays", p.known)
		}
		for range 2 * maxConns {
			come(false, false)
		}
		if p.known != maxConns-maxStrangers {
			t.Errorf("strangers leave %d places to known callers that are idle, want %d", p.known,
				maxConns-maxStrangers)
		}
		for conn := range p.taken {
			p.follow(conn, http.StateClosed)
		}
		if p.open != 0 || len(p.taken) != 0 || p.known != 0 {
			t.Errorf("%d are left, %d known", p.open, p.known)
		}
	})
}
