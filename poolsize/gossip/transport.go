package gossip

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/quotient-go/quotient/internal/rest"
	"github.com/quotient-go/quotient/poolsize/internal/setting"
)

const (
	// mostStreams bounds the connections that others have made. One more is closed at once.
	mostStreams = 64
	// mostStreamBytes bounds what those that are open have brought, all together.
	mostStreamBytes = 32 << 20
	// streamTimeout bounds each step of an exchange over TCP.
	streamTimeout = 5 * time.Second
	// bindTries is how often a port is looked for that is free for both UDP and TCP.
	bindTries = 10
	// receivePause is the pause after a read or an accept that failed: one that lasts must not use a processor up.
	receivePause = 10 * time.Millisecond
)

// traffic counts what goes over the sockets, without the headers of UDP, TCP and IP.
type traffic struct {
	sent, received               atomic.Uint64 // bytes
	packetsSent, packetsReceived atomic.Uint64 // datagrams
}

// transport is memberlist's way to the network: one port, for UDP and TCP. Unlike that of memberlist itself
// it counts bytes, bounds connections, and after Shutdown leaves none open.
type transport struct {
	advertise netip.AddrPort
	from      net.Addr // of the connections that it makes; nil: the kernel chooses
	udp       *net.UDPConn
	tcp       *net.TCPListener
	packets   chan *memberlist.Packet
	streams   chan net.Conn
	count     *traffic
	ctx       context.Context // ends with Shutdown
	end       context.CancelFunc
	done      sync.WaitGroup // its goroutines

	mu       sync.Mutex // guards what follows
	open     map[*stream]struct{}
	accepted int // of them
	brought  int // bytes, by those that were accepted
}

func listen(s *settings, count *traffic) (*transport, error) {
	t := &transport{packets: make(chan *memberlist.Packet), streams: make(chan net.Conn), count: count,
		open: map[*stream]struct{}{}}
	if host := s.bind.Addr(); !everywhere(host) {
		t.from = &net.TCPAddr{IP: host.AsSlice()}
	}
	tries := 1
	if s.bind.Port() == 0 {
		tries = bindTries
	}
	var err error
	for range tries {
		if err = t.bind(s.bind); err == nil {
			break
		}
	}
	if err == nil {
		err = t.setAdvertised(s)
	}
	if err != nil {
		t.close()
		return nil, fmt.Errorf("gossip: listen on %s: %w", s.Bind, err)
	}
	t.ctx, t.end = context.WithCancel(context.Background())
	t.done.Go(t.receive)
	t.done.Go(t.accept)
	return t, nil
}

// bind opens both sockets on one port, or none.
func (t *transport) bind(at netip.AddrPort) (err error) {
	t.close()
	var ip net.IP
	if at.Addr().IsValid() {
		ip = at.Addr().AsSlice()
	}
	if t.tcp, err = net.ListenTCP("tcp", &net.TCPAddr{IP: ip, Port: int(at.Port())}); err != nil {
		return err
	}
	port := t.tcp.Addr().(*net.TCPAddr).Port
	if t.udp, err = net.ListenUDP("udp", &net.UDPAddr{IP: ip, Port: port}); err != nil {
		return err
	}
	t.udp.SetReadBuffer(1 << 20) //nolint:errcheck // the default does as well
	return nil
}

func (t *transport) close() {
	if t.tcp != nil {
		t.tcp.Close() //nolint:errcheck // nothing is lost
	}
	if t.udp != nil {
		t.udp.Close() //nolint:errcheck // nothing is lost
	}
	t.tcp, t.udp = nil, nil
}

// setAdvertised finds the address that others use. The defaults of the configuration are those of the sockets.
func (t *transport) setAdvertised(s *settings) error {
	host := s.advertise.Addr()
	if !host.IsValid() {
		host = s.bind.Addr()
	}
	if everywhere(host) {
		var err error
		if host, err = ownAddress(); err != nil {
			return err
		}
	}
	port := uint16(t.tcp.Addr().(*net.TCPAddr).Port)
	t.advertise = netip.AddrPortFrom(host, cmp.Or(s.advertise.Port(), port))
	return nil
}

// ownAddress returns the first address of this host that other hosts can reach, IPv4 before IPv6.
func ownAddress() (netip.Addr, error) {
	own, err := setting.OwnAddrs()
	if err == nil && len(own) == 0 {
		err = errors.New("this host has no address that others can reach: set Config.Advertise")
	}
	if err != nil {
		return netip.Addr{}, err
	}
	return own[max(0, slices.IndexFunc(own, netip.Addr.Is4))], nil
}

