package policy_test

import (
	"math"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
	"pgregory.net/rapid"
)

// group is controllers that learn at once what the others say, and whose pace always holds requests back.
// Nothing is refused.
type group struct {
	ctrls  []policy.Reporter
	bounds policy.Bounds
	rates  []float64
	idle   map[int]bool
	now    time.Duration
}

func newGroup(b policy.Bounds, starts ...float64) *group {
	g := &group{bounds: b, rates: make([]float64, len(starts)), idle: map[int]bool{}}
	for i, start := range starts {
		ctrl := policy.Tracking{}.New(uint64(i)).(policy.Reporter)
		ctrl.Next(policy.Sample{}, policy.Bounds{Share: start, Ceiling: b.Ceiling})
		g.rates[i] = ctrl.Next(policy.Sample{}, b).Rate
		g.ctrls = append(g.ctrls, ctrl)
	}
	return g
}

// reports are the sum of all reports.
func (g *group) reports() policy.Fleet {
	f := policy.Fleet{Weight: float64(len(g.ctrls)), Limit: g.bounds.Share * float64(len(g.ctrls))}
	for _, ctrl := range g.ctrls {
		w := ctrl.Report(g.now)
		f.Refused += w.Refused
		if w.Wanting {
			f.Wanting, f.Rate = f.Wanting+1, f.Rate+w.Rate
		} else {
			f.Used += w.Rate
		}
	}
	return f
}

// run lets all go on for a time. Those that are not idle send at their rate, and all have reports every 200
// ms.
func (g *group) run(d time.Duration) {
	const tick = 10 * time.Millisecond
	due := make([]float64, len(g.ctrls))
	for end := g.now + d; g.now < end; {
		g.now += tick
		b := g.bounds
		f := g.reports()
		if b.Fleet = &f; g.now%(200*time.Millisecond) == 0 {
			for i, ctrl := range g.ctrls {
				g.rates[i] = ctrl.Next(policy.Sample{Now: g.now, Sent: g.now}, b).Rate
			}
		}
		for i, ctrl := range g.ctrls {
			if due[i] += g.rates[i] * tick.Seconds(); due[i] >= 1 && !g.idle[i] {
				due[i]--
				s := policy.Sample{Outcome: policy.Success, Now: g.now, Sent: g.now - tick, Cost: 1,
					Paced: true}
				g.rates[i] = ctrl.Next(s, b).Rate
			}
		}
	}
}

// Those that want more come to the same rate, and their sum only grows as controllers grow.
func TestReportsMakeEqual(t *testing.T) {
	g := newGroup(policy.Bounds{Ceiling: math.Inf(1)}, 30, 6, 6, 18)
	g.run(5 * time.Second)
	sum := 0.0
	for _, r := range g.rates {
		if sum += r; r < 13 || r > 18 {
			t.Errorf("after 5 s the rates are %.1f", g.rates)
			break
		}
	}
	wrong(t, sum < 57 || sum > 70, "rates of 60 together are %.1f together after 5 s", sum)
}

// The part of a limit that others do not use is lent at once, and is given back when they want it.
func TestReportsLend(t *testing.T) {
	b := policy.Bounds{Share: 10, Ceiling: 1000}
	g := newGroup(b, 10, 10, 10, 10)
	for i := 1; i < 4; i++ {
		g.idle[i] = true
	}
	g.run(3 * time.Second)
	if g.rates[0] < 38 || g.rates[0] > 44 {
		t.Errorf("one of four at a limit of 40 has a rate of %.1f after 3 s", g.rates[0])
	}
	g.idle[1] = false
	before := g.rates[0]
	g.run(2 * time.Second)
	if a, b := g.rates[0], g.rates[1]; a > .95*before || b < 18 || a > 1.25*b {
		t.Errorf("one had %.1f alone; 2 s after another wants as much they have %.1f and %.1f", before, a, b)
	}
}

// Without reports of others the paces are the same, whatever else the reports says.
func TestPropertyNoReportChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		plain, told := policy.Tracking{}.New(seed), policy.Tracking{}.New(seed)
		s, b := policy.Sample{}, saneBounds(t)
		with := b
		with.Fleet = &policy.Fleet{Limit: 10, Wanting: 2, Rate: 3, Used: 4, Refused: 5}
		with.Fleet.Weight = rapid.SampledFrom([]float64{0, -1, .5, math.Inf(1)}).Draw(t, "weight")
		for range rapid.IntRange(1, 60).Draw(t, "samples") {
			if a, c := plain.Next(s, b), told.Next(s, with); a != c {
				t.Fatalf("without news %+v, with %+v %+v", a, with.Fleet, c)
			}
			s = later(t, s.Now, 1)
		}
	})
}

