package heap

import (
	"slices"
	"testing"
	"time"
)

// post lets a node tick and returns its packets for its only neighbour.
func (n *Node) post(now time.Duration) (packets [][]byte) {
	n.Tick(now, func(_ Member, p []byte) { packets = append(packets, slices.Clone(p)) })
	return packets
}

// take lets a node receive packets.
func (n *Node) take(t *testing.T, now time.Duration, packets [][]byte) {
	t.Helper()
	for _, p := range packets {
		if err := n.Receive(now, p); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRemovalBeforeItsValue: a removal that overtakes the packet with the value wins all the same.
func TestRemovalBeforeItsValue(t *testing.T) {
	a, b, _ := pair(t)
	b.Say("x", Terms{1})
	value := b.post(10 * time.Second)
	b.Say("x", Terms{})
	removal := b.post(11 * time.Second)
	a.take(t, 12*time.Second, removal)
	a.take(t, 12*time.Second, value)
	if sum, _ := a.Sum(12*time.Second, "x"); sum != (Terms{}) {
		t.Errorf("a late packet brings back %v", sum)
	}
	b.take(t, 12*time.Second, a.post(12*time.Second))
	b.post(13 * time.Second)
	if b.table[name{gauge, "x"}] != nil {
		t.Error("the key is kept although its removal has arrived")
	}
}

// TestOldValueAfterNew: of two packets the one that was sent last counts, whichever comes last.
func TestOldValueAfterNew(t *testing.T) {
	a, b, _ := pair(t)
	b.Say("x", Terms{1, 10})
	old := b.post(10 * time.Second)
	b.Say("x", Terms{1, 20})
	a.take(t, 11*time.Second, b.post(11*time.Second))
	a.take(t, 11*time.Second, old)
	if sum, _ := a.Sum(11*time.Second, "x"); sum != (Terms{1, 20}) {
		t.Errorf("%v, want the later value", sum)
	}
}

// TestLatePacket: a packet that was under way for long is as old as it is.
func TestLatePacket(t *testing.T) {
	a, b, _ := pair(t)
	b.take(t, 10*time.Second, a.post(10*time.Second))
	b.Say("x", Terms{1})
	late := b.post(11 * time.Second)
	a.take(t, 31*time.Second, late)
	if sum, age := a.Sum(31*time.Second, "x"); sum != (Terms{1}) || age < 20*time.Second ||
		age > 21*time.Second {
		t.Errorf("%v at the age of %v, want some 20s", sum, age)
	}
}

// TestOtherList: what a node says whose list differs is in no sum, and no sum calls itself complete.
func TestOtherList(t *testing.T) {
	a, b, _ := pair(t)
	b.SetMembers(10*time.Second, []Member{{"a", 1}, {"b", 2}, {"z", 26}})
	for i := range time.Duration(5) {
		b.take(t, (11+i)*time.Second, a.post((11+i)*time.Second))
		a.take(t, (11+i)*time.Second, b.post((11+i)*time.Second))
	}
	a.SetMembers(20*time.Second, []Member{{"a", 1}, {"b", 2}, {"z", 27}})
	b.Say("x", Terms{1})
	a.take(t, 21*time.Second, b.post(21*time.Second))
	if sum, age := a.Sum(21*time.Second, "x"); sum != (Terms{}) || age != Never || a.Stats(0).OtherList == 0 {
		t.Errorf("%v at the age of %v, %+v", sum, age, a.Stats(0))
	}
}

// TestLaterTotalOfDead: of what nodes remember of a dead one the largest counts.
func TestLaterTotalOfDead(t *testing.T) {
	a, b, _ := pair(t)
	for i, n := range []*Node{a, b} {
		en := n.insert(name{counter, "k"}, 10*time.Second)
		n.learn(en, 99, int64(5+3*i), &n.edges[2-i])
	}
	for i := range time.Duration(3) {
		b.take(t, (11+i)*time.Second, a.post((11+i)*time.Second))
		a.take(t, (11+i)*time.Second, b.post((11+i)*time.Second))
	}
	for _, n := range []*Node{a, b} {
		if total, age := n.Total(14*time.Second, "k"); total != 8 || age == Never {
			t.Errorf("%s: %d at the age of %v, want 8", n.self.Name, total, age)
		}
	}
}
