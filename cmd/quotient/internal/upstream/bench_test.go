package upstream

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// BenchmarkRoundTrip compares a Pool to a bare http.Transport with the same settings.
func BenchmarkRoundTrip(b *testing.B) {
	plain, _ := h2(b, false, saying("answer"))
	for _, to := range []string{named(b, "answer").URL, plain} {
		u := parse(b, to)[0]
		p := poolOf(b, nil, to)
		t := p.ups[0].target
		bare := bareTransport(t, p.limits)
		bare.MaxIdleConnsPerHost = maxIdle
		b.Cleanup(bare.CloseIdleConnections)
		for _, row := range []struct {
			name string
			rt   http.RoundTripper
		}{{"bare", bare}, {"pool", p}} {
			for _, body := range []string{"", "body"} {
				b.Run(fmt.Sprintf("%s/body=%t/%s", u.Scheme, body != "", row.name), func(b *testing.B) {
					b.ReportAllocs()
					b.RunParallel(func(pb *testing.PB) {
						for pb.Next() {
							u := &url.URL{Scheme: t.urlScheme(), Host: t.host, Path: "/"}
							roundTrip(b, row.rt, u, body)
						}
					})
				})
			}
		}
	}
}

func roundTrip(b *testing.B, rt http.RoundTripper, u *url.URL, body string) {
	req := &http.Request{Method: http.MethodGet, URL: u, Host: "the.host", Header: http.Header{}}
	if body != "" {
		req.Method, req.ContentLength = http.MethodPost, int64(len(body))
		req.Body = io.NopCloser(struct{ io.Reader }{strings.NewReader(body)}) // as in a proxy
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		b.Error(err)
		return
	}
	if n, err := io.Copy(io.Discard, resp.Body); n != 6 || err != nil {
		b.Errorf("%d bytes, %v", n, err)
	}
	_ = resp.Body.Close()
}

// BenchmarkBuffers compares sizes of the buffers of a connection, for large bodies in both directions.
func BenchmarkBuffers(b *testing.B) {
	large := strings.Repeat("x", 256<<10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, large)
	}))
	defer s.Close()
	for _, size := range []int{4 << 10, 16 << 10, 32 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			tr := &http.Transport{ReadBufferSize: size, WriteBufferSize: size}
			defer tr.CloseIdleConnections()
			b.SetBytes(int64(2 * len(large)))
			b.ReportAllocs()
			buffer := make([]byte, 32<<10) // as a proxy copies
			for b.Loop() {
				body := struct{ io.Reader }{strings.NewReader(large)}
				req, _ := http.NewRequest(http.MethodPost, s.URL, body)
				req.ContentLength = int64(len(large))
				resp, err := tr.RoundTrip(req)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{resp.Body}, buffer)
				_ = resp.Body.Close()
			}
		})
	}
}
