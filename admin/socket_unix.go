//go:build unix

package admin

import (
	"errors"
	"syscall"
)

// ownerOnly sets a socket's mode before it has a name. Linux then gives the file that mode, so there is no instant at which others
// could connect; elsewhere the mode is set when the file is there.
func ownerOnly(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) { _ = syscall.Fchmod(int(fd), 0o600) })
}

// refusedConnection reports whether an error of a dial means that nobody listens.
func refusedConnection(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
