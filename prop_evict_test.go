package quotient

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient/policy"
)

// twin is two limiters that are asked the same: one has room for few keys, one for all.
type twin struct {
	few, all *Limiter
	permits  [][2]Permit
}

func (w *twin) both(f func(*Limiter) error) error {
	if err := f(w.few); err != nil {
		return err
	}
	return f(w.all)
}

// ask asks both and returns what they decided.
func (w *twin) ask(key string, asks ...Ask) (a, b Decision) {
	p, a := w.few.TryAcquire(key, asks...)
	q, b := w.all.TryAcquire(key, asks...)
	if a.OK && b.OK {
		w.permits = append(w.permits, [2]Permit{p, q})
	}
	return a, b
}

func (w *twin) release(i int, f policy.Feedback) {
	w.permits[i][0].Done(f)
	w.permits[i][1].Done(f)
	w.permits = append(w.permits[:i], w.permits[i+1:]...)
}

func drawLimit(t *rapid.T) Limit {
	limit := Limit{Rates: []Rate{drawRate(t, "a")}, InFlight: rapid.IntRange(0, 6).Draw(t, "in flight")}
	if rapid.Bool().Draw(t, "second rate") {
		r := drawRate(t, "b")
		r.Unit = "tokens"
		limit.Rates = append(limit.Rates, r)
	}
	if rapid.Bool().Draw(t, "window") {
		limit.Rates = append(limit.Rates, Rate{Name: "w", Events: drawRate(t, "c").Events, Per: time.Second, Aligned: true})
	}
	return limit
}

// Bound 6: eviction is invisible. As long as no ask was decided by an overflow gate, a
// limiter that evicts decides exactly as one that never does: the same answers, the same times to wait.
func TestPropertyEvictionIsInvisible(t *testing.T) {
	evicted := uint64(0)
	property(t, func(rt *rapid.T) {
		limit, start := drawLimit(rt), StartPool(drawPool(rt))
		if rapid.Bool().Draw(rt, "joins") {
			start = JoinPool(drawPool(rt))
		}
		law := rapid.SampledFrom([]Option{
			Policy(policy.Fixed{}, CeilingShare), Policy(policy.AIMD{}, CeilingShare), Policy(adversary{1, true}, CeilingShare), Policy(adversary{2, true}, CeilingLimit),
		}).Draw(rt, "policy")
		phase := func(o *options) error { o.phase = 7; return nil } // or the two would have other windows
		w := twin{
			few: mustNew(rt, limit, start, phase, law, MaxKeys(3)),
			all: mustNew(rt, limit, start, phase, law, MaxKeys(1000)),
		}
		w.all.seed = w.few.seed // of the laws: there is one shard
		w.all.shards[0].evictNothing()
		units := []string{"tokens"}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 11).Draw(rt, "what") {
			case 0:
				p := drawPool(rt)
				must(rt, w.both(func(l *Limiter) error { return l.SetPool(p) }))
			case 1:
				limit := drawLimit(rt)
				must(rt, w.both(func(l *Limiter) error { return l.SetLimit(limit) }))
			case 2, 3, 4:
				time.Sleep(drawPause(rt))
				if rapid.IntRange(0, 5).Draw(rt, "long") == 0 {
					time.Sleep(forgetAfter)
				}
			case 5, 6:
				if len(w.permits) > 0 {
					i := rapid.IntRange(0, len(w.permits)-1).Draw(rt, "which")
					if used := rapid.IntRange(0, 20).Draw(rt, "used"); used%2 == 0 {
						_ = w.permits[i][0].Correct("tokens", used)
						_ = w.permits[i][1].Correct("tokens", used)
					}
					w.release(i, drawFeedback(rt))
				}
			default:
				asks := []Ask{Weight(rapid.IntRange(1, 4).Draw(rt, "weight"))}
				if u := w.few.shards[0].setting.units; len(u) > 0 && rapid.Bool().Draw(rt, "priced") {
					asks = append(asks, Cost(units[0], rapid.IntRange(0, 9).Draw(rt, "cost")))
				}
				k := key(rapid.IntRange(0, 5).Draw(rt, "key"))
				a, b := w.ask(k, asks...)
				if w.few.Stats().Overflowed > 0 {
					return // the next property's
				}
				if a != b {
					rt.Fatalf("%s: evicting %+v, else %+v", k, a, b)
				}
			}
		}
		evicted += w.few.Stats().Evicted
	})
	if evicted == 0 && !t.Failed() {
		t.Fatal("no history has evicted anything")
	}
}

// evictNothing makes the shard keep every key.
func (s *shard) evictNothing() { s.left = 1 << 31 }

// With all of the map busy, keys share an overflow gate: bound 1 holds for each key still, and so
// does its number of slots, however keys move between the overflow gate and the map.
func TestPropertyOverflow(t *testing.T) {
	overflowed := uint64(0)
	property(t, func(rt *rapid.T) {
		rate, pool := drawRate(rt, "r"), drawPool(rt)
		slots := rapid.IntRange(1, 4).Draw(rt, "slots")
		pool.Replicas = min(pool.Replicas, slots)
		l := mustNew(rt, Limit{Rates: []Rate{rate}, InFlight: slots}, StartPool(pool), MaxKeys(2))
		var meters [5]meter
		var held [5][]Permit
		for i := range meters {
			meters[i].limit(shareOf(rate, pool.Replicas))
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			i := rapid.IntRange(0, 4).Draw(rt, "key")
			switch rapid.IntRange(0, 7).Draw(rt, "what") {
			case 0, 1:
				time.Sleep(drawPause(rt))
			case 2, 3:
				if n := len(held[i]); n > 0 {
					held[i][n-1].Release()
					held[i] = held[i][:n-1]
				}
			default:
				if p, d := l.TryAcquire(key(i)); d.OK {
					meters[i].add(1)
					held[i] = append(held[i], p)
				}
			}
			if most := l.shards[0].setting.slots; len(held[i]) > most {
				rt.Fatalf("%s: %d in flight, %d slots", key(i), len(held[i]), most)
			}
			if n := l.Stats().Keys; n > 2 {
				rt.Fatalf("%d keys, bound 2", n)
			}
		}
		for i := range meters {
			meters[i].check(rt.Fatalf)
		}
		overflowed += l.Stats().Overflowed
	})
	if overflowed == 0 && !t.Failed() {
		t.Fatal("no history has overflowed")
	}
}
