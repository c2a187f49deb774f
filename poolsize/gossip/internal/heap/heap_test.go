package heap

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient/internal/tested"
)

// quiet is longer than any reports takes in the fleets of these tests.
const quiet = 15 * time.Second

// wantTotals requires that every node knows the same complete total.
func wantTotals(t *testing.T, f *fleet, ps []*peer, key string, want int64) {
	t.Helper()
	for _, p := range ps {
		got, age := p.Total(f.clock(p), key)
		if got != want || age == Never {
			t.Errorf("%s: %s is %d at the age of %v, want %d", p.self.Name, key, got, age, want)
		}
	}
}

// TestExpire: a counter that is not added to is dropped everywhere at its time, however often the list
// changes. A key that is added to on one node lives on all.
func TestExpire(t *testing.T) {
	f := newFleet(t, 5, Options{Expire: time.Minute})
	ps := f.many(15)
	for _, p := range ps {
		p.Add(f.clock(p), "old", 1)
		p.Add(f.clock(p), "used", 1)
	}
	f.kill(ps[2])
	ps = append(ps[:2:2], ps[3:]...)
	for range 55 {
		ps[7].Add(f.clock(ps[7]), "used", 1)
		f.meet(ps[1:]...)
		f.meet(ps...)
		f.run(time.Second)
	}
	f.run(3 * time.Second)
	wantTotals(t, f, ps, "old", 14)
	f.run(3 * time.Second)
	wantTotals(t, f, ps, "old", 0)
	wantTotals(t, f, ps, "used", 69)
	f.run(10 * time.Second)
	for _, p := range ps {
		if s := p.Stats(f.clock(p)); s.Keys != 1 || p.totals > 4 {
			t.Errorf("%s keeps %d keys and %d totals", p.self.Name, s.Keys, p.totals)
		}
	}
	ps[0].Add(f.clock(ps[0]), "old", 3)
	f.run(quiet)
	wantTotals(t, f, ps, "old", 3)
}

// TestMembers: the list is sorted, every name counts once, and the node is always in it.
func TestMembers(t *testing.T) {
	n := New(Member{"m", 5}, Options{})
	want := []Member{{"a", 9}, {"m", 5}, {"z", 1}}
	for _, ms := range [][]Member{
		{{"z", 1}, {"a", 9}},
		{{"a", 9}, {"m", 5}, {"z", 1}},
		{{"a", 3}, {"a", 9}, {"m", 7}, {"z", 1}, {"q", 0}, {"r", 5}},
	} {
		n.SetMembers(0, ms)
		tested.Not(t, !slices.Equal(n.members, want), "%v: %v, want %v", ms, n.members, want)
	}
	tested.Want(t, "sessions", n.session, 2)
}

