package httplimit

import (
	"net"
	"sync/atomic"
)

// hold is what outlives the call that took it. It may be ended from any goroutine and any number of
// times: its permits are released once.
type hold struct {
	held admission
	over atomic.Bool
}

func (h *hold) end() {
	if h.over.CompareAndSwap(false, true) {
		h.held.Release()
	}
}

// closeWriter is a connection that can end one direction, as TCP can.
type closeWriter interface{ CloseWrite() error }

// heldConn is a hijacked connection that holds a permit until it is closed.
type heldConn struct {
	net.Conn
	hold hold
}

// holdConn joins a connection and its permits. CloseWrite is kept if conn has it.
func holdConn(conn net.Conn, held admission) net.Conn {
	c := &heldConn{Conn: conn, hold: hold{held: held}}
	if half, ok := conn.(closeWriter); ok {
		return struct {
			*heldConn
			closeWriter
		}{c, half}
	}
	return c
}

// Close closes the connection and releases the permit, once.
func (c *heldConn) Close() error {
	defer c.hold.end()
	return c.Conn.Close()
}

// NetConn returns the connection itself, as that of tls.Conn does.
func (c *heldConn) NetConn() net.Conn { return c.Conn }
