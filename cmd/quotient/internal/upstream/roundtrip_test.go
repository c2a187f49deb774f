package upstream

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-go/quotient/internal/tested"
)

// echo answers with what it got.
func echo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Trailer", "X-Length")
	body, _ := io.ReadAll(r.Body)
	said := []string{r.Proto, r.Host, r.URL.RequestURI(), string(body), r.Header.Get("Accept-Encoding")}
	_, _ = io.WriteString(w, strings.Join(said, " "))
	w.Header().Set("X-Length", "4")
}

// Each scheme speaks its protocol; path and body arrive as they were sent, trailers come back, nothing is asked
// for that the client did not ask for, and the environment has no say in where requests go.
func TestProtocols(t *testing.T) {
	secure, roots := h2(t, true, echo)
	plain, _ := h2(t, false, echo)
	onlyHTTP1 := httptest.NewTLSServer(http.HandlerFunc(echo))
	t.Cleanup(onlyHTTP1.Close)
	for _, row := range []struct{ url, proto string }{
		{serve(t, echo).URL, "HTTP/1.1"},
		{secure, "HTTP/2.0"},
		{plain, "HTTP/2.0"},
		{onlyHTTP1.URL, "HTTP/1.1"},
		{socket(t, echo), "HTTP/1.1"},
	} {
		host := "the.host"
		if own, ok := strings.CutPrefix(row.url, "https://"); ok {
			host = own
		}
		p := poolTo(t, roots, section(t, row.url))
		for _, body := range []string{"", "body"} {
			resp, err := p.RoundTrip(ask(t, http.MethodPost, "/a%2Fb?q=%20", body))
			must(t, err)
			want(t, "the answer", read(t, resp), row.proto+" "+host+" /a%2Fb?q=%20 "+body+" ")
			want(t, "the trailer", resp.Trailer.Get("X-Length"), "4")
			want(t, "in flight", p.State()[0].InFlight, 0)
			ownContext := row.proto == "HTTP/2.0"
			want(t, "the request's own context is over", resp.Request.Context().Err() != nil, ownContext)
		}
	}
}

// An upstream behind TLS may change its version of HTTP with each restart: what finds that out goes on by the other.
func TestChangesItsVersion(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(echo))
	s.EnableHTTP2 = true
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	var older atomic.Bool
	s.TLS = &tls.Config{}
	s.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c := s.TLS.Clone()
		if c.GetConfigForClient = nil; older.Load() {
			c.NextProtos = []string{"http/1.1"}
		}
		return c, nil
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	p := poolTo(t, s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, section(t, s.URL))
	for i := range 12 {
		older.Store(i%4 > 1)
		s.CloseClientConnections()
		for _, body := range []string{"", "body"} {
			resp, err := p.RoundTrip(ask(t, http.MethodPost, "/", body))
			for err != nil && !errors.Is(err, errOlder) { // a connection of HTTP/2 finds out that it has ended by a request
				resp, err = p.RoundTrip(ask(t, http.MethodPost, "/", body))
			}
			must(t, err)
			proto := map[bool]string{true: "HTTP/1.1", false: "HTTP/2.0"}[older.Load()]
			want(t, "the answer", read(t, resp), proto+" "+s.Listener.Addr().String()+" / "+body+" ")
		}
		want(t, "in flight", p.State()[0].InFlight, 0)
	}
}

// An upgraded connection is one in flight until it is closed, and is still closed in one direction first.
func TestUpgrade(t *testing.T) {
	upgrade := func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\n" +
			"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_ = rw.Flush()
		text, _ := io.ReadAll(rw) // to the end of this direction
		_, _ = rw.WriteString("end of " + string(text))
		_ = rw.Flush()
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(upgrade))
	s.EnableHTTP2 = true // a WebSocket takes HTTP/1.1 all the same
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	for _, url := range []string{serve(t, upgrade).URL, s.URL} {
		p := poolTo(t, roots, section(t, url))
		req := ask(t, http.MethodGet, "/", "")
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "websocket")
		resp, err := p.RoundTrip(req)
		must(t, err)
		want(t, "the status", resp.StatusCode, http.StatusSwitchingProtocols)
		conn := resp.Body.(io.ReadWriteCloser)
		_, err = io.WriteString(conn, "text")
		must(t, err)
		must(t, conn.(interface{ CloseWrite() error }).CloseWrite())
		text, err := io.ReadAll(conn)
		must(t, err)
		want(t, "what came back", string(text), "end of text")
		want(t, "in flight", p.State()[0].InFlight, 1)
		must(t, conn.Close())
		_ = conn.Close()
		want(t, "in flight", p.State()[0].InFlight, 0)
	}
}

