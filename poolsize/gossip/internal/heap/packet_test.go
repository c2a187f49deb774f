package heap

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/quotient-go/quotient/internal/tested"
)

// traffic is what a fleet says in every interval.
type traffic struct {
	name  string
	keys  int
	terms func(f *fleet, nodes int) Terms // of a gauge; nil for counters
}

// shares are what replicas say when they lend: each knows the key, most terms stay, its claim and its pace
// change.
func shares(f *fleet, nodes int) Terms {
	part := func(whole int64) int64 { return whole/int64(nodes) + f.rand.Int64N(whole/int64(nodes)/4+2) }
	return Terms{1, part(1e6), 1 / (1 + f.rand.Int64N(int64(nodes))), part(1e9), 1}
}

// perSecond measures bytes a second with all headers: of the busiest node, and on average of nodes with
// three edges.
func perSecond(t *testing.T, nodes int, w traffic) (busiest, mean float64) {
	f := newFleet(t, 5, Options{})
	ps := f.many(nodes)
	say := func() {
		for k := range w.keys {
			key := fmt.Sprintf("tenant/%04d/api", k)
			for _, p := range ps {
				if w.terms == nil { // 25000 events a second of each key, over the whole fleet
					p.Add(f.clock(p), key, int64(5000/nodes))
				} else {
					p.Say(key, w.terms(f, nodes))
				}
			}
		}
	}
	var turn func()
	turn = func() {
		say()
		f.after(f.interval, turn)
	}
	turn()
	f.run(14 * time.Second) // acknowledgements are longer during the first 64 packets
	const seconds = 1
	clear(f.sent)
	f.run(seconds * time.Second)
	inner := 0
	for _, p := range ps {
		rate := float64(f.sent[p.self.ID]) / seconds
		busiest = max(busiest, rate)
		if p.edges[0].peer.ID != 0 && p.edges[2].peer.ID != 0 {
			mean += rate
			inner++
		}
	}
	return busiest, mean / float64(inner)
}

func TestBytes(t *testing.T) {
	if racing {
		t.Skip("large fleets take minutes under the race detector")
	}
	const large = 127
	for _, w := range []struct {
		traffic
		most float64
	}{
		{traffic{"idle", 0, nil}, 2 << 10},
		{traffic{"100 gauges that change", 100, shares}, 20 << 10},
		{traffic{"100 counters that change", 100, nil}, 20 << 10},
	} {
		small, smallMean := perSecond(t, 15, w.traffic)
		big, bigMean := perSecond(t, large, w.traffic)
		t.Logf("%s, bytes/s of the busiest node: %.0f at N = 15, %.0f at N = %d (%+.1f %%); mean of nodes "+
			"with three edges: %.0f, %.0f (%+.1f %%)",
			w.name, small, big, large, 100*(big/small-1), smallMean, bigMean, 100*(bigMean/smallMean-1))
		tested.Not(t, max(small, big) > w.most, "%s: %.0f bytes/s, more than %.0f", w.name, max(small, big), w.most)
		if ratio := big / small; ratio > 1.05 || ratio < .95 && w.terms != nil {
			t.Errorf("%s: %.3f times the bytes at N = %d", w.name, ratio, large)
		}
	}
}

// forge returns two nodes that know each other, and a packet of the first one's.
func forge(t *testing.T, change func(h *header), content []byte) (to *Node, packet []byte) {
	t.Helper()
	members := []Member{{"a", 1}, {"b", 2}}
	from, to := New(members[0], Options{}), New(members[1], Options{})
	for _, n := range []*Node{from, to} {
		n.SetMembers(0, members)
	}
	for now := time.Duration(0); now < 5*time.Second; now += time.Second {
		exchange(t, now, from, to)
	}
	e := from.edgeTo(2)
	h := from.header(e, 1, from.now)
	h.seq, h.parts = e.seq+1, 1
	change(&h)
	packet = h.append(nil)
	if content != nil {
		packet = append(packet, records)
		packet = binary.LittleEndian.AppendUint16(packet, uint16(len(content)))
		packet = append(packet, content...)
	}
	return to, packet
}

// exchange has two nodes send each other what is due.
func exchange(t *testing.T, now time.Duration, a, b *Node) {
	t.Helper()
	a.Tick(now, func(_ Member, p []byte) { must(t, b.Receive(now, p)) })
	b.Tick(now, func(_ Member, p []byte) { must(t, a.Receive(now, p)) })
}

var must = tested.Must

