package heap

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

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
