package policy

import (
	"math"
	"testing"
	"time"
)

// A cycle is kept for three of its lengths. A pause of more than three minutes, or after more refusals than
// the end of a window of a minute explains, is not a cycle.
func TestCycleIsKept(t *testing.T) {
	for _, c := range []struct {
		took, dark time.Duration
		want       float64
	}{
		{20 * time.Second, 5 * time.Second, 20},
		{100 * time.Millisecond, 0, 0.5}, // no window is shorter
		{180 * time.Second, 75 * time.Second, 180},
		{181 * time.Second, time.Second, 0},
		{100 * time.Second, 76 * time.Second, 0},
	} {
		s := at(10, 0, false)
		b := &s.blackout
		b.began, b.firstBad, b.proven, b.served = time.Hour, time.Hour+c.took-c.dark, farAway, 1
		b.took = max(c.took.Seconds(), probeFirst)
		end := time.Hour + c.took
		b.end(s, &Sample{Now: end})
		if s.now = end; s.window() != c.want {
			t.Errorf("%v, of these %v dark: a cycle of %v s, want %v", c.took, c.dark, s.window(), c.want)
		}
		until := end + time.Duration(3*c.want*float64(time.Second))
		s.now = until
		gone := s.window() == 0
		if s.now--; !gone || c.want > 0 && s.window() != c.want {
			t.Errorf("%v, of these %v dark: the cycle is not kept for three", c.took, c.dark)
		}
	}
}

// A single cycle proves nothing: only a second one that is alike shows a window.
func TestCycleIsSeenTwice(t *testing.T) {
	for _, c := range []struct{ before, want float64 }{{0, 0}, {4.9, 0}, {5.1, 20}, {79, 20}, {81, 0}} {
		s := at(10, 0, false)
		b := &s.blackout
		b.began, b.firstBad, b.proven, b.served, b.took = time.Hour, time.Hour+15*time.Second, farAway,
			1, c.before
		end := time.Hour + 20*time.Second
		b.end(s, &Sample{Now: end})
		if s.now = end; s.window() != c.want {
			t.Errorf("20 s after one of %v s: a cycle of %v s, want %v", c.before, s.window(), c.want)
		}
	}
}

// No more than a window's part of an incident counts: 100 that were served in 25 seconds before it are one a
// second.
func TestIncidentCountsAsAWindow(t *testing.T) {
	s := at(10, 0, false)
	b := &s.blackout
	b.began, b.firstBad, b.proven, b.served = time.Hour, time.Hour+25*time.Second, farAway, 100
	b.held = 25
	b.end(s, &Sample{Now: 2 * time.Hour})
	if !about(s.rate, 1) {
		t.Errorf("the rate after an incident of an hour is %v, want 1", s.rate)
	}
}

// Few refusals prove nothing: a prior of eight answers stands before the first.
func TestHeavy(t *testing.T) {
	for _, c := range []struct {
		answers, refusals int
		heavy             bool
	}{
		{1, 1, false}, {2, 2, true}, {8, 1, false}, {8, 2, true}, {100, 12, false}, {100, 13, true},
		{0, 0, false},
	} {
		var e evidence
		for i := range c.answers {
			if i < c.refusals {
				e.refused(0)
			} else {
				e.answers++
			}
		}
		if e.heavy() != c.heavy {
			t.Errorf("%d refusals of %d answers: got %v", c.refusals, c.answers, !c.heavy)
		}
	}
}

// Half is forgotten in 2 seconds or 20 requests, whichever is longer.
func TestEvidenceIsForgotten(t *testing.T) {
	for _, c := range []struct{ dt, perSecond, left float64 }{
		{0, 10, 12}, {2, 10, 6}, {2, 1000, 6}, {20, 1, 6}, {2, 1, 12 / 1.1}, {6, 10, 3},
	} {
		e := evidence{answers: 12, refusals: 12}
		e.age(c.dt, (&tracking{rate: c.perSecond, cost: 1}).memory())
		for _, got := range []float64{e.answers, e.refusals} {
			if got < c.left-1e-9 || got > c.left+1e-9 {
				t.Errorf("%v s at %v a second: got %v, want %v", c.dt, c.perSecond, got, c.left)
			}
		}
	}
}

