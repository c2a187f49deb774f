// Package dnstest is a small DNS server for tests. It listens on loopback, over UDP and TCP on one port. It
// answers questions for A, AAAA and SRV records that the test has set, and fails in the ways that real
// servers fail, on demand.
//
// Its answers are honest in size, but for one mode. An answer that does not fit in a datagram is truncated there and
// whole over TCP. A datagram has 512 bytes, or as many as the question allows by EDNS0, at most 1,232.
package dnstest

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Mode is how a Server answers.
type Mode uint8

// The modes. Each holds for all names and, but for ServFailAAAA, for all types.
const (
	Healthy      Mode = iota // what was set; names that were not set do not exist
	NXDomain                 // no name exists
	ServFail                 // the server failed
	ServFailAAAA             // the server failed for AAAA; all else is healthy
	Truncated                // half of the answers and the mark of a truncated message, over TCP too
	Empty                    // every name exists, and has no records
	Silent                   // no answer
	Garbage                  // the question comes back right, and what follows is no record
	Oversized                // healthy, but with datagrams as long as the answer, whatever the client takes
)

var modeNames = [...]string{
	"healthy", "nxdomain", "servfail", "servfail-aaaa", "truncated", "empty", "silent", "garbage", "oversized",
}

// String is the name of the mode, for logs.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return "Mode(" + strconv.Itoa(int(m)) + ")"
}

// A client that does nothing is dropped after idle; more than maxConns at a time are closed at once.
const (
	idle     = 10 * time.Second
	maxConns = 64
)

// Server is a DNS server. Its methods may be called from many goroutines at once.
type Server struct {
	addr string
	udp  net.PacketConn
	tcp  net.Listener
	wg   sync.WaitGroup

	mu     sync.Mutex // guards what follows
	mode   Mode
	names  map[string]records
	conns  map[net.Conn]struct{}
	closed bool
}

// records are those of one name.
type records struct {
	addrs []netip.Addr
	srv   []net.SRV
}

// New starts a server on a free port of 127.0.0.1. It knows no name yet. The server has goroutines
// of its own until Close.
func New() (*Server, error) {
	udp, tcp, err := listen()
	if err != nil {
		return nil, fmt.Errorf("dnstest: %w", err)
	}
	s := &Server{
		addr: udp.LocalAddr().String(), udp: udp, tcp: tcp,
		names: map[string]records{}, conns: map[net.Conn]struct{}{},
	}
	s.wg.Go(s.serveUDP)
	s.wg.Go(s.serveTCP)
	return s, nil
}

// listen finds a port that is free for both. A port that is free for UDP may be taken for TCP, so it makes
// several attempts.
func listen() (udp net.PacketConn, tcp net.Listener, err error) {
	for range 16 {
		if udp, err = net.ListenPacket("udp4", "127.0.0.1:0"); err != nil {
			return nil, nil, err
		}
		if tcp, err = net.Listen("tcp4", udp.LocalAddr().String()); err == nil {
			return udp, tcp, nil
		}
		udp.Close()
	}
	return nil, nil, err
}

// Addr is the server's host and port, for UDP and TCP.
func (s *Server) Addr() string { return s.addr }

// Resolver is Go's own resolver, asking this server alone. An entry in the machine's hosts file wins over it, unless
// the name is of one part with a dot at its end ("web."). Without that dot the machine's search list is tried as well.
// Its connections end with the look-up's context: package net by itself would leave a goroutine
// that waits some seconds more for a server that is silent.
func (s *Server) Resolver() *net.Resolver {
	return &net.Resolver{
		PreferGo: true,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			c, err := d.DialContext(ctx, network, s.addr)
			if err == nil {
				context.AfterFunc(ctx, func() { c.Close() })
			}
			return c, err
		},
	}
}

// Set gives a name these addresses in place of those that it had. A records are made of IPv4 addresses, AAAA
// records of all others, also of IPv4 addresses in IPv6 form. Without addresses the name exists and has none.
// It panics when the name or an address is invalid.
func (s *Server) Set(name string, addrs ...netip.Addr) {
	for _, a := range addrs {
		if !a.IsValid() {
			panic("dnstest: Set: " + name + ": invalid address")
		}
	}
	s.change(name, func(r *records) { r.addrs = slices.Clone(addrs) })
}

// SetSRV gives a name these SRV records in place of those that it had. It panics when the name
// or a target is invalid.
func (s *Server) SetSRV(name string, targets ...*net.SRV) {
	var srv []net.SRV
	for _, t := range targets {
		mustName(t.Target)
		srv = append(srv, *t)
	}
	s.change(name, func(r *records) { r.srv = srv })
}

func (s *Server) change(name string, change func(*records)) {
	key := canonical(name)
	mustName(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.names[key]
	change(&r)
	s.names[key] = r
}

func mustName(name string) {
	if _, err := messageName(name); err != nil {
		panic("dnstest: " + err.Error())
	}
}

// Fail makes the server answer in this mode from now on; Healthy ends a failure.
func (s *Server) Fail(m Mode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mode = m
}

func (s *Server) find(name string) (Mode, records, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.names[canonical(name)]
	return s.mode, r, ok
}

// canonical is how names are compared: without case, with or without the last dot.
func canonical(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// Close ends the server, its connections and its goroutines. It may be called again.
func (s *Server) Close() error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	if first {
		s.udp.Close()
		s.tcp.Close()
	}
	s.wg.Wait()
	return nil
}
