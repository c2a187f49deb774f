package quotient

import (
	"testing"

	"pgregory.net/rapid"
)

// Bound 5: over the fleet at most G are in flight while every replica believes in at least as many as there
// are. It holds once permits issued before the last growth of the pool are released. With AtLeastOne it is at
// most max(G, N). One replica never exceeds its own slots.
func TestPropertyInFlight(t *testing.T) {
	type replica struct {
		l    *Limiter
		held []Permit
		age  []int // of held: the growths that it has seen
	}
	property(t, func(rt *rapid.T) {
		g := rapid.IntRange(1, 12).Draw(rt, "G")
		n := rapid.IntRange(1, 5).Draw(rt, "N")
		atLeastOne := rapid.Bool().Draw(rt, "at least one")
		opts := []Option{few, drawPolicy(rt)}
		if atLeastOne {
			opts = append(opts, AtLeastOne())
		}
		fleet := make([]*replica, n)
		pool := func(i int) Pool { return Pool{Replicas: len(fleet), Ordinal: i + 1, Fixed: true} }
		for i := range fleet {
			fleet[i] = &replica{l: mustNew(rt, Limit{InFlight: g}, append(opts, StartPool(pool(i)))...)}
		}
		growths := 0
		announce := func() {
			for i, r := range fleet {
				must(rt, r.l.SetPool(pool(i), 0))
			}
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			i := rapid.IntRange(0, len(fleet)-1).Draw(rt, "who")
			r := fleet[i]
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0:
				if len(fleet) < 7 {
					fleet = append(fleet, nil)
					growths++
					fleet[len(fleet)-1] = &replica{l: mustNew(rt, Limit{InFlight: g},
						append(opts, StartPool(pool(len(fleet)-1)), StartEmpty())...)}
					announce()
				}
			case 1:
				if len(fleet) > 1 { // the last leaves, its requests end with it
					fleet = fleet[:len(fleet)-1]
					growths++ // the ordinals' remainders move: old permits count as old
					announce()
				}
			case 2, 3, 4:
				if len(r.held) > 0 {
					k := rapid.IntRange(0, len(r.held)-1).Draw(rt, "which")
					r.held[k].Done(drawFeedback(rt))
					r.held = append(r.held[:k], r.held[k+1:]...)
					r.age = append(r.age[:k], r.age[k+1:]...)
				}
			default:
				p, d := r.l.TryAcquire("k", Weight(rapid.IntRange(1, 3).Draw(rt, "weight")))
				if d.OK {
					r.held, r.age = append(r.held, p), append(r.age, growths)
				}
			}
			total, old := 0, false
			for i, r := range fleet {
				in := r.l.Stats().InFlight
				total += in
				mine := false
				for _, a := range r.age {
					mine = mine || a < growths
				}
				old = old || mine
				if most := r.l.shards[0].setting.slots; in > most && !mine {
					rt.Fatalf("replica %d: %d in flight, %d slots", i, in, most)
				}
			}
			bound := g
			if atLeastOne {
				bound = max(g, len(fleet))
			}
			if total > bound && !old {
				rt.Fatalf("%d in flight over %d replicas, bound %d", total, len(fleet), bound)
			}
		}
	})
}

// Bound 9: a refused hint leaves the state as it was and is counted.
func TestPropertyRefusedHint(t *testing.T) {
	property(t, func(rt *rapid.T) {
		pool := drawPool(rt)
		l := mustNew(rt, Limit{Rates: []Rate{PerSecond(10)}, InFlight: 7}, StartPool(pool), few)
		bad := Pool{
			Replicas: rapid.OneOf(rapid.IntRange(-1<<40, 0), rapid.IntRange(maxReplicas+1, 1<<40)).Draw(rt,
				"replicas"),
			Ordinal: rapid.Int().Draw(rt, "ordinal"),
		}
		if rapid.Bool().Draw(rt, "ordinal is bad") {
			bad.Replicas = rapid.IntRange(1, 9).Draw(rt, "good replicas")
			bad.Ordinal = rapid.OneOf(rapid.IntRange(-1<<40, -1), rapid.IntRange(10, 1<<40)).Draw(rt,
				"bad ordinal")
		}
		before := l.shards[0].setting
		err := l.SetPool(bad, 0)
		if err == nil || l.shards[0].setting != before || l.Stats().Pool.Pool != pool ||
			l.Stats().Pool.Rejected != 1 {
			rt.Fatalf("SetPool(%+v): error %v, pool %+v, rejected %d", bad, err, l.Stats().Pool.Pool,
				l.Stats().Pool.Rejected)
		}
	})
}
