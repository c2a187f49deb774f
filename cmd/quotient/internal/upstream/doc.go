// Package upstream sends the requests of the proxy to the servers behind it.
//
// A Pool picks the healthy upstream with the fewest requests in flight, and sends a request to it once. It
// never sends one twice, not to another upstream, and not over another connection to the same one.
// http.Transport does that with a request without a body when a connection that was idle breaks. A limit that
// an upstream relies on holds only if every request that was admitted arrives once. The price is a 502 when
// an upstream closes an idle connection at the very moment of a request. Idle connections are closed after
// 4 s, sooner than most servers close them. Give a server that closes sooner a longer keep-alive.
//
// A WebSocket is opened over HTTP/1.1, also where an https upstream speaks HTTP/2. An upgrade to another
// protocol fails there, and any upgrade does at an h2c upstream, which has no HTTP/1.1.
//
// Upstreams are dialled by name. A name that has changed is followed as connections are dialled again. A
// connection that has been idle for 4 s is closed, and a busy one stays until the server closes it.
//
// An upstream is taken out after Unhealthy failures in a row of its checks, or of the connections that
// requests open, and comes back after Healthy successes of its checks. An upstream that fails its very first
// check is out at once. An answer to a request, also 500, is no failure. While Watch does not run nothing is
// taken out, as nothing would bring it back. When all are out a request fails at once with Unavailable, for
// which the client gets 503 and a Retry-After. There is one exception: a single upstream whose checks only
// open connections is always tried. The request's own attempt to connect finds out as much as a check, and a
// refusal by a check that is seconds old would be worse.
package upstream
