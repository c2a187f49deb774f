package quotient

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient/policy"
)

// samePhase gives limiters the same sparse windows.
var samePhase = WithPhase(7)

// alike fails unless two limiters decide alike. A change more or less rounds once more or less.
func alike(t *rapid.T, a, b Decision) {
	if (a.RetryAfter - b.RetryAfter).Abs() < time.Microsecond {
		a.RetryAfter = b.RetryAfter
	}
	if a != b {
		t.Fatalf("%+v, but the other decides %+v", a, b)
	}
}

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
			await = AwaitPool(time.Hour)
		}
		ramp := drawRamp(rt)
		ctrl := rapid.SampledFrom([]Option{
			Policy(policy.Fixed{}), Policy(ramp), policyOf(ramp, beyondShare), Policy(policy.AIMD{}),
			Policy(Adversary{Seed: 1, Calm: true}), policyOf(Adversary{Seed: 2, Calm: true}, beyondShare),
		}).Draw(rt, "policy")
		n := 3
		if lazy {
			n = 1000
		}
		opts := []Option{start, samePhase, ctrl, await, HintMaxAge(time.Hour)}
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
			forgetPromises(w.few) // they go with a key
			forgetPromises(w.all)
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
				if u := w.few.newest().units; len(u) > 0 && rapid.Bool().Draw(rt, "priced") {
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
		var meters [5]ledger
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
			if most := l.newest().slots; len(held[i]) > most {
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

// An override is SetLimit for one key. The key always fares as in a limiter that has the limit as its own,
// and every other key as in one without the override.
func TestPropertyOverride(t *testing.T) {
	property(t, func(rt *rapid.T) {
		limit, start := drawLimit(rt), StartPool(drawNumberedPool(rt))
		over := mustNew(rt, limit, start, samePhase)
		mine, others := mustNew(rt, limit, start, samePhase), mustNew(rt, limit, start, samePhase)
		base, owned := limit, false
		var permits [][2]Permit
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0:
				own := drawLimit(rt)
				must(rt, over.Override("mine", &own))
				must(rt, mine.SetLimit(own))
				owned = true
			case 1:
				must(rt, over.Override("mine", nil))
				if owned {
					must(rt, mine.SetLimit(base))
				}
				owned = false
			case 2:
				base = drawLimit(rt)
				must(rt, over.SetLimit(base))
				must(rt, others.SetLimit(base))
				if !owned {
					must(rt, mine.SetLimit(base))
				}
			case 3:
				p := drawNumberedPool(rt)
				for _, l := range []*Limiter{over, mine, others} {
					must(rt, l.SetPool(p, 0))
				}
			case 4, 5:
				time.Sleep(drawPause(rt))
			case 6:
				if len(permits) > 0 {
					permits[0][0].Release()
					permits[0][1].Release()
					permits = permits[1:]
				}
			default:
				key, twin := "mine", mine
				if rapid.Bool().Draw(rt, "another key") {
					key, twin = "another", others
				}
				opt := Weight(rapid.IntRange(1, 4).Draw(rt, "weight"))
				p, a := over.TryAcquire(key, opt)
				q, b := twin.TryAcquire(key, opt)
				forgetPromises(over) // they go with a key
				forgetPromises(twin)
				alike(rt, a, b)
				permits = append(permits, [2]Permit{p, q})
			}
		}
	})
}

// A dry run counts for callers that do not wait just what the limiter would have refused, and stops none of
// them.
func TestPropertyDryRun(t *testing.T) {
	property(t, func(rt *rapid.T) {
		limit, pool := drawLimit(rt), StartPool(drawNumberedPool(rt))
		real, dry := mustNew(rt, limit, pool, samePhase), mustNew(rt, limit, pool, samePhase)
		dry.SetDryRun(true)
		var permits [][2]Permit
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 5).Draw(rt, "what") {
			case 0, 1:
				time.Sleep(drawPause(rt))
			case 2:
				if len(permits) > 0 {
					permits[0][0].Release()
					permits[0][1].Release()
					permits = permits[1:]
				}
			default:
				k, opt := key(rapid.IntRange(0, 2).Draw(rt, "key")),
					Weight(rapid.IntRange(1, 4).Draw(rt, "weight"))
				p, _ := real.TryAcquire(k, opt)
				q, d := dry.TryAcquire(k, opt)
				if !d.OK {
					rt.Fatalf("stopped in a dry run: %+v", d)
				}
				permits = append(permits, [2]Permit{p, q})
			}
		}
		want, got := real.Stats(), dry.Stats()
		for r := range numReasons {
			if want.Refused[r] != got.DryRunAdmitted[r] || got.Refused[r] != 0 {
				rt.Fatalf("%v: %d refused, but %d counted and %d refused in a dry run", r, want.Refused[r],
					got.DryRunAdmitted[r], got.Refused[r])
			}
		}
		if want.InFlight != got.InFlight {
			rt.Fatalf("%d in flight, %d in a dry run", want.InFlight, got.InFlight)
		}
	})
}

