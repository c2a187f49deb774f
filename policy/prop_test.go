package policy_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient/policy"
)

// everyController runs a property for the controllers of all policies.
func everyController(t *testing.T, property func(t *rapid.T, c contract)) {
	for _, c := range contracts {
		t.Run(c.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { property(t, c) })
		})
	}
}

// holds fails when the controller has broken a promise.
func (w *witness) holds(t fataler) {
	if w.broken != "" {
		t.Fatalf("%s: %s, at %+v", w.name, w.broken, w.at)
	}
}

// saneBounds are those of a limiter: a share or none, and a ceiling above it or none.
func saneBounds(t *rapid.T) policy.Bounds {
	b := policy.Bounds{Ceiling: math.Inf(1)}
	if rapid.Bool().Draw(t, "hint") {
		b.Share = math.Exp(rapid.Float64Range(-7, 20).Draw(t, "ln share"))
	}
	if rapid.Bool().Draw(t, "limit") {
		b.Ceiling = max(b.Share, 0.001) * math.Exp(rapid.Float64Range(0, 7).Draw(t, "room"))
	}
	return b
}

// saneQuota is what an honest upstream says, or nothing.
func saneQuota(t *rapid.T) policy.Quota {
	if rapid.IntRange(0, 2).Draw(t, "quota") == 0 {
		return policy.Quota{}
	}
	limit := rapid.Float64Range(1, 1e6).Draw(t, "quota's limit")
	return policy.Quota{
		Limit: limit, Remaining: limit * rapid.Float64Range(0, 1).Draw(t, "left"),
		Reset: time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "reset")),
	}
}

// later is a sample that follows one at now, of a request that was sent at any time before it. All requests
// cost the same.
func later(t *rapid.T, now time.Duration, cost float64) policy.Sample {
	now += time.Duration(math.Exp(rapid.Float64Range(7, 26).Draw(t, "ln ns later"))) // 1 µs to 3 minutes
	return policy.Sample{
		Outcome:    policy.Outcome(rapid.IntRange(0, 4).Draw(t, "outcome")),
		RetryAfter: time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "retry")),
		Quota:      saneQuota(t), Now: now,
		Sent:  time.Duration(rapid.Int64Range(0, int64(now)).Draw(t, "sent")),
		Cost:  cost * float64(rapid.IntRange(0, 1).Draw(t, "cost known")),
		Paced: rapid.IntRange(0, 3).Draw(t, "paced") > 0,
	}
}

// After a 429 the rate does not rise until an answer comes to a request that was sent after it, whatever else
// is answered. It stays in bounds, and follows from the seed and the samples.
func TestPropertySaneSamples(t *testing.T) {
	everyController(t, func(t *rapid.T, c contract) {
		w, b := c.witness(rapid.Uint64().Draw(t, "seed")), saneBounds(t)
		s, cost := policy.Sample{}, float64(rapid.IntRange(1, 100).Draw(t, "cost"))
		w.tell(s, b)
		for range rapid.IntRange(1, 60).Draw(t, "samples") {
			if rapid.IntRange(0, 19).Draw(t, "rebound") == 0 {
				b = saneBounds(t)
			}
			s = later(t, s.Now, cost)
			w.tell(s, b)
		}
		w.holds(t)
	})
}

// garbage is a sample without any sense: NaN, infinite and negative numbers, absurd times, a clock that
// jumps.
func garbage(t *rapid.T) policy.Sample {
	span := func(name string) time.Duration {
		return time.Duration(rapid.OneOf(rapid.Int64(),
			rapid.SampledFrom([]int64{0, -1, math.MaxInt64, math.MinInt64}),
			rapid.Int64Range(0, int64(time.Minute))).Draw(t, name))
	}
	return policy.Sample{
		Outcome: policy.Outcome(rapid.Uint8Range(0, 6).Draw(t, "outcome")), RetryAfter: span("retry"),
		Quota: policy.Quota{Limit: number("limit")(t), Remaining: number("left")(t), Reset: span("reset")},
		Now:   span("now"), Sent: span("sent"), Cost: anyCost(t), Paced: rapid.Bool().Draw(t, "paced"),
	}
}

// anyCost is nonsense, or the cost of some request. The limiter itself says what a request costs, and
// none costs less than one event.
func anyCost(t *rapid.T) float64 {
	return rapid.OneOf(rapid.SampledFrom(odd), rapid.Float64Range(1, 1e6)).Draw(t, "cost")
}

func garbageBounds(t *rapid.T) policy.Bounds {
	return policy.Bounds{Share: number("share")(t), Ceiling: number("ceiling")(t), Fleet: garbageFleet(t)}
}