// No replica says terms below 0: a packet with some would take away what others say.
func TestNoTermsBelowZero(t *testing.T) {
	c := record{kind: ofGauge, num: 1, mask: 1, terms: Terms{-7}}
	to, packet := forge(t, func(*header) {}, c.append(nil, "k"))
	to.Say("k", Terms{3})
	tested.Not(t, to.Receive(5*time.Second, packet) == nil, "it is received")
	if got, _ := to.Sum(5*time.Second, "k"); got != (Terms{3}) {
		t.Errorf("the sum is %v", got)
	}
}

// The first packet of a tick cannot have a number below 1. A packet with such a tick must not keep later
// ticks out.
func TestPartBeforeTheFirstPacket(t *testing.T) {
	to, packet := forge(t, func(h *header) { h.seq, h.part, h.parts, h.nodes = 1, 3, 4, 0 }, nil)
	tested.Not(t, to.Receive(5*time.Second, packet) == nil, "it is received")
}

// pair is two nodes that know each other, and packets of the second for the first.
func pair(tb testing.TB) (a, b *Node, packets [][]byte) {
	tb.Helper()
	o := Options{PacketSize: MinPacketSize, MaxKeys: 8, MaxTotals: 16, Expire: time.Minute}
	ms := []Member{{"a", 1}, {"b", 2}, {"c", 3}}
	a, b = New(ms[0], o), New(ms[1], o)
	for _, n := range []*Node{a, b} {
		n.SetMembers(0, append(ms[:2:2], Member{"gone", 9}))
		n.Say("gauge", Terms{1, 2, 3, math.MaxInt64, math.MaxInt64 - 1, 0})
		n.Add(0, "counter", 5)
	}
	swap := func(now time.Duration) {
		b.Tick(now, func(_ Member, p []byte) {
			packets = append(packets, append([]byte(nil), p...))
			tested.Must(tb, a.Receive(now, p))
		})
		a.Tick(now, func(_ Member, p []byte) {
			tested.Must(tb, b.Receive(now, p))
		})
	}
	for i := range time.Duration(4) {
		swap(i * time.Second)
	}
	for _, n := range []*Node{a, b} {
		n.SetMembers(4*time.Second, ms[:2])
	}
	b.Say("gauge", Terms{})
	for i := range time.Duration(4) {
		swap((i + 5) * time.Second)
	}
	return a, b, packets
}

// FuzzReceive: no input makes a node panic or keep more than its options allow, and none changes what it
// sends to a packet that is too long.
func FuzzReceive(f *testing.F) {
	_, _, packets := pair(f)
	for _, p := range packets {
		f.Add(p, uint64(0))
	}
	f.Add([]byte{}, uint64(3))
	f.Add([]byte{0x20, 0, 0}, uint64(0))
	h, _, err := parse(packets[len(packets)-1])
	tested.Must(f, err)
	section := func(n int, record func(i int) string) string {
		body := ""
		for i := range n {
			body += record(i)
		}
		return string(binary.LittleEndian.AppendUint16([]byte{records}, uint16(len(body)))) + body
	}
	const ffs = "\xff\xff\xff\xff\xff\xff\xff\xff"
	for _, tail := range []string{
		"\x01*\x00\x14", // cut
		"\x01\x1e\x00\x84\x80@\x01k?\xfe" + ffs + "\x01\xff" + ffs +
			"\x01\x00\x00\x00\x00", // the largest number
		"\x01\a\x00\x94\x80@\x01k\x01\x00",                                // one too large
		"M\x02\x00\x01\x02",                                               // a section of a later version
		"\x01\x15\x00\x1d\acounter\x00\t\x04\x14\x05gauge\x01\x0e",        // a number for another key
		"\x01\x17\x00\x1d\acounter\x00\t\x04%\acounter\x00\a",             // two numbers for a key
		"\x01\x13\x00\a\acounter\x00\x01\x00\x00\x00\x00\x00\x00\x00\x05", // its own total
		"\x01\x01\x002",    // the removal of nothing
		"\x01\xff\xff\x01", // a section that is too long
		"\x01\n\x00\x14\x01k\xff\x00\x00\x00\x00\x00\x00", // terms beyond the last
		section(40, func(i int) string {
			return string(binary.AppendUvarint(nil, uint64(i+1)<<4|4)) + fmt.Sprintf("\x05key%02d\x01\x02", i)
		}),
		section(38, func(i int) string {
			return fmt.Sprintf("\a\bcounter%d\x00%c\x00\x00\x00\x00\x00\x00\x00%c", i%4, 10+i, 1+i)
		}),
	} {
		for _, flags := range []uint8{0, hasLimit, hasHeld, hasLimit | hasHeld} {
			h.flags = flags
			f.Add(append(h.append(nil), tail...), uint64(len(tail)))
		}
	}
	f.Fuzz(func(t *testing.T, p []byte, seq uint64) {
		a, _, _ := pair(t)
		now := 10 * time.Second
		_ = a.Receive(now, p)
		if len(p) >= fixedSize { // once more, as a packet that counts
			h := a.forged(seq)
			if _, r, err := parse(p); err == nil {
				_ = a.Receive(now, append(h.append(nil), r.p...))
			}
			h.seq++
			_ = a.Receive(now, append(h.append(nil), p[fixedSize:]...))
			h.seq++
			body := p[fixedSize:min(len(p), math.MaxUint16)]
			_ = a.Receive(now,
				append(append(h.append(nil), records, byte(len(body)), byte(len(body)>>8)), body...))
		}
		a.bounded(t)
		for range 3 {
			now += 200 * time.Millisecond
			a.Tick(now, func(_ Member, p []byte) {
				if len(p) > a.opt.PacketSize {
					t.Fatalf("a packet of %d bytes", len(p))
				}
			})
		}
		for key := range a.Keys() {
			a.Sum(now, key)
		}
		for key := range a.Counters() {
			a.Total(now, key)
		}
		a.SetMembers(now, []Member{{"x", 7}})
		a.bounded(t)
	})
}