// smaller is a rate that never lets more through than r: at most as fast, with at most the burst.
func smaller(t *rapid.T, r Rate, label string) Rate {
	part := rapid.Float64Range(.05, 1)
	s := Rate{Name: among(t, []string{r.Name, label}, label+" name"), Unit: r.Unit}
	s.Per = time.Duration(float64(r.Per) * part.Draw(t, label+" per"))
	s.Events = max(.001, r.perSecond()*s.Per.Seconds()*part.Draw(t, label+" speed"))
	s.Burst = max(2, int(r.burst()*part.Draw(t, label+" burst")))
	return s
}

// among is one of a list.
func among[T any](t *rapid.T, list []T, label string) T {
	return rapid.SampledFrom(list).Draw(t, label)
}

// Alternating between plans never brings more than the largest alone. Asks name any plan, wait, and share the
// overflow gate; keys are evicted, get limits of their own and lose them, and plans change and take each other's
// places.
func TestPropertyPlansBringNoMore(t *testing.T) {
	property(t, func(rt *rapid.T) {
		large := drawRate(rt, "large")
		large.Burst = rapid.IntRange(2, 40).Draw(rt, "large burst")
		plans, names := map[string]Limit{"large": Rates(large)}, []string{"", "large"}
		changes := rapid.Bool().Draw(rt, "changes") // which forget what was taken beyond a smaller burst
		small := func(label string) Limit {
			r := smaller(rt, large, label)
			if changes {
				r.Burst = large.Burst
			}
			return Rates(r)
		}
		for i := range rapid.IntRange(1, 3).Draw(rt, "plans") {
			name := fmt.Sprint("small", i)
			plans[name], names = small(name), append(names, name)
		}
		n := rapid.IntRange(1, 3).Draw(rt, "replicas")
		opts := []Option{Plans(plans), WithMostPlans(len(plans)), Replicas(n), MaxKeys(rapid.IntRange(1, 3).Draw(rt, "keys")),
			drawPolicy(rt)}
		l := mustNew(rt, small("own"), opts...)
		ctx, cancel := context.WithCancel(context.Background())
		defer synctest.Wait()
		defer cancel()
		meters := map[string]*ledger{}
		var mu sync.Mutex
		took := func(key string, weight int) {
			mu.Lock()
			defer mu.Unlock()
			if meters[key] == nil {
				meters[key] = new(ledger)
				meters[key].limit(shareOf(large, n))
				if n > 1 {
					meters[key].extra = 2 // of a weight of 3, owed
				}
			}
			meters[key].add(weight)
		}
		for step := range rapid.IntRange(1, 60).Draw(rt, "steps") {
			key, plan := among(rt, []string{"a", "a", "a", "b", "c", "d"}, "key"),
				Plan(among(rt, names, "plan"))
			what := rapid.IntRange(0, 10).Draw(rt, "what")
			if !changes {
				what = min(what, 8) % 6
			}
			switch what {
			case 0, 1:
				weight := rapid.IntRange(1, 3).Draw(rt, "weight")
				if _, d := l.TryAcquire(key, plan, Weight(weight)); d.OK {
					took(key, weight)
				}
			case 2:
				_, weight := l.TryAcquireUpTo(key, 50, plan)
				took(key, weight)
			case 3:
				go func() {
					if _, err := l.Acquire(ctx, key, plan); err == nil {
						took(key, 1)
					}
				}()
			case 4:
				l.Check(key, plan)
				l.Explain(key, plan)
			case 6:
				own := small("override")
				_ = l.Override("a", &own) // refused while the overflow gate has the key
			case 7:
				must(rt, l.Override("a", nil))
			case 8:
				limit := small("changed")
				must(rt, l.SetPlan(among(rt, names[1:], "changed plan"), &limit))
			case 9:
				name, limit := &names[rapid.IntRange(1, len(plans)).Draw(rt, "renamed plan")], small("renamed")
				must(rt, l.SetPlan(*name, nil))
				*name = fmt.Sprint("renamed", step)
				must(rt, l.SetPlan(*name, &limit))
			default:
				time.Sleep(rapid.SampledFrom([]time.Duration{1, large.Per / 10, large.Per, 20 * large.Per,
					30 * time.Second, drawPause(rt)}).Draw(rt, "pause"))
			}
			synctest.Wait()
			mu.Lock()
			for _, m := range meters {
				m.check(rt.Errorf)
			}
			mu.Unlock()
			if rt.Failed() {
				return
			}
		}
	})
}

