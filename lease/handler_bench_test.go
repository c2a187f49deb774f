package lease_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/quotient-go/quotient/lease"
)

// pair acquires and releases one lock without a network.
type pair struct {
	handler          http.Handler
	acquire, release *http.Request
	body             strings.Reader
	header           http.Header
	status           int
}

func (p *pair) Header() http.Header         { return p.header }
func (p *pair) WriteHeader(status int)      { p.status = status }
func (p *pair) Write(b []byte) (int, error) { return len(b), nil }

func (p *pair) WriteString(s string) (int, error) { return len(s), nil }

func newPair(t testing.TB) *pair {
	p := &pair{handler: served(t, lease.Config{}, lease.ServerOptions{}), header: http.Header{}}
	id := sent(p.handler, "POST", "/new_peer", `{"expires_in":"1h"}`).Body.String()
	p.acquire = httptest.NewRequest("PUT", "/peers/"+id+"/A?expires_in=300000ms", nil)
	p.acquire.Body = io.NopCloser(&p.body)
	p.acquire.Header.Set("Content-Type", "application/json")
	p.release = httptest.NewRequest("DELETE", "/peers/"+id+"/A", nil)
	return p
}

func (p *pair) do(t testing.TB) {
	for _, r := range []*http.Request{p.acquire, p.release} {
		p.body.Reset("1")
		if p.handler.ServeHTTP(p, r); p.status != http.StatusOK {
			t.Fatalf("%s: %d", r.Method, p.status)
		}
	}
}

// The allocations of a pair mostly outlive it or go to net/http: the lock, the body, the header's value.
func TestAcquireAndReleaseAllocateLittle(t *testing.T) {
	p := newPair(t)
	if n := testing.AllocsPerRun(1000, func() { p.do(t) }); n > 8 {
		t.Errorf("acquire and release allocate %v times, want at most 8", n)
	}
}

func BenchmarkHandler(b *testing.B) {
	b.Run("memory", func(b *testing.B) {
		p := newPair(b)
		b.ReportAllocs()
		for b.Loop() {
			p.do(b)
		}
	})
	empty := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "Ok")
	})
	b.Run("http/empty", func(b *testing.B) { benchmarkHTTP(b, empty) })
	b.Run("http/server", func(b *testing.B) {
		benchmarkHTTP(b, served(b, lease.Config{}, lease.ServerOptions{}))
	})
}

// benchmarkHTTP sends pairs over loopback, one after the other.
func benchmarkHTTP(b *testing.B, h http.Handler) {
	web := httptest.NewServer(h)
	defer web.Close()
	client := web.Client()
	client.Transport.(*http.Transport).MaxIdleConnsPerHost = 100
	ask := func(method, target, body string) {
		req, err := http.NewRequest(method, web.URL+target, strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			b.Fatal(resp.Status, err)
		}
	}
	ask("POST", "/restore", restoreOne)
	for b.Loop() {
		ask("PUT", "/peers/1/A?expires_in=5m", "1")
		ask("DELETE", "/peers/1/A", "")
	}
}
