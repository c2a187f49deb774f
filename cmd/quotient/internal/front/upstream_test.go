package front

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"
)

// recorder is an upstream that notes the bytes of each request that it gets, and answers "ok".
type recorder struct {
	net.Listener
	wg sync.WaitGroup

	mu    sync.Mutex
	whole []string // requests that came to their end
	cut   []string // those that did not
}

func record(t *testing.T) *recorder {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &recorder{Listener: l}
	u.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			u.wg.Go(func() { u.serve(c) })
		}
	})
	t.Cleanup(func() { l.Close(); u.wg.Wait() })
	return u
}

// serve answers one request, and notes all that comes until the peer closes.
func (u *recorder) serve(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	var seen bytes.Buffer
	in := bufio.NewReader(io.TeeReader(c, &seen))
	r, err := http.ReadRequest(in)
	if err == nil {
		_, err = io.Copy(io.Discard, r.Body)
	}
	if err != nil {
		u.note(&u.cut, seen.String())
		return
	}
	u.note(&u.whole, seen.String())
	before := seen.Len()
	_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
	_, _ = io.Copy(io.Discard, in)
	if seen.Len() > before {
		u.note(&u.whole, "more after the request: "+seen.String()[before:])
	}
}

func (u *recorder) note(list *[]string, text string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	*list = append(*list, text)
}

func (u *recorder) requests() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]string{}, u.whole...)
}

// proxy is a bare reverse proxy that changes nothing but the address.
func (u *recorder) proxy(t *testing.T) http.Handler {
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	to := &url.URL{Scheme: "http", Host: u.Addr().String()}
	return &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = to.Scheme, to.Host
			r.Out.Host, r.Out.URL.RawQuery = r.In.Host, r.In.URL.RawQuery
			r.Out.Trailer = r.In.Trailer
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			w.WriteHeader(http.StatusBadGateway)
		},
	}
}
