package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	reloads  = 100
	slots    = 4 // of each path, in each file
	once     = 5 // requests that /once may have in the test's life
	visiting = 8 // clients, more than there are slots
)

// counting is an upstream that counts.
type counting struct {
	busy, most, once atomic.Int64
}

func (c *counting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/once" {
		c.once.Add(1)
		return
	}
	n := c.busy.Add(1)
	defer c.busy.Add(-1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
	_, _ = io.WriteString(w, "well")
}

// changing is the n-th file. Its change touches nothing that /once or the slots depend on. Every tenth is
// broken.
func changing(n int, upstream string) string {
	more := ""
	if n%10 == 9 {
		more = "nosuch = 1\n"
	}
	return fmt.Sprintf(`
[limiters.all]
in-flight = %d
max-wait = "%ds"
%s
[limiters.all.plans.n%d]
in-flight = %d

[limiters.once]
rates = [{ events = %d, per = "1000h" }]
mode = "refuse"

[proxy]
listen = "127.0.0.1:0"
upstreams = [%q]

[[proxy.rules]]
pattern = "/once"
limiter = "once"

[[proxy.rules]]
pattern = "/n%d/"
limiter = "all"
key = "pattern"

[[proxy.rules]]
pattern = "/"
limiter = "all"

[proxy.admin]
listen = "off"
`, slots, 30+n%7, more, n%5, 1+n, once, upstream, n%3)
}

// heap is what is in use after a collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestReloadsUnderLoad checks that reloads, every tenth of them of a broken file, lose no request, exceed no
// limit, forget nothing and leave nothing behind.
func TestReloadsUnderLoad(t *testing.T) {
	var up counting
	upstream := httptest.NewServer(&up)
	defer upstream.Close()
	path := filepath.Join(t.TempDir(), "quotient.toml")
	put := func(n int) {
		if err := os.WriteFile(path, []byte(changing(n, upstream.URL)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(0)
	s, err := (&proxyCmd{Config: path}).open(t.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx, nil) }()

	load := newLoad("http://" + s.listener.Addr().String())
	var first uint64
	for n := 1; n <= reloads; n++ {
		put(n)
		if err := s.conf.Reload(); (err != nil) != (n%10 == 9) {
			t.Errorf("reload %d: %v", n, err)
		}
		load.passed(t, n*5)
		if n == reloads/5 {
			first = heap()
		}
	}
	last := heap()
	load.end()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for status, n := range load.statuses() {
		if status != "/ 200" && status != "/once 200" && status != "/once 429" {
			t.Errorf("%d times %s", n, status)
		}
	}
	if n := up.most.Load(); n > slots {
		t.Errorf("%d were in flight, the limit is %d", n, slots)
	}
	if n := up.once.Load(); n != once {
		t.Errorf("/once passed %d times, the limit is %d", n, once)
	}
	if last > first+4<<20 {
		t.Errorf("the heap has grown from %d to %d bytes", first, last)
	}
	// Watch may have seen a change before Reload did.
	if f := s.conf.State(); f.Failures < reloads/10 || f.Error != "" {
		t.Errorf("%d failures, want at least %d; the last error is %q, want none", f.Failures,
			reloads/10, f.Error)
	}
}

// load is clients that call for / and /once in turn, one request after the other.
type load struct {
	stop    context.CancelFunc
	clients sync.WaitGroup
	mu      sync.Mutex
	all     map[string]int // by path and status
	total   int
	more    chan struct{} // closed when total grows
}

func newLoad(target string) *load {
	ctx, stop := context.WithCancel(context.Background())
	l := &load{stop: stop, all: map[string]int{}, more: make(chan struct{})}
	for range visiting {
		l.clients.Go(func() {
			transport := new(http.Transport)
			defer transport.CloseIdleConnections()
			for n := 0; ctx.Err() == nil; n++ {
				p := "/"
				if n%8 == 0 {
					p = "/once"
				}
				l.note(p + " " + statusOf(transport, target+p))
			}
		})
	}
	return l
}

func statusOf(transport *http.Transport, url string) string {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		return err.Error()
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err.Error()
	}
	status, _, _ := strings.Cut(resp.Status, " ")
	return status
}

func (l *load) note(status string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all[status]++
	l.total++
	close(l.more)
	l.more = make(chan struct{})
}

// passed waits until n requests have been answered.
func (l *load) passed(t *testing.T, n int) {
	t.Helper()
	late := time.After(time.Minute)
	for {
		l.mu.Lock()
		total, more := l.total, l.more
		l.mu.Unlock()
		if total >= n {
			return
		}
		select {
		case <-more:
		case <-late:
			t.Fatalf("%d requests were answered, want %d", total, n)
		}
	}
}

func (l *load) end() { l.stop(); l.clients.Wait() }

func (l *load) statuses() map[string]int { l.mu.Lock(); defer l.mu.Unlock(); return l.all }
