package quotient

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Bound 2: the fleet admits at most R w + max(B, N) in any window while every replica believes in at least
// as many as there are. So new replicas are announced first and start empty, and leavers are announced last.
func TestPropertyFleet(t *testing.T) {
	property(t, func(rt *rapid.T) {
		rate := drawRate(rt, "r")
		n, ctrl := rapid.IntRange(1, 5).Draw(rt, "replicas"), drawPolicy(rt)
		most := n
		var fleet []*Limiter
		for range n {
			fleet = append(fleet, mustNew(rt, Rates(rate), Replicas(n), ctrl, few))
		}
		announce := func(n int) {
			for _, l := range fleet {
				must(rt, l.SetPool(Pool{Replicas: n}, 0))
			}
		}
		var m meter
		m.limit(rate.perSecond(), 0)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch rapid.IntRange(0, 7).Draw(rt, "what") {
			case 0:
				if n < 8 {
					n++
					most = max(most, n)
					announce(n)
					time.Sleep(drawPause(rt))
					fleet = append(fleet, mustNew(rt, Rates(rate), Replicas(n), StartEmpty(), ctrl, few))
				}
			case 1:
				if n > 1 {
					n--
					fleet = fleet[1:]
					time.Sleep(drawPause(rt))
					announce(n)
				}
			case 2:
				time.Sleep(drawPause(rt))
			default:
				l := fleet[rapid.IntRange(0, len(fleet)-1).Draw(rt, "who")]
				p, got := l.TryAcquireUpTo("k", rapid.IntRange(1, 12).Draw(rt, "up to"))
				m.add(got)
				p.Done(drawFeedback(rt))
			}
		}
		m.extra = max(rate.burst(), float64(most))
		m.check(rt.Fatalf)
	})
}

// Bound 3: a scale-up that is seen D late costs at most R D (N1/N0 - 1), once.
func TestPropertyLateScaleUp(t *testing.T) {
	property(t, func(rt *rapid.T) {
		rate := drawRate(rt, "r")
		n0 := rapid.IntRange(1, 4).Draw(rt, "n0")
		n1 := n0 + rapid.IntRange(1, 4).Draw(rt, "joiners")
		late := drawPause(rt)
		var fleet []*Limiter
		for range n0 {
			fleet = append(fleet, mustNew(rt, Rates(rate), Replicas(n0), few))
		}
		var m meter
		m.limit(rate.perSecond(), 0)
		greedy := func(d time.Duration) {
			for end := time.Now().Add(d); ; time.Sleep(max(d/7, time.Millisecond)) {
				for _, l := range fleet {
					_, got := l.TryAcquireUpTo("k", 100)
					m.add(got)
				}
				if !time.Now().Before(end) {
					return
				}
			}
		}
		greedy(drawPause(rt))
		for len(fleet) < n1 {
			fleet = append(fleet, mustNew(rt, Rates(rate), Replicas(n1), StartEmpty(), few))
		}
		began := time.Now()
		greedy(late)
		seen := time.Since(began)
		for _, l := range fleet {
			must(rt, l.SetPool(Pool{Replicas: n1}, 0))
		}
		greedy(drawPause(rt))
		m.extra = max(rate.burst(), float64(n1)) + rate.perSecond()*seen.Seconds()*(float64(n1)/float64(n0)-1)
		m.check(rt.Fatalf)
	})
}

// Bound 11: with ordinals the fleet's windows are exact to the event under full demand, fractions
// carried; without, they stay below max(Events, N). Nothing comes before the window it belongs to.
func TestPropertyAligned(t *testing.T) {
	property(t, func(rt *rapid.T) {
		rate := Rate{
			Name: "w", Per: time.Minute, Aligned: true,
			Events: float64(rapid.IntRange(1, 400).Draw(rt, "tenths")) / 10,
		}
		n := rapid.IntRange(1, 7).Draw(rt, "replicas")
		ordered := rapid.Bool().Draw(rt, "ordinals")
		var fleet []*Limiter
		for i := range n {
			p := Pool{Replicas: n}
			if ordered {
				p.Ordinal = i + 1
			}
			fleet = append(fleet, mustNew(rt, Rates(rate), StartPool(p), few))
		}
		taken := map[int64]int{}
		first := time.Now().UnixNano() / int64(time.Minute)
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			time.Sleep(time.Duration(rapid.IntRange(0, 59).Draw(rt, "seconds")) * time.Second)
			for _, l := range fleet {
				for l.Allow("k") {
					taken[time.Now().UnixNano()/int64(time.Minute)]++
				}
			}
		}
		c := schedule{per: int64(time.Minute), events: uint64(thousandths(rate.Events)), replicas: 1,
			ordinal: 1, weight: 1}
		for k, got := range taken {
			switch {
			case ordered && int64(got) != c.quota(k):
				rt.Fatalf("window %d: %d admitted, want exactly %d", k-first, got, c.quota(k))
			case !ordered && float64(got) > max(rate.Events, float64(n)):
				rt.Fatalf("window %d: %d admitted, bound max(%v, %d)", k-first, got, rate.Events, n)
			}
		}
	})
}
