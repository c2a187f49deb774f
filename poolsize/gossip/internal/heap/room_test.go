package heap

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

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
