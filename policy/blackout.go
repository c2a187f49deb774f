package policy

import (
	"math"
	"time"
)

const (
	// darkAfter seconds of nothing but refusals, or darkIntervals between requests if that is longer, are a blackout. Four
	// refusals in a row are 40 ms at 90 requests per second: only time tells. Two in a row are chance at one request a second.
	darkAfter, darkIntervals = 0.8, 2.0
	// Probes come after probeFirst seconds, then twice as long each time, up to probeMost: a window of a minute is then found
	// open ten seconds late at most, and refuses eight probes. Who asks more seldom than that when all is well does so now, too.
	probeFirst, probeMost = 0.5, 10.0
	// retryMost is the longest Retry-After that is believed at once; mostDoublings later it is half an hour.
	retryMost     = 30.0
	mostDoublings = 6
	// retryJitter spreads those that were told the same Retry-After: later only.
	retryJitter = 0.1
	// cyclesKept is how many cycles the length of the last one is remembered.
	cyclesKept = 3
	// longestWindow is the longest time, in seconds, for which the end of a window refuses everything: a minute, and what the
	// last probe comes late. What lasts longer is an incident: growth after it must not be slow, and one in which the upstream
	// says "at once" for ever must not be answered with a request each round trip.
	longestWindow = 75.0
	// heldLeast is the part of the time before a blackout in which the pace must have held requests back, for what was served to
	// be all that could be. A queue that never empties is seen in about half of all answers.
	heldLeast = 0.1
	// floorKept: a hint stays trusted if what was served is at least this part of it; less, and it is wrong.
	floorKept = 0.5
)

// blackout is what the law knows about times when nothing is served, as at the end of a fixed
// window. The first success ends it: what was served since the end of the last one, by the time that took, is the
// rate that would have lasted.
type blackout struct {
	firstBad time.Duration // of the refusals since the last success
	bad      bool          // there are any
	before   struct{ rate, top, quiet, floor float64 }

	dark   bool
	until  time.Duration // no request before it
	probes int

	began  time.Duration // the end of the last blackout, or the beginning
	served float64       // since then
	held   float64       // seconds since then in which the pace held requests back
	cycle  float64       // seconds that the last one took
	cycled time.Duration // when it is forgotten
}

func (b *blackout) begin(now time.Duration) { b.began = now }

// cycleAt is the length of the upstream's window as far as it is known, else 0.
func (b *blackout) cycleAt(now time.Duration) float64 {
	if now < b.cycled {
		return b.cycle
	}
	return 0
}

// refusal looks for a blackout, and tells whether there is one.
func (b *blackout) refusal(t *tracking, s *Sample) bool {
	if b.dark {
		b.missed(t, s)
		return true
	}
	if !b.bad {
		b.bad, b.firstBad = true, s.Now
		b.before.rate, b.before.top, b.before.quiet, b.before.floor = t.rate, t.plateau.top, t.plateau.quiet, t.share.floor
	}
	dark := (s.Now - b.firstBad).Seconds()
	if !t.has(RuleBlackout) || dark <= max(darkAfter, darkIntervals/t.perSecond(b.before.rate)) || s.Sent < b.firstBad {
		return false
	}
	if t.has(RuleRestore) {
		t.rate, t.plateau.top, t.plateau.quiet, t.share.floor = b.before.rate, b.before.top, b.before.quiet, b.before.floor
	}
	b.dark, b.probes = true, 0
	b.wait(t, s)
	return true
}

// missed is a probe that has not succeeded.
func (b *blackout) missed(t *tracking, s *Sample) {
	if b.dark && s.Sent >= b.until {
		b.wait(t, s)
	}
}

// wait sets the instant of the next probe. A Retry-After longer than retryMost is believed step by step: half
// a minute at first, then one, two, up to half an hour. One that is shorter than what the law would wait by itself is not
// believed in an incident.
func (b *blackout) wait(t *tracking, s *Sample) {
	doublings := math.Ldexp(1, b.probes)
	interval := 1 / t.perSecond(t.rate)
	wait := max(probeFirst, interval) * doublings * (.5 + t.fraction())
	wait = min(wait, max(probeMost, interval))
	if told := s.RetryAfter.Seconds(); told > wait || told > 0 && !b.incident(s.Now) {
		wait = min(told, retryMost*doublings) * (1 + retryJitter*t.fraction())
	}
	b.probes = min(b.probes+1, mostDoublings)
	b.until = s.Now + time.Duration(wait*float64(time.Second))
}

// incident tells that nothing has been served for longer than the end of a window would explain.
func (b *blackout) incident(now time.Duration) bool {
	return (now - b.firstBad).Seconds() > longestWindow
}

// clear notes a success of a request that was sent at an instant: what comes late from before the first refusal is none.
func (b *blackout) clear(sent time.Duration) {
	if sent >= b.firstBad {
		b.bad = false
	}
}

// count counts a success.
func (b *blackout) count(t *tracking, s *Sample) {
	b.clear(s.Sent)
	b.served += t.cost
}

// end is the first success after a blackout.
func (b *blackout) end(t *tracking, s *Sample) {
	took := max((s.Now - b.began).Seconds(), probeFirst)
	t.rate = b.served / took
	if b.held < heldLeast*(b.firstBad-b.began).Seconds() { // little was asked for: it proves little
		t.rate = max(t.rate, b.before.rate*(1-slowCutPart))
	}
	if f := t.share.floor; t.rate < f && t.has(RuleFloor) {
		if t.rate < floorKept*f {
			t.share.floor = t.rate
		} else {
			t.rate = f
		}
	}
	t.plateau.slow = false
	t.plateau.rest(t.rate)
	window := took <= probeSlowest && !b.incident(s.Now)
	*b = blackout{began: s.Now, firstBad: s.Now}
	if window && t.has(RuleCycle) {
		b.cycle = took
		b.cycled = s.Now + time.Duration(cyclesKept*b.cycle*float64(time.Second))
	}
}
