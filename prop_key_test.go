package quotient

import (
	"context"
	"fmt"
	"slices"
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

// pair is two limiters that get the same calls.
type pair struct {
	*rapid.T
	ls      [2]*Limiter
	permits [][2]Permit
}

func pairOf(t *rapid.T, limit Limit, opts ...Option) *pair {
	return &pair{T: t, ls: [2]*Limiter{mustNew(t, limit, opts...), mustNew(t, limit, opts...)}}
}

// try asks both, and keeps what they give.
func (p *pair) try(key string, opts ...CallOption) (a, b Decision) {
	opts = append(opts, Weight(rapid.IntRange(1, 4).Draw(p.T, "weight")))
	x, a := p.ls[0].TryAcquire(key, opts...)
	y, b := p.ls[1].TryAcquire(key, opts...)
	p.permits = append(p.permits, [2]Permit{x, y})
	return a, b
}

// release gives a permit back to both, or else tells what it has cost.
func (p *pair) release() {
	if len(p.permits) == 0 {
		return
	}
	i := rapid.IntRange(0, len(p.permits)-1).Draw(p.T, "which")
	used, f := rapid.IntRange(-20, 20).Draw(p.T, "used"), drawFeedback(p.T)
	released := rapid.Bool().Draw(p.T, "release")
	for _, x := range p.permits[i] {
		if used >= 0 && used%2 == 0 {
			_ = x.Correct("tokens", used)
		}
		if used >= 0 && used%3 == 0 {
			_ = x.Correct("", used/6)
		}
		if released {
			x.Done(f)
		}
	}
	if released {
		p.permits = slices.Delete(p.permits, i, i+1)
	}
}

// twins plays histories on a limiter with room for few keys, and on one that keeps all. If lazy, it plays
// them on one whose keys are looked at before each step, and on one whose keys are left alone. As long as no
// call was decided by an overflow gate both decide the same, with the same times to wait.
func twins(t *testing.T, lazy bool) {
	evicted := uint64(0)
	property(t, func(rt *rapid.T) {
		opts := []Option{StartPool(drawNumberedPool(rt)), samePhase, HintMaxAge(time.Hour)}
		for _, opt := range []Option{StartEmpty(), AwaitPool(), AtLeastOne()} {
			if rapid.Bool().Draw(rt, "option") {
				opts = append(opts, opt)
			}
		}
		ramp, fixed := drawRamp(rt), Policy(policy.Fixed{})
		ctrl := rapid.IntRange(0, 5).Draw(rt, "policy")
		opts = append(opts, []Option{
			fixed, Policy(ramp), policyOf(ramp, beyondShare), Policy(policy.AIMD{}),
			Policy(adversary{1, true}), policyOf(adversary{2, true}, beyondShare),
		}[ctrl])
		w := pairOf(rt, drawLimit(rt), append(opts, MaxKeys(1000))...)
		few, all := w.ls[0], w.ls[1]
		all.seed = few.seed
		all.shards[0].evictNothing()
		if lazy {
			few.shards[0].evictNothing()
		} else {
			few = mustNew(rt, few.Stats().Limit, append(opts, MaxKeys(3))...)
			w.ls[0], few.seed = few, all.seed
		}
		touch := func() {
			if lazy {
				for range few.Keys() {
				}
				for i := range 6 {
					few.Check(key(i))
				}
			}
		}
		for range rapid.IntRange(1, 80).Draw(rt, "steps") {
			touch()
			k := key(rapid.IntRange(0, 5).Draw(rt, "key"))
			switch rapid.IntRange(0, 15).Draw(rt, "what") {
			case 0:
				pool := drawNumberedPool(rt)
				must(rt, few.SetPool(pool, 0))
				must(rt, all.SetPool(pool, 0))
			case 1:
				limit := drawLimit(rt)
				must(rt, few.SetLimit(limit))
				must(rt, all.SetLimit(limit))
			case 2, 3, 4:
				time.Sleep(drawPause(rt))
				if rapid.IntRange(0, 5).Draw(rt, "long") == 0 {
					time.Sleep(forgetAfter)
				}
			case 5, 6:
				w.release()
			case 7, 8, 9:
				m := rapid.IntRange(1, 9).Draw(rt, "n")
				p, a := few.TryAcquireUpTo(k, m)
				q, b := all.TryAcquireUpTo(k, m)
				w.permits = append(w.permits, [2]Permit{p, q})
				if few.Stats().Overflowed > 0 {
					return
				}
				if a != b {
					rt.Fatalf("%s: evicting %d, else %d", k, a, b)
				}
			case 10:
				own := drawLimit(rt)
				which := rapid.SampledFrom([]*Limit{nil, &own, &own}).Draw(rt, "own")
				if few.Override(k, which) == nil { // there is room for one
					must(rt, all.Override(k, which))
				}
			case 11:
				part, lasts := rapid.Float64Range(0, 1).Draw(rt, "part"), drawPause(rt)
				if lazy && ctrl == 0 {
					Lend(few, k, part, lasts)
					Lend(all, k, part, lasts)
				}
			default:
				var opts []CallOption
				if u := few.shards[0].setting.units; len(u) > 0 && rapid.Bool().Draw(rt, "priced") {
					opts = append(opts, Cost(u[0], rapid.IntRange(0, 9).Draw(rt, "cost")))
				}
				a, b := w.try(k, opts...)
				if few.Stats().Overflowed > 0 {
					return
				}
				alike(rt, a, b)
			}
		}
		evicted += few.Stats().Evicted
	})
	if !lazy && evicted == 0 && !t.Failed() {
		t.Fatal("no history has evicted anything")
	}
}

// Bound 6: eviction is invisible.
func TestPropertyEvictionIsInvisible(t *testing.T) { twins(t, false) }

// Changes of limit and pool reach a key without calls as if it had been touched at each of them, and a loan
// ends at its instant whether or not a call comes then.
func TestPropertyLazyIsEager(t *testing.T) { twins(t, true) }

// evictNothing makes the shard keep every key.
func (s *shard) evictNothing() { s.left = 1 << 31 }

// aloneKey is a key, and a limiter that it has for itself.
type aloneKey struct {
	*pair
	key  string
	plan CallOption
	name int  // of the key there, which is another one after each reset
	has  bool // an override
}

// Each key fares as in a limiter of its own, under the limit that is in force for the key: that of its plan,
// an override, or the limiter's. Override is SetLimit for one key. A reset is as if the key's callers came
// under a name never seen; slots apart: none is out then.
func TestPropertyKeyIsALimiter(t *testing.T) {
	property(t, func(rt *rapid.T) {
		// Not Deny: under it a bucket goes on filling by the rate before it, which is another one for the key
		// that comes back to it.
		drawBase := func() Limit {
			if limit := drawLimit(rt); !limit.Deny {
				return limit
			}
			return Rates(drawRate(rt, "a"))
		}
		base, planned := drawBase(), drawLimit(rt)
		opts := []Option{StartPool(drawNumberedPool(rt)), samePhase}
		joins, resets := rapid.Bool().Draw(rt, "joins"), rapid.Bool().Draw(rt, "resets")
		if joins {
			opts = append(opts, StartEmpty())
		}
		l := mustNew(rt, base, append(opts, Plans(map[string]Limit{"a": planned, "b": drawLimit(rt)}))...)
		alone := func(key, plan string, limit Limit) *aloneKey {
			return &aloneKey{pair: &pair{T: rt, ls: [2]*Limiter{l, mustNew(rt, limit, opts...)}}, key: key,
				plan: Plan(plan)}
		}
		mine := alone("mine", "", base)
		keys := []*aloneKey{mine, alone("another", "", base), alone("planned", "a", planned)}
		setBase := func(to *aloneKey) { must(rt, to.ls[1].SetLimit(base)) }
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			k := among(rt, keys, "key")
			switch rapid.IntRange(0, 15).Draw(rt, "what") {
			case 0:
				if limit := drawLimit(rt); !joins {
					must(rt, l.Override("mine", &limit))
					must(rt, mine.ls[1].SetLimit(limit))
					mine.has = true
				}
			case 1:
				must(rt, l.Override("mine", nil))
				if mine.has {
					setBase(mine)
				}
				mine.has = false
			case 2:
				base = drawBase()
				must(rt, l.SetLimit(base))
				if setBase(keys[1]); !mine.has {
					setBase(mine)
				}
			case 3:
				limit := drawLimit(rt)
				must(rt, l.SetPlan("a", &limit))
				must(rt, keys[2].ls[1].SetLimit(limit))
			case 4:
				limit := drawLimit(rt)
				must(rt, l.SetPlan("b", &limit))
				l.Allow("other")
				l.TryAcquire("other", Plan("b"))
			case 5:
				pool := drawNumberedPool(rt)
				for _, x := range []*Limiter{l, mine.ls[1], keys[1].ls[1], keys[2].ls[1]} {
					must(rt, x.SetPool(pool, 0))
				}
			case 6:
				if resets && !k.has {
					l.Reset(k.key)
					k.name++
				}
			case 7, 8:
				time.Sleep(drawPause(rt))
			case 9:
				k.release()
			default:
				k.asks(resets)
			}
		}
	})
}

