package etcdtest

import (
	"net"
	"sync"
	"testing"
)

// Relay is a network between a client and a server that can be stalled, and cut. It is safe for concurrent
// use.
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
	Must(t, err)
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
