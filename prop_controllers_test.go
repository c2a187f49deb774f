package quotient

import (
	"context"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Controllers may answer anything and limits may change at will. Each pace is finite, positive and at most
// at the ceiling of its controller. No pause is longer than an hour, and the slots are those of the replica
// at most.
func TestPropertyPacesStayInBounds(t *testing.T) {
	property(t, func(rt *rapid.T) {
		c := rapid.SampledFrom([]bool{withinShare, beyondShare}).Draw(rt, "ceiling")
		opts := []Option{policyOf(drawAdversary(rt), c), few}
		if rapid.Bool().Draw(rt, "pool is set") {
			opts = append(opts, StartPool(drawPool(rt)))
		}
		l := mustNew(rt, drawLimit(rt), opts...)
		var permits []Permit
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 11).Draw(rt, "what") {
			case 0:
				must(rt, l.SetPool(drawPool(rt), 0))
			case 1:
				must(rt, l.SetLimit(drawLimit(rt)))
			case 2:
				must(rt, l.SetLimit(Limit{Deny: true}))
				must(rt, l.SetLimit(drawLimit(rt)))
			case 3, 4:
				time.Sleep(drawPause(rt))
			case 5, 6, 7:
				if n := len(permits); n > 0 {
					permits[n-1].Done(drawFeedback(rt))
					permits = permits[:n-1]
				}
			default:
				if p, d := l.TryAcquire(key(rapid.IntRange(0, 2).Draw(rt, "key")),
					Weight(rapid.IntRange(1, 3).Draw(rt, "weight"))); d.OK {
					permits = append(permits, p)
				}
			}
			for range l.Keys() { // brings all up to date
			}
			for _, g := range l.shards[0].order.Keys() {
				boundedPaces(rt, l, g)
			}
		}
	})
}

func boundedPaces(rt *rapid.T, l *Limiter, g *gate) {
	st, m := g.setting, g.ext.learned
	if len(m.pacers) != len(st.ctrls) {
		rt.Fatalf("%d pacers, %d controllers", len(m.pacers), len(st.ctrls))
	}
	if st.limit.InFlight > 0 && st.slots > 0 && (m.slots > st.slots || m.slots < 1) {
		rt.Fatalf("%d slots of %d", m.slots, st.slots)
	}
	for i := range m.pacers {
		p, most := &m.pacers[i], st.ctrls[i].bounds.Ceiling
		if !(p.pace > 0 && p.pace <= most && p.pace <= maxEvents) {
			rt.Fatalf("controller %d: a pace of %v, ceiling %v", i, p.pace, most)
		}
		if has := p.has(since(l), &p.fill); has > p.size || math.IsNaN(has) || math.IsInf(has, -1) {
			rt.Fatalf("controller %d: %v events in a bucket of %v", i, has, p.size)
		}
		if p.pausedUntil > since(l)+time.Hour || p.pausedUntil != 0 && m.due < p.pausedUntil {
			rt.Fatalf("controller %d: paused until %v, now is %v", i, p.pausedUntil, since(l))
		}
	}
}

// No caller waits for ever, whatever controllers answer, and all controllers are forgotten in the end. An
// hour is the longest pause; then come ten minutes without feedback, after which a key runs as if it were
// new.
func TestPropertyWaitersUnderAnyController(t *testing.T) {
	property(t, func(rt *rapid.T) {
		l := mustNew(rt, Limit{Rates: []Rate{drawRate(rt, "r")},
			InFlight: rapid.IntRange(1, 4).Draw(rt, "slots")},
			Policy(adversary{rapid.Uint64().Draw(rt, "adversary"), true}), BeyondShare(), few)
		var wait []chan struct{}
		for range rapid.IntRange(1, 12).Draw(rt, "callers") {
			done := make(chan struct{})
			wait = append(wait, done)
			hold, f, weight := drawPause(rt), drawFeedback(rt),
				rapid.IntRange(1, l.Stats().Limit.InFlight).Draw(rt, "weight")
			go func() {
				defer close(done)
				p, err := l.Acquire(context.Background(), "k",
					Weight(min(weight, int(l.Stats().Limit.Rates[0].burst()))))
				if err != nil {
					rt.Errorf("not admitted: %v", err)
				}
				time.Sleep(hold)
				p.Done(f)
			}()
		}
		for _, done := range wait {
			<-done
		}
		time.Sleep(2 * time.Hour)
		for ks := range l.Keys() {
			k := ks.Key
			if start := l.shards[0].setting.ctrls[0].start; ks.pace() != start || ks.InFlight != 0 ||
				ks.Waiting != 0 {
				rt.Fatalf("%s: %+v, want a pace of %v and no caller", k, ks, start)
			}
		}
	})
}
