package heap

import (
	"encoding/binary"
	"testing"
	"time"
)

// forge returns two nodes that know each other, and a packet of the first one's.
func forge(t *testing.T, change func(h *header), content []byte) (to *Node, packet []byte) {
	t.Helper()
	members := []Member{{"a", 1}, {"b", 2}}
	from, err := New(members[0], Options{})
	must(t, err)
	to, err = New(members[1], Options{})
	must(t, err)
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

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// No replica says terms below 0: a packet with some would take away what others say.
func TestNoTermsBelowZero(t *testing.T) {
	c := record{kind: ofGauge, num: 1, mask: 1, terms: Terms{-7}}
	to, packet := forge(t, func(*header) {}, c.append(nil, "k"))
	to.Say("k", Terms{3})
	if err := to.Receive(5*time.Second, packet); err == nil {
		t.Error("no error")
	}
	if got, _ := to.Sum(5*time.Second, "k"); got != (Terms{3}) {
		t.Errorf("the sum is %v", got)
	}
}

// The first packet of a tick cannot have a number below 1. A packet with such a tick must not keep later
// ticks out.
func TestPartBeforeTheFirstPacket(t *testing.T) {
	to, packet := forge(t, func(h *header) { h.seq, h.part, h.parts, h.nodes = 1, 3, 4, 0 }, nil)
	if err := to.Receive(5*time.Second, packet); err == nil {
		t.Error("no error")
	}
}