// receive hands datagrams over, until Shutdown.
func (t *transport) receive() {
	buf := make([]byte, 1<<16)
	for t.ctx.Err() == nil {
		n, from, err := t.udp.ReadFromUDPAddrPort(buf)
		at := time.Now()
		if err != nil {
			rest.For(t.ctx, receivePause)
			continue
		}
		if n == 0 {
			continue
		}
		t.count.received.Add(uint64(n))
		t.count.packetsReceived.Add(1)
		b := bytes.Clone(buf[:n])
		select {
		case t.packets <- &memberlist.Packet{Buf: b, From: net.UDPAddrFromAddrPort(from), Timestamp: at}:
		case <-t.ctx.Done():
		}
	}
}

// accept hands connections over, until Shutdown.
func (t *transport) accept() {
	for t.ctx.Err() == nil {
		c, err := t.tcp.Accept()
		if err != nil {
			rest.For(t.ctx, receivePause)
			continue
		}
		s := t.track(c, true)
		if s == nil {
			continue
		}
		select {
		case t.streams <- s:
		case <-t.ctx.Done():
		}
	}
}

// track remembers an open connection. It closes one that is too many, or comes after Shutdown, and returns nil.
func (t *transport) track(c net.Conn, accepted bool) *stream {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil || accepted && t.accepted >= mostStreams {
		c.Close() //nolint:errcheck // nothing is lost
		return nil
	}
	s := &stream{Conn: c, t: t, accepted: accepted}
	t.open[s] = struct{}{}
	if accepted {
		t.accepted++
	}
	return s
}

// stream is an open connection.
type stream struct {
	net.Conn
	t        *transport
	accepted bool
	brought  int // bytes; guarded by transport.mu
}

// Read counts bytes. It fails when those that others have connected bring too much, all together: memberlist
// keeps what it reads before it knows that the other end has the key.
func (s *stream) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	s.t.count.received.Add(uint64(n))
	if !s.t.takes(s, n) {
		return 0, errTooMuch
	}
	return n, err
}

var errTooMuch = errors.New("gossip: the connections of others bring too much at a time")

// takes notes that a connection has brought n bytes more, and reports whether there is room for them.
func (t *transport) takes(s *stream, n int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, open := t.open[s]; open && s.accepted {
		s.brought += n
		t.brought += n
		return t.brought <= mostStreamBytes
	}
	return true
}

// Write counts bytes.
func (s *stream) Write(b []byte) (int, error) {
	n, err := s.Conn.Write(b)
	s.t.count.sent.Add(uint64(n))
	return n, err
}

// Close forgets the connection.
func (s *stream) Close() error {
	s.t.mu.Lock()
	if _, open := s.t.open[s]; open && s.accepted {
		s.t.accepted--
		s.t.brought -= s.brought
	}
	delete(s.t.open, s)
	s.t.mu.Unlock()
	return s.Conn.Close()
}

// FinalAdvertiseAddr returns the address for others.
func (t *transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return t.advertise.Addr().AsSlice(), int(t.advertise.Port()), nil
}

// WriteTo sends a datagram.
func (t *transport) WriteTo(b []byte, address string) (time.Time, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return time.Time{}, err
	}
	if _, err := t.udp.WriteToUDPAddrPort(b, to); err != nil {
		return time.Time{}, err
	}
	t.count.sent.Add(uint64(len(b)))
	t.count.packetsSent.Add(1)
	return time.Now(), nil
}

// WriteToAddress is WriteTo.
func (t *transport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	return t.WriteTo(b, a.Addr)
}

// DialTimeout makes a connection.
func (t *transport) DialTimeout(address string, timeout time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout, LocalAddr: t.from}
	c, err := d.DialContext(t.ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if s := t.track(c, false); s != nil {
		return s, nil
	}
	return nil, net.ErrClosed
}

// DialAddressTimeout is DialTimeout.
func (t *transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return t.DialTimeout(a.Addr, timeout)
}

// PacketCh is where datagrams come out.
func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh is where connections come out that others have made.
func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// Shutdown closes all sockets, and returns when its goroutines have ended. It may be called again.
func (t *transport) Shutdown() error {
	t.end()
	t.tcp.Close() //nolint:errcheck // nothing is lost
	t.udp.Close() //nolint:errcheck // nothing is lost
	t.mu.Lock()
	for s := range t.open {
		s.Conn.Close() //nolint:errcheck // nothing is lost
	}
	t.mu.Unlock()
	t.done.Wait()
	return nil
}