// A floor without doubt holds, and leaves what is below it already where it is. A cut below one in doubt
// refutes the share as too high.
func TestFloorHolds(t *testing.T) {
	const low = 10 * floorOfShare
	for _, c := range []struct {
		from, to, doubt, want, hint, tooHigh float64
	}{
		{12, 11, 0, 11, 10, 0}, {12, 9, 0, low, 10, 0}, {low, 9, 0, low, 10, 0}, {8, 7, 0, 8, 10, 0},
		{12, 9, 2.5, low * .95, 10, 0}, {12, 11, 4, 11, 10, 0}, {12, 9, 4, 9, 0, 10}, {8, 7, 4, 7, 0, 10},
	} {
		f := share{given: 10, hint: 10, doubt: c.doubt}
		if got := f.hold(c.from, c.to); !about(got, c.want) || f.hint != c.hint || f.tooHigh != c.tooHigh {
			t.Errorf("%+v: got %v, and %+v", c, got, f)
		}
	}
}

// A share that was too high keeps a slow client slow, and makes none faster.
func TestShareThatIsTooHighShowsSlowness(t *testing.T) {
	s := at(.1, .1, false)
	want := s.slowAt(.1)
	s.share.doubt = doubtMost
	s.share.hold(.1, .09)
	if got := s.slowness(); got != want || want < 9 {
		t.Errorf("refuted as too high: a slowness of %v, want %v", got, want)
	}
	if s.share.tooHigh = 1000; s.slowness() != 1 {
		t.Errorf("a share of a thousand that was too high: a slowness of %v", s.slowness())
	}
	if s.share.risen(999); s.share.tooHigh != 1000 {
		t.Errorf("at 999 a share of a thousand is not too high any more: %+v", s.share)
	}
	if s.share.risen(1000); s.share.tooHigh != 0 {
		t.Errorf("at a thousand a share of a thousand is too high: %+v", s.share)
	}
	s.share.tooHigh = 1000
	if s.hint(.2); s.share.tooHigh != 0 {
		t.Error("the next share is as high as the last one was")
	}
	s = at(.1, .1, false)
	if s.share.risen(.2); s.share.hint != .1 {
		t.Errorf("at twice the share it is believed no more: %+v", s.share)
	}
}

// answered is a controller at a share of a thousand after n answers, one in a millisecond: successes, but
// for what change does.
func answered(n int, change func(i int, x *Sample)) *tracking {
	s := Tracking{}.New(1).(*tracking)
	b := Bounds{Share: 1000, Ceiling: math.Inf(1)}
	s.Next(Sample{}, b)
	for i := range n {
		now := time.Duration(i+1) * time.Millisecond
		x := Sample{Outcome: Success, Now: now, Sent: now - time.Microsecond, Cost: 1, Paced: true}
		change(i, &x)
		s.Next(x, b)
	}
	return s
}

// Successes that are only counted, since they follow closely upon each other, weigh as much as others.
func TestCountedSuccessesWeigh(t *testing.T) {
	s := answered(3000, func(i int, x *Sample) {
		if i%66 == 65 { // 1.5 % of noise
			x.Outcome = Throttled
		}
	})
	if s.share.doubt > 2 || s.share.hint != 1000 {
		t.Errorf("1.5 %% of refusals at a thousand a second leave a doubt of %v, and a hint of %v",
			s.share.doubt, s.share.hint)
	}
}

// Refusals at the floor are evidence against it, as far as they are more than one in four periods.
func TestDoubtIsEarned(t *testing.T) {
	f := share{given: 10, hint: 10, patience: 1}
	for _, c := range []struct{ rate, every, most float64 }{{10.5, .1, 0}, {9, 4.1, 1}, {9, 1, doubtMost}} {
		for range 20 {
			f.weigh(c.rate, 1)
			f.weigh(9, -doubtPaid*c.every)
		}
		if f.doubt > c.most || f.doubt < c.most-1 {
			t.Errorf("20 refusals at %v, one in %v periods, leave a doubt of %v", c.rate, c.every, f.doubt)
		}
		f.doubt = 0
	}
	f = share{}
	if f.weigh(1, 1); f.doubt != 0 {
		t.Errorf("without a floor there is a doubt of %v", f.doubt)
	}
}

// Each failed probe of the share makes the controller half as patient again, up to four times.
func TestPatience(t *testing.T) {
	s := at(10, 10, false)
	for i, want := range []float64{1.5, 2.25, 3.375, 4, 4} {
		if s.share.probed(s.rate); s.share.patience != want {
			t.Errorf("after %d failed probes: %v, want %v", i+1, s.share.patience, want)
		}
	}
	s.rate, s.share.patience = 9.4, 1
	if s.share.probed(s.rate); s.share.patience != 1 {
		t.Error("a refusal below a share is no failed probe of it")
	}
}

