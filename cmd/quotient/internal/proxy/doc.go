// Package proxy is the handler of quotient proxy: it finds the rule of a request, asks the rule's limiter,
// and passes the request on to the upstream, once.
//
// A rule is found by the canonical path (httplimit.CanonicalPath), or by what the file says of the upstreams' way to
// read paths, and the host in lower case. Where another way leads to another rule the request is refused. The path that
// goes to the upstream is the client's own, byte for byte. Only bytes that no URI may hold, such as
// a quote or a letter that is not ASCII, are percent-encoded. The query goes on as it came.
//
// Addresses that a client sent go on only if it is in a trusted network: Forwarded, X-Forwarded-* and
// X-Real-IP of others are dropped. X-Forwarded-For, -Host and -Proto are always set.
package proxy