// forged is the header of a packet that b could send next.
func (n *Node) forged(seq uint64) header {
	e := &n.edges[1]
	return header{
		from: 2, to: 1, list: n.list, parts: 1, session: e.session, yours: n.session,
		seq: e.top + 1 + seq%100, echo: e.seq, got: math.MaxUint64, nodes: 1, limit: math.MaxUint64,
	}
}

// bounded requires that a node keeps no more than its options allow.
func (n *Node) bounded(t *testing.T) {
	t.Helper()
	totals := 0
	for _, en := range n.entries {
		totals += len(en.others)
	}
	switch {
	case len(n.table) > n.opt.MaxKeys || len(n.table) != len(n.entries):
		t.Fatalf("%d keys", len(n.table))
	case n.totals > n.opt.MaxTotals || totals != n.totals:
		t.Fatalf("%d totals, counted as %d", totals, n.totals)
	}
	for i := range n.edges {
		e := &n.edges[i]
		if len(e.slots) > mostKeys || e.last > n.opt.MaxKeys {
			t.Fatalf("%d numbers of the peer, %d of ours", len(e.slots), e.last)
		}
		queued := 0
		for _, en := range n.entries {
			if s := en.slot[i]; s != 0 && e.slots[s-1].entry != en {
				t.Fatalf("%v has the number %d, which stands for another key", en.key, s)
			}
			queued++
			queued += len(en.others)
		}
	}
}

// TestReceiveRefuses: what makes no sense is an error and changes nothing.
func TestReceiveRefuses(t *testing.T) {
	a, b, packets := pair(t)
	last := packets[len(packets)-1]
	for cut := range last {
		tested.Not(t, a.Receive(0, last[:cut]) == nil, "%d bytes of %d are received", cut, len(last))
	}
	other := append([]byte{0x20}, last[1:]...)
	tested.Not(t, a.Receive(0, other) == nil, "version 2 is received")
	before, age := a.count, a.Stats(0).Age
	for _, p := range packets {
		tested.Want(t, "Receive", a.Receive(0, p), nil)
	}
	after := a.count
	if after.late-before.late+after.otherList-before.otherList != uint64(len(packets)) || a.Stats(0).Age != age {
		t.Errorf("%d packets that came before: %+v, then %+v", len(packets), before, after)
	}
	strange := b.count.strange
	if err := b.Receive(0, last); err != nil || b.count.strange != strange+1 {
		t.Errorf("its own packet: %v, %+v", err, b.count)
	}
}

// TestLaterSections: sections of a later release are skipped, before and behind those that are known.
func TestLaterSections(t *testing.T) {
	a, b, _ := pair(t)
	b.Say("new", Terms{7})
	b.Tick(20*time.Second, func(_ Member, p []byte) {
		h, r, err := parse(p)
		tested.Must(t, err)
		strange := binary.LittleEndian.AppendUint16([]byte{200}, 5)
		strange = append(strange, "extra"...)
		p = append(h.append(nil), strange...)
		p = append(append(p, r.p...), strange...)
		tested.Must(t, a.Receive(20*time.Second, p))
	})
	if sum, age := a.Sum(20*time.Second, "new"); sum != (Terms{7}) || age == Never {
		t.Errorf("%v at the age of %v", sum, age)
	}
}
