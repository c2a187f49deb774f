package meter

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// is fails unless what was got is what is wanted.
func is[T comparable](t testing.TB, what any, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%+v: got %+v, want %+v", what, got, want)
	}
}

const ms = time.Millisecond

// later is t so much later by both clocks.
func (t Instant) later(d time.Duration) Instant {
	return Instant{t.At + d, t.Wall + int64(d)}
}

// stepped is t as a machine would read it whose wall clock, and only that, was set by so much.
func (t Instant) stepped(by time.Duration) Instant {
	return Instant{t.At, t.Wall + int64(by)}
}

// realNow is an instant whose time by the wall clock is the real one, so that windows are met at any phase.
func realNow() Instant { return Instant{At: time.Hour, Wall: time.Now().UnixNano()} }

// total is what windows may do over the fleet between window k and the next: the difference of two floors.
func total(events uint64, k int64) int64 {
	upTo := func(k int64) *big.Int {
		n := new(big.Int).Mul(big.NewInt(k), new(big.Int).SetUint64(events))
		return n.Div(n, big.NewInt(Milli)) // Euclidean: a floor
	}
	return new(big.Int).Sub(upTo(k+1), upTo(k)).Int64()
}

// opened returns the window that now lies in.
func opened(now Instant, c *Schedule) *Window {
	w := OpenWindow(now, c)
	return &w
}

// uses takes n events at an instant, and reports whether the window had room for them.
func (w *Window) uses(now Instant, n int64, c *Schedule) bool {
	r := &Rule{Schedule: c}
	if w.Until(now, r, 0, 0, float64(n)) > 0 {
		return false
	}
	w.Take(now, r, float64(n))
	return true
}

// The largest pool and rate that a limiter takes.
const mostReplicas, mostEvents = 1_000_000, 1e12

var fiveASecond = &Schedule{Per: int64(time.Second), events: 5000, replicas: 1, ordinal: 1, weight: 1}

func TestThousandths(t *testing.T) {
	for _, c := range []struct {
		events float64
		want   uint64
	}{
		{0, 0}, {1, 1000}, {6.6669, 6666}, {0.0009, 0},
		{1e300, math.MaxInt64 / 4}, {math.Inf(1), math.MaxInt64 / 4},
	} {
		is(t, c.events, thousandths(c.events), c.want)
	}
}

func TestQuotaWithoutOrdinalRoundsDown(t *testing.T) {
	for _, c := range []struct {
		events, replicas uint64
		want             []int64 // from a window that is ours
	}{
		{100_000, 3, []int64{33, 33, 33}}, {100_999, 100, []int64{1, 1, 1}}, {10_000, 10, []int64{1, 1}},
		{10_000, 11, []int64{1, 0, 1, 0}}, {10_000, 30, []int64{1, 0, 0, 1, 0, 0}},
		{500, 1, []int64{1, 0, 1, 0}}, {300, 1, []int64{1, 0, 0, 0, 1}},
	} {
		for phase := range int64(7) {
			s := Schedule{Per: 1, events: c.events, replicas: c.replicas, weight: 1, phase: phase}
			first := int64(-10)
			for s.quota(first) == 0 {
				first++
			}
			for i, want := range c.want {
				is(t, []any{s, i}, s.quota(first+int64(i)), want)
			}
		}
	}
}

// Bound 11: a step of the wall clock opens at most one window, and a step back opens none at once.
func TestClockStepOpensOneWindow(t *testing.T) {
	for step, most := range map[time.Duration]int64{
		time.Second: 5, time.Hour: 5, 10_000 * time.Hour: 5, -time.Second: 0, -time.Hour: 0,
		-10_000 * time.Hour: 0,
	} {
		now := realNow()
		w, n := opened(now, fiveASecond), int64(0)
		w.Used = 5
		for w.uses(now.stepped(step), 1, fiveASecond) {
			n++
		}
		is(t, step, n, most)
	}
}

// However the wall clock swings, no more windows open than real time has room for, plus one.
func TestClockThatSwingsOpensNoWindows(t *testing.T) {
	start := realNow()
	w, n := opened(start, fiveASecond), 0
	for i := range 1000 {
		now := start.later(time.Duration(i) * ms)
		swing := time.Duration(i%2) * time.Hour
		for w.uses(now.stepped(swing), 1, fiveASecond) {
			n++
		}
	}
	if n > 15 {
		t.Errorf("%d events in one second, want at most those of three windows", n)
	}
}

