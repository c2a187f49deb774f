// Package front is the server in front of the proxy's handler. All that clients can hold is bounded in
// number, size and time. A request that two servers could read in two ways is refused before it is read.
//
// net/http itself bounds the time of heads and of idle connections, the bytes of a head and the streams of an HTTP/2
// connection. It ends rapid resets and endless CONTINUATION frames. It checks names and values of fields.
//
// This package bounds the number of connections, what all of them hold (framing.go, frames.go, records.go, stream.go),
// the time between two parts of a body and of an answer
// (conn.go, stream.go) and the life of upgraded connections. It refuses ambiguous framing (framing.go), and targets
// and fields that would not arrive as they were sent (strict.go). It reads certificates again (certs.go) and the PROXY
// protocol (peers.go), and its shutdown has an end (serve.go).
package front
