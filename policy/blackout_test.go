package policy_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// Nothing but refusals is a blackout after 0.4 seconds, or after two intervals between requests if those are
// longer.
func TestBlackoutBegins(t *testing.T) {
	for _, c := range []struct{ share, every, after float64 }{
		{100, 0.1, 0.5}, {10, 0.1, 0.5}, {10, 0.4, 0.8}, {1, 0.5, 2.5}, {0.5, 1, 5}, {0.1, 4, 24},
	} {
		l := born(c.share)
		first := l.now + c.every
		l.darken(t, c.every)
		near(t, fmt.Sprintf("at a share of %v, refused every %v s", c.share, c.every), l.now-first, c.after)
	}
}

func TestNoBlackout(t *testing.T) {
	l := born(10)
	l.refuse(0.1)
	for range 100 { // sent before the first refusal, answered later and later
		l.tell(policy.Sample{Outcome: policy.Throttled, Now: seconds(l.now + 0.1),
			Sent: seconds(0.05), Cost: 1})
	}
	wrong(t, l.NotBefore != 0, "refusals of what was sent before the first are a blackout")
	l = born(10)
	for range 100 {
		l.refuse(0.7)
		l.serve(0.05)
	}
	wrong(t, l.NotBefore != 0, "refusals with successes between them are a blackout")
}

// A late success of what was sent before the first refusal does not interrupt the refusals, and one of what
// was sent before the last does not end the blackout.
func TestLateSuccess(t *testing.T) {
	l := born(10)
	for range 12 {
		l.refuse(0.1)
		l.tell(policy.Sample{Outcome: policy.Success, Now: seconds(l.now), Sent: 0, Cost: 1, Paced: true})
	}
	if l.gate() <= 0 {
		t.Fatal("successes from before the refusals keep a blackout from beginning")
	}
	gated := l.Pace
	l.tell(policy.Sample{Outcome: policy.Success, Now: seconds(l.now + 0.1), Sent: seconds(0.1), Cost: 1,
		Paced: true})
	wrong(t, l.Pace != gated, "a success from before the blackout changes %+v to %+v", gated, l.Pace)
	if l.probe(policy.Success); l.gate() > 0 {
		t.Error("a probe's success does not end the blackout")
	}
}

// Probes come after half a second and then twice as long each time, up to ten seconds, and a quarter of that
// sooner or later.
func TestProbes(t *testing.T) {
	for _, outcome := range []policy.Outcome{policy.Throttled, policy.Unavailable, policy.Failed} {
		l := born(10)
		l.darken(t, 0.1)
		least, most := math.Inf(1), 0.0
		for k := range 60 {
			mean := min(10, 0.5*math.Pow(2, float64(k)))
			within(t, fmt.Sprintf("probe %d after %v", k, outcome), l.gate(), mean*0.75, mean*1.25)
			least, most = min(least, l.gate()/mean), max(most, l.gate()/mean)
			l.probe(outcome)
		}
		wrong(t, most-least < 0.4, "probes come at %.2f to %.2f of the mean: too little jitter", least, most)
	}
}

// Controllers of different seeds do not probe at the same instants.
func TestSeedsSpreadProbes(t *testing.T) {
	seen := map[float64]bool{}
	for seed := range uint64(20) {
		l := born(10)
		l.ctrl = policy.Tracking{}.New(seed)
		l.darken(t, 0.1)
		seen[l.gate()] = true
	}
	wrong(t, len(seen) < 20, "20 controllers have %d first probes", len(seen))
}

// A change of the bounds is no probe that failed.
func TestNewBoundsAreNoProbe(t *testing.T) {
	l := born(10)
	l.darken(t, 0.1)
	gated := l.NotBefore
	l.tell(policy.Sample{Now: gated + 1, Sent: gated + 1})
	wrong(t, l.NotBefore != gated, "it moves the gate from %v to %v", gated, l.NotBefore)
}

// Two refusals that are far apart prove nothing.
func TestTwoRefusalsAreNoBlackout(t *testing.T) {
	l := born(10)
	l.refuse(0.1)
	if l.refuse(5); l.gate() > 0 {
		t.Error("two refusals are a blackout")
	}
	if l.refuse(0.1); l.gate() <= 0 {
		t.Error("three in 5 seconds are none")
	}
}

