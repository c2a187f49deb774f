package policy_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// paused is a refusal that announces a pause, of a request that was sent at an instant.
func (l *life) paused(at, sent float64, pause time.Duration) float64 {
	l.tell(policy.Sample{
		Outcome: policy.Throttled, Now: seconds(at), Sent: seconds(sent), Cost: 1, Paced: true,
		RetryAfter: pause,
	})
	return l.gate()
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

// A Retry-After counts in a blackout alone, and is waited out up to a minute; up to a tenth later, never
// earlier. A Retry-After that proves true is waited out up to half an hour.
func TestRetryAfter(t *testing.T) {
	if l := born(10, 0); l.paused(1, 0.95, time.Minute) > 0 {
		t.Error("one refusal shuts the gate")
	}
	for _, c := range []struct {
		name  string
		pause func(float64) time.Duration
		waits []float64
	}{
		{"2 s", always(2 * time.Second), []float64{2, 2, 2, 2, 2}},
		{"29 s", always(29 * time.Second), []float64{29, 29, 29}},
		{"a minute", always(time.Minute), []float64{60, 60, 60}},
		{"100 s, always anew", always(100 * time.Second), []float64{60, 60, 60}},
		{"a year, always anew", always(365 * 24 * time.Hour), []float64{60, 60, 60, 60}},
		{"for ever", always(math.MaxInt64), []float64{60, 60}},
		{"a day, always the same end", until(86400), []float64{60, 120, 240, 480, 960, 1800, 1800}},
	} {
		l, latest := born(10, 0).darkenUntil(c.pause), 0.0
		for i, wait := range c.waits {
			within(t, fmt.Sprintf("Retry-After %s, probe %d", c.name, i), l.gate(), wait, wait*1.1)
			latest = max(latest, l.gate()/wait)
			l.refused(c.pause)
		}
		if latest == 1 {
			t.Errorf("Retry-After %s: all come back at once", c.name)
		}
	}
	for _, none := range []time.Duration{0, -time.Second, math.MinInt64} {
		l := born(10, 0)
		l.darken(t, 0.1)
		within(t, "no Retry-After", l.refused(always(none)), 0.5, 1.5)
	}
}

// blackouts returns how long the first wait of each blackout is. Each announces a pause, and is over after
// the first probe.
func blackouts(n int, pause func(now float64) time.Duration, between func(l *life)) (waits []float64) {
	l := born(10, 0)
	l.serveFor(5, 0.1)
	for range n {
		l.darkenUntil(pause)
		waits = append(waits, l.gate())
		l.probe(policy.Success)
		between(l)
	}
	return waits
}

// A pause that is served before its end was not meant, and the next is believed less: at last the controller
// probes as if nothing were announced. A Retry-After that was waited out proves nothing, so the next is
// tested in the middle.
func TestRefutedPauses(t *testing.T) {
	served := func(l *life) { l.serveFor(5, 0.1) }
	for _, c := range []struct {
		name  string
		pause time.Duration
		waits []float64 // at least; a tenth more at most
	}{
		{"an hour", time.Hour, []float64{60, 15, 10, 7.5, 3.75, 1.875, 0.94}},
		{"a minute", time.Minute, []float64{60, 30, 15, 10, 7.5}},
		{"eight seconds", 8 * time.Second, []float64{8, 8, 8, 8}},
	} {
		for i, got := range blackouts(len(c.waits), always(c.pause), served) {
			within(t, fmt.Sprintf("%s, blackout %d", c.name, i), got, c.waits[i], c.waits[i]*1.1)
		}
	}
}

// Requests served between refusals, before the announced time has ended, refute it before the first
// blackout.
func TestPausesRefutedWithoutABlackout(t *testing.T) {
	l := born(10, 0)
	for range 10 {
		l.paused(l.now+0.1, l.now+0.1-rtt, time.Minute)
		l.serveFor(3, 0.1)
	}
	within(t, "the first blackout after ten of them", l.darkenUntil(always(time.Minute)).gate(), 0.3, 1)
}

// A test that is refused, and names the same end, confirms it: the controller waits for that end.
func TestConfirmedPause(t *testing.T) {
	l := born(10, 0)
	l.serveFor(5, 0.1)
	l.darkenUntil(always(time.Minute)).probe(policy.Success)
	l.serveFor(5, 0.1)
	end := l.now + 50
	l.darkenUntil(until(end))
	within(t, "the second pause is tested in the middle", l.NotBefore.Seconds(), end-26, end-20)
	l.refused(until(end))
	within(t, "and waited out when confirmed", l.NotBefore.Seconds(), end-0.1, end+4)
}

// A wait beyond the controller's own does not count against the rate, unless the pause is meant. It is when
// it is short, or when the fields name the same end.
func TestLongPauseCostsNoRate(t *testing.T) {
	after := func(pause, reset time.Duration) float64 {
		l := born(10, policy.RuleFloor)
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
	within(t, "after a minute that proves nothing", after(time.Minute, time.Hour), 7, 10)
	within(t, "after a minute that the fields confirm", after(time.Minute, time.Minute), 1.2, 1.6)
	within(t, "after nine seconds", after(9*time.Second, time.Hour), 4.5, 5.5)
}
