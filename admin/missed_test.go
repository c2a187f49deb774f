package admin

import (
	"net"
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