// Windows of weeks begin on Monday at midnight, others at a multiple of their period since the epoch.
func TestWeeksBeginOnMonday(t *testing.T) {
	const day = 24 * time.Hour
	monday := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		per   time.Duration
		begin time.Time // of a window
	}{
		{7 * day, monday}, {7 * day, time.Date(1969, 12, 29, 0, 0, 0, 0, time.UTC)}, {day, monday.Add(day)},
		{14 * day, time.Date(1970, 1, 5, 0, 0, 0, 0, time.UTC)}, {8 * day, time.Unix(0, 0)}, {time.Hour, monday},
	} {
		r := &Rule{Schedule: NewSchedule(c.per, 5, Part{Replicas: 1, Ordinal: 1, Weight: 1}, 0)}
		before := Instant{Wall: c.begin.Add(-time.Minute).UnixNano()}
		w := OpenWindow(before, r.Schedule)
		w.Take(before, r, 5)
		left, _, full := w.Left(before, r)
		is(t, []any{c, "left"}, left, 0.)
		is(t, []any{c, "to the next"}, full, time.Minute)
		is(t, []any{c, "until"}, w.Until(before, r, 0, 0, 1), time.Minute)
		left, _, full = w.Left(before.later(time.Minute), r)
		is(t, []any{c, "left in the next"}, left, 5.)
		is(t, []any{c, "of the next"}, full, c.per)
	}
}

// After a step back one window opens each period, and it is the one by the wall clock.
func TestClockThatWasAheadGoesOn(t *testing.T) {
	start := realNow()
	w := opened(start, fiveASecond)
	for i := range 60 {
		now := start.later(time.Duration(i) * time.Second).stepped(-time.Hour)
		is(t, []any{i, "a window"}, w.uses(now, 5, fiveASecond), true)
		is(t, []any{i, "a second one"}, w.uses(now, 1, fiveASecond), false)
		is(t, []any{i, "index"}, w.Index, fiveASecond.index(now.Wall))
	}
}

// A step forward repays no debt: only windows that time has passed for do.
func TestStepForwardRepaysNothing(t *testing.T) {
	start := realNow()
	w := opened(start, fiveASecond)
	is(t, "a large ask in a fresh window", w.uses(start, 50, fiveASecond), true)
	is(t, "after a step", w.uses(start.stepped(time.Hour), 1, fiveASecond), false)
	later := start.later(11 * time.Second).stepped(time.Hour)
	is(t, "after eleven windows, of which nine are owed", w.uses(later, 1, fiveASecond), true)
}

// Bound 11: a step back by an hour does not repeat the quota of a sparse window in each period until the wall
// has caught up.
func TestSparseWindowAfterAStepBack(t *testing.T) {
	oneOfSixty := &Schedule{Per: int64(time.Minute), events: 1000, replicas: 60, ordinal: 1, weight: 1}
	for _, late := range []time.Duration{0, time.Minute, 10 * time.Minute, 59 * time.Minute} {
		start := realNow()
		for oneOfSixty.quota(oneOfSixty.index(start.Wall)) == 0 {
			start = start.later(time.Minute)
		}
		w, n := opened(start, oneOfSixty), 0
		for i := range 60 {
			now := start.later(time.Duration(i) * time.Minute)
			if now.At-start.At > late {
				now = now.stepped(-time.Hour)
			}
			for w.uses(now, 1, oneOfSixty) {
				n++
			}
		}
		if n > 2 {
			t.Errorf("a step of an hour back after %v: %d events in an hour, want at most 2", late, n)
		}
	}
}

// drawParts draws the parts of replicas that have all ordinals together.
func drawParts(rt *rapid.T) (fleet []Part) {
	weights := rapid.SliceOfN(rapid.IntRange(1, rapid.SampledFrom([]int{1, 3, 50}).Draw(rt, "heaviest")), 1, 6).
		Draw(rt, "weights")
	all := 0
	for _, w := range weights {
		fleet, all = append(fleet, Part{Ordinal: all + 1, Weight: w}), all+w
	}
	for i := range fleet {
		fleet[i].Replicas = all
	}
	return fleet
}

// without is the part of a replica that knows no ordinal.
func (p Part) without() Part { return Part{Replicas: p.Replicas, Weight: p.Weight} }

