package door

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/quotient-go/quotient/cmd/quotient/internal/front"
	"github.com/quotient-go/quotient/cmd/quotient/internal/wire"
)

// question is a request that another proxy asks about. It is the context of that request, and the writer of its answer.
type question struct {
	context.Context // of the caller
	request         http.Request
	unix            bool        // the client's connection is one of a Unix socket
	admitted        bool        // the request has got to the upstream
	header          http.Header // of the answer
	answered        http.Header // of the answer, when its head was written
	status          int         // 0 until then
	body            []byte
	permit          *permit // to hold; nil: none
}

type questionKey struct{}

// unixSocket is the end of a connection whose peer has no address.
var unixSocket net.Addr = &net.UnixAddr{Net: "unix", Name: "@"}

// Value returns the question for its key. The end of the connection is one of the client's, not of the caller's.
func (q *question) Value(key any) any {
	switch key {
	case questionKey{}:
		return q
	case http.LocalAddrContextKey:
		if q.unix {
			return unixSocket
		}
		return nil
	}
	return q.Context.Value(key)
}

// ofUnix is what is said of a client at a Unix socket in place of an address, as nginx does.
const ofUnix = "unix:"

// newQuestion makes a question of the parts of a request and its header, or an error that has the name of a wrong part.
func newQuestion(ctx context.Context, is, names parts, header http.Header) (*question, error) {
	q := &question{Context: ctx, unix: is[client] == ofUnix, header: make(http.Header, 8)}
	from, known := addrOf(is[client])
	u, err := url.ParseRequestURI(is[target])
	for i, part := range [...]struct {
		ok   bool
		want string
	}{
		method: {httpguts.ValidHeaderFieldName(is[method]), "a method"},
		host:   {is[host] != "" && front.ValidHost(is[host]), "a host"},
		target: {err == nil && strings.HasPrefix(is[target], "/"), "a path that begins with /"},
		client: {known || q.unix, "an address"},
	} {
		if !part.ok {
			return nil, fmt.Errorf("%s is %.100q, want %s", names[i], is[i], part.want)
		}
	}
	r := http.Request{
		Method: is[method], Host: is[host], RequestURI: is[target], URL: u, RemoteAddr: "@", Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody,
	}
	if !q.unix {
		r.RemoteAddr = netip.AddrPortFrom(from, 0).String()
	}
	q.request = *r.WithContext(q)
	return q, nil
}

// addrOf reads an address, with or without a port.
func addrOf(text string) (netip.Addr, bool) {
	if at, err := netip.ParseAddrPort(text); err == nil {
		return at.Addr().Unmap().WithZone(""), true
	}
	at, err := netip.ParseAddr(text)
	return at.Unmap().WithZone(""), err == nil
}

// Header is that of the answer.
func (q *question) Header() http.Header { return q.header }

// WriteHeader notes the head of the answer. It returns when the permit of a question that holds one is at its end.
func (q *question) WriteHeader(status int) {
	if q.status != 0 {
		return
	}
	q.status, q.answered = status, q.header
	if q.admitted && q.permit != nil {
		q.answered = maps.Clone(q.header)
		q.permit.wait()
	}
}

// Write notes a part of the body, which a rule's own refusal bounds to 64 KiB.
func (q *question) Write(b []byte) (int, error) {
	q.WriteHeader(http.StatusOK)
	q.body = append(q.body, b...)
	return len(b), nil
}

// RoundTrip answers 200 at once: a request that gets here has been admitted.
func (d *Door) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	if watch, ok := ctx.Value(wire.WatchKey{}).(wire.Watch); ok {
		watch.Connected(true)
		watch.Sent()
	}
	if q, ok := ctx.Value(questionKey{}).(*question); ok {
		q.admitted = true
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, Request: r,
	}, nil
}

// decide has the handler decide on a question over HTTP.
func (d *Door) decide(w http.ResponseWriter, r *http.Request, s *settings) {
	q, err := s.profile.read(r)
	var most time.Duration
	if err == nil {
		most, err = s.holding(r)
	}
	switch {
	case err != nil:
	case most > 0:
		err = d.hold(q, most)
	default:
		d.ask.ServeHTTP(q, &q.request)
	}
	status := http.StatusBadRequest
	switch err {
	case nil:
		s.profile.answer(w, q)
		return
	case errFull:
		status = http.StatusServiceUnavailable
	case errLong:
		status = http.StatusRequestHeaderFieldsTooLarge
	}
	d.refuse(w, r, s.profile.carried(w.Header(), status), err)
}

// ok reports whether the request may go on.
func (q *question) ok() bool { return q.admitted && q.status == http.StatusOK }
