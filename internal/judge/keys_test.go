package judge

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/adversary"
	"github.com/quotient-go/quotient/internal/inside"
	"github.com/quotient-go/quotient/policy"
)

// samePhase gives limiters the same sparse windows.
var samePhase = phase(7)

// alike fails unless two limiters decide alike. A change more or less rounds once more or less.
func alike(t *rapid.T, a, b quotient.Decision) {
	if (a.RetryAfter - b.RetryAfter).Abs() < time.Microsecond {
		a.RetryAfter = b.RetryAfter
	}
	stop(t, a != b, "%+v, but the other decides %+v", a, b)
}

// pairs are the permits of two limiters that get the same calls.
type pairs [][2]quotient.Permit

// ask has both decide on a call. No promise to others binds them: it would go with its key.
func (p *pairs) ask(a, b *quotient.Limiter, keyA, keyB string, opts ...quotient.CallOption) (x, y quotient.Decision) {
	forgetPromises(a)
	forgetPromises(b)
	l, x := a.TryAcquire(keyA, opts...)
	r, y := b.TryAcquire(keyB, opts...)
	if x.OK || y.OK {
		*p = append(*p, [2]quotient.Permit{l, r})
	}
	return x, y
}

// release gives back the oldest of both.
func (p *pairs) release() {
	if len(*p) > 0 {
		(*p)[0][0].Release()
		(*p)[0][1].Release()
		*p = (*p)[1:]
	}
}

// twins plays histories on a limiter with room for few keys, and on one that keeps all. If lazy, it plays
// them on one whose keys are looked at before each step, and on one whose keys are left alone. As long as no
// call was decided by an overflow gate both decide the same, with the same times to wait.
func twins(t *testing.T, lazy bool) {
	evicted := uint64(0)
	property(t, func(rt *rapid.T) {
		opts := []quotient.Option{samePhase, quotient.StartPool(drawNumberedPool(rt)), quotient.HintMaxAge(time.Hour),
			fix(func(c *inside.Chance) { c.Hash = judgeHash }), quotient.Policy(among(rt, []policy.Policy{policy.Fixed{},
				drawRamp(rt), policy.AIMD{}, adversary.Policy{Seed: 1, Calm: true}}, "policy"))}
		for _, opt := range []quotient.Option{quotient.StartEmpty(), quotient.AwaitPool(time.Hour), quotient.BeyondShare(),
			quotient.AtLeastOne()} {
			if rapid.Bool().Draw(rt, "option") {
				opts = append(opts, opt)
			}
		}
		limit, some := drawLimit(rt), append(slices.Clip(opts), quotient.MaxKeys(3))
		many := append(slices.Clip(opts), quotient.MaxKeys(1000), fix(func(c *inside.Chance) { c.Unswept = 1 << 31 }))
		if lazy {
			some = many
		}
		few, all := mustNew(rt, limit, some...), mustNew(rt, limit, many...)
		var permits pairs
		for range rapid.IntRange(1, 80).Draw(rt, "steps") {
			if lazy {
				for range few.Keys() {
				}
				for i := range 6 {
					few.Check(key(i))
				}
			}
			if !permits.twinStep(rt, few, all) {
				return
			}
		}
		evicted += few.Stats().Evicted
	})
	stop(t, !lazy && evicted == 0 && !t.Failed(), "no history has evicted anything")
}