// A source is believed until it flaps, or was wrong twice; and again after five minutes of rest.
func TestSourceIsBelieved(t *testing.T) {
	s := at(10, 0, false)
	s.share = share{since: -farAway}
	now := time.Duration(0)
	give := func(after time.Duration, given, want float64) {
		t.Helper()
		now += after
		s.now = now
		if s.hint(given); s.share.hint != want || s.share.patience != 1 {
			t.Errorf("at %v, given %v: %+v, want %v", now, given, s.share, want)
		}
	}
	give(0, 10, 10)
	give(15*time.Second, 20, 20)
	s.share.refute()
	give(20*time.Second, 10, 10)
	s.share.refute()
	give(20*time.Second, 20, 0)
	give(5*time.Minute, 10, 10)
	give(14*time.Second, 20, 0)
	give(time.Minute, 10, 0)
	give(5*time.Minute, 20, 20)
	give(time.Minute, 0, 0)
}

// A pause is refuted by the first success after it is announced, also where successes are else only counted.
func TestPauseIsRefutedAtAHighRate(t *testing.T) {
	s := answered(400, func(i int, x *Sample) {
		if i%4 == 3 {
			x.Outcome, x.RetryAfter = Throttled, time.Hour
		}
	})
	if s.retry.believed > 1 {
		t.Errorf("a hundred announced hours in which requests were served leave %v s that are believed",
			s.retry.believed)
	}
}

// at is the state of a controller at a rate under a hint, with a cost of 1, and one minute of cycle if so.
func at(rate, hint float64, cycled bool) *tracking {
	t := &tracking{rate: rate, cost: 1, share: share{hint: hint, patience: 1}}
	if cycled {
		t.blackout.cycle, t.blackout.cycled = 60, time.Hour
	}
	return t
}

func about(got, want float64) bool { return math.Abs(got-want) <= 1e-3*want }

func TestTimeScale(t *testing.T) {
	for _, c := range []struct {
		rate, hint float64
		cycled     bool

		reference, period float64
	}{
		// all the same without a hint
		{10, 0, false, 10, 8}, {0.1, 0, false, 0.1, 8}, {1e6, 0, false, 1e6, 8},
		{10, 10, false, 10, 8}, {40, 40, false, 40, 4}, {2.5, 2.5, false, 2.5, 16},
		{5, 10, false, 9.9, 8},                                      // below the share the floor counts
		{40, 10, false, 20, 8},                                      // above it the mean
		{1000, 1000, false, 1000, 2}, {0.01, 0.01, false, .01, 180}, // bounds
		{10, 0, true, 10, 60}, {0.01, 0.01, true, 0.01, 180}, // not shorter than the upstream's window
	} {
		s := at(c.rate, c.hint, c.cycled)
		if got := s.reference(); !about(got, c.reference) {
			t.Errorf("%+v: the reference is %v", c, got)
		}
		if got := s.period(); !about(got, c.period) {
			t.Errorf("%+v: the period is %v", c, got)
		}
		s.rate, s.share.hint, s.cost = 100*s.rate, 100*s.share.hint, 100 // what is slow counts in requests
		if got := s.period(); !about(got, c.period) {
			t.Errorf("%+v, requests of 100: the period is %v", c, got)
		}
	}
}

func TestPatienceIsForProbesOfTheShare(t *testing.T) {
	for _, c := range []struct {
		rate, want float64
	}{{9, 1}, {9.49, 1}, {9.5, 4}, {10, 4}, {20, 2}, {40, 1}, {80, 1}} {
		s := at(c.rate, 10, false)
		plain := s.period()
		s.share.patience = 4
		if got := s.period() / plain; !about(got, c.want) {
			t.Errorf("at %v under a share of 10 the period is %v times as long, want %v", c.rate, got, c.want)
		}
	}
}

// A slow client that was never refused probes a period of eight seconds sooner, but not sooner than at ten
// requests a second.
func TestPeriodUntilRefused(t *testing.T) {
	for _, c := range []struct{ hint, want float64 }{{40, 4}, {10, 8}, {2.5, 8}, {0.1, 72}} {
		s := at(c.hint, c.hint, false)
		s.cutAt = -farAway
		if got := s.period(); !about(got, c.want) {
			t.Errorf("under a share of %v the period is %v, want %v", c.hint, got, c.want)
		}
	}
}

