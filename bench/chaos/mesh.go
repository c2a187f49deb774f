package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"
)

// The network between replicas does this to datagrams at any time. Connections are only late.
const (
	meshLoss    = .1
	meshDoubled = .03
	leastLate   = time.Millisecond
	mostLate    = 30 * time.Millisecond
)

// A mesh is the network between replicas that gossip. Each replica advertises an address of the mesh, which
// passes on what comes there. It knows the sender by the address that the sender binds. It may be used by
// many goroutines.
type mesh struct {
	mu     sync.Mutex // guards what follows
	seats  map[netip.Addr]*seat
	cuts   map[cut]int // how often each is in force
	count  meshCount
	closed bool

	done sync.WaitGroup
}

// A seat is one replica's place in a mesh: an address that it binds, and one that the others use.
type seat struct {
	number       int
	bind, public netip.AddrPort
	udp          *net.UDPConn
	tcp          *net.TCPListener
}

// A cut stops all that one seat sends to another.
type cut struct{ from, to int }

// A meshCount counts datagrams: sent, lost by chance, doubled, and stopped by a cut.
type meshCount struct{ Sent, Lost, Doubled, Cut int }

func newMesh() *mesh { return &mesh{seats: map[netip.Addr]*seat{}, cuts: map[cut]int{}} }

// open makes a seat. Its addresses are of the loopback network, each of one seat alone.
func (m *mesh) open(number int) (*seat, error) {
	host := func(net byte) netip.Addr {
		return netip.AddrFrom4([4]byte{127, net, byte(1 + number/250), byte(1 + number%250)})
	}
	s := &seat{number: number}
	const tries = 10
	var err error
	for range tries { // until a port is free for both
		if err = s.listen(host(4)); err == nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("a seat of the mesh: %w", err)
	}
	s.bind = netip.AddrPortFrom(host(3), s.public.Port())
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seats[s.bind.Addr()] = s
	m.done.Go(func() { m.datagrams(s) })
	m.done.Go(func() { m.connections(s) })
	return s, nil
}

// listen opens the sockets on one port, or none.
func (s *seat) listen(host netip.Addr) (err error) {
	s.tcp, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(host, 0)))
	if err != nil {
		return err
	}
	s.public = s.tcp.Addr().(*net.TCPAddr).AddrPort()
	if s.udp, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(s.public)); err != nil {
		return errors.Join(err, s.tcp.Close())
	}
	return nil
}

// part cuts all that some send to others, and heal mends it. Cuts of the same seats add up.
func (m *mesh) part(cuts []cut) { m.change(cuts, 1) }

func (m *mesh) heal(cuts []cut) { m.change(cuts, -1) }

func (m *mesh) change(cuts []cut, by int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range cuts {
		if m.cuts[c] += by; m.cuts[c] == 0 {
			delete(m.cuts, c)
		}
	}
}

// sender finds the seat that an address belongs to; nil: none.
func (m *mesh) sender(a netip.Addr) *seat {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seats[a.Unmap()]
}

// stopped reports whether a cut is in force, or the mesh is closed.
func (m *mesh) stopped(from, to *seat) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed || m.cuts[cut{from.number, to.number}] > 0
}

// copies decides how often a datagram arrives.
func (m *mesh) copies(from, to *seat) int {
	stopped := m.stopped(from, to)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count.Sent++
	switch {
	case stopped:
		m.count.Cut++
		return 0
	case rand.Float64() < meshLoss:
		m.count.Lost++
		return 0
	case rand.Float64() < meshDoubled:
		m.count.Doubled++
		return 2
	}
	return 1
}

func late() time.Duration { return leastLate + rand.N(mostLate-leastLate) }

// datagrams passes on what comes to a seat, until it is closed.
func (m *mesh) datagrams(to *seat) {
	buf := make([]byte, 1<<16)
	for {
		n, addr, err := to.udp.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		from := m.sender(addr.Addr())
		if err != nil || from == nil {
			continue // what a replica that is gone has sent comes back as an error
		}
		packet := append([]byte(nil), buf[:n]...)
		for range m.copies(from, to) {
			time.AfterFunc(late(), func() {
				_, _ = from.udp.WriteToUDPAddrPort(packet, to.bind) // one may be lost
			})
		}
	}
}

// connections passes on what comes to a seat, until it is closed.
func (m *mesh) connections(to *seat) {
	for {
		c, err := to.tcp.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(mostLate)
			continue
		}
		m.done.Go(func() { m.connect(c, to) })
	}
}

// longestStream is when a connection ends at the latest: those of gossip take no longer.
const longestStream = 10 * time.Second

// connect joins a connection to the replica that it is meant for. Data under a cut is lost, and so is all
// that follows on that connection.
func (m *mesh) connect(c *net.TCPConn, to *seat) {
	defer c.Close()                                  //nolint:errcheck // nothing is lost
	_ = c.SetDeadline(time.Now().Add(longestStream)) // it is open
	from := m.sender(c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr())
	if from == nil {
		return
	}
	if m.stopped(from, to) {
		m.swallow(c)
		return
	}
	there, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(to.bind))
	if err != nil {
		return
	}
	defer there.Close()                                  //nolint:errcheck // nothing is lost
	_ = there.SetDeadline(time.Now().Add(longestStream)) // it is open
	var back sync.WaitGroup
	back.Go(func() { m.stream(there, c, to, from) })
	m.stream(c, there, from, to)
	back.Wait()
}

// swallow reads a connection to its end.
func (m *mesh) swallow(c net.Conn) {
	for buf := make([]byte, 1<<12); ; {
		if _, err := c.Read(buf); err != nil {
			return
		}
	}
}

// stream passes on what one end of a connection says.
func (m *mesh) stream(in, out *net.TCPConn, from, to *seat) {
	for buf := make([]byte, 1<<14); ; {
		n, err := in.Read(buf)
		if n > 0 {
			time.Sleep(late())
			if m.stopped(from, to) {
				m.swallow(in)
				return
			}
			if _, err := out.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			_ = out.CloseWrite() // the other end may have gone
			return
		}
	}
}

// counts are the datagrams so far.
func (m *mesh) counts() meshCount {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count
}

// close closes all seats. Connections end at the latest after longestStream.
func (m *mesh) close() (err error) {
	m.mu.Lock()
	m.closed = true
	seats := m.seats
	m.mu.Unlock()
	for _, s := range seats {
		err = errors.Join(err, s.udp.Close(), s.tcp.Close())
	}
	m.done.Wait()
	return err
}
