//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd)

package listen

import (
	"context"
	"syscall"
)

// ownerOnly leaves the mode of a socket to the directory that holds it.
func ownerOnly(string, string, syscall.RawConn) error { return nil }

// refusedConnection is false: what cannot be told from a socket in use stays.
func refusedConnection(error) bool { return false }

// lockPath locks nothing: no socket is removed that another process may have made, so one of two fails to make it.
func lockPath(context.Context, string) (unlock func() error, err error) {
	return func() error { return nil }, nil
}
