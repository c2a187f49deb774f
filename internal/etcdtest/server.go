// Package etcdtest runs etcd's server for tests, on loopback, and a network before it that can be cut. It
// needs no client of etcd, so that each module with an etcd client of its own may use it.
package etcdtest

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quotient-go/quotient/internal/kept"
	"github.com/quotient-go/quotient/internal/needed"
	"github.com/quotient-go/quotient/internal/tested"
)

// direct keeps no connection: tests look for goroutines that are left.
var direct = &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// Server is one member of etcd that a test owns. It is safe for concurrent use.
type Server struct {
	t     testing.TB
	name  string
	dir   string
	urls  [2]string // for clients and for peers
	extra []string

	mu      sync.Mutex    // guards what follows
	process *kept.Process // nil while it is stopped
}

// Require skips the test where etcd is not installed, or fails it if QUOTIENT_REQUIRE lists etcd.
func Require(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("etcd"); err == nil {
		return
	}
	needed.Without(t, "etcd",
		"etcd is not installed: nothing is known about a real store (apt-get install etcd-server)")
}

// Start returns a server that serves, and ends with the test. It calls Require.
func Start(t testing.TB) *Server {
	t.Helper()
	return Cluster(t, 1)[0]
}

// Cluster returns the n members of one store, which serve, and end with the test. It calls Require.
func Cluster(t testing.TB, n int) (all []*Server) {
	t.Helper()
	Require(t)
	var peers []string
	for i := range n {
		s := &Server{t: t, name: string(rune('a' + i)), dir: t.TempDir()}
		t.Cleanup(s.Kill)
		s.urls = [2]string{"http://" + tested.FreeAddr(t), "http://" + tested.FreeAddr(t)}
		all, peers = append(all, s), append(peers, s.name+"="+s.urls[1])
	}
	for _, s := range all {
		s.extra = []string{"--initial-cluster", strings.Join(peers, ",")}
		s.launch()
	}
	for _, s := range all {
		tested.Must(t, s.serves())
	}
	return all
}

// Addr returns the host and port for clients.
func (s *Server) Addr() string { return strings.TrimPrefix(s.urls[0], "http://") }

// launch starts the server's process.
func (s *Server) launch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	args := append([]string{"etcd", "--name", s.name, "--log-level", "warn",
		"--data-dir", filepath.Join(s.dir, "data"), "--unsafe-no-fsync",
		"--listen-client-urls", s.urls[0], "--advertise-client-urls", s.urls[0],
		"--listen-peer-urls", s.urls[1], "--initial-advertise-peer-urls", s.urls[1]}, s.extra...)
	var err error
	s.process, err = kept.Start("", args...)
	tested.Must(s.t, err)
}

// serves waits until the server is healthy, which takes a read of its data.
func (s *Server) serves() error {
	return s.process.Serves(context.Background(), func() error {
		r, err := direct.Get(s.urls[0] + "/health")
		if err == nil && r.Body.Close() == nil && r.StatusCode != http.StatusOK {
			err = errors.New(r.Status)
		}
		return err
	})
}

// Kill ends the process as a crash does, if it runs.
func (s *Server) Kill() { s.end((*kept.Process).Kill) }

// Stop ends the process in order, if it runs.
func (s *Server) Stop() { s.end((*kept.Process).Stop) }

func (s *Server) end(how func(*kept.Process) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		_ = how(s.process) // it is gone
		s.process = nil
	}
}

// Restart starts the server on its ports again, and kills it before if it runs. With wipe its data is lost.
func (s *Server) Restart(wipe bool) {
	s.t.Helper()
	s.Kill()
	if wipe {
		tested.Must(s.t, os.RemoveAll(filepath.Join(s.dir, "data")))
	}
	s.launch()
	tested.Must(s.t, s.serves())
}

// Signal sends a signal to the server, which goes on.
func (s *Server) Signal(sig syscall.Signal) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	tested.Must(s.t, s.process.Signal(sig))
}

// Addrs returns the hosts and ports of servers for clients.
func Addrs(servers []*Server) (all []string) {
	for _, s := range servers {
		all = append(all, s.Addr())
	}
	return all
}

// Leader returns the member of a cluster that leads.
func Leader(t testing.TB, members []*Server) *Server {
	t.Helper()
	for _, s := range members {
		r, err := direct.Post(s.urls[0]+"/v3/maintenance/status", "application/json", strings.NewReader("{}"))
		tested.Must(t, err)
		var is struct {
			Header struct {
				Member string `json:"member_id"`
			}
			Leader string
		}
		tested.Must(t, json.NewDecoder(r.Body).Decode(&is))
		tested.Must(t, r.Body.Close())
		if is.Leader == is.Header.Member {
			return s
		}
	}
	t.Fatal("no member leads")
	return nil
}

// Relay is a network between a client and a server that can be stalled, and cut. It is safe for concurrent use.
type Relay struct {
	t  testing.TB
	l  net.Listener
	to string

	mu      sync.Mutex // guards what follows
	conns   map[net.Conn]bool
	stalled chan struct{} // closed when bytes pass again; nil while they do
	down    bool          // connections are refused, more or less: they are closed at once
}

// NewRelay returns a relay to an address that ends with the test.
func NewRelay(t testing.TB, to string) *Relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	tested.Must(t, err)
	p := &Relay{t: t, l: l, to: to, conns: map[net.Conn]bool{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close() //nolint:errcheck // nothing is lost
		p.Cut()
		p.Heal()
		all.Wait()
	})
	return p
}

// Addr returns the host and port to connect to.
func (p *Relay) Addr() string { return p.l.Addr().String() }

func (p *Relay) serve(c net.Conn) {
	defer c.Close() //nolint:errcheck // nothing is lost
	s, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer s.Close() //nolint:errcheck // nothing is lost
	p.mu.Lock()
	if p.down {
		p.mu.Unlock()
		return
	}
	p.conns[c], p.conns[s] = true, true
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.copy(c, s) })
	both.Go(func() { p.copy(s, c) })
	both.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	delete(p.conns, s)
}

// copy passes bytes on while the Relay is not stalled.
func (p *Relay) copy(to, from net.Conn) {
	defer to.Close() //nolint:errcheck // the other direction ends too
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		p.mu.Lock()
		stalled := p.stalled
		p.mu.Unlock()
		if stalled != nil {
			<-stalled
		}
		if _, werr := to.Write(b[:n]); err != nil || werr != nil {
			return
		}
	}
}

// Stall keeps back all bytes, in both directions, and all connections open.
func (p *Relay) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalled == nil {
		p.stalled = make(chan struct{})
	}
}

// Cut ends all connections, and lets no new one through.
func (p *Relay) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	for c := range p.conns {
		c.Close() //nolint:errcheck // nothing is lost
	}
}

// Heal ends either.
func (p *Relay) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
	if p.stalled != nil {
		close(p.stalled)
		p.stalled = nil
	}
}
