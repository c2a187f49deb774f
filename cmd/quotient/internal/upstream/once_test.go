package upstream

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

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

// A request that was sent when its connection broke does not reach the upstream again, whatever its method.
func TestSentOnce(t *testing.T) {
	for _, row := range []struct {
		method, field, body string
	}{
		{method: "GET"}, {method: "HEAD"}, {method: "OPTIONS"}, {method: "TRACE"}, {method: "DELETE"},
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
				_, err := p.RoundTrip(req)
				want(t, "the kind of "+errorText(err), Classify(err), Broken)
				want(t, "requests that the upstream got", b.requests.Load(), 2)
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

// Over HTTP/1.1 with TLS a second attempt finds its connection closed, whatever the context is seen to be.
func TestGuardCloses(t *testing.T) {
	own, other := net.Pipe()
	defer other.Close()
	_, g := once(ask(t, http.MethodGet, "/", ""))
	info := httptrace.GotConnInfo{Conn: tls.Client(own, &tls.Config{})}
	g.gotConn(info)
	want(t, "ended at the first attempt", g.ended.Load(), false)
	g.wrote.Store(true)
	g.gotConn(info)
	want(t, "ended at the second", g.ended.Load(), true)
	_ = other.SetDeadline(time.Now().Add(patience))
	_, err := other.Read(make([]byte, 1))
	want(t, "the end of the connection", err, io.EOF)
}

// An upstream of HTTP/2 that resets each stream, or goes away before it, gets each request once.
func TestSentOnceHTTP2(t *testing.T) {
	const protocolError, refused = 1, 7
	for name, answer := range map[string]func(stream uint32) []byte{
		"protocol error": func(s uint32) []byte { return frame(3, s, protocolError) },
		"refused stream": func(s uint32) []byte { return frame(3, s, refused) },
		"goaway":         func(uint32) []byte { return frame(7, 0, 0, 0) },
	} {
		for _, method := range []string{"GET", "POST"} {
			t.Run(name+" "+method, func(t *testing.T) {
				l, streams := listen(t), new(atomic.Int32)
				go accept(l, func(c net.Conn) { resetting(t.Context(), c, streams, answer) })
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

// The guard against sending a request twice does not show: the upstream gets the same bytes as from a bare
// transport, but for the spelling of three fields.
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
				if rt == bare {
					req.Host, req.URL.Host = "the.host", l.Addr().String()
				}
				resp, err := rt.RoundTrip(req)
				must(t, err)
				must(t, resp.Body.Close())
				got[i] = event(t, heads)
			}
			want(t, method+" "+body, got[0], got[1])
			if strings.Contains(got[0], "Transfer-Encoding") {
				t.Fatalf("%s", got[0])
			}
		}
	}
}

// A request without a body does not wait for leave to send it.
func TestExpectWithoutBody(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("Expect"))
	})
	p := poolOf(t, nil, s.URL)
	req := ask(t, http.MethodGet, "/", "")
	req.Header.Set("Expect", "100-continue")
	out, _ := prepare(req, target{"http", strings.TrimPrefix(s.URL, "http://")})
	want(t, "Expect for the transport", out.Header.Get("Expect"), "")
	resp, err := p.RoundTrip(out)
	must(t, err)
	want(t, "Expect at the upstream", read(t, resp), "100-continue")
}

// wholeBuffer is a destination that a body could be copied to through a buffer.
type wholeBuffer struct{ io.Writer }

// ReadFrom is what io.Copy calls when the body has no better way.
func (wholeBuffer) ReadFrom(io.Reader) (int64, error) {
	return 0, errors.New("copied through a buffer")
}

// The empty body that stands for none costs no buffer: http.Transport would make one of 32 KiB for each
// request.
func TestAnEmptyBodyCostsNoBuffer(t *testing.T) {
	req := ask(t, http.MethodGet, "/", "")
	out, _ := prepare(req, target{"http", "localhost"})
	n, err := io.Copy(wholeBuffer{io.Discard}, out.Body)
	must(t, err)
	want(t, "bytes", n, int64(0))
}