// A key that stays in one plan fares as under a limiter with that limit alone, whatever the other keys and
// the other plans do.
func TestPropertyPlanIsALimit(t *testing.T) {
	property(t, func(rt *rapid.T) {
		limit, other := drawLimit(rt), drawLimit(rt)
		opts := []Option{Replicas(rapid.IntRange(1, 3).Draw(rt, "replicas")), few, WithPhase(3)}
		plans := mustNew(rt, other, append(opts, Plans(map[string]Limit{"a": limit, "b": drawLimit(rt)}))...)
		alone := mustNew(rt, limit, opts...)
		for range rapid.IntRange(1, 50).Draw(rt, "steps") {
			weight := Weight(rapid.IntRange(1, 3).Draw(rt, "weight"))
			switch rapid.IntRange(0, 8).Draw(rt, "what") {
			case 0:
				limit = drawLimit(rt)
				must(rt, plans.SetPlan("a", &limit))
				must(rt, alone.SetLimit(limit))
			case 1:
				limit := drawLimit(rt)
				must(rt, plans.SetPlan("b", &limit))
			case 2:
				must(rt, plans.SetLimit(drawLimit(rt)))
			case 3:
				pool := Pool{Replicas: rapid.IntRange(1, 3).Draw(rt, "pool")}
				must(rt, plans.SetPool(pool, 0))
				must(rt, alone.SetPool(pool, 0))
			case 4:
				plans.TryAcquire("other", Plan(among(rt, []string{"", "a", "b"}, "plan")), weight)
			case 5:
				time.Sleep(drawPause(rt))
			default:
				p, x := plans.TryAcquire("k", Plan("a"), weight)
				q, y := alone.TryAcquire("k", weight)
				forgetPromises(plans) // they go with a key
				forgetPromises(alone)
				alike(rt, x, y)
				if rapid.Bool().Draw(rt, "release") {
					p.Release()
					q.Release()
				}
			}
		}
	})
}

// A reset is as if the key's callers came under a name never seen. Slots apart: none is out here.
func TestPropertyResetIsANewName(t *testing.T) {
	property(t, func(rt *rapid.T) {
		limit, start := drawLimit(rt), StartPool(drawNumberedPool(rt))
		opts := []Option{start, samePhase}
		if rapid.Bool().Draw(rt, "joins") {
			opts = append(opts, StartEmpty())
		}
		l, twin := mustNew(rt, limit, opts...), mustNew(rt, limit, opts...)
		name := 0
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0, 1:
				l.Reset("k")
				name++
			case 2:
				limit := drawLimit(rt)
				must(rt, l.SetLimit(limit))
				must(rt, twin.SetLimit(limit))
			case 3:
				p := drawNumberedPool(rt)
				must(rt, l.SetPool(p, 0))
				must(rt, twin.SetPool(p, 0))
			case 4, 5:
				time.Sleep(drawPause(rt))
			default:
				opt := Weight(rapid.IntRange(1, 4).Draw(rt, "weight"))
				p, a := l.TryAcquire("k", opt)
				q, b := twin.TryAcquire(key(name), opt)
				forgetPromises(l) // they go with a key
				forgetPromises(twin)
				alike(rt, a, b)
				p.Release()
				q.Release()
			}
		}
	})
}
