package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

var (
	errUpgrade  = errors.New("the client asks for a protocol whose name is malformed")
	errNotAsked = errors.New("the upstream switches to a protocol that was not asked for")
)

// pass sends a request on, and its answer back.
func (p *Proxy) pass(w http.ResponseWriter, r *http.Request) {
	f := flightOf(r)
	out, err := f.outgoing(r)
	if err != nil {
		f.settle(nil, err)
		p.fail(w, r, err)
		return
	}
	f.asked = time.Now()
	res, err := p.ups.RoundTrip(out)
	f.mu.Lock()
	f.answered = true // nothing may be said before it any more
	f.mu.Unlock()
	if f.entry != nil && err == nil {
		f.entry.upstream = res.StatusCode
	}
	f.settle(res, err)
	switch {
	case err != nil:
		p.fail(w, r, err)
	case res.StatusCode == http.StatusSwitchingProtocols:
		if err = f.tunnel(w, out, res); err != nil {
			_ = res.Body.Close()
			p.fail(w, r, err)
		}
	case res.StatusCode < http.StatusOK || res.StatusCode > 999: // no server can write such a status
		_ = res.Body.Close()
		p.fail(w, r, fmt.Errorf("the answer has the status %d", res.StatusCode))
	default:
		f.deliver(w, res)
	}
}

// outgoing is the request for the upstream.
func (f *flight) outgoing(in *http.Request) (*http.Request, error) {
	protocol := upgradeOf(in.Header)
	beyond := func(r rune) bool { return r >= 0x7f } // ASCII
	if !httpguts.ValidHeaderFieldValue(protocol) || strings.ContainsFunc(protocol, beyond) {
		return nil, errUpgrade
	}
	f.out, f.url = *in, *in.URL
	out := &f.out
	out.URL, out.Close, out.Trailer = &f.url, false, nil
	out.Header = make(http.Header, len(in.Header)+4)
	moveEndToEnd(out.Header, in.Header)
	if httpguts.HeaderValuesContainsToken(in.Header["Te"], "trailers") {
		out.Header["Te"] = []string{"trailers"}
	}
	if protocol != "" && in.ContentLength == 0 { // behind a body it is not clear where the other protocol begins
		out.Header["Connection"], out.Header["Upgrade"] = []string{"Upgrade"}, []string{protocol}
	}
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = noAgent
	}
	if out.Body = nil; in.ContentLength != 0 {
		out.Body = io.NopCloser(in.Body) // to close it is for the server
	}
	rewrite(out, in, f)
	return out, nil
}

// noAgent has net/http send no name of its own.
var noAgent = []string{""}

// hop reports whether a field is for the next server alone (RFC 9110, 7.6.1, and what others made of it).
func hop(name string) bool {
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// moveEndToEnd puts the fields of a header that are passed on beside those of another one.
func moveEndToEnd(to, from http.Header) {
	dropped := named(from["Connection"])
	for name, lines := range from {
		if hop(name) || dropped[name] {
			continue
		}
		if there := to[name]; len(there) > 0 {
			lines = append(there[:len(there):len(there)], lines...)
		}
		to[name] = lines
	}
}

// named are the fields that lines of Connection name, beside those that are for the next server anyway. There may be
// as many as a head has bytes, so that each is looked at once.
func named(connection []string) (fields map[string]bool) {
	for _, list := range connection {
		for token := range strings.SplitSeq(list, ",") {
			switch token = strings.Trim(token, " \t"); strings.ToLower(token) {
			case "", "close", "keep-alive", "upgrade":
				continue
			}
			if fields == nil {
				fields = make(map[string]bool)
			}
			fields[http.CanonicalHeaderKey(token)] = true
		}
	}
	return fields
}

// Informed passes an answer of status 1xx on. HTTP/1.0 has none.
func (f *flight) Informed(status int, h http.Header) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answered || !f.request.ProtoAtLeast(1, 1) {
		return
	}
	own := f.w.Header()
	kept := maps.Clone(own)
	clear(own)
	moveEndToEnd(own, h)
	f.w.WriteHeader(status)
	clear(own)
	maps.Copy(own, kept)
}

// deliver sends an answer to the client.
func (f *flight) deliver(w http.ResponseWriter, res *http.Response) {
	f.join(res.Header, false)
	header := w.Header()
	moveEndToEnd(header, res.Header)
	var announced []string
	for name := range res.Trailer {
		if httpguts.ValidTrailerHeader(name) {
			announced = append(announced, name)
		}
	}
	if len(announced) > 0 {
		header["Trailer"] = []string{strings.Join(announced, ", ")}
	}
	if _, ok := header["Content-Type"]; !ok {
		header["Content-Type"] = nil // or net/http guesses one
	}
	w.WriteHeader(res.StatusCode)
	err := copyBody(w, res)
	_ = res.Body.Close()
	if err != nil {
		panic(http.ErrAbortHandler) // the client must see that the answer is not whole
	}
	if len(res.Trailer) > 0 {
		_ = http.NewResponseController(w).Flush() // or a short body is given a length, which drops them
	}
	for name, lines := range res.Trailer {
		switch {
		case !httpguts.ValidTrailerHeader(name): // it would say where a message ends, or for whom it is
		case len(announced) > 0 && slices.Contains(announced, name):
			header[name] = lines
		default:
			header[http.TrailerPrefix+name] = lines
		}
	}
}

// upgradeOf is the protocol that a header names to switch to, "" for none.
func upgradeOf(h http.Header) string {
	if !httpguts.HeaderValuesContainsToken(h["Connection"], "Upgrade") {
		return ""
	}
	return h.Get("Upgrade")
}

// tunnel joins a client's connection with one whose upstream has switched to the protocol that the request asks for,
// until both directions are at their ends, or one fails.
func (f *flight) tunnel(w http.ResponseWriter, out *http.Request, res *http.Response) error {
	asked, got := upgradeOf(out.Header), upgradeOf(res.Header)
	back, ok := res.Body.(io.ReadWriteCloser)
	if got == "" || len(got) != len(asked) || !strings.EqualFold(got, asked) || !ok { // asked is ASCII
		return errNotAsked
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	defer conn.Close()
	defer back.Close()
	defer context.AfterFunc(f, func() { _ = back.Close() })()
	f.join(res.Header, true)
	if f.entry != nil { // what follows goes past it
		f.entry.status = res.StatusCode
	}
	header := w.Header()
	maps.Copy(header, res.Header)
	res.Header, res.Body = header, nil
	if err = res.Write(rw); err == nil {
		err = rw.Flush()
	}
	if early := rw.Reader.Buffered(); err == nil && early > 0 {
		_, err = io.CopyN(back, rw, int64(early))
	}
	ends := make(chan error, 2)
	if err == nil {
		go func() { ends <- oneWay(back, conn) }()
		go func() { ends <- oneWay(conn, back) }()
		err = <-ends
	}
	if err == nil {
		<-ends
	}
	return nil // both sides have their connections closed
}
