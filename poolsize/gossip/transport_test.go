package gossip

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/quotient-go/quotient/poolsize/internal/watched"
)

func listening(t *testing.T) *transport {
	t.Helper()
	tr, err := listen(source(t, config("a")).c, &traffic{})
	must(t, err)
	t.Cleanup(func() { tr.Shutdown() }) //nolint:errcheck // it returns none
	return tr
}

// One connection more than there may be is closed at once, and there is room again when another one ends.
func TestStreamsAreBounded(t *testing.T) {
	tr := listening(t)
	var all []net.Conn
	dial := func() net.Conn {
		c, err := net.Dial("tcp", tr.advertise.String())
		must(t, err)
		t.Cleanup(func() { c.Close() }) //nolint:errcheck // it may be closed
		return c
	}
	for range mostStreams {
		dial()
		all = append(all, <-tr.StreamCh())
	}
	if n, err := dial().Read(make([]byte, 1)); err == nil {
		t.Errorf("one too many reads %d bytes", n)
	}
	must(t, all[0].Close())
	must(t, all[1].Close())
	dial()
	select {
	case <-tr.StreamCh():
	case <-time.After(watched.Patience):
		t.Error("there is no room again")
	}
}

// Shutdown closes what is open, ends what waits, and may be called again. A later write fails.
func TestShutdown(t *testing.T) {
	tr := listening(t)
	other := listening(t)
	c, err := tr.DialTimeout(other.advertise.String(), watched.Patience)
	must(t, err)
	ended := make(chan error)
	go func() {
		_, err := c.Read(make([]byte, 1))
		ended <- err
	}()
	must(t, tr.Shutdown())
	must(t, tr.Shutdown())
	if err := <-ended; err == nil || err == io.EOF {
		t.Errorf("a read ends with %v", err)
	}
	if _, err := tr.DialTimeout(other.advertise.String(), watched.Patience); err == nil {
		t.Error("a connection was made after Shutdown")
	}
	if _, err := tr.WriteTo([]byte("late"), other.advertise.String()); err == nil {
		t.Error("a packet was sent after Shutdown")
	}
}

// Packets and streams are counted, in bytes.
func TestTrafficIsCounted(t *testing.T) {
	a, b := listening(t), listening(t)
	_, err := a.WriteToAddress([]byte("packet"), memberlist.Address{Addr: b.advertise.String(), Name: "b"})
	must(t, err)
	if p := <-b.PacketCh(); string(p.Buf) != "packet" || p.From.String() != a.advertise.String() {
		t.Errorf("received %q from %v", p.Buf, p.From)
	}
	c, err := a.DialAddressTimeout(memberlist.Address{Addr: b.advertise.String()}, watched.Patience)
	must(t, err)
	_, err = c.Write([]byte("stream"))
	must(t, err)
	s := <-b.StreamCh()
	_, err = io.ReadFull(s, make([]byte, 6))
	must(t, err)
	if n, m := a.count.sent.Load(), b.count.received.Load(); n != 12 || m != 12 {
		t.Errorf("sent %d bytes, received %d", n, m)
	}
	if n, m := a.count.packetsSent.Load(), b.count.packetsReceived.Load(); n != 1 || m != 1 {
		t.Errorf("sent %d packets, received %d", n, m)
	}
	if _, err := a.WriteTo([]byte("x"), "no address"); err == nil {
		t.Error("a packet went nowhere")
	}
}

// The address for others is what the configuration says of it, and what the socket says of the rest.
func TestAdvertised(t *testing.T) {
	for _, row := range []struct{ bind, advertise, host string }{
		{"127.0.0.1:0", "", "127.0.0.1"},
		{"127.0.0.1:0", "127.0.0.9", "127.0.0.9"},
		{"localhost:0", "127.0.0.9:99", "127.0.0.9"},
	} {
		c := config("a")
		c.Bind, c.Advertise = row.bind, row.advertise
		tr, err := listen(source(t, c).c, &traffic{})
		must(t, err)
		port := tr.tcp.Addr().(*net.TCPAddr).Port
		if row.advertise == "127.0.0.9:99" {
			port = 99
		}
		want := netip.AddrPortFrom(netip.MustParseAddr(row.host), uint16(port))
		ip, n, err := tr.FinalAdvertiseAddr("", 0)
		must(t, err)
		if tr.advertise != want || ip.String() != row.host || n != port {
			t.Errorf("%+v: %v, %v:%d", row, tr.advertise, ip, n)
		}
		must(t, tr.Shutdown())
	}
	if a, err := ownAddress(); err == nil && (a.IsLoopback() || !a.IsValid()) {
		t.Errorf("this host's own address is %v", a)
	}
}