// A replica of weight w has the windows of w replicas, and those of a fleet add up to the limit.
func TestPropertyQuotas(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		fleet, events := drawParts(rt), float64(rapid.IntRange(1, 40_000).Draw(rt, "thousandths"))/1000
		k := rapid.OneOf(rapid.Int64Range(-5000, 5000), rapid.Int64Range(1<<40, 1<<41)).Draw(rt, "window")
		exact, least := int64(0), int64(0)
		for _, p := range fleet {
			c, without := NewSchedule(time.Second, events, p, 0), NewSchedule(time.Second, events, p.without(), 0)
			sum, mean := int64(0), 0.0
			for i := range p.Weight {
				one := NewSchedule(time.Second, events, Part{p.Replicas, p.Ordinal + i, 1}, 0)
				sum, mean = sum+one.quota(k), mean+one.mean()
			}
			if got := c.quota(k); got != sum || math.Abs(c.mean()/mean-1) > 1e-9 || got == 0 && !c.Sparse() {
				rt.Fatalf("%+v: %d in window %d, mean %v, sparse %v; its singles have %d, %v", p, got, k,
					c.mean(), c.Sparse(), sum, mean)
			}
			exact, least = exact+sum, least+without.quota(k)
			for _, s := range []*Schedule{c, without} {
				s.addsUp(rt, k, rapid.Int64Range(0, 60).Draw(rt, "windows"))
			}
		}
		if want := total(thousandths(events), k); exact != want {
			rt.Fatalf("%+v: %d in window %d, want %d", fleet, exact, k, want)
		}
		if most := max(events, float64(fleet[0].Replicas)); float64(least) > most {
			rt.Fatalf("%+v: %d in window %d without ordinals, at most %v", fleet, least, k, most)
		}
	})
}

// addsUp fails unless sum is that of the quotas, and a schedule with a window of nothing is sparse.
func (c *Schedule) addsUp(rt *rapid.T, k, n int64) {
	all, none := 0.0, false
	for i := range n {
		q := c.quota(k + i)
		all, none = all+float64(q), none || q == 0
	}
	if got := c.sum(k, k+n); got != all || none && !c.Sparse() {
		rt.Fatalf("%+v: %v from window %d on in %d, want %v; sparse %v", c, got, k, n, all, c.Sparse())
	}
}

// The largest numbers that are let through do not overflow under a weight: quotas are those of plain
// arithmetic without a bound.
func TestWeightsAtTheEdges(t *testing.T) {
	big0 := func(n int64) *big.Int { return big.NewInt(n) }
	for _, p := range []Part{
		{Replicas: mostReplicas, Ordinal: 1, Weight: mostReplicas},
		{Replicas: mostReplicas, Ordinal: 2, Weight: mostReplicas - 1},
		{Replicas: mostReplicas, Ordinal: 500_000, Weight: 300_001},
		{Replicas: 999_983, Ordinal: 1, Weight: 2}, {Replicas: 7, Ordinal: 3, Weight: 4},
	} {
		for _, events := range []float64{mostEvents, 999_999_999_999.999, 1, .001, 1e6 + .5} {
			c := NewSchedule(time.Hour, events, p, 0)
			upTo := func(k int64) *big.Int { // the sum over its ordinals of floor((kE + j)/N), in thousandths
				sum := new(big.Int)
				for _, j := range []int{p.Ordinal - 2, p.Ordinal + p.Weight - 2} {
					// sum over j' <= j of floor((x+j')/N), x = floor(kE): Hermite's pieces, by whole and rest
					x := new(big.Int).Mul(big0(k), new(big.Int).SetUint64(c.events))
					q, r := new(big.Int).DivMod(x.Div(x, big0(Milli)), big0(int64(p.Replicas)), new(big.Int))
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
			c = NewSchedule(time.Hour, events, p.without(), 0)
			if q, mean := float64(c.quota(5)), c.mean(); q < 0 || q > max(1, mean*(1+1e-12)) ||
				q < mean*(1-1e-12)-1 {
				t.Errorf("%+v, %v events: %v without an ordinal, mean %v", p, events, q, c.mean())
			}
		}
	}
}

// plain is a window as one counts by hand: it goes from each window to the next, and nothing is worked out at once.
type plain struct {
	c      *Schedule
	k      int64
	opened time.Duration // Instant.At
	used   int64
	kept   int64 // an event of the windows before, where they are kept
}

// goTo opens each window up to that of an instant. Of those that were skipped those allow something in which time has
// passed from end to end: a clock that steps brings nothing.
func (p *plain) goTo(now Instant) {
	k := floorDiv(now.Wall, p.c.Per)
	if k == p.k {
		return
	}
	left := p.quota() - p.used
	then := floorDiv(now.Wall-int64(now.At-p.opened), p.c.Per)
	for back := k - max(p.k, then) - 1; back > 0; back-- {
		left += p.c.quota(k - back)
	}
	p.k, p.used, p.opened, p.kept = k, max(0, -left), now.At, 0
	if p.c.Keeps && left > 0 {
		p.kept = 1
	}
}

func (p *plain) quota() int64 { return max(p.kept, p.c.quota(p.k)) }

// admits reports whether there is room for n behind ahead others. A call above the quota of a fresh window passes.
func (p *plain) admits(ahead, n int64) bool {
	quota, used := p.quota(), p.used+ahead
	return used+n <= quota || used <= 0 && quota > 0 && n > quota
}

// A window admits, takes, gives back and tells the time as one does who counts window by window.
func TestPropertyWindow(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		part := rapid.SampledFrom(drawParts(rt)).Draw(rt, "part")
		if rapid.Bool().Draw(rt, "no ordinal") {
			part = part.without()
		}
		per := time.Duration(rapid.IntRange(1, 1000).Draw(rt, "per")) * ms
		c := NewSchedule(per, float64(rapid.IntRange(1, 20_000).Draw(rt, "thousandths"))/1000, part,
			rapid.Int64Range(0, 9).Draw(rt, "phase"))
		c.Keeps = c.Sparse() && rapid.Bool().Draw(rt, "keeps")
		r, now := &Rule{Schedule: c}, dawn.later(time.Duration(rapid.IntRange(0, 1e9).Draw(rt, "clock")))
		w, p := opened(now, c), &plain{c: c, k: c.index(now.Wall), opened: now.At}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			now = now.later(time.Duration(rapid.Float64Range(0, 3).Draw(rt, "windows") * float64(per)))
			p.goTo(now)
			p.step(rt, w, r, now)
			p.reads(rt, w, r, now)
		}
	})
}

