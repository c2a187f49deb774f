package judge

import (
	"math"
	"slices"
	"testing"
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
				Kind: quotient.Window}
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
			stop(rt, float64(sum) > most, "%d replicas have admitted %d of %v", replicas, sum, most)
		}
	})
}
