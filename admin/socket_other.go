//go:build !unix

package admin

import "syscall"

// ownerOnly leaves the mode of a socket to the directory that holds it.
func ownerOnly(string, string, syscall.RawConn) error { return nil }

// refusedConnection is false: what cannot be told from a socket in use stays.
func refusedConnection(error) bool { return false }