// twinStep reports whether the twins are still comparable.
func (p *pairs) twinStep(rt *rapid.T, few, all *quotient.Limiter) bool {
	k := key(rapid.IntRange(0, 5).Draw(rt, "key"))
	switch rapid.IntRange(0, 14).Draw(rt, "what") {
	case 0:
		pool := drawNumberedPool(rt)
		must(rt, cmp.Or(few.SetPool(pool, 0), all.SetPool(pool, 0)))
	case 1:
		limit := drawLimit(rt)
		must(rt, cmp.Or(few.SetLimit(limit), all.SetLimit(limit)))
	case 14:
		var own *quotient.Limit
		if rapid.IntRange(0, 2).Draw(rt, "own") > 0 {
			limit := drawLimit(rt)
			own = &limit
		}
		if own == nil && few.Stats().Limit.Deny { // the key would be forgotten when nothing is missing from its rules
			break
		}
		if few.Override(k, own, 0) == nil { // there is room for one
			must(rt, all.Override(k, own, 0))
		}
	case 2, 3, 4:
		time.Sleep(drawPause(rt))
		if rapid.IntRange(0, 5).Draw(rt, "long") == 0 {
			time.Sleep(10 * time.Minute) // what was learned is forgotten
		}
	case 5, 6:
		if len(*p) > 0 {
			p.correct(rt, rapid.IntRange(0, len(*p)-1).Draw(rt, "which"))
		}
	case 7, 8, 9:
		n := rapid.IntRange(1, 9).Draw(rt, "n")
		forgetPromises(few)
		forgetPromises(all)
		l, a := few.TryAcquireUpTo(k, n)
		r, b := all.TryAcquireUpTo(k, n)
		if a > 0 && b > 0 {
			*p = append(*p, [2]quotient.Permit{l, r})
		}
		if few.Stats().Overflowed > 0 {
			return false
		}
		stop(rt, a != b, "%s: evicting %d, else %d", k, a, b)
	default:
		opts := []quotient.CallOption{quotient.Weight(rapid.IntRange(1, 4).Draw(rt, "weight"))}
		if tokens := quotient.Cost("tokens", rapid.IntRange(0, 9).Draw(rt, "cost")); rapid.Bool().Draw(rt, "priced") &&
			few.Check("nobody", tokens).Reason != quotient.ReasonBadRequest {
			opts = append(opts, tokens)
		}
		a, b := p.ask(few, all, k, k, opts...)
		if few.Stats().Overflowed > 0 {
			return false
		}
		stop(rt, a != b, "%s: evicting %+v, else %+v", k, a, b)
	}
	return true
}

// correct corrects two permits, and perhaps gives them back.
func (p *pairs) correct(rt *rapid.T, i int) {
	used, f := rapid.IntRange(0, 20).Draw(rt, "used"), drawFeedback(rt)
	release := rapid.Bool().Draw(rt, "release")
	for _, permit := range (*p)[i] {
		if used%2 == 0 {
			_ = permit.Correct("tokens", used)
		}
		if used%3 == 0 {
			_ = permit.Correct("", used/6)
		}
		if release {
			permit.Done(f)
		}
	}
	if release {
		*p = slices.Delete(*p, i, i+1)
	}
}

// Bound 6: eviction is invisible.
func TestPropertyEvictionIsInvisible(t *testing.T) { twins(t, false) }

// Changes of limit and pool reach a key without calls as if it had been touched at each of them.
func TestPropertyLazyIsEager(t *testing.T) { twins(t, true) }

// An override is SetLimit for one key. The key always fares as in a limiter that has the limit as its own,
// and every other key as in one without the override.
func TestPropertyOverride(t *testing.T) {
	property(t, func(rt *rapid.T) {
		limit, start := drawLimit(rt), quotient.StartPool(drawNumberedPool(rt))
		// A limit that was removed is kept: what has come back in full may be forgotten, and then another one is full.
		over := mustNew(rt, limit, start, fix(func(c *inside.Chance) { c.Phase, c.Unswept = 7, 1<<31 }))
		mine, others := mustNew(rt, limit, start, samePhase), mustNew(rt, limit, start, samePhase)
		base, owned := limit, false
		var permits pairs
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0:
				own := drawLimit(rt)
				must(rt, over.Override("mine", &own, 0))
				must(rt, mine.SetLimit(own))
				owned = true
			case 1:
				must(rt, over.Override("mine", nil, 0))
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
				for _, l := range []*quotient.Limiter{over, mine, others} {
					must(rt, l.SetPool(p, 0))
				}
			case 4, 5:
				time.Sleep(drawPause(rt))
			case 6:
				permits.release()
			default:
				key, twin := "mine", mine
				if rapid.Bool().Draw(rt, "another key") {
					key, twin = "another", others
				}
				opt := quotient.Weight(rapid.IntRange(1, 4).Draw(rt, "weight"))
				a, b := permits.ask(over, twin, key, key, opt)
				alike(rt, a, b)
			}
		}
	})
}

