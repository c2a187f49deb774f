package upstream

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// echo answers with what it got.
func echo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Trailer", "X-Length")
	body, _ := io.ReadAll(r.Body)
	said := []string{r.Proto, r.Host, r.URL.RequestURI(), string(body), r.Header.Get("Accept-Encoding")}
	_, _ = io.WriteString(w, strings.Join(said, " "))
	w.Header().Set("X-Length", "4")
}

// Each scheme speaks its protocol; host, path and body arrive as they were sent, trailers come back, nothing is asked
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
	} {
		p := poolTo(t, roots, section(t, row.url))
		want(t, "there is a proxy", p.ups[0].transport.Proxy != nil, false)
		for _, body := range []string{"", "body"} {
			resp, err := p.RoundTrip(ask(t, http.MethodPost, "/a%2Fb?q=%20", body))
			must(t, err)
			want(t, "the answer", read(t, resp), row.proto+" the.host /a%2Fb?q=%20 "+body+" ")
			want(t, "the trailer", resp.Trailer.Get("X-Length"), "4")
			want(t, "in flight", p.State()[0].InFlight, 0)
			guarded := body == "" && !strings.HasPrefix(row.url, "http://")
			want(t, "the request's own context is over", resp.Request.Context().Err() != nil, guarded)
		}
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

// The head of an answer has a bound.
func TestHeadOfAnswerIsBounded(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Long", strings.Repeat("x", maxHead))
	})
	_, err := poolOf(t, nil, s.URL).RoundTrip(ask(t, http.MethodGet, "/", ""))
	want(t, "the kind of "+errorText(err), Classify(err), Broken)
}
