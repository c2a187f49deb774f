package httplimit

import (
	"net"

	"github.com/quotient-go/quotient"
)

// heldConn is a hijacked connection that holds a permit until it is closed.
type heldConn struct {
	net.Conn
	hold hold
}

// holdConn joins a connection and a permit. CloseWrite is kept if conn has it.
func holdConn(conn net.Conn, permit quotient.Permit) net.Conn {
	held := &heldConn{Conn: conn, hold: hold{permit: permit}}
	if half, ok := conn.(closeWriter); ok {
		return struct {
			*heldConn
			closeWriter
		}{held, half}
	}
	return held
}

// Close closes the connection and releases the permit, once.
func (c *heldConn) Close() error {
	defer c.hold.end()
	return c.Conn.Close()
}

// NetConn returns the connection itself, as that of tls.Conn does.
func (c *heldConn) NetConn() net.Conn { return c.Conn }
