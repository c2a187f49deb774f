package heap

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// weather draws how bad the network is.
func (f *fleet) weather(t *rapid.T) {
	loss := rapid.SampledFrom([]float64{0, .05, .1, .4}).Draw(t, "loss")
	dup := rapid.SampledFrom([]float64{0, 0, .2}).Draw(t, "dup")
	slow := rapid.SampledFrom([]time.Duration{0, 5, 50, 500, 3000}).Draw(t, "slow") * time.Millisecond
	f.lost = func(from, to uint64) bool { return f.cut(from, to) || f.rand.Float64() < loss }
	f.twice = func() bool { return f.rand.Float64() < dup }
	f.delay = func() time.Duration {
		d := time.Duration(f.rand.Int64N(int64(5 * time.Millisecond)))
		if slow > 0 && f.rand.IntN(4) == 0 {
			d += time.Duration(f.rand.Int64N(int64(slow)))
		}
		return d
	}
}

// calm ends all trouble but for a little loss.
func (f *fleet) calm() {
	f.cut = func(_, _ uint64) bool { return false }
	f.lost = func(_, _ uint64) bool { return f.rand.Float64() < .05 }
	f.twice = func() bool { return false }
	f.delay = func() time.Duration { return 5 * time.Millisecond }
	f.meet(f.alive()...)
	f.run(25 * time.Second)
}

// alive returns the nodes that live, by ID.
func (f *fleet) alive() []*peer {
	var ps []*peer
	for _, id := range slices.Sorted(maps.Keys(f.nodes)) {
		ps = append(ps, f.nodes[id])
	}
	return ps
}

// drawFleet starts a few nodes with small packets.
func drawFleet(t *rapid.T, o Options) *fleet {
	o.PacketSize = MinPacketSize
	f := newFleet(t, rapid.Uint64().Draw(t, "seed"), o)
	f.many(rapid.IntRange(1, 9).Draw(t, "nodes"))
	f.weather(t)
	return f
}

// flap shows a node another list for a moment.
func (f *fleet) flap(p *peer) {
	ms := p.members
	p.SetMembers(f.clock(p), []Member{p.self})
	p.SetMembers(f.clock(p), ms)
}

// model is what each node truly said and added.
type model struct {
	gauges map[uint64]map[string]Terms
	totals map[uint64]map[string]int64
}

func newModel() *model {
	return &model{map[uint64]map[string]Terms{}, map[uint64]map[string]int64{}}
}

// act takes one random step of a fleet.
func (m *model) act(t *rapid.T, f *fleet) {
	ps := f.alive()
	p := ps[f.rand.IntN(len(ps))]
	id := p.self.ID
	key := fmt.Sprintf("key/with/a/long/name/%d", f.rand.IntN(40))
	switch op := rapid.SampledFrom([]string{
		"say", "say", "add", "add", "add", "burst", "run", "run", "kill", "start", "split", "heal", "flap",
		"weather",
	}).Draw(t, "op"); op {
	case "say":
		v := Terms{f.rand.Int64N(3), 0, 0, f.rand.Int64N(1e12), 0, f.rand.Int64N(2)}
		p.Say(key, v)
		set(m.gauges, id, key, v)
	case "burst":
		for i := range 40 {
			key, v := fmt.Sprintf("key/with/a/long/name/%d", i), Terms{1, f.rand.Int64()>>3 + 1}
			p.Say(key, v)
			set(m.gauges, id, key, v)
		}
	case "add":
		v := f.rand.Int64N(1000) + 1
		p.Add(f.clock(p), key, v)
		set(m.totals, id, key, m.totals[id][key]+v)
	case "run":
		f.run(time.Duration(f.rand.Int64N(int64(3 * time.Second))))
	case "kill":
		if len(ps) > 1 {
			f.kill(p)
			f.meet(f.alive()...)
		}
	case "start":
		if len(ps) < 12 {
			f.start(fmt.Sprintf("n%05d", f.rand.IntN(20)*100+int(f.lastID)))
			f.meet(f.alive()...)
		}
	case "split":
		at := f.rand.IntN(len(ps))
		border := ps[at].self.ID
		f.cut = func(from, to uint64) bool { return from < border != (to < border) }
		f.meet(ps[:at]...)
		f.meet(ps[at:]...)
	case "heal":
		f.cut = func(_, _ uint64) bool { return false }
		f.meet(ps...)
	case "flap":
		f.flap(p)
	case "weather":
		f.weather(t)
	}
}

func set[V any](m map[uint64]map[string]V, id uint64, key string, v V) {
	if m[id] == nil {
		m[id] = map[string]V{}
	}
	m[id][key] = v
}