func TestCutSize(t *testing.T) {
	for _, c := range []struct {
		rate, hint    float64
		cycled, heavy bool
		want          float64
	}{
		{10, 0, false, false, .12}, {1000, 0, false, false, .12},
		{10, 10, false, false, .12}, {1000, 1000, false, false, .012}, {2.5, 2.5, false, false, .24},
		{.1, .1, false, false, .4}, {.1, .1, false, true, .4}, // at most
		{10, 0, true, false, .016}, {10, 0, true, true, .12}, // few refusals mean little where growth is slow
		{2.5, 2.5, true, false, .064},
		{.1, .1, true, false, .4}, // a clock that is slower than the cycle anyway
	} {
		if got := at(c.rate, c.hint, c.cycled).cutSize(c.heavy); !about(got, c.want) {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

// What lies just on the edge of a rule is on the side that its comment says.
func TestEdges(t *testing.T) {
	retry := func(end, believed float64) *retry {
		return &retry{most: 600, believed: believed, end: time.Duration(end * float64(time.Second))}
	}
	for what, ok := range map[string]func() bool{
		"a pause that ends two seconds early is served in time": func() bool {
			r := retry(20, 600)
			r.served(&Sample{Now: 18 * time.Second})
			return r.believed == 600
		},
		"one that ends earlier is refuted": func() bool {
			r := retry(20, 600)
			r.served(&Sample{Now: 18*time.Second - 1})
			return r.believed == testAfter
		},
		"a probe that is sent two seconds before the end tests nothing": func() bool {
			r := retry(20, 10)
			r.confirmed(&Sample{Sent: 18 * time.Second, Now: 19 * time.Second, RetryAfter: time.Second})
			return r.believed == 10
		},
		"an end that moves by two seconds is the same": func() bool {
			r := retry(20, 10)
			r.confirmed(&Sample{Sent: 10 * time.Second, Now: 11 * time.Second, RetryAfter: 11 * time.Second})
			return r.believed == 20
		},
		"a refusal without an end confirms none": func() bool {
			r := retry(20, 10)
			r.confirmed(&Sample{Sent: 10 * time.Second, Now: 18 * time.Second})
			return r.believed == 10
		},
		"fields name the same end, two seconds apart": func() bool {
			q := Quota{Limit: 1, Reset: 32 * time.Second}
			return retry(30, 1).meant(&Sample{RetryAfter: 30 * time.Second, Quota: q})
		},
		"an interval is no short pause": func() bool {
			s := at(2, 0, false)
			return !s.obeys(&Sample{RetryAfter: time.Second / 2}, true) && !s.obeys(&Sample{RetryAfter: rounded}, false)
		},
		"a quota of which a fifth is free is no contradiction": func() bool {
			h := headroom{measured: true, free: roomLeast, trust: .5}
			h.judge()
			return h.trust == .75
		},
		"a long quota that is just used up is a claim": func() bool {
			h := headroom{measured: true, long: true}
			return h.claims()
		},
		"a part of .8 % or of 5 % may be chance, and half or twice it is another": func() bool {
			least, most, other := chance{before: chanceLeast}, chance{before: chanceMost}, chance{before: .02}
			return least.judge(chanceLeast, true, 0) && most.judge(chanceMost, true, 0) &&
				!other.judge(.01, true, 0) && !other.judge(.02, true, 0)
		},
		"who was held back a second ago is not wanting any more": func() bool {
			s := at(1e6, 0, false)
			s.wanted = true
			return s.wants(time.Second-1) && !s.wants(time.Second)
		},
		"sums beyond what is sound are no report": func() bool {
			f, g := Fleet{Weight: greatestRate, Rate: .75e12, Used: .25e12}, Fleet{Weight: 1, Rate: .75e12, Refused: .75e12}
			h := Fleet{Weight: 1, Rate: .75e12, Used: .75e12}
			return f.sound() && !g.sound() && !h.sound()
		},
		"the least share and the largest quota are some": func() bool {
			return known(leastShare) && Quota{Limit: math.MaxFloat64, Remaining: math.MaxFloat64}.Known()
		},
		"a window is remembered for as long as an outage lasts longer": func() bool {
			s := at(10, 0, true)
			s.blackout.ill, s.blackout.firstBad = true, time.Minute
			s.blackout.end(s, &Sample{Now: 3 * time.Minute})
			return s.blackout.cycled == time.Hour+2*time.Minute
		},
		"AIMD waits out a pause, whatever comes in the same instant": func() bool {
			a := AIMD{}.New(1)
			a.Next(Sample{}, Bounds{Share: 1})
			a.Next(Sample{Outcome: Throttled, RetryAfter: time.Second}, Bounds{Share: 1})
			waits := a.Next(Sample{}, Bounds{Share: 1}).NotBefore == time.Second
			return waits && a.Next(Sample{Now: time.Second}, Bounds{Share: 1}).NotBefore == 0
		},
	} {
		if !ok() {
			t.Error("not so: " + what)
		}
	}
}