// garbageFleet is any report, or nil.
func garbageFleet(t *rapid.T) *policy.Fleet {
	if rapid.Bool().Draw(t, "no news") {
		return nil
	}
	return &policy.Fleet{
		Weight: number("weight")(t), Limit: number("fleet's limit")(t), Wanting: number("wanting")(t),
		Rate: number("fleet's rate")(t), Used: number("used")(t), Refused: number("refused")(t),
	}
}

// Whatever samples a controller gets, it answers with a finite rate, within bounds where there are any. When
// the nonsense is over it finds back to the limit of its upstream, on a clock that starts again.
func TestPropertyGarbageIsSurvived(t *testing.T) {
	everyController(t, func(t *rapid.T, c contract) {
		w := c.witness(rapid.Uint64().Draw(t, "seed"))
		if rapid.Bool().Draw(t, "good start") {
			w.tell(policy.Sample{}, policy.Bounds{Ceiling: math.Inf(1)})
		}
		b := garbageBounds(t)
		for range rapid.IntRange(1, 40).Draw(t, "samples") {
			if rapid.IntRange(0, 4).Draw(t, "rebound") == 0 {
				b = garbageBounds(t)
			}
			w.tell(garbage(t), b)
		}
		w.holds(t)
		recovers(t, w, rapid.Uint64().Draw(t, "upstream"))
	})
}

// recovers fails unless the controller comes back to the use of an upstream that tells the truth. It has 20
// minutes beyond the hour for which a limiter keeps a gate closed at most.
func recovers(t *rapid.T, w *witness, seed uint64) {
	const limit = 20
	up := newUpstream(t, limit, seed)
	b := policy.Bounds{Ceiling: math.Inf(1)}
	if rapid.Bool().Draw(t, "share known") {
		b = policy.Bounds{Share: limit, Ceiling: limit}
	}
	r := up.join(w, b)
	gates := time.Duration(0)
	if r.notBefore > 0 {
		gates = r.notBefore
	}
	up.now = max(0, gates-time.Second) // nothing happens behind a gate
	up.run(20 * time.Minute)
	before, sent := r.served, r.sent
	up.run(time.Minute)
	r.ctrl.holds(t)
	served := float64(r.served-before) / 60
	if refused := 1 - float64(r.served-before)/float64(r.sent-sent); served < limit/2 || refused > 0.25 {
		t.Fatalf("%s: 20 minutes after the last nonsense it uses %.3g of %d a second at a rate of %.3g, and "+
			"%.0f %% are refused",
			w.name, served, limit, r.rate, 100*refused)
	}
}

// spread is how far apart the rates are at which equal replicas start: so many times below and above the fair
// one.
const spread = 10

// Equal replicas come within a minute to rates that are equal over the five that follow. That holds whatever
// each of them has lived through, and whether they know their share or not. Over less than that the probing
// of each alone shows.
func TestEqualReplicasBecomeEqual(t *testing.T) {
	const n, limit, seeds = 20, 100, 8
	for _, c := range contracts {
		for name, b := range map[string]policy.Bounds{
			"equal hint": {Share: limit / n, Ceiling: limit},
			"no hint":    {Ceiling: limit},
		} {
			t.Run(c.name+", "+name, func(t *testing.T) {
				worst, mean := 1.0, 0.0
				for seed := range uint64(seeds) {
					j := afterAMinute(t, c, b, n, limit, seed)
					worst, mean = min(worst, j), mean+j/seeds
				}
				t.Logf("Jain's index of %d replicas over five minutes after the first: %.3f, at worst "+
					"%.3f of %d runs", n, mean, worst, seeds)
				if mean < c.jain || worst < c.jain-0.03 {
					t.Errorf("Jain's index is %.3f, at worst %.3f, want %.2f or more", mean, worst, c.jain)
				}
			})
		}
	}
}

// afterAMinute starts n replicas at very different rates, and returns how fairly they are served in
// the five minutes after their first.
func afterAMinute(t *testing.T, c contract, b policy.Bounds, n int, limit float64, seed uint64) float64 {
	up := newUpstream(t, limit, seed)
	fair := limit / float64(n)
	for range n {
		w := c.witness(up.rng.Uint64())
		start := fair * math.Pow(spread, 2*up.rng.Float64()-1)
		w.tell(policy.Sample{}, policy.Bounds{Share: start, Ceiling: limit})
		up.join(w, b)
	}
	up.run(time.Minute)
	before := up.served()
	up.run(5 * time.Minute)
	after, total := up.served(), 0.0
	for i := range after {
		after[i] -= before[i]
		total += after[i]
		up.replicas[i].ctrl.holds(t)
	}
	if total < 0.7*limit*300 {
		t.Errorf("seed %d: %v of %v were served", seed, total, limit*300)
	}
	return jain(after)
}

// jain is Jain's index of fairness: 1 when all are equal, 1/n when one has all.
func jain(x []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, v := range x {
		sum += v
		squares += v * v
	}
	return sum * sum / (float64(len(x)) * squares)
}
