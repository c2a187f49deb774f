//go:build unix

package wire

import "syscall"

// quiet reports whether there is nothing to read from a socket, neither bytes nor its end.
func quiet(c syscall.RawConn) (yes bool) {
	_ = c.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		yes = err == syscall.EAGAIN || err == syscall.EWOULDBLOCK
	})
	return yes
}
