package heap

import (
	"fmt"
	"testing"
	"time"
)

// quiet is longer than any news takes in the fleets of these tests.
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
