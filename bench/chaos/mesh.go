package main

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/quotient-go/quotient/bench/rig"
)

// The network between replicas does this to datagrams at any time.
const (
	meshLoss    = .1
	meshDoubled = .03
	mostLate    = 30 * time.Millisecond
)

// A mesh is the network between replicas that gossip. Each replica advertises an address of the mesh, which passes
// on what comes there. It knows the sender by the address that the sender binds.
type mesh struct {
	port   int // of all addresses
	mu     sync.Mutex
	seats  map[netip.Addr]*seat
	cut    func(from, to int) bool // nil: all arrives
	closed bool
	done   sync.WaitGroup
}

// A seat is one replica's place in a mesh: an address that it binds, and one that the others use.
type seat struct {
	number       int
	bind, public netip.AddrPort
	udp          *net.UDPConn
	tcp          *net.TCPListener
}

func newMesh() (m *mesh, err error) {
	m = &mesh{seats: map[netip.Addr]*seat{}}
	m.port, err = rig.FreePort()
	return m, err
}

// open makes a seat. Its addresses are of the loopback network, each of one seat alone.
func (m *mesh) open(number int) (s *seat, err error) {
	host := func(net byte) netip.AddrPort {
		addr := netip.AddrFrom4([4]byte{127, net, byte(1 + number/250), byte(1 + number%250)})
		return netip.AddrPortFrom(addr, uint16(m.port))
	}
	s = &seat{number: number, bind: host(3), public: host(4)}
	if s.tcp, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(s.public)); err != nil {
		return nil, err
	}
	if s.udp, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(s.public)); err != nil {
		return nil, errors.Join(err, s.tcp.Close())
	}
	m.mu.Lock()
	m.seats[s.bind.Addr()] = s
	m.mu.Unlock()
	m.done.Go(func() { m.datagrams(s) })
	m.done.Go(func() { m.connections(s) })
	return s, nil
}

// part stops what one seat sends to another where cut says so, from now on; nil mends all.
func (m *mesh) part(cut func(from, to int) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cut = cut
}

// passes finds the seat that an address belongs to; nil: there is none, or nothing passes from it.
func (m *mesh) passes(sender netip.AddrPort, to *seat, both bool) *seat {
	m.mu.Lock()
	defer m.mu.Unlock()
	from := m.seats[sender.Addr().Unmap()]
	if from == nil || m.closed || m.cut != nil && (m.cut(from.number, to.number) || both && m.cut(to.number, from.number)) {
		return nil
	}
	return from
}

// datagrams passes on what comes to a seat, until it is closed.
func (m *mesh) datagrams(to *seat) {
	for buf := make([]byte, 1<<16); ; {
		n, addr, err := to.udp.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		from := m.passes(addr, to, false)
		if err != nil || from == nil {
			continue // what a replica that is gone has sent comes back as an error
		}
		copies, packet := 1, append([]byte(nil), buf[:n]...)
		if chance := rand.Float64(); chance < meshLoss {
			copies = 0
		} else if chance < meshLoss+meshDoubled {
			copies = 2
		}
		for range copies {
			time.AfterFunc(rand.N(mostLate), func() {
				_, _ = from.udp.WriteToUDPAddrPort(packet, to.bind) // one may be lost
			})
		}
	}
}

// connections passes on what comes to a seat, until it is closed. None passes a cut of either way.
func (m *mesh) connections(to *seat) {
	for {
		c, err := to.tcp.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil && m.passes(c.RemoteAddr().(*net.TCPAddr).AddrPort(), to, true) != nil {
			m.done.Go(func() { m.join(c, to) })
		} else if err == nil {
			_ = c.Close() // nothing is lost
		}
	}
}

// longestStream is when a connection ends at the latest: those of gossip take no longer.
const longestStream = 10 * sec

// join joins a connection to the replica that it is meant for.
func (m *mesh) join(c *net.TCPConn, to *seat) {
	defer c.Close() //nolint:errcheck // nothing is lost
	there, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(to.bind))
	if err != nil {
		return
	}
	defer there.Close() //nolint:errcheck // nothing is lost
	end := time.Now().Add(longestStream)
	_ = errors.Join(c.SetDeadline(end), there.SetDeadline(end)) // both are open
	var both sync.WaitGroup
	for in, out := range map[*net.TCPConn]*net.TCPConn{c: there, there: c} {
		both.Go(func() {
			_, _ = io.Copy(out, in) // either end may go
			_ = out.CloseWrite()
		})
	}
	both.Wait()
}

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
