package heap

import (
	"encoding/binary"
	"math"
	"testing"
	"time"
)

// pair is two nodes that know each other, and packets of the second for the first.
func pair(tb testing.TB) (a, b *Node, packets [][]byte) {
	tb.Helper()
	o := Options{PacketSize: MinPacketSize, MaxKeys: 8, MaxTotals: 16, Expire: time.Minute}
	ms := []Member{{"a", 1}, {"b", 2}, {"c", 3}}
	a, errA := New(ms[0], o)
	b, errB := New(ms[1], o)
	if errA != nil || errB != nil {
		tb.Fatal(errA, errB)
	}
	for _, n := range []*Node{a, b} {
		n.SetMembers(0, append(ms[:2:2], Member{"gone", 9}))
		n.Say("gauge", Terms{1, 2, 3, math.MaxInt64, math.MaxInt64 - 1, 0})
		n.Add(0, "counter", 5)
	}
	swap := func(now time.Duration) {
		b.Tick(now, func(_ Member, p []byte) {
			packets = append(packets, append([]byte(nil), p...))
			if err := a.Receive(now, p); err != nil {
				tb.Fatal(err)
			}
		})
		a.Tick(now, func(_ Member, p []byte) {
			if err := b.Receive(now, p); err != nil {
				tb.Fatal(err)
			}
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
		if err := a.Receive(0, last[:cut]); err == nil {
			t.Errorf("no error for %d bytes of %d", cut, len(last))
		}
	}
	other := append([]byte{0x20}, last[1:]...)
	if err := a.Receive(0, other); err == nil {
		t.Error("no error for version 2")
	}
	before := a.Stats(0)
	for _, p := range packets {
		if err := a.Receive(0, p); err != nil {
			t.Error(err)
		}
	}
	after := a.Stats(0)
	if after.Late-before.Late+after.OtherList-before.OtherList != uint64(len(packets)) ||
		after.Age != before.Age {
		t.Errorf("%d packets that came before: %+v, then %+v", len(packets), before, after)
	}
	strange := b.Stats(0).Strange
	if err := b.Receive(0, last); err != nil || b.Stats(0).Strange != strange+1 {
		t.Errorf("its own packet: %v, %+v", err, b.Stats(0))
	}
}

// TestLaterSections: sections of a later release are skipped, before and behind those that are known.
func TestLaterSections(t *testing.T) {
	a, b, _ := pair(t)
	b.Say("new", Terms{7})
	b.Tick(20*time.Second, func(_ Member, p []byte) {
		h, r, err := parse(p)
		if err != nil {
			t.Fatal(err)
		}
		strange := binary.LittleEndian.AppendUint16([]byte{200}, 5)
		strange = append(strange, "extra"...)
		p = append(h.append(nil), strange...)
		p = append(append(p, r.p...), strange...)
		if err := a.Receive(20*time.Second, p); err != nil {
			t.Fatal(err)
		}
	})
	if sum, age := a.Sum(20*time.Second, "new"); sum != (Terms{7}) || age == Never {
		t.Errorf("%v at the age of %v", sum, age)
	}
}