// The requests served since the last blackout, divided by the time that they took, are the rate after it.
// With all that a window of ten seconds serves, one cycle is enough.
func TestRateAfterABlackout(t *testing.T) {
	l := born(10)
	l.serveFor(4, 0.1)
	l.darken(t, 0.1)
	for l.NotBefore < seconds(10) {
		l.probe(policy.Throttled)
	}
	rate := l.probe(policy.Success)
	near(t, "41 requests by the time", rate, 41/l.now)
	second := l.now
	l.serveFor(3, 0.1)
	l.darken(t, 0.1)
	near(t, "31 requests since then", l.probe(policy.Success), 31/(l.now-second))
}

// Where little was asked for, little was served: that proves little, and the controller goes by the rate
// that it had.
func TestLittleDemandProvesLittle(t *testing.T) {
	l := born(0)
	for range 20 {
		at := seconds(l.now + 1)
		l.tell(policy.Sample{Outcome: policy.Success, Now: at, Sent: at - seconds(rtt), Cost: 1})
	}
	l.darken(t, 0.1)
	near(t, "20 requests in 20 seconds, none held back", l.probe(policy.Success), 3.5)
}

// A floor is trusted on if half of it was served, and goes down to what was served if less.
func TestFloorAfterABlackout(t *testing.T) {
	l := born(10)
	l.serveFor(2, 0.1)
	l.darken(t, 0.1)
	for l.NotBefore < seconds(20) {
		l.probe(policy.Throttled)
	}
	rate := l.probe(policy.Success)
	near(t, "a tenth of the share was served", rate, 21/l.now)
	within(t, "and four seconds later", l.serveFor(4, 0.1), rate, rate*1.1)
}

// Two blackouts that end 20 seconds after each other show a window: growth is as slow as that.
func TestGrowthAfterTwoBlackouts(t *testing.T) {
	l, before := born(0), 0.0
	for range 2 {
		end := l.now + 20
		l.serveFor(10, 0.1)
		l.darken(t, 0.1)
		for l.NotBefore < seconds(end) {
			l.probe(policy.Throttled)
		}
		before = l.probe(policy.Success)
	}
	within(t, "the growth of 12 s", l.serveFor(12, 0.1)/before, 1, 1.03)
}

// Behind a gate the rate is what is expected when it opens. Should a probe never be answered, further ones
// follow at the least rate.
func TestRateBehindTheGate(t *testing.T) {
	for _, c := range []struct{ share, least float64 }{{10, 0.2}, {0.1, 0.02}, {1000, 1}, {1e12, 1}} {
		l := born(c.share).darken(t, 1)
		near(t, "the rate behind a gate", l.Rate, c.share)
		near(t, "probes a second", 1/l.Probe().Seconds(), c.least)
	}
}

// A controller counts units, and its probes are requests.
func TestProbesAreRequests(t *testing.T) {
	for _, cost := range []float64{1, 0.01, 500} {
		l := born(0)
		for range 20 {
			at := seconds(l.now + 1)
			l.tell(policy.Sample{Outcome: policy.Throttled, Now: at, Sent: at - seconds(rtt), Cost: cost,
				Paced: true})
		}
		near(t, fmt.Sprintf("the time between probes at a cost of %v", cost), l.Probe().Seconds(), 50)
	}
}

// In an outage there is at most one probe a second on the mean, whatever the outcome, and the rate is as
// before after it.
func TestOutage(t *testing.T) {
	for _, o := range []policy.Outcome{policy.Unavailable, policy.Failed} {
		l := born(10)
		before := l.serveFor(5, 0.1)
		for range 12 {
			l.answer(0.1, o)
		}
		if l.gate() <= 0 {
			t.Fatalf("%s: twelve in a row are no outage", o)
		}
		begin, probes := l.now, 0
		for ; l.now < begin+60; probes++ {
			l.probe(o)
		}
		within(t, o.String()+": probes in a minute", float64(probes), 25, 60)
		near(t, o.String()+": the rate after it", l.probe(policy.Success), before)
	}
}

// A few failures among successes change nothing, nor do failures during a run of refusals.
func TestFailuresThatAreNoOutage(t *testing.T) {
	l := born(10)
	for i := range 200 {
		o := policy.Failed
		if i%10 == 0 {
			o = policy.Success
		}
		if l.answer(0.05, o); l.gate() > 0 {
			t.Fatalf("nine failures of ten are an outage at %v s", l.now)
		}
	}
}

