package judge

import (
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient"
)

// fleet is limiters of one limit, and what all of them admit.
type fleet struct {
	*rapid.T
	ledger
	limit quotient.Limit
	opts  []quotient.Option
	ls    []*quotient.Limiter
}

func (f *fleet) add(n int, opts ...quotient.Option) {
	for range n {
		f.ls = append(f.ls, mustNew(f, f.limit, slices.Concat(f.opts, opts)...))
	}
}

// believes has all replicas believe in n without ordinals.
func (f *fleet) believes(n int) {
	for _, l := range f.ls {
		must(f, l.SetPool(quotient.Pool{Replicas: n}, 0))
	}
}

// greedy has callers take all there is, for a while.
func (f *fleet) greedy(d time.Duration) {
	for end := time.Now().Add(d); ; time.Sleep(max(d/8, time.Millisecond)) {
		for _, l := range f.ls {
			_, got := l.TryAcquireUpTo("k", 100)
			f.ledger.add(got)
		}
		if !time.Now().Before(end) {
			return
		}
	}
}

// Bound 2: the fleet admits at most R w + max(B, N) in any window while every replica believes in at least
// as many as there are. So new replicas are announced first and start empty, and leavers are announced last.
func TestPropertyFleet(t *testing.T) {
	property(t, func(rt *rapid.T) {
		rate := drawRate(rt, "r")
		n := rapid.IntRange(1, 5).Draw(rt, "replicas")
		most := n
		f := fleet{T: rt, limit: quotient.Rates(rate), opts: []quotient.Option{drawAnyPolicy(rt), few}}
		f.ledger.limit(perSecond(rate), 0)
		f.add(n, quotient.Replicas(n))
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch rapid.IntRange(0, 7).Draw(rt, "what") {
			case 0:
				if n < 8 {
					n++
					most = max(most, n)
					f.believes(n)
					time.Sleep(drawPause(rt))
					f.add(1, quotient.Replicas(n), quotient.StartEmpty())
				}
			case 1:
				if n > 1 {
					n--
					f.ls = f.ls[1:]
					time.Sleep(drawPause(rt))
					f.believes(n)
				}
			case 2:
				time.Sleep(drawPause(rt))
			default:
				p, got := among(rt, f.ls, "who").TryAcquireUpTo("k", rapid.IntRange(1, 12).Draw(rt, "up to"))
				f.ledger.add(got)
				p.Done(drawFeedback(rt))
			}
		}
		f.extra = max(burstOf(rate), float64(most))
		f.check(rt.Fatalf)
	})
}

// Bound 3: a scale-up that is seen D late costs at most R D (N1/N0 - 1), once.
func TestPropertyLateScaleUp(t *testing.T) {
	property(t, func(rt *rapid.T) {
		rate := drawRate(rt, "r")
		n0 := rapid.IntRange(1, 4).Draw(rt, "n0")
		n1 := n0 + rapid.IntRange(1, 4).Draw(rt, "joiners")
		f := fleet{T: rt, limit: quotient.Rates(rate), opts: []quotient.Option{few}}
		f.ledger.limit(perSecond(rate), 0)
		f.add(n0, quotient.Replicas(n0))
		f.greedy(drawPause(rt))
		f.add(n1-n0, quotient.Replicas(n1), quotient.StartEmpty())
		began := time.Now()
		f.greedy(drawPause(rt))
		late := perSecond(rate) * time.Since(began).Seconds() * (float64(n1)/float64(n0) - 1)
		f.believes(n1)
		f.greedy(drawPause(rt))
		f.extra = max(burstOf(rate), float64(n1)) + late
		f.check(rt.Fatalf)
	})
}

// slotsOf is a replica's part of a limit in flight.
func slotsOf(limit quotient.Limit, p quotient.Pool, atLeastOne bool) int {
	return (&model{base: limit, pool: p}).slots(atLeastOne)
}