// A body that the upstream does not want is not read: the client's 100 Continue comes from the upstream.
func TestExpectContinue(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.Copy(w, r.Body)
	})
	p := poolOf(t, nil, s.URL)
	type row struct{ authorization, answer, left string }
	for _, row := range []row{{"", "", "text"}, {"yes", "text", ""}} {
		body := strings.NewReader("text")
		req := ask(t, http.MethodPut, "/", "")
		req.Body, req.ContentLength = io.NopCloser(bufio.NewReader(body)), 4
		req.Header.Set("Expect", "100-continue")
		if row.authorization != "" {
			req.Header.Set("Authorization", row.authorization)
		}
		resp, err := p.RoundTrip(req)
		must(t, err)
		want(t, "the answer", read(t, resp), row.answer)
		want(t, "bytes left of the body", body.Len(), len(row.left))
	}
}

func TestKinds(t *testing.T) {
	broken := listen(t)
	go accept(broken, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1)) // the request is there
		_ = c.Close()
	})
	mute := listen(t)
	go accept(mute, func(net.Conn) {})
	free := make(chan struct{})
	silent := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-free
	})
	defer close(free)
	plain := named(t, "plain")
	long := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Long", strings.Repeat("x", maxHead))
	})
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
		{name: "no handshake", url: "https://" + mute.Addr().String(), kind: Timeout},
		{name: "unknown certificate", url: secure, kind: Broken},
		{name: "long head", url: long.URL, kind: Broken},
		{name: "silent", url: silent.URL, kind: Timeout},
		{name: "silent h2c", url: silentH2, kind: Timeout},
		{name: "gone", url: silent.URL, kind: Gone, change: leaving},
		{name: "gone h2c", url: silentH2, kind: Gone, change: leaving},
		{name: "body", url: silent.URL, kind: Body, change: badBody},
		{name: "body h2c", url: silentH2, kind: Body, change: badBody},
	} {
		t.Run(row.name, func(t *testing.T) {
			to, req := section(t, row.url), ask(t, http.MethodGet, "/", "")
			switch {
			case row.change != nil:
				req = row.change(req)
			case row.name == "no handshake":
				to.Timeouts.Dial = 20 * time.Millisecond
			case row.kind == Timeout:
				to.Timeouts.ResponseHeader = 50 * time.Millisecond
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

// A request's own deadline ends the wait for its answer. There is a connection already: a dial would fail otherwise.
func TestKindOfADeadline(t *testing.T) {
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/answered" {
			<-r.Context().Done()
		}
	})
	p := poolOf(t, nil, s.URL)
	get(t, p, "/answered")
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := p.RoundTrip(ask(t, http.MethodGet, "/", "").WithContext(ctx))
	want(t, "the kind of "+errorText(err), Classify(err), Timeout)
	e, ok := errors.AsType[*Error](err)
	want(t, "it says where", ok && e.URL == s.URL, true)
	want(t, "in flight", p.State()[0].InFlight, 0)
}

// leaving is the request of a client that goes when it was sent.
func leaving(r *http.Request) *http.Request {
	ctx, cancel := context.WithCancel(r.Context())
	return watched(r.WithContext(ctx), &watcher{sent: cancel})
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
		{&dialError{context.DeadlineExceeded, 0}, Unavailable},
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

// A watch that panics gives the request back.
func TestPanicGivesBack(t *testing.T) {
	p := poolOf(t, nil, named(t, "a").URL)
	func() {
		defer func() { want[any](t, "the panic", recover(), "a watch") }()
		_, _ = p.RoundTrip(picked(t, func() { panic("a watch") }))
	}()
	want(t, "in flight", p.State()[0].InFlight, 0)
}

// breaking answers the first request of each connection, and closes the connection when it has read the
// second.
type breaking struct{ requests atomic.Int32 }

func (b *breaking) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for i := range 2 {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		b.requests.Add(1)
		if i == 0 {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	}
}

// A request that was sent when its connection broke does not reach the upstream again, unless it is safe.
func TestSentOnce(t *testing.T) {
	for _, row := range []struct {
		method, field, body string
	}{
		{method: "GET"}, {method: "HEAD"}, {method: "OPTIONS"}, {method: "TRACE"}, {method: "DELETE"},
		{method: "GET", body: "text"},
		{method: "POST", field: "Idempotency-Key"}, {method: "POST", field: "X-Idempotency-Key"},
		{method: "PUT", field: "Idempotency-Key", body: "text"},
	} {
		for _, secure := range []bool{false, true} {
			t.Run(row.method+row.field+map[bool]string{true: " TLS"}[secure], func(t *testing.T) {
				p, b := brokenSecond(t, secure)
				want(t, "the first answer", get(t, p, "/"), "ok")
				req := ask(t, row.method, "/", row.body)
				if row.field != "" {
					req.Header.Set(row.field, "1")
				}
				sent := 0
				resp, err := p.RoundTrip(watched(req, &watcher{sent: func() { sent++ }}))
				want(t, "heads of which its watch was told", sent, 1)
				kind, resent := Broken, uint64(0)
				if row.body == "" && slices.Contains([]string{"GET", "HEAD", "OPTIONS"}, row.method) {
					kind, resent = None, 1
				}
				want(t, "the kind of "+errorText(err), Classify(err), kind)
				if err == nil {
					must(t, resp.Body.Close())
				}
				want(t, "requests that the upstream got", uint64(b.requests.Load()), 2+resent)
				want(t, "requests sent again", p.State()[0].Resent, resent)
				want(t, "in flight", p.State()[0].InFlight, 0)
			})
		}
	}
}

// brokenSecond returns a pool whose upstream breaks the connection at its second request.
func brokenSecond(t *testing.T, secure bool) (*Pool, *breaking) {
	t.Helper()
	b, scheme := &breaking{}, "http://"
	l := listen(t)
	var roots *x509.CertPool
	if secure {
		s := httptest.NewUnstartedServer(nil) // for its certificate
		s.StartTLS()
		s.Close()
		scheme, roots = "https://", s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
		l = tls.NewListener(l, &tls.Config{Certificates: s.TLS.Certificates})
	}
	go accept(l, b.serve)
	return poolTo(t, roots, section(t, scheme+l.Addr().String())), b
}

// An upstream of HTTP/2 that resets each stream, or goes away before it, gets each request once.
func TestSentOnceHTTP2(t *testing.T) {
	const protocolError, refused = 1, 7
	for name, answer := range map[string]func(stream uint32) []byte{
		"protocol error": func(s uint32) []byte { return frame(3, s, protocolError) },
		"refused stream": func(s uint32) []byte { return frame(3, s, refused) },
		"goaway":         func(uint32) []byte { return frame(7, 0, 0, 0) },
	} {
		for _, method := range []string{"GET", "POST", "PUT"} {
			t.Run(name+" "+method, func(t *testing.T) {
				l, streams := listen(t), new(atomic.Int32)
				serve := func(c net.Conn) { resetting(t.Context(), c, streams, answer) }
				if method == "PUT" { // there is no second connection
					go func() {
						c, _ := l.Accept()
						_ = l.Close()
						serve(c)
					}()
				} else {
					go accept(l, serve)
				}
				p := poolOf(t, nil, "h2c://"+l.Addr().String())
				_, err := p.RoundTrip(ask(t, method, "/", ""))
				want(t, "the kind of "+errorText(err), Classify(err), Broken)
				want(t, "requests that the upstream got", streams.Load(), 1)
				want(t, "in flight", p.State()[0].InFlight, 0)
				if !errors.Is(err, errOnce) {
					t.Fatalf("the error is %v", err)
				}
			})
		}
	}
}

// frame is a frame of HTTP/2 whose payload is made of numbers.
func frame(kind byte, stream uint32, numbers ...uint32) []byte {
	b := []byte{0, 0, byte(4 * len(numbers)), kind, 0}
	for _, n := range append([]uint32{stream}, numbers...) {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return b
}

// resetting is a server of h2c that answers each request in the same way, and counts them. Its connections
// end with ctx: a client whose stream is still ending when it closes its idle connections keeps that one.
func resetting(ctx context.Context, conn net.Conn, streams *atomic.Int32, answer func(uint32) []byte) {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer conn.Close()
	r := bufio.NewReader(conn)
	_, _ = r.Discard(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
	_, _ = conn.Write(frame(4, 0))
	for {
		var head [9]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return
		}
		_, _ = r.Discard(int(head[0])<<16 | int(head[1])<<8 | int(head[2]))
		if head[3] == 1 {
			streams.Add(1)
			_, _ = conn.Write(answer(binary.BigEndian.Uint32(head[5:])))
		}
	}
}

// The upstream gets the same bytes as from a bare transport.
func TestSentAsItIs(t *testing.T) {
	l, heads := listen(t), make(chan string, 1)
	go accept(l, func(conn net.Conn) {
		defer conn.Close()
		if req, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			text, _ := httputil.DumpRequest(req, true)
			heads <- string(text)
			_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
		}
	})
	p := poolOf(t, nil, "http://"+l.Addr().String())
	bare := &http.Transport{DisableCompression: true}
	for method := range strings.FieldsSeq("GET HEAD OPTIONS TRACE DELETE POST PUT PATCH PROPFIND") {
		for _, body := range []string{"", "text"} {
			var got [2]string
			for i, rt := range []http.RoundTripper{p, bare} {
				req := ask(t, method, "/path?query", body)
				req.Header.Set("Idempotency-Key", "1")
				if body == "" {
					req.Header.Set("Expect", "100-continue")
				}
				if rt == bare {
					req.Host, req.URL.Host = "the.host", l.Addr().String()
				}
				resp, err := rt.RoundTrip(req)
				must(t, err)
				must(t, resp.Body.Close())
				got[i] = tested.Event(t, heads)
			}
			want(t, method+" "+body, got[0], got[1])
			if strings.Contains(got[0], "Transfer-Encoding") {
				t.Fatalf("%s", got[0])
			}
		}
	}
}