// A dry run counts for callers that do not wait just what the limiter would have refused, and stops none of
// them.
func TestPropertyDryRun(t *testing.T) {
	property(t, func(rt *rapid.T) {
		limit, pool := drawLimit(rt), quotient.StartPool(drawNumberedPool(rt))
		real, dry := mustNew(rt, limit, pool, samePhase), mustNew(rt, limit, pool, samePhase)
		dry.SetDryRun(true)
		var permits pairs
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 5).Draw(rt, "what") {
			case 0, 1:
				time.Sleep(drawPause(rt))
			case 2:
				permits.release()
			default:
				k, opt := key(rapid.IntRange(0, 2).Draw(rt, "key")), quotient.Weight(rapid.IntRange(1, 4).Draw(rt, "weight"))
				if _, d := permits.ask(real, dry, k, k, opt); !d.OK {
					rt.Fatalf("stopped in a dry run: %+v", d)
				}
			}
		}
		want, got := real.Stats(), dry.Stats()
		if !maps.Equal(want.Refused, got.DryRunAdmitted) || len(got.Refused) > 0 {
			rt.Fatalf("%v refused, but %v counted and %v refused in a dry run", want.Refused, got.DryRunAdmitted,
				got.Refused)
		}
		stop(rt, want.InFlight != got.InFlight, "%d in flight, %d in a dry run", want.InFlight, got.InFlight)
	})
}

// smaller is a rate that never lets more through than r: at most as fast, with at most the burst.
func smaller(t *rapid.T, r quotient.Rate, label string) quotient.Rate {
	part := rapid.Float64Range(.05, 1)
	s := quotient.Rate{Name: among(t, []string{r.Name, label}, label+" name"), Unit: r.Unit}
	s.Per = time.Duration(float64(r.Per) * part.Draw(t, label+" per"))
	s.Events = max(.001, perSecond(r)*s.Per.Seconds()*part.Draw(t, label+" speed"))
	s.Burst = max(2, int(burstOf(r)*part.Draw(t, label+" burst")))
	return s
}

