package quotient

import (
	"errors"
	"math"
	"math/big"
	"testing"
	"testing/synctest"
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

// Bound 5: over the fleet at most G are in flight while every replica believes in at least as many as there
// are. It holds once permits issued before the last growth of the pool are released. With AtLeastOne it is at
// most max(G, N). One replica never exceeds its own slots.
func TestPropertyInFlight(t *testing.T) {
	type replica struct {
		l    *Limiter
		held []Permit
		age  []int // of held: the growths that it has seen
	}
	property(t, func(rt *rapid.T) {
		g := rapid.IntRange(1, 12).Draw(rt, "G")
		n := rapid.IntRange(1, 5).Draw(rt, "N")
		atLeastOne := rapid.Bool().Draw(rt, "at least one")
		opts := []Option{few, drawPolicy(rt)}
		if atLeastOne {
			opts = append(opts, AtLeastOne())
		}
		fleet := make([]*replica, n)
		pool := func(i int) Pool { return Pool{Replicas: len(fleet), Ordinal: i + 1, Fixed: true} }
		for i := range fleet {
			fleet[i] = &replica{l: mustNew(rt, Limit{InFlight: g}, append(opts, StartPool(pool(i)))...)}
		}
		growths := 0
		announce := func() {
			for i, r := range fleet {
				must(rt, r.l.SetPool(pool(i), 0))
			}
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			i := rapid.IntRange(0, len(fleet)-1).Draw(rt, "who")
			r := fleet[i]
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0:
				if len(fleet) < 7 {
					fleet = append(fleet, nil)
					growths++
					fleet[len(fleet)-1] = &replica{l: mustNew(rt, Limit{InFlight: g},
						append(opts, StartPool(pool(len(fleet)-1)), StartEmpty())...)}
					announce()
				}
			case 1:
				if len(fleet) > 1 { // the last leaves, its requests end with it
					fleet = fleet[:len(fleet)-1]
					growths++ // the ordinals' remainders move: old permits count as old
					announce()
				}
			case 2, 3, 4:
				if len(r.held) > 0 {
					k := rapid.IntRange(0, len(r.held)-1).Draw(rt, "which")
					r.held[k].Done(drawFeedback(rt))
					r.held = append(r.held[:k], r.held[k+1:]...)
					r.age = append(r.age[:k], r.age[k+1:]...)
				}
			default:
				p, d := r.l.TryAcquire("k", Weight(rapid.IntRange(1, 3).Draw(rt, "weight")))
				if d.OK {
					r.held, r.age = append(r.held, p), append(r.age, growths)
				}
			}
			total, old := 0, false
			for i, r := range fleet {
				in := r.l.Stats().InFlight
				total += in
				mine := false
				for _, a := range r.age {
					mine = mine || a < growths
				}
				old = old || mine
				if most := r.l.shards[0].setting.slots; in > most && !mine {
					rt.Fatalf("replica %d: %d in flight, %d slots", i, in, most)
				}
			}
			bound := g
			if atLeastOne {
				bound = max(g, len(fleet))
			}
			if total > bound && !old {
				rt.Fatalf("%d in flight over %d replicas, bound %d", total, len(fleet), bound)
			}
		}
	})
}

// Bound 9: a refused hint leaves the state as it was and is counted.
func TestPropertyRefusedHint(t *testing.T) {
	property(t, func(rt *rapid.T) {
		pool := drawPool(rt)
		l := mustNew(rt, Limit{Rates: []Rate{PerSecond(10)}, InFlight: 7}, StartPool(pool), few)
		bad := Pool{
			Replicas: rapid.OneOf(rapid.IntRange(-1<<40, 0), rapid.IntRange(maxReplicas+1, 1<<40)).Draw(rt,
				"replicas"),
			Ordinal: rapid.Int().Draw(rt, "ordinal"),
		}
		if rapid.Bool().Draw(rt, "ordinal is bad") {
			bad.Replicas = rapid.IntRange(1, 9).Draw(rt, "good replicas")
			bad.Ordinal = rapid.OneOf(rapid.IntRange(-1<<40, -1), rapid.IntRange(10, 1<<40)).Draw(rt,
				"bad ordinal")
		}
		before := l.shards[0].setting
		err := l.SetPool(bad, 0)
		if err == nil || l.shards[0].setting != before || l.Stats().Pool.Pool != pool ||
			l.Stats().Pool.Rejected != 1 {
			rt.Fatalf("SetPool(%+v): error %v, pool %+v, rejected %d", bad, err, l.Stats().Pool.Pool,
				l.Stats().Pool.Rejected)
		}
	})
}

// Failure modes 14, 15: whatever a source says and however it fails, the share in force is the smallest of
// those that were good and counted within the last hold-down, whatever pool and weight it came of.
func TestPropertyDamping(t *testing.T) {
	property(t, func(rt *rapid.T) {
		hold := time.Duration(rapid.IntRange(0, 3000).Draw(rt, "hold-down")) * ms
		l := mustNew(rt, Rates(PerSecond(1000)), HoldDown(hold), Replicas(7))
		src := following(rt, l)
		defer src.cancel()
		type reported struct {
			p     Pool
			until time.Time
		}
		var reports []reported
		heaviest := rapid.SampledFrom([]int{0, 4}).Draw(rt, "heaviest")
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			time.Sleep(time.Duration(rapid.IntRange(1, 2000).Draw(rt, "pause")) * ms)
			sizes := rapid.SampledFrom([]int{1, 2, 3, 4, 5, 8, 12, 0, -4, maxReplicas + 1})
			p := Pool{Replicas: sizes.Draw(rt, "says")}
			p.Weight = rapid.IntRange(0, max(0, min(heaviest, p.Replicas))).Draw(rt, "weight")
			p.Ordinal = rapid.IntRange(0, max(0, p.Replicas-p.weight()+1)).Draw(rt, "ordinal")
			p.Fixed = p.Ordinal > 0 && rapid.Bool().Draw(rt, "fixed")
			var err error
			if rapid.IntRange(0, 3).Draw(rt, "fails") == 0 {
				err = errors.New("no answer")
			}
			src.report(p, err)
			synctest.Wait()
			n := len(reports)
			if err == nil && p.validate() == nil {
				if n > 0 {
					reports[n-1].until = time.Now()
				}
				reports, n = append(reports, reported{p: p}), n+1
			}
			got := l.Stats().Pool.Pool
			if n == 0 {
				if got != (Pool{Replicas: 7}) {
					rt.Fatalf("%+v in force, want what was configured", got)
				}
				continue
			}
			last, others := reports[n-1].p, false
			parts := last.parts()
			for _, o := range reports[:n-1] {
				if time.Since(o.until) < hold && o.p.parts() > parts*(1+1e-12) {
					parts, others = o.p.parts(), true
				}
			}
			want := int(math.Ceil(parts*float64(last.weight()) - 1e-9))
			if got.validate() != nil || got.Replicas != want || got.Weight != last.Weight {
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
