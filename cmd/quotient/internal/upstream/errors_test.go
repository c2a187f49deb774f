package upstream

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"testing"
	"time"
)

func TestKinds(t *testing.T) {
	broken := listen(t)
	go accept(broken, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1)) // the request is there
		_ = c.Close()
	})
	free := make(chan struct{})
	silent := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-free
	})
	defer close(free)
	plain := named(t, "plain")
	secure, _ := h2(t, true, func(http.ResponseWriter, *http.Request) {})
	silentH2, _ := h2(t, false, func(http.ResponseWriter, *http.Request) { <-free })
	for _, row := range []struct {
		name, url string
		change    func(*http.Request) *http.Request
		kind      Kind
	}{
		{name: "refused", url: "http://" + nowhere(t), kind: Unavailable},
		{name: "refused h2c", url: "h2c://" + nowhere(t), kind: Unavailable},
		{name: "no such name", url: "http://name.invalid", kind: Unavailable},
		{name: "broken", url: "http://" + broken.Addr().String(), kind: Broken},
		{name: "no TLS there", url: "https://" + plain.Listener.Addr().String(), kind: Broken},
		{name: "unknown certificate", url: secure, kind: Broken},
		{name: "silent", url: silent.URL, kind: Timeout},
		{name: "silent h2c", url: silentH2, kind: Timeout},
		{name: "gone", url: silent.URL, kind: Gone, change: leaving},
		{name: "gone h2c", url: silentH2, kind: Gone, change: leaving},
		{name: "deadline", url: silent.URL, kind: Timeout, change: func(r *http.Request) *http.Request {
			ctx, cancel := context.WithTimeout(r.Context(), time.Millisecond)
			t.Cleanup(cancel)
			return r.WithContext(ctx)
		}},
		{name: "body", url: silent.URL, kind: Body, change: badBody},
		{name: "body h2c", url: silentH2, kind: Body, change: badBody},
	} {
		t.Run(row.name, func(t *testing.T) {
			to, req := section(t, row.url), ask(t, http.MethodGet, "/", "")
			if row.change == nil {
				to.Timeouts.ResponseHeader = 50 * time.Millisecond
			} else {
				req = row.change(req)
			}
			p := poolTo(t, nil, to)
			_, err := p.RoundTrip(req)
			want(t, "the kind of "+errorText(err), Classify(err), row.kind)
			e, ok := errors.AsType[*Error](err)
			if !ok || e.URL != row.url || e.Kind == Unavailable && e.After < time.Second {
				t.Fatalf("the error is %#v", err)
			}
			want(t, "in flight", p.State()[0].InFlight, 0)
			if row.change == nil {
				must(t, req.Context().Err()) // or its own deadline has ended it
			}
		})
	}
}

// A server that opens connections and says nothing is left after the time for the handshake.
func TestHandshakeHasATimeout(t *testing.T) {
	silent := listen(t)
	go accept(silent, func(net.Conn) {})
	to, req := section(t, "https://"+silent.Addr().String()), ask(t, http.MethodGet, "/", "")
	to.Timeouts.Dial = 20 * time.Millisecond
	_, err := poolTo(t, nil, to).RoundTrip(req)
	want(t, "the kind of "+errorText(err), Classify(err), Timeout)
	must(t, req.Context().Err())
}

// leaving is the request of a client that goes when it was sent.
func leaving(r *http.Request) *http.Request {
	ctx, cancel := context.WithCancel(r.Context())
	trace := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { cancel() }}
	return r.WithContext(httptrace.WithClientTrace(ctx, trace))
}

var errBad = errors.New("the client's connection broke")

func badBody(r *http.Request) *http.Request {
	r.Method, r.Body, r.ContentLength = http.MethodPost, io.NopCloser(errorReader{}), 10
	return r
}

type errorReader struct{}

func (errorReader) Read([]byte) (int, error) { return 0, errBad }

func TestClassify(t *testing.T) {
	for _, row := range []struct {
		err  error
		kind Kind
	}{
		{nil, None},
		{errors.New("what else"), Broken},
		{io.ErrUnexpectedEOF, Broken},
		{context.Canceled, Gone},
		{context.DeadlineExceeded, Timeout},
		{&dialError{context.DeadlineExceeded}, Unavailable},
		{&bodyError{context.DeadlineExceeded}, Body},
		{&net.OpError{Op: "read", Err: context.DeadlineExceeded}, Timeout},
		{x509.UnknownAuthorityError{}, Broken},
		{&Error{Kind: Gone, Err: io.EOF}, Gone},
	} {
		want(t, "the kind of "+errorText(row.err), Classify(row.err), row.kind)
	}
}

// The errors of a request's own body come through: a handler asks for http.MaxBytesError.
func TestBodyErrorComesThrough(t *testing.T) {
	p := poolOf(t, nil, named(t, "a").URL)
	req := ask(t, http.MethodPost, "/", "too much")
	req.Body, req.ContentLength = http.MaxBytesReader(nil, req.Body, 3), -1
	_, err := p.RoundTrip(req)
	if e, ok := errors.AsType[*http.MaxBytesError](err); !ok || e.Limit != 3 || Classify(err) != Body {
		t.Fatalf("the error is %v", err)
	}
}

// A trace that panics gives the request back.
func TestPanicGivesBack(t *testing.T) {
	p := poolOf(t, nil, named(t, "a").URL)
	req := ask(t, http.MethodGet, "/", "")
	trace := &httptrace.ClientTrace{GetConn: func(string) { panic("a trace") }}
	func() {
		defer func() { want[any](t, "the panic", recover(), "a trace") }()
		_, _ = p.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	}()
	want(t, "in flight", p.State()[0].InFlight, 0)
}
