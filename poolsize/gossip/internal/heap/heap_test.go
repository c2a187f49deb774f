package heap

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
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

func TestLoss(t *testing.T) {
	f := newFleet(t, 2, Options{})
	ps := f.many(31)
	f.lost = func(_, _ uint64) bool { return f.rand.Float64() < .1 }
	total := map[string]int64{}
	for range 1000 {
		key := fmt.Sprint("key", f.rand.IntN(20))
		v := f.rand.Int64N(100) + 1
		total[key] += v
		ps[f.rand.IntN(len(ps))].Add(f.now, key, v)
		f.run(20 * time.Millisecond)
	}
	f.run(quiet)
	for key, want := range total {
		wantTotals(t, f, ps, key, want)
	}
}

func TestKilledInnerNode(t *testing.T) {
	f := newFleet(t, 3, Options{})
	ps := f.many(15)
	for i, p := range ps {
		p.Add(f.clock(p), "k", int64(i)+1)
	}
	f.run(quiet)
	wantTotals(t, f, ps, "k", 120)
	f.kill(ps[1])
	rest := append(ps[:1:1], ps[2:]...)
	f.meet(rest...)
	f.run(quiet)
	wantTotals(t, f, rest, "k", 120)
	again := f.start(ps[1].self.Name)
	again.Add(f.clock(again), "k", 1000)
	rest = append(rest, again)
	f.meet(rest...)
	f.run(quiet)
	wantTotals(t, f, rest, "k", 1120)
}

func TestPartition(t *testing.T) {
	f := newFleet(t, 4, Options{})
	ps := f.many(20)
	for _, p := range ps {
		p.Add(f.clock(p), "k", 1)
	}
	f.run(quiet)
	f.lost = func(from, to uint64) bool { return from <= 10 != (to <= 10) }
	f.meet(ps[:10]...)
	f.meet(ps[10:]...)
	for _, p := range ps {
		p.Add(f.clock(p), "k", 1)
		p.Say("g", Terms{1, 2, 3, 4, 5, 6})
	}
	f.run(quiet)
	for _, p := range ps {
		if sum, age := p.Sum(f.clock(p), "g"); sum != (Terms{10, 20, 30, 40, 50, 60}) || age == Never {
			t.Errorf("%s: %v at the age of %v in its part", p.self.Name, sum, age)
		}
	}
	f.lost = func(_, _ uint64) bool { return false }
	f.meet(ps...)
	f.run(quiet)
	wantTotals(t, f, ps, "k", 40)
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
		if s := p.Stats(f.clock(p)); s.Keys != 1 || s.Totals > 4 {
			t.Errorf("%s keeps %d keys and %d totals", p.self.Name, s.Keys, s.Totals)
		}
	}
	ps[0].Add(f.clock(ps[0]), "old", 3)
	f.run(quiet)
	wantTotals(t, f, ps, "old", 3)
}

// TestJoinsAndLeaves: while nodes come and go, the sums of those that stay are never wrong and call
// themselves complete.
func TestJoinsAndLeaves(t *testing.T) {
	f := newFleet(t, 6, Options{})
	ps := f.many(10)
	for round := range 20 {
		for _, p := range ps {
			p.Say("nodes", Terms{1})
			p.Add(f.clock(p), "rounds", 1)
		}
		if round%2 == 0 {
			ps = append(ps, f.start(fmt.Sprintf("n%05d", f.rand.IntN(100000))))
		} else {
			at := f.rand.IntN(len(ps))
			f.kill(ps[at])
			ps = append(ps[:at:at], ps[at+1:]...)
		}
		for _, p := range ps { // one learns of it after the other
			f.after(time.Duration(f.rand.Int64N(int64(time.Second))),
				func() { p.SetMembers(f.clock(p), list(ps)) })
		}
		most := int64(len(ps)) + 1
		f.until(10*time.Second, func() bool {
			for _, p := range ps {
				if len(p.members) == 1 {
					continue // it knows of no other yet
				}
				if sum, age := p.Sum(f.clock(p), "nodes"); age != Never &&
					(sum[0] > most || sum[0] < most-2) {
					t.Fatalf("round %d: %s counts %d of %d", round, p.self.Name, sum[0], len(ps))
				}
			}
			return false
		})
	}
	for _, p := range ps {
		if s := p.Stats(f.clock(p)); s.Nodes != len(ps) || s.Age > 3*time.Second || s.LastComplete != s.Age {
			t.Errorf("%s: %+v", p.self.Name, s)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	ok := Member{"a", 1}
	for _, c := range []struct {
		self Member
		o    Options
		want string
	}{
		{Member{"", 1}, Options{}, `heap: Member.Name: "" is not of 1 to 255 bytes`},
		{Member{"a", 0}, Options{}, "heap: Member.ID: 0 is not an ID"},
		{ok, Options{PacketSize: 100}, "heap: Options.PacketSize: 100 is not in 512 to 65000"},
		{ok, Options{PacketSize: 65001}, "heap: Options.PacketSize: 65001 is not in 512 to 65000"},
		{ok, Options{MaxKeys: -1}, "heap: Options.MaxKeys: -1 is not in 1 to 65536"},
		{ok, Options{MaxTotals: -1}, "heap: Options.MaxTotals: -1 is not in 1 to 4194304"},
		{ok, Options{Expire: time.Millisecond}, "heap: Options.Expire: 1ms is less than 1s"},
	} {
		if _, err := New(c.self, c.o); err == nil || err.Error() != c.want {
			t.Errorf("New(%v, %+v): %v, want %s", c.self, c.o, err, c.want)
		}
	}
}

// TestMembers: the list is sorted, every name counts once, and the node is always in it.
func TestMembers(t *testing.T) {
	n, err := New(Member{"m", 5}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := []Member{{"a", 9}, {"m", 5}, {"z", 1}}
	for _, ms := range [][]Member{
		{{"z", 1}, {"a", 9}},
		{{"a", 9}, {"m", 5}, {"z", 1}},
		{{"a", 3}, {"a", 9}, {"m", 7}, {"z", 1}, {"q", 0}, {"r", 5}},
	} {
		n.SetMembers(0, ms)
		if !slices.Equal(n.members, want) {
			t.Errorf("%v: %v, want %v", ms, n.members, want)
		}
	}
	if n.session != 2 {
		t.Errorf("%d sessions, want 2: the same list begins none", n.session)
	}
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
	n, err := New(Member{"m", 5}, Options{})
	if err != nil {
		t.Fatal(err)
	}
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
	if s := n.Stats(0); s.Keys != 0 || s.Age != 0 || s.Members != 1 {
		t.Errorf("%+v", s)
	}
}