// Bound 5: over the fleet at most G are in flight while every replica believes in at least as many as there
// are. It holds once permits issued before the last change of the pool are released. With AtLeastOne it is at
// most max(G, N). One replica never exceeds its own slots.
func TestPropertyInFlight(t *testing.T) {
	type out struct {
		quotient.Permit
		by    *quotient.Limiter
		since int // so many changes of the pool
	}
	property(t, func(rt *rapid.T) {
		f := fleet{T: rt, limit: quotient.Limit{InFlight: rapid.IntRange(1, 12).Draw(rt, "G")},
			opts: []quotient.Option{few, drawAnyPolicy(rt)}}
		atLeastOne := rapid.Bool().Draw(rt, "at least one")
		if atLeastOne {
			f.opts = append(f.opts, quotient.AtLeastOne())
		}
		changes := 0
		resize := func(n int) {
			if n == len(f.ls) {
				return
			}
			for len(f.ls) < n {
				f.add(1, quotient.StartEmpty())
			}
			f.ls = f.ls[:n] // the last leave, and their requests end with them
			for i, l := range f.ls {
				must(rt, l.SetPool(quotient.Pool{Replicas: n, Ordinal: i + 1, Fixed: true}, 0))
			}
			changes++ // the ordinals' remainders move
		}
		resize(rapid.IntRange(1, 5).Draw(rt, "N"))
		var held []out
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch what := rapid.IntRange(0, 9).Draw(rt, "what"); {
			case what == 0:
				resize(min(7, len(f.ls)+1))
			case what == 1:
				resize(max(1, len(f.ls)-1))
			case what < 5 && len(held) > 0:
				k := rapid.IntRange(0, len(held)-1).Draw(rt, "which")
				held[k].Done(drawFeedback(rt))
				held = slices.Delete(held, k, k+1)
			default:
				l := among(rt, f.ls, "who")
				if p, d := l.TryAcquire("k", quotient.Weight(rapid.IntRange(1, 3).Draw(rt, "weight"))); d.OK {
					held = append(held, out{p, l, changes})
				}
			}
			held = slices.DeleteFunc(held, func(o out) bool { return !slices.Contains(f.ls, o.by) })
			total, anyOld := 0, false
			for i, l := range f.ls {
				old := slices.ContainsFunc(held, func(o out) bool { return o.by == l && o.since < changes })
				in, most := l.Stats().InFlight, slotsOf(f.limit, l.Stats().Pool.Pool, atLeastOne)
				if total, anyOld = total+in, anyOld || old; in > most && !old {
					rt.Fatalf("replica %d: %d in flight, %d slots", i, in, most)
				}
			}
			bound := f.limit.InFlight
			if atLeastOne {
				bound = max(bound, len(f.ls))
			}
			if total > bound && !anyOld {
				rt.Fatalf("%d in flight over %d replicas, bound %d", total, len(f.ls), bound)
			}
		}
	})
}

const maxReplicas = 1_000_000

// Failure modes 14, 15: whatever a source says and however it fails, the share in force is the smallest of
// those that were good and counted within the last hold-down, whatever pool and weight it came of.
func TestPropertyDamping(t *testing.T) {
	property(t, func(rt *rapid.T) {
		hold := time.Duration(rapid.IntRange(0, 3000).Draw(rt, "hold-down")) * time.Millisecond
		l := mustNew(rt, quotient.Rates(quotient.PerSecond(1000)), quotient.HoldDown(hold), quotient.Replicas(7))
		src := following(l, nil)
		defer src.cancel()
		type reported struct {
			p     quotient.Pool
			until time.Time
		}
		var reports []reported
		heaviest := rapid.SampledFrom([]int{0, 4}).Draw(rt, "heaviest")
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			time.Sleep(time.Duration(rapid.IntRange(1, 2000).Draw(rt, "pause")) * time.Millisecond)
			sizes := rapid.SampledFrom([]int{1, 2, 3, 4, 5, 8, 12, 0, -4, maxReplicas + 1})
			p := quotient.Pool{Replicas: sizes.Draw(rt, "says")}
			p.Weight = rapid.IntRange(0, max(0, min(heaviest, p.Replicas))).Draw(rt, "weight")
			p.Ordinal = rapid.IntRange(0, max(0, p.Replicas-max(1, p.Weight)+1)).Draw(rt, "ordinal")
			p.Fixed = p.Ordinal > 0 && rapid.Bool().Draw(rt, "fixed")
			var err error
			if rapid.IntRange(0, 3).Draw(rt, "fails") == 0 {
				err = errors.New("no answer")
			}
			src.report(p, err)
			synctest.Wait()
			n := len(reports)
			if err == nil && p.Replicas >= 1 && p.Replicas <= maxReplicas {
				if n > 0 {
					reports[n-1].until = time.Now()
				}
				reports, n = append(reports, reported{p: p}), n+1
			}
			got := l.Stats().Pool.Pool
			if n == 0 {
				if got != (quotient.Pool{Replicas: 7}) {
					rt.Fatalf("%+v in force, want what was configured", got)
				}
				continue
			}
			last, others := reports[n-1].p, false
			parts := shares(last)
			for _, o := range reports[:n-1] {
				if time.Since(o.until) < hold && shares(o.p) > parts*(1+1e-12) {
					parts, others = shares(o.p), true
				}
			}
			want := int(math.Ceil(parts*float64(max(1, last.Weight)) - 1e-9))
			if got.Ordinal < 0 || got.Ordinal > want-max(1, got.Weight)+1 || got.Replicas != want || got.Weight != last.Weight {
				rt.Fatalf("%+v in force, want %d replicas of %+v", got, want, reports)
			}
			if last.Fixed && got.Ordinal != last.Ordinal || others && !last.Fixed && got.Ordinal != 0 {
				rt.Fatalf("%+v in force after %+v", got, last)
			}
		}
	})
}