// A refusal in an outage turns it into a blackout, which probes more seldom.
func TestOutageThatBecomesABlackout(t *testing.T) {
	l := born(10)
	for l.gate() <= 0 {
		l.answer(0.1, policy.Unavailable)
	}
	for range 8 {
		l.probe(policy.Throttled)
	}
	within(t, "the wait after eight refused probes", l.gate(), 7, 13)
}

// paused is a refusal that announces a pause, of a request that was sent at an instant.
func (l *life) paused(at, sent float64, pause time.Duration) float64 {
	return l.say(policy.Throttled, sent, at, pause)
}

// darkenUntil refuses everything until the controller stops, and announces what it is given of the instant.
func (l *life) darkenUntil(pause func(now float64) time.Duration) *life {
	for range 100 {
		if at := l.now + 0.1; l.gate() <= 0 {
			l.paused(at, at-rtt, pause(at))
		}
	}
	return l
}

// refused is the next probe, refused, with a pause announced.
func (l *life) refused(pause func(now float64) time.Duration) float64 {
	sent := l.NotBefore.Seconds()
	return l.paused(sent+rtt, sent, pause(sent+rtt))
}

func always(d time.Duration) func(float64) time.Duration {
	return func(float64) time.Duration { return d }
}

// until announces the same end each time, in whole seconds.
func until(end float64) func(float64) time.Duration {
	return func(now float64) time.Duration { return seconds(math.Ceil(end - now)) }
}

// An announced pause stops the key at once, and is waited out up to Retry.Longest; up to a tenth later, never
// earlier. Where pauses are to be tested that is so after ten seconds of each, until tests confirm it.
func TestRetryAfter(t *testing.T) {
	obey, test := policy.Retry{}, policy.Retry{Test: true}
	for _, c := range []struct {
		name  string
		retry policy.Retry
		pause func(float64) time.Duration
		waits []float64
	}{
		{"2 s", obey, always(2 * time.Second), []float64{2, 2, 2, 2, 2}},
		{"29 s", test, always(29 * time.Second), []float64{10, 10, 10}},
		{"100 s, always anew", obey, always(100 * time.Second), []float64{100, 100, 100}},
		{"100 s, at most a minute", policy.Retry{Longest: time.Minute}, always(100 * time.Second), []float64{60, 60, 60}},
		{"a year, always anew", obey, always(365 * 24 * time.Hour), []float64{600, 600, 600, 600}},
		{"for ever", obey, always(math.MaxInt64), []float64{600, 600}},
		{"for ever, at most a day", policy.Retry{Longest: 24 * time.Hour}, always(math.MaxInt64), []float64{3600, 3600}},
		{"a day, always the same end", obey, until(86400), []float64{600, 600, 600}},
		{"a day, tested", test, until(86400), []float64{10, 20, 40, 80, 160, 320, 600, 600}},
		{"a second", obey, always(time.Second), []float64{1, 1, 1}},
	} {
		l, latest := lives(policy.Tracking{Retry: c.retry}, 10).darkenUntil(c.pause), 0.0
		for i, wait := range c.waits {
			within(t, fmt.Sprintf("Retry-After %s, probe %d", c.name, i), l.gate(), wait, wait*1.1)
			latest = max(latest, l.gate()/wait)
			l.refused(c.pause)
		}
		wrong(t, latest == 1, "Retry-After %s: all come back at once", c.name)
	}
	for _, none := range []time.Duration{0, -time.Second, math.MinInt64} {
		l := born(10)
		l.darken(t, 0.1)
		within(t, "no Retry-After", l.refused(always(none)), 0.5, 1.5)
	}
}

// The second refusal in a row stops the key for a pause of a second, which may be a rounded-up millisecond. A
// refusal that was on its way when the first one came is none, and a pause shorter than the interval stops nothing.
func TestShortPauses(t *testing.T) {
	for _, c := range []struct {
		share, pause, sent float64
		stops              [2]bool
	}{
		{10, 1, 1.1, [2]bool{false, true}}, {10, 1, 0.95, [2]bool{false, false}}, {10, 1.5, 1.1, [2]bool{true, true}},
		{10, 60, 0.95, [2]bool{true, true}}, {10, 0.05, 1.1, [2]bool{}}, {0.5, 1, 1.1, [2]bool{}},
		{0.5, 1.5, 1.1, [2]bool{true, true}},
	} {
		l := born(c.share)
		l.serve(0.5)
		first := l.paused(1, 0.95, seconds(c.pause)) > 0
		if got := [2]bool{first, l.paused(1.2, c.sent, seconds(c.pause)) > 0}; got != c.stops {
			t.Errorf("%+v: it stops %v", c, got)
		}
	}
}

