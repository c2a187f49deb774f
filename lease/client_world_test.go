package lease

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fault is what a loopback does to requests.
type fault int

const (
	works  fault = iota
	down         // the connection is refused
	mute         // the request arrives, its answer is lost
	frozen       // the request neither arrives nor fails
	slow         // the request arrives late, also if its sender has left, and its answer arrives later still
)

const slowness = 2 * time.Second

var errDown = errors.New("connection refused")

// loopback is a network without sockets: servers by host name. It works in a bubble.
type loopback struct {
	mu       sync.Mutex
	hosts    map[string]http.Handler
	faults   map[string]fault
	requests []string                    // method and path of those that arrived
	served   func(r *http.Request) error // nil: called between a request and its answer
}

func (n *loopback) RoundTrip(r *http.Request) (*http.Response, error) {
	n.mu.Lock()
	h, f := n.hosts[r.URL.Host], n.faults[r.URL.Host]
	if f == works || f == mute || f == slow {
		n.requests = append(n.requests, r.Method+" "+r.URL.Path)
	}
	n.mu.Unlock()
	switch {
	case f == down || h == nil:
		return nil, errDown
	case f == frozen:
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	w, done := httptest.NewRecorder(), make(chan struct{})
	go func() {
		defer close(done)
		if f == slow {
			time.Sleep(slowness)
			defer time.Sleep(slowness)
		}
		h.ServeHTTP(w, r)
	}()
	select {
	case <-done:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	n.mu.Lock()
	served := n.served
	n.mu.Unlock()
	if served != nil {
		if err := served(r); err != nil {
			return nil, err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.faults[r.URL.Host]
	if f == mute || now != works && now != slow || n.hosts[r.URL.Host] != h {
		return nil, errDown // cut while the request was there
	}
	res := w.Result()
	res.Request = r
	return res, nil
}

// between makes f be called between a request and its answer.
func (n *loopback) between(f func(r *http.Request) error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.served = f
}

func (n *loopback) set(host string, f fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults[host] = f
}

// count returns how many requests began so.
func (n *loopback) count(prefix string) (c int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.requests {
		if strings.HasPrefix(r, prefix) {
			c++
		}
	}
	return c
}

// world is servers and a network.
type world struct {
	t       testing.TB
	config  Config
	net     *loopback
	servers map[string]*Server
}

// newWorld has one server, called a, with these semaphores.
func newWorld(t testing.TB, c Config) *world {
	t.Helper()
	w := &world{t: t, config: c, servers: make(map[string]*Server)}
	w.net = &loopback{hosts: make(map[string]http.Handler), faults: make(map[string]fault)}
	w.start("a", ServerOptions{})
	return w
}

// start starts a server, in place of the one with that name.
func (w *world) start(name string, o ServerOptions) *Server {
	w.t.Helper()
	s, err := NewServer(w.config, o)
	if err != nil {
		w.t.Fatal(err)
	}
	old := w.servers[name]
	w.servers[name] = s
	w.net.mu.Lock()
	w.net.hosts[name] = s
	w.net.mu.Unlock()
	if old != nil {
		old.Close()
	}
	return s
}

func (w *world) close() {
	for _, s := range w.servers {
		s.Close()
	}
}

func (w *world) client() *Client {
	return &Client{URLs: []string{"http://a"}, HTTP: &http.Client{Transport: w.net}}
}

// inWorld runs a test in a bubble.
func inWorld(t *testing.T, c Config, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, c)
		defer w.close()
		test(t, w)
	})
}

// mutex is a configuration of semaphores of 1.
func mutex(names ...string) Config {
	c := Config{Semaphores: make(map[string]Semaphore)}
	for _, name := range names {
		c.Semaphores[name] = Semaphore{Max: 1}
	}
	return c
}

// locked returns a Lease that must be there at once.
func locked(t testing.TB, ctx context.Context, c *Client, name string) *Lease {
	t.Helper()
	l, err := c.Lock(ctx, name, 1)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func unlock(t testing.TB, l *Lease) {
	t.Helper()
	if err := l.Unlock(context.Background()); err != nil {
		t.Error(err)
	}
}

// locking is a Lock in a goroutine of its own.
type locking struct {
	lease  *Lease
	err    error
	done   chan struct{}
	cancel context.CancelFunc
}

func lockingOf(ctx context.Context, c *Client, name string) *locking {
	g := &locking{done: make(chan struct{})}
	ctx, g.cancel = context.WithCancel(ctx)
	go func() {
		defer close(g.done)
		g.lease, g.err = c.Lock(ctx, name, 1)
	}()
	synctest.Wait()
	return g
}

func (g *locking) ended() bool {
	synctest.Wait()
	select {
	case <-g.done:
		return true
	default:
		return false
	}
}

// lost reports whether the Lease's channel is closed.
func lost(l *Lease) bool {
	synctest.Wait()
	select {
	case <-l.Lost():
		return true
	default:
		return false
	}
}

// holders returns the tokens of those that hold a semaphore at a server, and how many wait.
func holders(t testing.TB, s *Server, name string) (tokens []uint64, pending int) {
	t.Helper()
	held, waiting, err := s.Locks(name, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range held {
		tokens = append(tokens, l.Token)
	}
	slices.Sort(tokens)
	return tokens, len(waiting)
}

func tokensHeld(s *Server, name string) (tokens []uint64) {
	held, _, _ := s.Locks(name, 1000)
	for _, l := range held {
		tokens = append(tokens, l.Token)
	}
	return tokens
}

// idle fails unless the server knows no peer.
func idle(t testing.TB, s *Server) {
	t.Helper()
	time.Sleep(DefaultTimeout) // what is given back in the background
	if n := s.Stats().Peers; n != 0 {
		t.Errorf("the server knows %d peers, want none", n)
	}
}
