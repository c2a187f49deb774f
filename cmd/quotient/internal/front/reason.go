package front

import (
	"errors"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/pires/go-proxyproto"
)

// reason is why a request is refused before the handler has it, or a connection ends that has none.
type reason uint8

const (
	whyHead reason = iota // in another way
	whyRequestLine
	whyVersion
	whyLineEnd
	whyField
	whyLength
	whyCoding
	whyHost
	whyTarget
	whyMethod
	whyExpectation
	whyTooLong
	whyTooMany
	whyNoRoom
	whySlow
	whyTLS
	whyProxyProtocol
	reasons // so many there are
)

var reasonNames = [reasons]string{
	"head", "request_line", "version", "line_end", "field", "length", "coding", "host", "target", "method",
	"expectation", "too_long", "too_many_fields", "no_room", "slow_head", "tls", "proxy_protocol",
}

// fault is what becomes of a connection that has no request. With status 0 it ends without an answer.
type fault struct {
	status int
	why    reason
}

// faults are those that framing finds in a head.
var faults = map[error]fault{
	errLineEnd:    {http.StatusBadRequest, whyLineEnd},
	errFolded:     {http.StatusBadRequest, whyField},
	errVersion:    {http.StatusBadRequest, whyVersion},
	errRequest:    {http.StatusBadRequest, whyRequestLine},
	errField:      {http.StatusBadRequest, whyField},
	errTwoLength:  {http.StatusBadRequest, whyLength},
	errCodingOld:  {http.StatusBadRequest, whyCoding},
	errAuthority:  {http.StatusBadRequest, whyHost},
	errCoding:     {http.StatusNotImplemented, whyCoding},
	errLong:       {http.StatusRequestHeaderFieldsTooLarge, whyTooLong},
	errMany:       {http.StatusRequestHeaderFieldsTooLarge, whyTooMany},
	errNoRoom:     {http.StatusServiceUnavailable, whyNoRoom},
	errBadPreface: {0, whyVersion},
}

// faultOf is the fault that has kept a head from being read. There is none if the client has gone, or was silent, or
// speaks HTTP/2: net/http answers that.
func (c *conn) faultOf() (f fault, ok bool) {
	switch p, announced := c.raw.(*proxyproto.Conn); {
	case c.framing.err != nil:
		if f, ok = faults[c.framing.err]; !ok {
			f.status = http.StatusBadRequest
		}
		return f, true
	case announced && p.ProxyHeader() == nil:
		return fault{0, whyProxyProtocol}, !gone(p)
	case errors.Is(c.readErr, errNoRoom): // for messages of a handshake
		return fault{0, whyNoRoom}, true
	case c.tls != nil && c.secure == nil:
		return fault{0, whyTLS}, !c.records.failed
	case errors.Is(c.readErr, os.ErrDeadlineExceeded):
		return fault{0, whySlow}, c.framing.inHead()
	}
	return fault{http.StatusBadRequest, whyHead}, c.readErr == nil && c.framing.frames == nil
}

// gone reports whether a peer has left that did not send the header of the PROXY protocol, as one does that looks
// whether there is a server. Package proxyproto does not tell it from one that sends something else.
func gone(p *proxyproto.Conn) bool {
	_ = p.Raw().SetReadDeadline(time.Now().Add(time.Millisecond)) // a time that has passed would read nothing
	_, err := p.Raw().Read(make([]byte, 1))
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

// OnRefusal has f called for each request that is refused before the handler has it, and for each connection that ends
// since what comes on it is none, or too slow to be one. Status is 0 where there is no answer; f may set fields of any
// other. Reason is one of few. Where no head was read the request has the client's address alone, and no method. f must
// not block.
func OnRefusal(f func(h http.Header, r *http.Request, status int, reason string)) Option {
	return func(s *Server) { s.onRefusal = f }
}

// AnswerBy has f say with which status a client reads such a refusal, for one that knows some only; f may set fields.
// It is not called where there is no answer.
func AnswerBy(f func(h http.Header, status int) int) Option {
	return func(s *Server) { s.answerBy = f }
}

// refused notes that a request is refused, before it is answered, and returns the status of the answer.
func (s *Server) refused(h http.Header, r *http.Request, status int, why reason) int {
	s.refusals[why].Add(1)
	if s.answerBy != nil {
		r.Header.Del("Content-Type") // or a call of gRPC gets 200, which to one that asks about it is an admission
	}
	if s.onRefusal != nil {
		s.onRefusal(h, r, status, reasonNames[why])
	}
	if s.answerBy != nil && status != 0 {
		return s.answerBy(h, status)
	}
	return status
}

// Refusals are how often OnRefusal would have been called for each reason that there is.
func (s *Server) Refusals() map[string]uint64 {
	all := make(map[string]uint64, reasons)
	for why, name := range reasonNames {
		all[name] = s.refusals[why].Load()
	}
	return all
}

// headless stands for the request of a connection whose head was not read.
func (c *conn) headless() *http.Request {
	return (&http.Request{RemoteAddr: c.remote, URL: new(url.URL)}).WithContext(c.ctx)
}
