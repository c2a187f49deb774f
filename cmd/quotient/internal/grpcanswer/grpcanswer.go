// Package grpcanswer says to clients of gRPC what our own answers say to others. They take an answer that is not of
// gRPC for one of a server that is away, and some ask again at once.
package grpcanswer

import (
	"net/http"
	"strconv"
	"strings"
)

// The codes of gRPC that are used, from its list of status codes.
const (
	unknown           = "2"
	deadlineExceeded  = "4"
	resourceExhausted = "8"
	unimplemented     = "12"
	internal          = "13"
	unavailable       = "14"
)

// maxSeconds is the longest wait that is passed on: its milliseconds are a number of 32 bits to a client.
const maxSeconds = (1<<31 - 1) / 1000

// Write answers a call of gRPC in place of a status of HTTP, and reports false for any other request, which it leaves
// alone. The answer is one head without a body. It says how long to wait as Retry-After does, which the caller has
// set. A call that no limit will ever admit has no Retry-After, and is not to be repeated.
func Write(w http.ResponseWriter, r *http.Request, status int, text string) bool {
	if !Asked(r) {
		return false
	}
	h := w.Header()
	code := codeOf(status)
	delete(h, "Content-Length")
	h["Cache-Control"] = []string{"no-store"}
	h["Content-Type"] = []string{"application/grpc"}
	h["Grpc-Status"] = []string{code}
	h["Grpc-Message"] = []string{encode(text)}
	seconds, err := strconv.ParseInt(h.Get("Retry-After"), 10, 64)
	switch {
	case err == nil:
		h["Grpc-Retry-Pushback-Ms"] = []string{strconv.FormatInt(min(seconds, maxSeconds)*1000, 10)}
	case code == resourceExhausted:
		h["Grpc-Retry-Pushback-Ms"] = []string{"-1"}
	}
	w.WriteHeader(http.StatusOK)
	return true
}

// Asked reports whether a request is a call of gRPC. Its media type goes on with a plus or a semicolon, if at all:
// gRPC-Web is another protocol, whose status is in a body.
func Asked(r *http.Request) bool {
	if r.ProtoMajor != 2 {
		return false
	}
	rest, ok := strings.CutPrefix(strings.ToLower(r.Header.Get("Content-Type")), "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// codeOf follows gRPC's table of statuses of HTTP, but for the limits: to that table 429 is a server that is away.
func codeOf(status int) string {
	switch status {
	case http.StatusTooManyRequests, http.StatusRequestEntityTooLarge:
		return resourceExhausted
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		return unavailable
	case http.StatusGatewayTimeout, http.StatusRequestTimeout:
		return deadlineExceeded
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return unimplemented
	case http.StatusBadRequest, http.StatusRequestHeaderFieldsTooLarge:
		return internal
	}
	return unknown
}

// encode percent-encodes what a message may not hold: all but printable ASCII, and the percent sign.
func encode(text string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '%' {
			b.WriteString(string([]byte{'%', hex[c>>4], hex[c&15]}))
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