// asks asks both limiters, which decide alike.
func (k *aloneKey) asks(releases bool) {
	weight := Weight(rapid.IntRange(1, 4).Draw(k.T, "weight"))
	p, a := k.ls[0].TryAcquire(k.key, k.plan, weight)
	q, b := k.ls[1].TryAcquire(key(k.name), weight)
	alike(k.T, a, b)
	if releases {
		p.Release()
		q.Release()
		return
	}
	k.permits = append(k.permits, [2]Permit{p, q})
}

// A dry run counts for callers that do not wait just what the limiter would have refused, and stops none of
// them.
func TestPropertyDryRun(t *testing.T) {
	property(t, func(rt *rapid.T) {
		p := pairOf(rt, drawLimit(rt), StartPool(drawNumberedPool(rt)), samePhase)
		p.ls[1].SetDryRun(true)
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 5).Draw(rt, "what") {
			case 0, 1:
				time.Sleep(drawPause(rt))
			case 2:
				p.release()
			default:
				if _, d := p.try(key(rapid.IntRange(0, 2).Draw(rt, "key"))); !d.OK {
					rt.Fatalf("stopped in a dry run: %+v", d)
				}
			}
		}
		want, got := p.ls[0].Stats(), p.ls[1].Stats()
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
// overflow gate; keys are evicted, get limits of their own and lose them, and plans change.
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
		opts := []Option{Plans(plans), Replicas(n), MaxKeys(rapid.IntRange(1, 3).Draw(rt, "keys")),
			drawPolicy(rt)}
		l := mustNew(rt, small("own"), opts...)
		ctx, cancel := context.WithCancel(context.Background())
		defer synctest.Wait()
		defer cancel()
		meters := map[string]*meter{}
		var mu sync.Mutex
		took := func(key string, weight int) {
			mu.Lock()
			defer mu.Unlock()
			if meters[key] == nil {
				meters[key] = new(meter)
				meters[key].limit(shareOf(large, n))
				if n > 1 {
					meters[key].extra = 2 // of a weight of 3, owed
				}
			}
			meters[key].add(weight)
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			key, plan := among(rt, []string{"a", "a", "a", "b", "c", "d"}, "key"),
				Plan(among(rt, names, "plan"))
			what := rapid.IntRange(0, 9).Draw(rt, "what")
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