// check requires that all nodes know the true sums.
func (m *model) check(t *rapid.T, f *fleet) {
	ps := f.alive()
	for i := range 40 {
		key := fmt.Sprintf("key/with/a/long/name/%d", i)
		var gauges Terms
		var total int64
		dead := map[uint64]int64{}
		for _, p := range ps {
			gauges = gauges.plus(m.gauges[p.self.ID][key])
			total += m.totals[p.self.ID][key]
			if en := p.table[name{counter, key}]; en != nil {
				for _, it := range en.others {
					if it.dead {
						dead[it.id] = max(dead[it.id], it.total)
					}
				}
			}
		}
		for id, v := range dead {
			if total += v; v > m.totals[id][key] || f.nodes[id] != nil {
				t.Fatalf("%s: %d is remembered of %d, which had %d", key, v, id, m.totals[id][key])
			}
		}
		for _, p := range ps {
			if got, age := p.Sum(f.clock(p), key); got != gauges || age > quiet {
				t.Fatalf("%s: %s: %v at the age of %v, want %v", p.self.Name, key, got, age, gauges)
			}
			if got, age := p.Total(f.clock(p), key); got != total || age > quiet {
				t.Fatalf("%s: %s: total %v at the age of %v, want %v", p.self.Name, key, got, age, total)
			}
		}
	}
	for _, p := range ps {
		for key := range p.Keys() {
			if sum, _ := p.Sum(f.clock(p), key); sum == (Terms{}) {
				t.Fatalf("%s: %s has the sum zero and is still a key", p.self.Name, key)
			}
		}
	}
}

// TestPropertyExact: whatever happened, the sums of all nodes are exact after quiet.
func TestPropertyExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFleet(t, Options{Expire: time.Hour})
		m := newModel()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			m.act(t, f)
		}
		f.calm()
		m.check(t, f)
		if f.largest > MinPacketSize {
			t.Fatalf("a packet of %d bytes", f.largest)
		}
	})
}

// TestPropertyNothingLivesForever: what all have taken back or left alone is soon in no table.
func TestPropertyNothingLivesForever(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFleet(t, Options{Expire: 30 * time.Second})
		m := newModel()
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			m.act(t, f)
		}
		f.calm()
		for _, p := range f.alive() {
			for key := range p.Keys() {
				p.Say(key, Terms{})
			}
		}
		f.run(time.Minute)
		for _, p := range f.alive() {
			if len(p.table) > 0 || p.totals != 0 {
				t.Fatalf("%s keeps %d keys and %d totals", p.self.Name, len(p.table), p.totals)
			}
			for i := range p.edges {
				if e := &p.edges[i]; len(e.queue) > 0 || len(e.free) != e.last {
					t.Fatalf("%s: an edge has %d to send, and %d of %d numbers are free", p.self.Name,
						len(e.queue), len(e.free), e.last)
				}
			}
		}
	})
}

// TestPropertyAge: whenever a sum is complete, no part of it is older than its age.
func TestPropertyAge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFleet(t, Options{})
		ps := f.alive()
		keys := rapid.SampledFrom([]int{1, 10, 60, 200}).Draw(t, "keys")
		value := func(id uint64, at time.Duration) int64 {
			return int64(at/(100*time.Millisecond)) + int64(id)
		}
		var say func()
		start := f.now
		say = func() {
			for _, p := range ps {
				for k := range keys {
					p.Say(fmt.Sprint("key", k), Terms{value(p.self.ID, f.now)})
				}
			}
			f.after(100*time.Millisecond-f.now%(100*time.Millisecond), say)
		}
		say()
		complete := 0
		for range rapid.IntRange(1, 10).Draw(t, "steps") {
			if rapid.IntRange(0, 5).Draw(t, "op") == 0 {
				f.flap(ps[f.rand.IntN(len(ps))])
			}
			for range 10 {
				f.run(time.Duration(f.rand.Int64N(int64(500 * time.Millisecond))))
				for _, p := range ps {
					key := fmt.Sprint("key", f.rand.IntN(keys))
					sum, age := p.Sum(f.clock(p), key)
					if age == Never {
						continue
					}
					complete++
					var least, most int64
					for _, o := range ps {
						if at := f.now - age; at >= start {
							least += value(o.self.ID, at)
						}
						most += value(o.self.ID, f.now)
					}
					if sum[0] < least || sum[0] > most {
						t.Fatalf("%s: %s is %d at the age of %v, not in %d to %d", p.self.Name, key, sum[0],
							age, least, most)
					}
				}
			}
		}
	})
}