// Bound 4: a fleet falls into k parts which do not see each other. It admits nothing more while the hold-down
// lasts, and at most k times as much after it.
func TestPropertySplit(t *testing.T) {
	property(t, func(rt *rapid.T) {
		rate := drawRate(rt, "r")
		const hold = 10 * time.Second
		sizes := rapid.SliceOfN(rapid.IntRange(1, 3), 2, 4).Draw(rt, "parts")
		n, burst := 0, 0.0
		for _, s := range sizes {
			n += s
			burst += max(burstOf(rate), float64(s))
		}
		f := fleet{T: rt, limit: quotient.Rates(rate),
			opts: []quotient.Option{quotient.Replicas(n), quotient.HoldDown(hold), few}}
		f.add(n)
		f.ledger.limit(perSecond(rate), max(burstOf(rate), float64(n)))
		var sources []*source
		for _, l := range f.ls {
			src := following(l, nil)
			defer src.cancel()
			sources = append(sources, src)
			src.says(n)
		}
		f.greedy(time.Second + drawPause(rt))
		who := 0
		for _, s := range sizes {
			for range s {
				sources[who].says(s)
				who++
			}
		}
		f.greedy(hold - time.Millisecond)
		for i, l := range f.ls {
			if got := l.Stats().Pool.Replicas; got != n {
				rt.Fatalf("replica %d believes in %d of %d while the hold-down lasts", i, got, n)
			}
		}
		f.ledger.limit(perSecond(rate)*float64(len(sizes)), burst)
		f.greedy(time.Second + drawPause(rt))
		f.check(rt.Fatalf)
	})
}

// Whatever limits a fleet has had in a window, it admits no more than the largest, or one event for each replica.
func TestPropertyRaisedWindows(t *testing.T) {
	property(t, func(rt *rapid.T) {
		replicas, unit := rapid.IntRange(1, 7).Draw(rt, "replicas"), rapid.SampledFrom([]float64{1, .25}).Draw(rt, "unit")
		rate := func(name string, per time.Duration) quotient.Rate {
			return quotient.Rate{Name: name, Events: unit * float64(rapid.IntRange(1, 25).Draw(rt, "events")), Per: per,
				Aligned: true}
		}
		long := rapid.Bool().Draw(rt, "long")
		limit := func() quotient.Limit {
			if long {
				return quotient.Rates(rate("w", time.Second), rate("long", 7*time.Second))
			}
			return quotient.Rates(rate("w", time.Second))
		}
		now, fleet := limit(), []*quotient.Limiter(nil)
		for i := range replicas {
			p := quotient.Pool{Replicas: replicas, Ordinal: (i + 1) * rapid.IntRange(0, 1).Draw(rt, "ordinal")}
			fleet = append(fleet, mustNew(rt, now, quotient.StartPool(p), phase(int64(i)), few))
		}
		for range rapid.IntRange(1, 12).Draw(rt, "windows") {
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
			sum, most := 0, max(math.Ceil(now.Rates[0].Events), float64(replicas))
			for range rapid.IntRange(1, 8).Draw(rt, "steps") {
				if rapid.IntRange(0, 2).Draw(rt, "step") > 0 {
					l := rapid.SampledFrom(fleet).Draw(rt, "replica")
					_, n := l.TryAcquireUpTo("k", rapid.IntRange(1, 25).Draw(rt, "calls"))
					sum += n
					continue
				}
				now = limit()
				most = max(most, math.Ceil(now.Rates[0].Events))
				for _, l := range fleet {
					must(rt, l.SetLimit(now))
				}
			}
			if float64(sum) > most {
				rt.Fatalf("%d replicas have admitted %d of %v", replicas, sum, most)
			}
		}
	})
}

// Bound 9: a refused hint leaves the state as it was and is counted.
func TestPropertyRefusedHint(t *testing.T) {
	property(t, func(rt *rapid.T) {
		pool := drawPool(rt)
		limit := quotient.Rates(quotient.PerSecond(10))
		limit.InFlight = 7
		l := mustNew(rt, limit, quotient.StartPool(pool), few)
		bad := quotient.Pool{Replicas: rapid.OneOf(rapid.IntRange(-math.MaxInt, 0),
			rapid.IntRange(maxReplicas+1, math.MaxInt)).Draw(rt, "replicas")}
		if rapid.Bool().Draw(rt, "ordinal is bad") {
			bad.Replicas = rapid.IntRange(1, 9).Draw(rt, "good replicas")
			bad.Ordinal = rapid.OneOf(rapid.IntRange(-math.MaxInt, -1),
				rapid.IntRange(10, math.MaxInt)).Draw(rt, "bad ordinal")
		}
		before := l.Stats()
		err := l.SetPool(bad, 0)
		if s := l.Stats(); err == nil || !slices.Equal(s.Rules, before.Rules) || s.Version != before.Version ||
			s.Pool.Pool != pool || s.Pool.Rejected != 1 {
			rt.Fatalf("SetPool(%+v): error %v, %+v, before %+v", bad, err, s, before)
		}
	})
}