// Alternating between plans never brings more than the largest alone. Asks name any plan, wait, and share the
// overflow gate; keys are evicted, get limits of their own and lose them, and plans change and take each other's
// places.
func TestPropertyPlansBringNoMore(t *testing.T) {
	property(t, func(rt *rapid.T) {
		large := drawRate(rt, "large")
		large.Burst = rapid.IntRange(2, 40).Draw(rt, "large burst")
		plans, names := map[string]quotient.Limit{"large": quotient.Rates(large)}, []string{"", "large"}
		changes := rapid.Bool().Draw(rt, "changes") // which forget what was taken beyond a smaller burst
		small := func(label string) quotient.Limit {
			r := smaller(rt, large, label)
			if changes {
				r.Burst = large.Burst
			}
			return quotient.Rates(r)
		}
		for i := range rapid.IntRange(1, 3).Draw(rt, "plans") {
			name := fmt.Sprint("small", i)
			plans[name], names = small(name), append(names, name)
		}
		n := rapid.IntRange(1, 3).Draw(rt, "replicas")
		opts := []quotient.Option{quotient.Plans(plans), fix(func(c *inside.Chance) { c.Plans = len(plans) }),
			quotient.Replicas(n), quotient.MaxKeys(rapid.IntRange(1, 3).Draw(rt, "keys")), drawAnyPolicy(rt)}
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
				quotient.Plan(among(rt, names, "plan"))
			what := rapid.IntRange(0, 10).Draw(rt, "what")
			if !changes {
				what = min(what, 8) % 6
			}
			switch what {
			case 0, 1:
				weight := rapid.IntRange(1, 3).Draw(rt, "weight")
				if _, d := l.TryAcquire(key, plan, quotient.Weight(weight)); d.OK {
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
				_ = l.Override("a", &own, 0) // refused while the overflow gate has the key
			case 7:
				must(rt, l.Override("a", nil, 0))
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
		opts := []quotient.Option{quotient.Replicas(rapid.IntRange(1, 3).Draw(rt, "replicas")), few, samePhase}
		both := quotient.Plans(map[string]quotient.Limit{"a": limit, "b": drawLimit(rt)})
		plans := mustNew(rt, other, append(opts, both)...)
		alone := mustNew(rt, limit, opts...)
		for range rapid.IntRange(1, 50).Draw(rt, "steps") {
			weight := quotient.Weight(rapid.IntRange(1, 3).Draw(rt, "weight"))
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
				pool := quotient.Pool{Replicas: rapid.IntRange(1, 3).Draw(rt, "pool")}
				must(rt, plans.SetPool(pool, 0))
				must(rt, alone.SetPool(pool, 0))
			case 4:
				plans.TryAcquire("other", quotient.Plan(among(rt, []string{"", "a", "b"}, "plan")), weight)
			case 5:
				time.Sleep(drawPause(rt))
			default:
				p, x := plans.TryAcquire("k", quotient.Plan("a"), weight)
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
		limit, start := drawLimit(rt), quotient.StartPool(drawNumberedPool(rt))
		opts := []quotient.Option{start, samePhase}
		if rapid.Bool().Draw(rt, "joins") {
			opts = append(opts, quotient.StartEmpty())
		}
		l, twin := mustNew(rt, limit, opts...), mustNew(rt, limit, opts...)
		var permits pairs
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
				opt := quotient.Weight(rapid.IntRange(1, 4).Draw(rt, "weight"))
				a, b := permits.ask(l, twin, "k", key(name), opt)
				alike(rt, a, b)
				permits.release()
			}
		}
	})
}

// All claims or none: as if each limiter were looked at first, and asked only when all have room.
func TestPropertyTryAcquireAll(t *testing.T) {
	property(t, func(rt *rapid.T) {
		var all, twins []*quotient.Limiter
		for range rapid.IntRange(1, 3).Draw(rt, "limiters") {
			limit, replicas := drawLimit(rt), quotient.Replicas(rapid.IntRange(1, 2).Draw(rt, "replicas"))
			all = append(all, mustNew(rt, limit, replicas, few, samePhase))
			twins = append(twins, mustNew(rt, limit, replicas, few, samePhase))
		}
		for range rapid.IntRange(1, 50).Draw(rt, "steps") {
			time.Sleep(drawPause(rt))
			var claims, twin []quotient.Claim
			for i := range all {
				opts := []quotient.CallOption{quotient.Weight(rapid.IntRange(1, 3).Draw(rt, "weight"))}
				key := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "key")
				claims = append(claims, quotient.Claim{Limiter: all[i], Key: key, Options: opts})
				twin = append(twin, quotient.Claim{Limiter: twins[i], Key: key, Options: opts})
			}
			want := -1
			for i, c := range twin {
				if want < 0 && !c.Limiter.Check(c.Key, c.Options...).OK {
					want = i
				}
			}
			ps, refused, d := quotient.TryAcquireAll(nil, claims...)
			if refused != want || d.OK != (want < 0) {
				rt.Fatalf("claim %d was refused, want %d: %+v", refused, want, d)
			}
			if d.OK {
				for i, c := range twin {
					p, d := c.Limiter.TryAcquire(c.Key, c.Options...)
					if !d.OK {
						rt.Fatal(d)
					}
					if rapid.Bool().Draw(rt, "release") {
						p.Release()
						ps[i].Release()
					}
				}
			}
			for i, c := range twin {
				x, y := all[i].Explain(c.Key), twins[i].Explain(c.Key)
				same := x.InFlight == y.InFlight && len(x.Rules) == len(y.Rules)
				for i := range x.Rules {
					same = same && math.Abs(x.Rules[i].Left-y.Rules[i].Left) < 1e-6
				}
				stop(rt, !same, "limiter %d is at\n%+v, want\n%+v", i, x, y)
			}
		}
	})
}