// TestSumsStop: sums stop at the ends of int64.
func TestSumsStop(t *testing.T) {
	const most, least = math.MaxInt64, math.MinInt64
	got := Terms{most, least, most, 1, -1, 0}.plus(Terms{1, -1, least, most, least, least})
	if want := (Terms{most, least, -1, most, least, least}); got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestKeysThatAreRefused: what is no key or no amount is refused, and leaves nothing behind.
func TestKeysThatAreRefused(t *testing.T) {
	n := New(Member{"m", 5}, Options{})
	long := strings.Repeat("x", MaxKeyLength+1)
	if n.Say("", Terms{1}) || n.Say(long, Terms{1}) || n.Add(0, long, 1) || n.Add(0, "k", 0) ||
		n.Add(0, "k", -3) {
		t.Error("accepted")
	}
	for _, key := range []string{"", long} {
		if _, age := n.Sum(0, key); age != Never {
			t.Errorf("the sum of a key of %d bytes has the age %v", len(key), age)
		}
		if _, age := n.Total(0, key); age != Never {
			t.Errorf("the total of a key of %d bytes has the age %v", len(key), age)
		}
	}
	if n.Say("gone", Terms{1}); !n.Say("gone", Terms{}) || !n.Say("never", Terms{}) {
		t.Error("a gauge cannot be taken back")
	}
	if s := n.Stats(0); s.Keys != 0 || s.Age != 0 || len(n.members) != 1 {
		t.Errorf("%+v", s)
	}
}

// Keys that come and go take no room for longer than a neighbour needs that is gone, or was never there.
func TestKeysThatComeAndGo(t *testing.T) {
	for _, meets := range []bool{false, true} {
		members := []Member{{"a", 1}, {"b", 2}}
		o := Options{MaxKeys: 100, Expire: time.Hour}
		a, b := New(members[0], o), New(members[1], o)
		a.SetMembers(0, members)
		b.SetMembers(0, members)
		now := time.Duration(0)
		for ; meets && now < 5*time.Second; now += time.Second {
			exchange(t, now, a, b)
		}
		turn := func(text string) {
			now += time.Second
			a.Say(text, Terms{1})
			a.Tick(now, func(Member, []byte) {})
			a.Say(text, Terms{})
			a.Tick(now, func(Member, []byte) {})
		}
		for i := range 50 {
			turn(fmt.Sprint("before", i))
		}
		if n := a.Stats(now).Keys; !meets && n > 1 {
			t.Errorf("%d keys wait for a neighbour that was never there", n)
		}
		a.SetMembers(now, members[:1])
		turn("after")
		if n := a.Stats(now).Keys; n > 1 {
			t.Errorf("meets %v: %d keys are left", meets, n)
		}
	}
}

// TestPropertyDeadCount: what a node added counts on after its death, once all had known of it. It does so
// on every node, and whenever a total calls itself complete. Nodes learn of a death one after the other.
func TestPropertyDeadCount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet(t, rapid.Uint64().Draw(t, "seed"), Options{PacketSize: MinPacketSize})
		f.many(rapid.IntRange(2, 16).Draw(t, "nodes"))
		f.weather(t)
		added := map[string]int64{}
		for range rapid.IntRange(1, 5).Draw(t, "deaths") {
			ps := f.alive()
			for range rapid.IntRange(0, 60).Draw(t, "adds") {
				key, p, v := fmt.Sprint("a/long/key", f.rand.IntN(60)), ps[f.rand.IntN(len(ps))],
					f.rand.Int64N(9)+1
				p.Add(f.clock(p), key, v)
				added[key] += v
			}
			for i := 0; i < 600 && !knows(f, ps, added); i++ {
				f.run(time.Second)
			}
			victim := ps[f.rand.IntN(len(ps))]
			if len(ps) < 2 {
				return
			}
			f.kill(victim)
			if rapid.Bool().Draw(t, "restarts") {
				f.start(victim.self.Name)
			}
			ms := list(f.alive())
			for _, p := range f.alive() {
				f.after(time.Duration(f.rand.Int64N(int64(3*time.Second))),
					func() { p.SetMembers(f.clock(p), ms) })
			}
			for range 200 {
				f.run(50 * time.Millisecond)
				for _, p := range f.alive() {
					key := fmt.Sprint("a/long/key", f.rand.IntN(60))
					got, age := p.Total(f.clock(p), key)
					if len(p.members) > 1 && age != Never && got != added[key] {
						t.Fatalf("%s: %s is %d at the age of %v, want %d", p.self.Name, key, got, age,
							added[key])
					}
				}
			}
			for i := 0; !knows(f, f.alive(), added); i++ {
				if f.run(time.Second); i == 600 {
					t.Fatal("the totals are not exact again after ten minutes")
				}
			}
		}
	})
}

// knows reports whether all nodes know exact and complete totals.
func knows(f *fleet, ps []*peer, want map[string]int64) bool {
	for key, v := range want {
		for _, p := range ps {
			if got, age := p.Total(f.clock(p), key); got != v || age == Never {
				return false
			}
		}
	}
	return true
}

// post lets a node tick and returns its packets for its only neighbour.
func (n *Node) post(now time.Duration) (packets [][]byte) {
	n.Tick(now, func(_ Member, p []byte) { packets = append(packets, slices.Clone(p)) })
	return packets
}