// step takes from both, or gives back.
func (p *plain) step(rt *rapid.T, w *Window, r *Rule, now Instant) {
	n, ahead := rapid.Int64Range(1, 12).Draw(rt, "events"), rapid.Int64Range(0, 5).Draw(rt, "ahead")
	if rapid.IntRange(0, 4).Draw(rt, "what") == 0 {
		w.Refund(now, now.At, r, float64(n))
		p.used = max(0, p.used-n)
		return
	}
	from := time.Duration(rapid.SampledFrom([]float64{0, 0, .5, 1, 2.5}).Draw(rt, "from") * float64(p.c.Per))
	wait, want, then := w.Until(now, r, from, float64(ahead), float64(n)), from, *p
	then.used += ahead
	for first := floorDiv(now.Wall+int64(from), p.c.Per); then.k < first || !then.admits(0, n); {
		next := Instant{then.opened + time.Duration(p.c.Per), (then.k + 1) * p.c.Per}
		then.goTo(next)
		if want = max(from, time.Duration(next.Wall-now.Wall)); then.k-p.k == 64 {
			want = wait // it looks no further
			break
		}
	}
	if wait != want {
		rt.Fatalf("%+v: %v for %d behind %d from %v on, want %v", p, wait, n, ahead, from, want)
	}
	if wait == 0 {
		w.Take(now, r, float64(n))
		p.used += n
	}
}

// reads fails unless both say the same.
func (p *plain) reads(rt *rapid.T, w *Window, r *Rule, now Instant) {
	quota := p.quota()
	events, of, full := w.Left(now, r)
	ends := time.Duration((p.k+1)*p.c.Per - now.Wall)
	if want := quota - p.used; events != float64(want) || of != float64(quota) || full != ends {
		rt.Fatalf("%+v: %v of %v, full in %v; want %d of %d, in %v", p, events, of, full, want, quota, ends)
	}
	if got, want := w.UpTo(now, r, 5), min(5, quota-p.used); int64(got) != want {
		rt.Fatalf("%+v: up to %d of 5, want %d", p, got, want)
	}
	want := State{float64(quota), p.k, p.used}
	if got := w.State(now, r); got != want || w.Clone().State(now, r) != want {
		rt.Fatalf("%+v: %+v, want %+v", p, got, want)
	}
}

// A debt of any size is waited for to its end, and not longer.
func TestLargeDebt(t *testing.T) {
	r := &Rule{Schedule: NewSchedule(time.Second, 1e9, Part{1, 1, 1}, 0)}
	w := opened(dawn, r.Schedule)
	w.Take(dawn, r, mostEvents)
	is(t, "a thousand windows' events", w.Until(dawn, r, 0, 0, 1), 1000*time.Second)
	r.Schedule = NewSchedule(math.MaxInt64/4, 1, Part{1, 1, 1}, 0)
	w = opened(dawn, r.Schedule)
	w.Take(dawn, r, 9)
	is(t, "windows that are longer than any Duration", w.Until(dawn, r, 0, 0, 1), Never)
}