// What is in flight when a pause is announced may name a later end, or the pause that a 503 demands. Neither
// costs more of the rate than the first refusal.
func TestPausesAtOnce(t *testing.T) {
	l := born(10)
	l.serveFor(5, 0.1)
	within(t, "the first pause", l.paused(5.1, 5, 20*time.Second), 20, 22)
	rate := l.Rate
	within(t, "an earlier end is none", l.paused(5.2, 5, 5*time.Second), 19, 22)
	within(t, "a later end counts", l.paused(5.3, 5, time.Minute), 60, 66)
	near(t, "the rate", l.probe(policy.Success), rate)
	near(t, "the floor yields to it as to three refusals", rate, 9.9*(1-.02*3))
	l = born(10)
	within(t, "a 503 that demands a minute", l.say(policy.Unavailable, .9, 1, time.Minute), 60, 66)
	near(t, "its rate", l.probe(policy.Success), 10)
}

// say is an answer to a request that was sent at an instant, with the pause that it announces. It returns how long
// the controller waits then.
func (l *life) say(o policy.Outcome, sent, at float64, pause time.Duration) float64 {
	l.tell(policy.Sample{Outcome: o, Now: seconds(at), Sent: seconds(sent), Cost: 1, Paced: true, RetryAfter: pause})
	return l.gate()
}

// Whatever came before, an announced pause is obeyed, and nothing that was sent before it was announced ends it.
func TestPausesInAnyState(t *testing.T) {
	const refused, failed, served = policy.Throttled, policy.Unavailable, policy.Success
	type answer struct {
		policy.Outcome
		sent, at float64
		pause    time.Duration
	}
	for what, c := range map[string]struct {
		wait float64
		said []answer
	}{
		"a success from between a cut and the pause": {59.5,
			[]answer{{refused, 9.9, 10, 0}, {refused, 9.95, 10.01, time.Minute}, {served, 10.005, 10.05, 0}}},
		"a success of one probe after another's 503": {59.5,
			[]answer{{refused, 9.9, 10, 2 * time.Second}, {failed, 12.3, 12.35, time.Minute}, {served, 12.29, 12.4, 0}}},
		"in a blackout that began without one": {60, []answer{{refused, 10, 10.1, 0}, {refused, 10.11, 10.3, 0},
			{refused, 10.2, 10.6, 0}, {refused, 10.5, 10.65, time.Minute}}},
		"in an outage that began without one": {60, []answer{{failed, 10, 10.1, 0}, {failed, 10.11, 10.3, 0},
			{failed, 10.2, 10.6, 0}, {failed, 10.5, 10.65, time.Minute}}},
		"in flight, for ever": {600,
			[]answer{{refused, 9.9, 10, 5 * time.Second}, {refused, 9.9, 10.1, math.MaxInt64}}},
		"a second, by a 429 and a 503": {1, []answer{{refused, 9.9, 10, time.Second}, {failed, 10.1, 10.2, time.Second}}},
		"a second, by a 503 and a 429": {1, []answer{{failed, 9.9, 10, time.Second}, {refused, 10.1, 10.2, time.Second}}},
		"a probe that fails, after many later ends": {.7, []answer{{refused, 9.9, 10, 2 * time.Second},
			{refused, 9.9, 11, 2 * time.Second}, {refused, 9.9, 12, 2 * time.Second}, {refused, 9.9, 13, 2 * time.Second},
			{failed, 15.3, 15.4, 0}}},
	} {
		for _, share := range []float64{0, 20} {
			l := born(share)
			l.serveFor(5, 0.1)
			wait := 0.0
			for _, a := range c.said {
				wait = l.say(a.Outcome, a.sent, a.at, a.pause)
			}
			within(t, fmt.Sprintf("%s, a share of %v", what, share), wait, c.wait, max(1.1*c.wait, 1.3))
		}
	}
}