// take lets a node receive packets.
func (n *Node) take(t *testing.T, now time.Duration, packets [][]byte) {
	t.Helper()
	for _, p := range packets {
		tested.Must(t, n.Receive(now, p))
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
	tested.Not(t, b.table[name{gauge, "x"}] != nil, "the key is kept although its removal has arrived")
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

// TestPropertyRoom: nodes that have no room for all keys keep the same ones, and a sum that calls itself
// complete is exact. Once there is room again, all sums are complete.
func TestPropertyRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet(t, rapid.Uint64().Draw(t, "seed"),
			Options{Expire: 10 * time.Second, PacketSize: MinPacketSize})
		least := 1 << 20
		for i := range rapid.IntRange(1, 9).Draw(t, "nodes") {
			f.opt.MaxKeys = rapid.IntRange(4, 60).Draw(t, "MaxKeys")
			least = min(least, f.opt.MaxKeys)
			f.start(fmt.Sprint("n", i))
		}
		f.meet(f.alive()...)
		f.weather(t)
		m := newModel()
		keys := rapid.IntRange(1, 100).Draw(t, "keys")
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			m.crowd(f, keys)
			f.run(time.Duration(f.rand.Int64N(int64(2 * time.Second))))
		}
		f.calm()
		m.all(f, keys)
		m.sound(t, f, keys)
		if want := min(m.said(keys), least/2); !m.all(f, want) {
			t.Fatalf("not so much as %d keys of %d are complete, with room for %d", want, keys, least)
		}
		keep := least * 3 / 4
		for k := keep; k < keys; k++ { // from now on there is room for all
			for _, p := range f.alive() {
				p.Say(fmt.Sprint("key", k), Terms{})
				set(m.gauges, p.self.ID, fmt.Sprint("key", k), Terms{})
			}
		}
		if want := m.said(keys); !m.all(f, want) {
			t.Fatalf("%d keys are not complete although there is room for %d", want, least)
		}
		f.run(quiet)
		m.sound(t, f, keys)
	})
}

// crowd lets a node say something about a key.
func (m *model) crowd(f *fleet, keys int) {
	ps := f.alive()
	for range 20 {
		p := ps[f.rand.IntN(len(ps))]
		key, v := fmt.Sprint("key", f.rand.IntN(keys)), Terms{1 + f.rand.Int64N(5)}
		p.Say(key, v)
		set(m.gauges, p.self.ID, key, v)
	}
}

// said is of how many keys any node says something.
func (m *model) said(keys int) int {
	said := 0
	for k := range keys {
		for _, own := range m.gauges {
			if own[fmt.Sprint("key", k)] != (Terms{}) {
				said++
				break
			}
		}
	}
	return said
}

// again lets all nodes repeat what they say, since a key without room is forgotten.
func (m *model) again(f *fleet) {
	for _, p := range f.alive() {
		for key, v := range m.gauges[p.self.ID] {
			p.Say(key, v)
		}
	}
}

// sound requires that sums that are complete are exact.
func (m *model) sound(t *rapid.T, f *fleet, keys int) {
	for k := range keys {
		key := fmt.Sprint("key", k)
		var want Terms
		for _, p := range f.alive() {
			want = want.plus(m.gauges[p.self.ID][key])
		}
		for _, p := range f.alive() {
			if len(p.table) > p.opt.MaxKeys {
				t.Fatalf("%s keeps %d keys, more than %d", p.self.Name, len(p.table), p.opt.MaxKeys)
			}
			if got, age := p.Sum(f.clock(p), key); age != Never && got != want {
				t.Fatalf("%s: %s: %v at the age of %v, want %v", p.self.Name, key, got, age, want)
			}
		}
	}
}

// all reports whether so many keys are soon complete on all nodes.
func (m *model) all(f *fleet, want int) bool {
	for range 600 {
		m.again(f)
		f.run(200 * time.Millisecond)
		least := want
		for _, p := range f.alive() {
			complete := 0
			for key := range p.Keys() {
				if _, age := p.Sum(f.clock(p), key); age != Never {
					complete++
				}
			}
			least = min(least, complete)
		}
		if least == want {
			return true
		}
	}
	return false
}
