package quotient

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// Failure modes 14, 15: whatever a source says and however it fails, the size in force is the largest of
// those that were good and counted within the last hold-down.
func TestPropertyDamping(t *testing.T) {
	property(t, func(rt *rapid.T) {
		hold := time.Duration(rapid.IntRange(0, 3000).Draw(rt, "hold-down")) * time.Millisecond
		l := mustNew(rt, Rates(PerSecond(10)), HoldDown(hold), Replicas(7))
		type reported struct {
			n     int
			until time.Time // zero: it still counts
		}
		var reports []reported
		src := following(rt, l)
		defer src.cancel()
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			time.Sleep(time.Duration(rapid.IntRange(1, 2000).Draw(rt, "pause")) * time.Millisecond)
			n := rapid.SampledFrom([]int{1, 2, 3, 5, 8, 13, 0, -4, maxReplicas + 1}).Draw(rt, "says")
			fails := rapid.IntRange(0, 3).Draw(rt, "fails") == 0
			if fails {
				src.report(Pool{Replicas: n}, errors.New("no answer"))
			} else {
				src.says(n)
			}
			synctest.Wait()
			if p := (Pool{Replicas: n}); !fails && p.validate() == nil {
				if k := len(reports); k > 0 {
					reports[k-1].until = time.Now()
				}
				reports = append(reports, reported{n: n})
			}
			most := 7
			if k := len(reports); k > 0 {
				most = reports[k-1].n
				for _, o := range reports[:k-1] {
					if time.Since(o.until) < hold {
						most = max(most, o.n)
					}
				}
			}
			if got := l.Stats().Pool.Replicas; got != most {
				rt.Fatalf("%d in force, want %d of %+v", got, most, reports)
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
		var fleet []*Limiter
		var sources []*spoken
		for range n {
			l := mustNew(rt, Rates(rate), Replicas(n), HoldDown(hold), few)
			src := following(rt, l)
			defer src.cancel()
			fleet, sources = append(fleet, l), append(sources, src)
		}
		var m meter
		m.limit(rate.perSecond(), max(rate.burst(), float64(n)))
		greedy := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(d / 9) {
				for _, l := range fleet {
					_, got := l.TryAcquireUpTo("k", 100)
					m.add(got)
				}
			}
		}
		for _, src := range sources {
			src.says(n)
		}
		greedy(time.Second + drawPause(rt))
		who := 0
		for _, s := range sizes {
			for range s {
				sources[who].says(s)
				who++
			}
		}
		greedy(hold - time.Millisecond)
		for i, l := range fleet {
			if got := l.Stats().Pool.Replicas; got != n {
				rt.Fatalf("replica %d believes in %d of %d while the hold-down lasts", i, got, n)
			}
		}
		m.limit(rate.perSecond()*float64(len(sizes)), burst)
		greedy(time.Second + drawPause(rt))
		m.check(rt.Fatalf)
	})
}
