package quotient

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient/policy"
)

// twin is two limiters that get the same calls: one has room for few keys, one for all.
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
func (w *twin) ask(key string, opts ...CallOption) (a, b Decision) {
	p, a := w.few.TryAcquire(key, opts...)
	q, b := w.all.TryAcquire(key, opts...)
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

// twins plays histories on a limiter with room for few keys, and on one that keeps all. If lazy, it plays
// them on one whose keys are looked at before each step, and on one whose keys are left alone. As long as no
// call was decided by an overflow gate both decide the same, with the same times to wait.
func twins(t *testing.T, lazy bool) {
	evicted := uint64(0)
	property(t, func(rt *rapid.T) {
		limit, start := drawLimit(rt), StartPool(drawNumberedPool(rt))
		if rapid.Bool().Draw(rt, "joins") {
			start = together(StartPool(drawNumberedPool(rt)), StartEmpty())
		}
		await := func(*options) error { return nil }
		if rapid.Bool().Draw(rt, "awaits") {
			await = AwaitPool()
		}
		ramp := drawRamp(rt)
		ctrl := rapid.SampledFrom([]Option{
			Policy(policy.Fixed{}), Policy(ramp), policyOf(ramp, beyondShare), Policy(policy.AIMD{}),
			Policy(adversary{1, true}), policyOf(adversary{2, true}, beyondShare),
		}).Draw(rt, "policy")
		phase := func(o *options) error { o.phase = 7; return nil } // or the two would have other windows
		n := 3
		if lazy {
			n = 1000
		}
		opts := []Option{start, phase, ctrl, await, HintMaxAge(time.Hour)}
		if rapid.Bool().Draw(rt, "one") {
			opts = append(opts, AtLeastOne())
		}
		w := twin{few: mustNew(rt, limit, append(opts, MaxKeys(n))...),
			all: mustNew(rt, limit, append(opts, MaxKeys(1000))...)}
		w.all.seed = w.few.seed
		w.all.shards[0].evictNothing()
		if lazy {
			w.few.shards[0].evictNothing()
		}
		touch := func() {
			if lazy {
				for range w.few.Keys() {
				}
				for i := range 6 {
					w.few.Check(key(i))
				}
			}
		}
		for range rapid.IntRange(1, 80).Draw(rt, "steps") {
			touch()
			switch rapid.IntRange(0, 14).Draw(rt, "what") {
			case 0:
				p := drawNumberedPool(rt)
				must(rt, w.both(func(l *Limiter) error { return l.SetPool(p, 0) }))
			case 1:
				limit := drawLimit(rt)
				must(rt, w.both(func(l *Limiter) error { return l.SetLimit(limit) }))
			case 14:
				k := key(rapid.IntRange(0, 5).Draw(rt, "key"))
				var own *Limit
				if rapid.IntRange(0, 2).Draw(rt, "own") > 0 {
					limit := drawLimit(rt)
					own = &limit
				}
				if w.few.Override(k, own) == nil { // there is room for one
					must(rt, w.all.Override(k, own))
				}
			case 2, 3, 4:
				time.Sleep(drawPause(rt))
				if rapid.IntRange(0, 5).Draw(rt, "long") == 0 {
					time.Sleep(forgetAfter)
				}
			case 5, 6:
				if len(w.permits) > 0 {
					i := rapid.IntRange(0, len(w.permits)-1).Draw(rt, "which")
					used := rapid.IntRange(0, 20).Draw(rt, "used")
					if used%2 == 0 {
						_ = w.permits[i][0].Correct("tokens", used)
						_ = w.permits[i][1].Correct("tokens", used)
					}
					if used%3 == 0 {
						_ = w.permits[i][0].Correct("", used/6)
						_ = w.permits[i][1].Correct("", used/6)
					}
					if rapid.Bool().Draw(rt, "release") {
						w.release(i, drawFeedback(rt))
					}
				}
			case 7, 8, 9:
				k, m := key(rapid.IntRange(0, 5).Draw(rt, "key")), rapid.IntRange(1, 9).Draw(rt, "n")
				p, a := w.few.TryAcquireUpTo(k, m)
				q, b := w.all.TryAcquireUpTo(k, m)
				if a > 0 && b > 0 {
					w.permits = append(w.permits, [2]Permit{p, q})
				}
				if w.few.Stats().Overflowed > 0 {
					return
				}
				if a != b {
					rt.Fatalf("%s: evicting %d, else %d", k, a, b)
				}
			default:
				opts := []CallOption{Weight(rapid.IntRange(1, 4).Draw(rt, "weight"))}
				if u := w.few.shards[0].setting.units; len(u) > 0 && rapid.Bool().Draw(rt, "priced") {
					opts = append(opts, Cost(u[0], rapid.IntRange(0, 9).Draw(rt, "cost")))
				}
				k := key(rapid.IntRange(0, 5).Draw(rt, "key"))
				a, b := w.ask(k, opts...)
				if w.few.Stats().Overflowed > 0 {
					return
				}
				if a != b {
					rt.Fatalf("%s: evicting %+v, else %+v", k, a, b)
				}
			}
		}
		evicted += w.few.Stats().Evicted
	})
	if !lazy && evicted == 0 && !t.Failed() {
		t.Fatal("no history has evicted anything")
	}
}

// Bound 6: eviction is invisible.
func TestPropertyEvictionIsInvisible(t *testing.T) { twins(t, false) }

// Changes of limit and pool reach a key without calls as if it had been touched at each of them.
func TestPropertyLazyIsEager(t *testing.T) { twins(t, true) }

// evictNothing makes the shard keep every key.
func (s *shard) evictNothing() { s.left = 1 << 31 }

// With all of the map busy, keys share an overflow gate. Bound 1 still holds for each key, and so does its
// number of slots, however keys move between the overflow gate and the map.
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
