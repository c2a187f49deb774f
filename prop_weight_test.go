package quotient

import (
	"math"
	"math/big"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

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

// without is the pool without its ordinal.
func (p Pool) without() Pool { return Pool{Replicas: p.Replicas, Weight: p.Weight} }

// ruleOf is the share of the only rate of a limit that a replica has.
func ruleOf(r Rate, p Pool) rule {
	o := defaults()
	return o.resolve(rated(r), belief{pool: p, sized: true}, []string{""}, 0).rules[0]
}

// A replica of weight w has the shares of w replicas, and those of a fleet add up to the limit.
func TestPropertyWeights(t *testing.T) {
	property(t, func(rt *rapid.T) {
		fleet := drawFleet(rt, 6, rapid.SampledFrom([]int{1, 3, 50}).Draw(rt, "heaviest"))
		weighsBuckets(rt, fleet)
		weighsSlots(rt, fleet)
		weighsWindows(rt, fleet)
	})
}

func weighsBuckets(rt *rapid.T, fleet []Pool) {
	rate := Rate{Events: float64(rapid.IntRange(1, 1000).Draw(rt, "events")), Per: time.Second,
		Burst: rapid.IntRange(2, 500).Draw(rt, "burst")}
	perSecond, most, share := 0.0, 0.0, 0.0
	for _, p := range fleet {
		x, one := ruleOf(rate, p), ruleOf(rate, p.singles()[0])
		perSecond, most, share = perSecond+1e9/x.interval, most+x.size, share+x.share
		if w := float64(p.Weight); math.Abs(x.interval*w/one.interval-1) > 1e-12 || x.size < one.size ||
			x.size > one.size*w*(1+1e-12) {
			rt.Fatalf("%+v: an event every %v ns, and %v at once; one replica %v, %v", p, x.interval, x.size,
				one.interval, one.size)
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

func weighsWindows(rt *rapid.T, fleet []Pool) {
	rate := Rate{Events: float64(rapid.IntRange(1, 40_000).Draw(rt, "thousandths")) / 1000, Per: time.Second,
		Aligned: true}
	k := rapid.OneOf(rapid.Int64Range(-5000, 5000), rapid.Int64Range(1<<40, 1<<41)).Draw(rt, "window")
	exact, least := int64(0), int64(0)
	for _, p := range fleet {
		c := ruleOf(rate, p).schedule
		sum, mean := int64(0), 0.0
		for _, one := range p.singles() {
			single := ruleOf(rate, one).schedule
			sum, mean = sum+single.quota(k), mean+single.mean()
		}
		if got := c.quota(k); got != sum || math.Abs(c.mean()/mean-1) > 1e-9 || got == 0 && !c.sparse() {
			rt.Fatalf("%+v: %d in window %d, mean %v, sparse %v; its singles have %d, %v", p, got, k,
				c.mean(), c.sparse(), sum, mean)
		}
		exact += sum
		n := rapid.Int64Range(0, 60).Draw(rt, "windows")
		without := ruleOf(rate, p.without()).schedule
		least += without.quota(k)
		for _, s := range []*schedule{c, without} {
			all, none := 0.0, false
			for i := range n {
				q := s.quota(k + i)
				all, none = all+float64(q), none || q == 0
			}
			if got := s.sum(k, k+n); got != all || none && !s.sparse() {
				rt.Fatalf("%+v: %v from window %d on in %d, want %v; sparse %v", s, got, k, n, all,
					s.sparse())
			}
		}
	}
	if want := total(thousandths(rate.Events), k); exact != want {
		rt.Fatalf("%+v: %d in window %d, want %d", fleet, exact, k, want)
	}
	if most := max(rate.Events, float64(fleet[0].Replicas)); float64(least) > most {
		rt.Fatalf("%+v: %d in window %d without ordinals, at most %v", fleet, least, k, most)
	}
}

// The largest numbers that are let through do not overflow under a weight: quotas are those of plain
// arithmetic without a bound.
func TestWeightsAtTheEdges(t *testing.T) {
	big0 := func(n int64) *big.Int { return big.NewInt(n) }
	for _, p := range []Pool{
		{Replicas: maxReplicas, Ordinal: 1, Weight: maxReplicas},
		{Replicas: maxReplicas, Ordinal: 2, Weight: maxReplicas - 1},
		{Replicas: maxReplicas, Ordinal: 500_000, Weight: 300_001},
		{Replicas: 999_983, Ordinal: 1, Weight: 2}, {Replicas: 7, Ordinal: 3, Weight: 4},
	} {
		for _, events := range []float64{maxEvents, 999_999_999_999.999, 1, .001, 1e6 + .5} {
			c := ruleOf(Rate{Events: events, Per: time.Hour, Aligned: true}, p).schedule
			upTo := func(k int64) *big.Int { // the sum over its ordinals of floor((kE + j)/N), in thousandths
				sum := new(big.Int)
				for _, j := range []int{p.Ordinal - 2, p.Ordinal + p.Weight - 2} {
					// sum over j' <= j of floor((x+j')/N), x = floor(kE): Hermite's pieces, by whole and rest
					x := new(big.Int).Mul(big0(k), new(big.Int).SetUint64(c.events))
					q, r := new(big.Int).DivMod(x.Div(x, big0(milli)), big0(int64(p.Replicas)), new(big.Int))
					part := q.Mul(q, big0(int64(j+1)))
					part.Add(part, big0(max(0, int64(j)-(int64(p.Replicas)-r.Int64())+1)))
					sum.Sub(part, sum)
				}
				return sum
			}
			for _, k := range []int64{0, 1, 999_999, 123_456_789} {
				want := new(big.Int).Sub(upTo(k+1), upTo(k))
				if got := c.quota(k); !want.IsInt64() || got != want.Int64() {
					t.Errorf("%+v, %v events: %d in window %d, want %v", p, events, got, k, want)
				}
			}
			got, want := c.sum(0, 1000*int64(p.Replicas)), float64(c.events)*float64(p.Weight)
			if math.Abs(got/want-1) > 1e-12 {
				t.Errorf("%+v, %v events: %v in a cycle, want %v", p, events, got, want)
			}
			c = ruleOf(Rate{Events: events, Per: time.Hour, Aligned: true}, p.without()).schedule
			if q, mean := float64(c.quota(5)), c.mean(); q < 0 || q > max(1, mean*(1+1e-12)) ||
				q < mean*(1-1e-12)-1 {
				t.Errorf("%+v, %v events: %v without an ordinal, mean %v", p, events, q, c.mean())
			}
		}
	}
}

// The smallest share that was reported within the hold-down counts, whatever pool and weight it came of.
func TestPropertyDampingOfWeights(t *testing.T) {
	property(t, func(rt *rapid.T) {
		hold := time.Duration(rapid.IntRange(0, 3000).Draw(rt, "hold-down")) * time.Millisecond
		l := mustNew(rt, Rates(PerSecond(1000)), HoldDown(hold))
		src := following(rt, l)
		defer src.cancel()
		type reported struct {
			p     Pool
			until time.Time
		}
		var reports []reported
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			time.Sleep(time.Duration(rapid.IntRange(1, 2000).Draw(rt, "pause")) * time.Millisecond)
			p := Pool{Replicas: rapid.IntRange(1, 12).Draw(rt, "replicas")}
			p.Weight = rapid.IntRange(0, min(4, p.Replicas)).Draw(rt, "weight")
			p.Ordinal = rapid.IntRange(0, p.Replicas-p.weight()+1).Draw(rt, "ordinal")
			p.Fixed = p.Ordinal > 0 && rapid.Bool().Draw(rt, "fixed")
			if n := len(reports); n > 0 {
				reports[n-1].until = time.Now()
			}
			reports = append(reports, reported{p: p})
			src.saysPool(p)
			synctest.Wait()
			got, parts, others := l.Stats().Pool.Pool, p.parts(), false
			for _, o := range reports[:len(reports)-1] {
				if time.Since(o.until) < hold && o.p.parts() > parts*(1+1e-12) {
					parts, others = o.p.parts(), true
				}
			}
			want := int(math.Ceil(parts*float64(p.weight()) - 1e-9))
			if got.validate() != nil || got.Replicas != want || got.Weight != p.Weight {
				rt.Fatalf("%+v in force, want %d replicas of %+v", got, want, reports)
			}
			if p.Fixed && got.Ordinal != p.Ordinal || others && !p.Fixed && got.Ordinal != 0 {
				rt.Fatalf("%+v in force after %+v", got, p)
			}
		}
	})
}

// A change of weight is a change of the share: a raise waits for the hold-down, a cut counts at once.
func TestFollowDampsWeights(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(120, 120)))
		src := following(t, l)
		defer src.cancel()
		for _, c := range []struct {
			after time.Duration
			says  Pool
			share float64
		}{
			{0, Pool{Replicas: 4, Weight: 2}, 60}, {1, Pool{Replicas: 4, Weight: 1}, 30},
			{1, Pool{Replicas: 4, Weight: 3}, 30},
			{29, Pool{}, 30}, {1, Pool{}, 90}, {1, Pool{Replicas: 8, Weight: 6}, 90},
			{1, Pool{Replicas: 8, Weight: 1}, 15},
			{1, Pool{Replicas: 2, Weight: 1}, 15}, {29, Pool{Replicas: 3, Weight: 1}, 15}, {1, Pool{}, 40},
		} {
			time.Sleep(c.after * time.Second)
			if c.says != (Pool{}) {
				src.saysPool(c.says)
			}
			synctest.Wait()
			if got := l.Stats().Rules[0].Share; math.Abs(got-c.share) > 1e-9 {
				t.Errorf("%+v: the share is %v", c, got)
			}
		}
	})
}

// A share of before that no pool of this weight could have without more than a million replicas counts as it
// was, without an ordinal.
func TestShareOfBeforeThatIsTiny(t *testing.T) {
	p := Pool{Replicas: 10, Weight: 9, Ordinal: 2, Fixed: true}
	if got, want := p.withShareOf(Pool{Replicas: 900_000, Weight: 3, Ordinal: 7}),
		(Pool{Replicas: 900_000, Weight: 3}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	got, want := p.withShareOf(Pool{Replicas: 100_000}),
		(Pool{Replicas: 900_000, Weight: 9, Ordinal: 2, Fixed: true})
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Explain says as how many replicas this one counts.
func TestExplainReportsTheWeight(t *testing.T) {
	l := limiterOf(t, Limit{InFlight: 10}, StartPool(Pool{Replicas: 10, Ordinal: 4, Weight: 3}))
	for _, c := range []string{"10 replicas, of which this one is 3, ordinal 4", "share 3 of 10"} {
		says(t, &LimitedError{Key: l.Explain("k").String()}, c)
	}
}