// Lies do not bring the pace of a controller that is served below its part of a hinted limit, or of what it
// was served.
func TestPropertyLiesLeaveAFloor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weight := float64(rapid.IntRange(2, 50).Draw(t, "weight"))
		b := policy.Bounds{Ceiling: math.Inf(1)}
		floor := 50 / weight / math.E // what it is served at first, as remembered after a minute
		if rapid.Bool().Draw(t, "hint") {
			b.Share = 50
			floor = 50 / weight
		}
		g := newGroup(b, 50)
		g.run(20 * time.Second)
		for range 200 {
			g.now += 200 * time.Millisecond
			lie := b
			if lie.Fleet = garbageFleet(t); lie.Fleet == nil {
				lie.Fleet = new(policy.Fleet)
			}
			lie.Fleet.Weight, lie.Fleet.Limit = weight, b.Share
			p := g.ctrls[0].Next(policy.Sample{Outcome: policy.Success, Now: g.now, Sent: g.now, Cost: 1,
				Paced: true}, lie)
			if !(p.Rate >= .98*floor) || p.Rate > 1e12 {
				t.Fatalf("after %v lies bring it to %v, below %v", g.now, p.Rate, floor)
			}
		}
	})
}

// A controller's report is finite and not negative, whatever it has lived through, at any instant.
func TestPropertySayIsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctrl := policy.Tracking{}.New(rapid.Uint64().Draw(t, "seed")).(policy.Reporter)
		ctrl.Next(policy.Sample{}, garbageBounds(t))
		for range rapid.IntRange(1, 40).Draw(t, "samples") {
			ctrl.Next(garbage(t), garbageBounds(t))
			at := time.Duration(rapid.Int64().Draw(t, "at"))
			if w := ctrl.Report(at); !(w.Rate >= 0 && w.Rate <= math.MaxFloat64 && w.Refused >= 0 &&
				w.Refused <= math.MaxFloat64) {
				t.Fatalf("it says %+v", w)
			}
		}
	})
}

// Replicas that claim to want all, and to have nothing, leave a controller the equal part of what it was
// served.
func TestLiesLeaveAFloor(t *testing.T) {
	g := newGroup(policy.Bounds{Ceiling: math.Inf(1)}, 50)
	g.run(20 * time.Second)
	lie, least := g.bounds, math.Inf(1)
	for i := range 100 {
		g.now += 200 * time.Millisecond
		lie.Fleet = &policy.Fleet{Weight: 10, Wanting: 10, Rate: float64(i) / 1e6}
		least = min(least, g.ctrls[0].Next(policy.Sample{Now: g.now, Sent: g.now}, lie).Rate)
	}
	if least < 50/10*.8 || least > 10 {
		t.Errorf("nine liars bring a controller that was served 50 a second down to %.2f", least)
	}
}

// When reports end, an idle replica gets back what it gave away.
func TestReportsThatEndGiveBack(t *testing.T) {
	b := policy.Bounds{Ceiling: 40}
	g := newGroup(b, 30, 30)
	g.run(10 * time.Second)
	g.idle[1] = true
	g.run(20 * time.Second)
	low := g.rates[1]
	if p := g.ctrls[1].Next(policy.Sample{Now: g.now, Sent: g.now}, b); low > 25 || p.Rate < 27 {
		t.Errorf("an idle one of two has %.1f with news, and %.1f when it ends", low, p.Rate)
	}
}

// Interface: the controller speaks.
var _ policy.Reporter = policy.Tracking{}.New(1).(policy.Reporter)

// A controller reports its pace while that holds requests back, and then its use, which fades.
func TestSay(t *testing.T) {
	ctrl := policy.Tracking{}.New(1).(policy.Reporter)
	b := policy.Bounds{Share: 10, Ceiling: 100}
	if w := ctrl.Report(0); w != (policy.Report{}) {
		t.Errorf("before the start it says %+v", w)
	}
	ctrl.Next(policy.Sample{}, b)
	now := time.Duration(0)
	var p policy.Pace
	for range 100 {
		now += 100 * time.Millisecond
		p = ctrl.Next(policy.Sample{Outcome: policy.Success, Now: now, Sent: now - 50*time.Millisecond,
			Cost: 1, Paced: true}, b)
	}
	if w := ctrl.Report(now); !w.Wanting || w.Rate != p.Rate || w.Refused != 0 {
		t.Errorf("held back at a pace of %v it says %+v", p.Rate, w)
	}
	if w := ctrl.Report(now + 1100*time.Millisecond); w.Wanting || w.Rate < 5 || w.Rate > 10 {
		t.Errorf("1.1 s after it used 10 a second it says %+v", w)
	}
	if w := ctrl.Report(now + time.Minute); w.Wanting || w.Rate > 1 {
		t.Errorf("a minute after it used 10 a second it says %+v", w)
	}
}
