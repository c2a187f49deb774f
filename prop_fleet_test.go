package quotient

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// fleet is limiters of one limit, and what all of them admit.
type fleet struct {
	*rapid.T
	ledger
	limit Limit
	opts  []Option
	ls    []*Limiter
}

func (f *fleet) add(n int, opts ...Option) {
	for range n {
		f.ls = append(f.ls, mustNew(f, f.limit, slices.Concat(f.opts, opts)...))
	}
}

// believes has all replicas believe in n without ordinals.
func (f *fleet) believes(n int) {
	for _, l := range f.ls {
		must(f, l.SetPool(Pool{Replicas: n}, 0))
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
		f := fleet{T: rt, limit: Rates(rate), opts: []Option{drawPolicy(rt), few}}
		f.ledger.limit(rate.perSecond(), 0)
		f.add(n, Replicas(n))
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch rapid.IntRange(0, 7).Draw(rt, "what") {
			case 0:
				if n < 8 {
					n++
					most = max(most, n)
					f.believes(n)
					time.Sleep(drawPause(rt))
					f.add(1, Replicas(n), StartEmpty())
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
		f.extra = max(rate.burst(), float64(most))
		f.check(rt.Fatalf)
	})
}

// Bound 3: a scale-up that is seen D late costs at most R D (N1/N0 - 1), once.
func TestPropertyLateScaleUp(t *testing.T) {
	property(t, func(rt *rapid.T) {
		rate := drawRate(rt, "r")
		n0 := rapid.IntRange(1, 4).Draw(rt, "n0")
		n1 := n0 + rapid.IntRange(1, 4).Draw(rt, "joiners")
		f := fleet{T: rt, limit: Rates(rate), opts: []Option{few}}
		f.ledger.limit(rate.perSecond(), 0)
		f.add(n0, Replicas(n0))
		f.greedy(drawPause(rt))
		f.add(n1-n0, Replicas(n1), StartEmpty())
		began := time.Now()
		f.greedy(drawPause(rt))
		late := rate.perSecond() * time.Since(began).Seconds() * (float64(n1)/float64(n0) - 1)
		f.believes(n1)
		f.greedy(drawPause(rt))
		f.extra = max(rate.burst(), float64(n1)) + late
		f.check(rt.Fatalf)
	})
}

// Bound 5: over the fleet at most G are in flight while every replica believes in at least as many as there
// are. It holds once permits issued before the last change of the pool are released. With AtLeastOne it is at
// most max(G, N). One replica never exceeds its own slots.
func TestPropertyInFlight(t *testing.T) {
	type out struct {
		Permit
		by    *Limiter
		since int // so many changes of the pool
	}
	property(t, func(rt *rapid.T) {
		f := fleet{T: rt, limit: Limit{InFlight: rapid.IntRange(1, 12).Draw(rt, "G")},
			opts: []Option{few, drawPolicy(rt)}}
		atLeastOne := rapid.Bool().Draw(rt, "at least one")
		if atLeastOne {
			f.opts = append(f.opts, AtLeastOne())
		}
		changes := 0
		resize := func(n int) {
			if n == len(f.ls) {
				return
			}
			for len(f.ls) < n {
				f.add(1, StartEmpty())
			}
			f.ls = f.ls[:n] // the last leave, and their requests end with them
			for i, l := range f.ls {
				must(rt, l.SetPool(Pool{Replicas: n, Ordinal: i + 1, Fixed: true}, 0))
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
				if p, d := l.TryAcquire("k", Weight(rapid.IntRange(1, 3).Draw(rt, "weight"))); d.OK {
					held = append(held, out{p, l, changes})
				}
			}
			held = slices.DeleteFunc(held, func(o out) bool { return !slices.Contains(f.ls, o.by) })
			total, anyOld := 0, false
			for i, l := range f.ls {
				old := slices.ContainsFunc(held, func(o out) bool { return o.by == l && o.since < changes })
				in, most := l.Stats().InFlight, l.newest().slots
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
			burst += max(rate.burst(), float64(s))
		}
		f := fleet{T: rt, limit: Rates(rate), opts: []Option{Replicas(n), HoldDown(hold), few}}
		f.add(n)
		f.ledger.limit(rate.perSecond(), max(rate.burst(), float64(n)))
		var sources []*spoken
		for _, l := range f.ls {
			src := following(rt, l)
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
		f.ledger.limit(rate.perSecond()*float64(len(sizes)), burst)
		f.greedy(time.Second + drawPause(rt))
		f.check(rt.Fatalf)
	})
}

// drawFleet is the pools of a fleet of replicas with weights, with ordinals in a row.
func drawFleet(t *rapid.T, most, heaviest int) []Pool {
	fleet := make([]Pool, rapid.IntRange(1, most).Draw(t, "replicas"))
	n := 0
	for i := range fleet {
		w := rapid.IntRange(1, heaviest).Draw(t, "weight")
		fleet[i] = Pool{Ordinal: n + 1, Fixed: true, Weight: w}
		n += w
	}
	for i := range fleet {
		fleet[i].Replicas = n
	}
	return fleet
}

// singles are the pools of the replicas that one of a weight stands for.
func (p Pool) singles() (all []Pool) {
	for i := range p.weight() {
		all = append(all, Pool{Replicas: p.Replicas, Ordinal: p.Ordinal + i, Fixed: p.Fixed})
	}
	return all
}

// Whatever limits a fleet has had in a window, it admits no more than the largest, or one event for each replica.
func TestPropertyRaisedWindows(t *testing.T) {
	property(t, func(rt *rapid.T) {
		replicas, unit := rapid.IntRange(1, 7).Draw(rt, "replicas"), rapid.SampledFrom([]float64{1, .25}).Draw(rt, "unit")
		rate := func(name string, per time.Duration) Rate {
			return named(name, aligned(unit*float64(rapid.IntRange(1, 25).Draw(rt, "events")), per))
		}
		long := rapid.Bool().Draw(rt, "long")
		limit := func() Limit {
			if long {
				return Rates(rate("w", time.Second), rate("long", 7*time.Second))
			}
			return Rates(rate("w", time.Second))
		}
		now, fleet := limit(), []*Limiter(nil)
		for i := range replicas {
			p := Pool{Replicas: replicas, Ordinal: (i + 1) * rapid.IntRange(0, 1).Draw(rt, "ordinal")}
			fleet = append(fleet, mustNew(rt, now, StartPool(p), WithPhase(int64(i)), few))
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

// without is the pool without its ordinal.
func (p Pool) without() Pool { return Pool{Replicas: p.Replicas, Weight: p.Weight} }

// ruleOf is the share of the only rate of a limit that a replica has.
func ruleOf(r Rate, p Pool) rule {
	o := defaults()
	return o.resolve(Rates(r), belief{pool: p, sized: true}, []string{""}, 0).rules[0]
}

// A replica of weight w has the shares of w replicas, and those of a fleet add up to the limit.
func TestPropertyWeights(t *testing.T) {
	property(t, func(rt *rapid.T) {
		fleet := drawFleet(rt, 6, rapid.SampledFrom([]int{1, 3, 50}).Draw(rt, "heaviest"))
		weighsBuckets(rt, fleet)
		weighsSlots(rt, fleet)
	})
}

func weighsBuckets(rt *rapid.T, fleet []Pool) {
	rate := Rate{Events: float64(rapid.IntRange(1, 1000).Draw(rt, "events")), Per: time.Second,
		Burst: rapid.IntRange(2, 500).Draw(rt, "burst")}
	perSecond, most, share := 0.0, 0.0, 0.0
	for _, p := range fleet {
		x, one := ruleOf(rate, p), ruleOf(rate, p.singles()[0])
		perSecond, most, share = perSecond+1e9/x.Interval, most+x.Size, share+x.share
		if w := float64(p.Weight); math.Abs(x.Interval*w/one.Interval-1) > 1e-12 || x.Size < one.Size ||
			x.Size > one.Size*w*(1+1e-12) {
			rt.Fatalf("%+v: an event every %v ns, and %v at once; one replica %v, %v", p, x.Interval, x.Size,
				one.Interval, one.Size)
		}
	}
	bound := math.Max(float64(rate.Burst), float64(fleet[0].Replicas))
	if most > bound*(1+1e-9) || math.Abs(perSecond/rate.Events-1) > 1e-9 ||
		math.Abs(share/rate.Events-1) > 1e-9 {
		rt.Fatalf("%+v: %v a second, share %v, %v at once, of %+v", fleet, perSecond, share, most, rate)
	}
}

func weighsSlots(rt *rapid.T, fleet []Pool) {
	o := defaults()
	global := rapid.IntRange(1, 400).Draw(rt, "slots")
	exact, mixed := 0, 0
	for _, p := range fleet {
		sum := 0
		for _, one := range p.singles() {
			sum += o.slots(global, one)
		}
		own, least := o.slots(global, p), o.slots(global, p.without())
		if own != sum || least > own {
			rt.Fatalf("%+v: %d of %d slots, %d without an ordinal; its singles have %d", p, own, global,
				least, sum)
		}
		larger := p
		if larger.Replicas += rapid.IntRange(0, 9).Draw(rt, "more"); o.slots(global, larger) > own {
			rt.Fatalf("%d slots in %+v, and %d in %+v", own, p, o.slots(global, larger), larger)
		}
		if exact += own; rapid.Bool().Draw(rt, "without ordinal") {
			own = least
		}
		mixed += own
	}
	if exact != global || mixed > global {
		rt.Fatalf("%+v: %d of %d slots, and some without ordinals %d", fleet, exact, global, mixed)
	}
}

// Explain says as how many replicas this one counts.
func TestExplainReportsTheWeight(t *testing.T) {
	l := mustNew(t, Limit{InFlight: 10}, StartPool(Pool{Replicas: 10, Ordinal: 4, Weight: 3}))
	says(t, errors.New(l.Explain("k").String()), "10 replicas, of which this one is 3, ordinal 4")
}

// Bound 9: a refused hint leaves the state as it was and is counted.
func TestPropertyRefusedHint(t *testing.T) {
	property(t, func(rt *rapid.T) {
		pool := drawPool(rt)
		l := mustNew(rt, Limit{Rates: []Rate{PerSecond(10)}, InFlight: 7}, StartPool(pool), few)
		bad := Pool{
			Replicas: rapid.OneOf(rapid.IntRange(-math.MaxInt, 0), rapid.IntRange(maxReplicas+1, math.MaxInt)).Draw(rt,
				"replicas"),
			Ordinal: rapid.Int().Draw(rt, "ordinal"),
		}
		if rapid.Bool().Draw(rt, "ordinal is bad") {
			bad.Replicas = rapid.IntRange(1, 9).Draw(rt, "good replicas")
			bad.Ordinal = rapid.OneOf(rapid.IntRange(-math.MaxInt, -1), rapid.IntRange(10, math.MaxInt)).Draw(rt,
				"bad ordinal")
		}
		before := l.newest()
		err := l.SetPool(bad, 0)
		if err == nil || l.newest() != before || l.Stats().Pool.Pool != pool ||
			l.Stats().Pool.Rejected != 1 {
			rt.Fatalf("SetPool(%+v): error %v, pool %+v, rejected %d", bad, err, l.Stats().Pool.Pool,
				l.Stats().Pool.Rejected)
		}
	})
}
