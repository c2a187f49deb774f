package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"time"
)

const (
	bareArg     = "bare"        // the first argument of a bare proxy
	tracedArg   = "traced"      // one that measures its own overhead
	overheadURL = "/-/overhead" // what a traced one has measured since the last call
)

// bareMain is a proxy without any limits: httputil.ReverseProxy with the transport of quotient proxy. It
// returns the exit status.
func bareMain(args []string, stderr io.Writer) int {
	var h http.Handler = bareHandler(args[1])
	if len(args) > 2 && args[2] == tracedArg {
		h = &traced{next: h}
	}
	s := &http.Server{Addr: args[0], Handler: h, ReadHeaderTimeout: 10 * time.Second}
	if err := s.ListenAndServe(); err != nil {
		fmt.Fprintln(stderr, err)
	}
	return 1
}

func bareHandler(upstream string) *httputil.ReverseProxy {
	to := &url.URL{Scheme: "http", Host: upstream}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.SetXForwarded()
			r.Out.Host = r.In.Host
		},
		Transport:  bareTransport(),
		BufferPool: buffers{},
	}
}

// bareTransport has the settings of the proxy's own, in cmd/quotient/internal/upstream.
func bareTransport() *http.Transport {
	return &http.Transport{
		DialContext:            (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSHandshakeTimeout:    5 * time.Second,
		ResponseHeaderTimeout:  time.Minute,
		ExpectContinueTimeout:  time.Second,
		IdleConnTimeout:        4 * time.Second,
		MaxIdleConnsPerHost:    4096,
		MaxResponseHeaderBytes: 256 << 10,
		DisableCompression:     true,
		WriteBufferSize:        4 << 10,
		ReadBufferSize:         4 << 10,
	}
}

// buffers are those of bodies, used again and again.
type buffers struct{}

var bufferPool = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// Get returns a buffer.
func (buffers) Get() []byte { return bufferPool.Get().(*[32 << 10]byte)[:] }

// Put takes it back.
func (buffers) Put(b []byte) {
	if cap(b) >= 32<<10 {
		bufferPool.Put((*[32 << 10]byte)(b[:32<<10]))
	}
}

// traced measures the time from a request's arrival at a handler to the first bytes that go to the upstream,
// less the time to dial it.
type traced struct {
	next http.Handler
	mu   sync.Mutex
	took []time.Duration
}

// ServeHTTP passes a request on and measures it.
func (t *traced) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	if r.URL.Path == overheadURL {
		_ = json.NewEncoder(w).Encode(t.read())
		return
	}
	var dialling, dialled time.Time
	trace := &httptrace.ClientTrace{
		ConnectStart: func(string, string) { dialling = time.Now() },
		ConnectDone:  func(string, string, error) { dialled = time.Now() },
		WroteHeaders: func() {
			took := time.Since(began) - dialled.Sub(dialling)
			t.mu.Lock()
			defer t.mu.Unlock()
			t.took = append(t.took, took)
		},
	}
	t.next.ServeHTTP(w, r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
}

// quantiles are some of a distribution.
type quantiles struct {
	Count    int
	P50, P99 time.Duration
}

func (t *traced) read() quantiles {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := quantilesOf(t.took)
	t.took = t.took[:0]
	return q
}

func quantilesOf(took []time.Duration) quantiles {
	slices.Sort(took)
	return quantiles{len(took), quantile(took, 0.5), quantile(took, 0.99)}
}
