package proxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
)

// quick is a transport that answers at once.
type quick struct{}

func (quick) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, Request: r, ContentLength: 2,
		Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(strings.NewReader("ok")),
	}, nil
}

// sink is a writer that keeps nothing.
type sink struct{ header http.Header }

func (s sink) Header() http.Header         { return s.header }
func (s sink) Write(p []byte) (int, error) { return len(p), nil }
func (s sink) WriteHeader(int)             {}

// BenchmarkProxyBesideBare is what a request costs beside a bare ReverseProxy with the same transport.
func BenchmarkProxyBesideBare(b *testing.B) {
	target, err := url.Parse("http://up")
	must(b, err)
	bare := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host
			r.SetXForwarded()
		},
		Transport: quick{}, BufferPool: buffers{},
	}
	limited := func(fields string) http.Handler {
		f, err := config.Parse("test.toml",
			[]byte("[proxy]\nupstreams = [\"http://up\"]\nfields = \""+fields+"\"\n"+loose+all))
		must(b, err)
		reg := new(quotient.Registry)
		p := New(reg, quick{}, nil)
		_, err = config.New(f, reg, config.With(p))
		must(b, err)
		return p
	}
	for _, row := range []struct {
		name string
		h    http.Handler
	}{{"bare", bare}, {"proxy", limited("draft-11")}, {"proxy-no-fields", limited("off")}} {
		b.Run(row.name, func(b *testing.B) {
			r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/some/path?a=b", nil)
			r.Header.Set("User-Agent", "bench")
			w := sink{make(http.Header)}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				row.h.ServeHTTP(w, r)
			}
		})
	}
}