// blackouts returns how long the first wait of each blackout is. Each announces a pause, and is over after
// the first probe.
func blackouts(p policy.Retry, n int, pause func(now float64) time.Duration) (waits []float64) {
	l := lives(policy.Tracking{Retry: p}, 10)
	l.serveFor(5, 0.1)
	for range n {
		l.darkenUntil(pause)
		waits = append(waits, l.gate())
		l.probe(policy.Success)
		l.serveFor(5, 0.1)
	}
	return waits
}

// A pause that is served before its end was not meant, and the next is believed less: at last the controller
// probes as if nothing were announced. A Retry-After that was waited out proves nothing.
func TestRefutedPauses(t *testing.T) {
	for _, c := range []struct {
		retry policy.Retry
		pause time.Duration
		waits []float64 // at least; a tenth more at most
	}{
		{policy.Retry{}, time.Hour, []float64{600, 10, 5, 2.5, 1.25}},
		{policy.Retry{Test: true}, time.Hour, []float64{10, 5, 2.5, 1.25}},
		{policy.Retry{Longest: 5 * time.Second}, time.Hour, []float64{5, 2.5, 1.25}},
		{policy.Retry{}, time.Minute, []float64{60, 60, 60, 60}},
		{policy.Retry{Test: true}, 8 * time.Second, []float64{8, 8, 8, 8}},
	} {
		for i, got := range blackouts(c.retry, len(c.waits), always(c.pause)) {
			within(t, fmt.Sprintf("%+v, %v, blackout %d", c.retry, c.pause, i), got, c.waits[i], c.waits[i]*1.1)
		}
	}
}

// Requests served between refusals, before the announced time has ended, refute it before the first
// blackout.
func TestPausesRefutedWithoutABlackout(t *testing.T) {
	l := lives(policy.Tracking{Retry: policy.Retry{Test: true}}, 10)
	for range 10 {
		l.paused(l.now+0.1, l.now+0.1-rtt, time.Minute)
		l.serveFor(3, 0.1)
	}
	within(t, "the first blackout after ten of them", l.darkenUntil(always(time.Minute)).gate(), 0.3, 1)
}

// Tests that are refused, and name the same end, confirm pauses: at last the controller obeys again.
func TestConfirmedPause(t *testing.T) {
	l := born(10)
	l.serveFor(5, 0.1)
	l.darkenUntil(always(time.Hour)).probe(policy.Success)
	l.serveFor(5, 0.1)
	end := l.now + 2000
	within(t, "a pause after one that was refuted", l.darkenUntil(until(end)).gate(), 10, 11)
	for l.NotBefore.Seconds() < end-3 {
		l.refused(until(end))
	}
	l.probe(policy.Success)
	l.serveFor(5, 0.1)
	within(t, "one refusal, after tests of a longer one", l.paused(l.now+0.1, l.now, time.Minute), 60, 66)
}

// A pause that is obeyed costs no rate but one cut. Where pauses are tested, a wait beyond the controller's own
// does not count against the rate, unless the pause is meant: it is short, or the fields name the same end.
func TestLongPauseCostsNoRate(t *testing.T) {
	after := func(test bool, pause, reset time.Duration) float64 {
		l := grown(policy.Tracking{Retry: policy.Retry{Test: test}})
		l.serveFor(10, 0.1)
		q := policy.Quota{Limit: 600, Reset: reset}
		for at := 0.0; l.gate() <= 0 && at < 30; {
			at = l.now + 0.1
			l.tell(policy.Sample{
				Outcome: policy.Throttled, Now: seconds(at), Sent: seconds(at - rtt), Cost: 1, Paced: true,
				RetryAfter: pause, Quota: q,
			})
		}
		return l.probe(policy.Success)
	}
	rate := grown(policy.Tracking{}).serveFor(10, 0.1)
	within(t, "after a minute that is obeyed", after(false, time.Minute, time.Minute)/rate, 0.88, 1)
	within(t, "after a minute that proves nothing", after(true, time.Minute, time.Hour), 7, 10)
	within(t, "after a minute that the fields confirm", after(true, time.Minute, time.Minute), 4.5, 5.5)
	within(t, "after nine seconds", after(true, 9*time.Second, time.Hour), 4.5, 5.5)
}
