package quotient

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

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
				if (x.RetryAfter - y.RetryAfter).Abs() < time.Microsecond {
					x.RetryAfter = y.RetryAfter // a change more or less rounds once more or less
				}
				if x != y {
					rt.Fatalf("in the plan %+v, alone %+v", x, y)
				}
				if rapid.Bool().Draw(rt, "release") {
					p.Release()
					q.Release()
				}
			}
		}
	})
}
