package gossip

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
)

// Replicas find each other by one of them, and each knows its place. A replica that leaves is missed at
// once.
func TestFleet(t *testing.T) {
	b := start(t, config("b"))
	b.wants(t, 1, 1)
	seed := b.address(t)
	a, c := start(t, config("a", seed)), start(t, config("c", seed))
	a.wants(t, 3, 1)
	b.wants(t, 3, 2)
	c.wants(t, 3, 3)
	a.leave(t)
	b.wants(t, 2, 1)
	c.wants(t, 2, 2)
}

// A replica that listens on all interfaces is found by the address that it finds itself, and by others too.
func TestAllInterfaces(t *testing.T) {
	if _, err := ownAddress(); err != nil {
		t.Skip(err)
	}
	c := config("a")
	c.Bind, c.KeyFile = ":0", filepath.Join(t.TempDir(), "keys")
	write(t, c.KeyFile, key(1, 32))
	a := start(t, c)
	at := netip.MustParseAddrPort(a.address(t))
	if at.Addr().IsLoopback() || !at.IsValid() {
		t.Errorf("it advertises %v", at)
	}
	c.Name, c.Join = "b", []string{fmt.Sprintf("127.0.0.1:%d", at.Port())}
	b := start(t, c)
	b.wants(t, 2, 2)
	a.Counters().Add("k", 1)
	totals(t, []*watched{a, b}, "k", 1)
}

// IPv6 is as good as IPv4.
func TestIPv6(t *testing.T) {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip(err)
	}
	must(t, l.Close())
	c := config("a")
	c.Bind = "[::1]:0"
	a := start(t, c)
	c.Name, c.Join = "b", []string{a.address(t)}
	b := start(t, c)
	b.wants(t, 2, 2)
	a.Counters().Add("k", 1)
	totals(t, []*watched{a, b}, "k", 1)
}
