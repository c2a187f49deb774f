package httplimit

import "net"

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
