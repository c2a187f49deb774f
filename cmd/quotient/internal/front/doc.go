// Package front is the server in front of the proxy's handler: what clients can hold is bounded in number, size
// and time, and what two servers could read in two ways is refused before anybody reads it.
//
// What net/http does by itself: time-outs for heads and idle connections, bytes of a head, streams of an HTTP/2
// connection, rapid resets, CONTINUATION and control frames without an end, field names and values, one Host.
//
// What this package does: the number of connections (places.go), the time between two parts of a body and of an
// answer (conn.go, stream.go), the life of upgraded connections, framing that is ambiguous (framing.go), targets
// and fields that would not arrive as they were sent (strict.go), certificates that are read again (certs.go), the
// PROXY protocol (peers.go) and a shutdown with an end (serve.go).
package front
