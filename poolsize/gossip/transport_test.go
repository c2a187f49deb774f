package gossip

import (
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/quotient-go/quotient/internal/carry"
	"github.com/quotient-go/quotient/internal/tested"
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
	case <-time.After(tested.Patience):
		t.Error("there is no room again")
	}
}

// Shutdown closes what is open, ends what waits, and may be called again. A later write fails.
func TestShutdown(t *testing.T) {
	tr := listening(t)
	other := listening(t)
	c, err := tr.DialTimeout(other.advertise.String(), tested.Patience)
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
	if _, err := tr.DialTimeout(other.advertise.String(), tested.Patience); err == nil {
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
	c, err := a.DialAddressTimeout(memberlist.Address{Addr: b.advertise.String()}, tested.Patience)
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

// fleet starts n replicas, which all know each other when it returns.
func fleet(t testing.TB, n int) (all []*replica) {
	t.Helper()
	for i := range n {
		var join []string
		if i > 0 {
			join = []string{all[0].address()}
		}
		all = append(all, start(t, config(fmt.Sprintf("r%02d", i), join...)))
	}
	for i, w := range all {
		w.Wants(n, i+1)
	}
	return all
}

// totals waits until all count n.
func totals(all []*replica, key string, n int64) {
	for _, r := range all {
		r.totals(key, n)
	}
}

// All know what any replica adds, also what it has added before it began, and after it has gone.
func TestCounters(t *testing.T) {
	t.Parallel()
	early := source(t, config("early"))
	tested.Not(t, !early.Counters().Add("k", 1000), "nothing was added before Watch")
	if sum, age := early.Counters().Sum("k"); sum != 1000 || age != math.MaxInt64 {
		t.Errorf("before Watch the sum is %d, %v old", sum, age)
	}
	all := fleet(t, 4)
	for i, w := range all {
		w.Counters().Add("k", int64(i+1))
	}
	totals(all, "k", 10)
	early.c.Join = []string{all[0].address()}
	e := watchOf(t, early)
	totals(append(all, e), "k", 1010)
	e.Leave()
	all[1].Leave()
	all[0].Counters().Add("k", 1)
	totals([]*replica{all[0], all[2], all[3]}, "k", 1011)
	all[2].Counters().Add("another", 1)
	totals(all[3:], "another", 1)
	if keys := all[3].Counters().Keys(); !slices.Equal(keys, []string{"another", "k"}) {
		t.Errorf("the counters are %q", keys)
	}
	long := strings.Repeat("k", 256)
	if all[0].Counters().Add("k", 0) || all[0].Counters().Add("k", -1) || all[0].Counters().Add(long, 1) {
		t.Error("what is out of range was added")
	}
	if _, age := all[0].Counters().Sum(long); age != never {
		t.Errorf("the sum of a key that is too long is %v old", age)
	}
}

// A limiter's report is summed for the limiters of its name, for as long as it reports.
func TestCarry(t *testing.T) {
	t.Parallel()
	all := fleet(t, 3)
	type heard struct {
		sum carry.Terms
		age time.Duration
	}
	var stops []func()
	sums := make([]chan heard, len(all))
	for i, w := range all {
		sums[i] = make(chan heard, 1)
		says := func(name string, own carry.Terms) {
			stop, err := w.Carry(name, func(s carry.Sums) {
				s.Say("k", own)
				for key := range s.Keys() {
					sum, age := s.Sum(key)
					select {
					case <-sums[i]:
					default:
					}
					sums[i] <- heard{sum, age}
				}
			})
			must(t, err)
			stops = append(stops, stop)
		}
		says("limiter", carry.Terms{1, int64(i)})
		if _, err := w.Carry("limiter", nil); err == nil {
			t.Error("a name that is in use was accepted")
		}
	}
	wants := func(i int, want carry.Terms) {
		t.Helper()
		all[i].Until(fmt.Sprint(want), func() bool {
			h := <-sums[i]
			return h.sum == want && h.age < math.MaxInt64
		})
	}
	for i := range all {
		wants(i, carry.Terms{3, 3})
	}
	stops[2]()
	wants(0, carry.Terms{2, 1})
	stops[0]()
	stops[0]()
	wants(1, carry.Terms{1, 1})
	stop, err := all[0].Carry("another", func(s carry.Sums) {
		for key := range s.Keys() {
			t.Errorf("another limiter's key %q", key)
		}
	})
	must(t, err)
	wants(1, carry.Terms{1, 1})
	stop()
}
