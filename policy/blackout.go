package policy

import (
	"math"
	"time"
)

const (
	// darkAfter seconds of nothing but refusals, or darkIntervals between requests if that is longer, are a
	// blackout. Four refusals in a row are 40 ms at 90 requests per second: only time tells. Two in a row are
	// chance at one request a second. Nor do two, one at the end of a burst and one at the beginning of the
	// next, prove anything: three do.
	darkAfter, darkIntervals = 0.4, 2.0
	darkRefusals             = 3
	// Probes come after probeFirst seconds, then twice as long each time, up to probeMost. A window of a
	// minute is then found open about ten seconds late at most, and refuses eight probes. A client that asks
	// more seldom than that when all is well does so now, too, up to half an hour.
	probeFirst, probeMost = 0.5, 10.0
	// probeIll takes the place of probeMost in an outage: less than one probe a second, and back soon.
	probeIll      = 2.0
	mostDoublings = 6 // more would overflow, some day
	// retryJitter spreads those that got the same Retry-After: later only.
	retryJitter = 0.1
	// cyclesKept is how many cycles the length of the last one is remembered.
	cyclesKept = 3
	// cycleAlike bounds how unlike two cycles in a row may be that show a window. The first may have begun in
	// its middle.
	cycleAlike = 2.0
	// longestWindow is the longest time for which the end of a window refuses everything: a minute, and what
	// the last probe comes late. A longer time is an incident: the rest of it proves nothing about the
	// limit, and growth after it must not be slow. When the upstream says "at once" for ever, that must not
	// be answered with a request each round trip.
	longestWindow = 75 * time.Second
	// heldLeast is the part of the time before a blackout in which the pace must have held requests back, for
	// what was served to be all that could be. A queue that never empties is seen in about half of all answers.
	heldLeast = 0.1
	// floorKept: a hint stays trusted if what was served is at least this part of it; less, and it is wrong.
	floorKept = 0.5
)

// blackout is what the controller knows about times when nothing is served, as at the end of a fixed window.
// The first success ends it: what was served since the end of the last one, by the time that took, is the
// rate that would have lasted. No more than a window's part of an incident's time counts.
type blackout struct {
	firstBad time.Duration // of the refusals since the last success
	bad      bool          // there are any
	refused  int           // so many
	before   struct {
		rate, top, quiet float64
		share            share
	}

	dark   bool
	ill    bool          // of requests that failed and were not refused: they say nothing about the limit
	until  time.Duration // no request before it
	proven time.Duration // what is waited beyond it proves nothing: it was announced, but not confirmed
	probes int

	began  time.Duration // the end of the last blackout, or the beginning
	served float64       // since then
	held   float64       // seconds since then in which the pace held requests back
	cycle  float64       // seconds from the end of the one before to the end of the last; 0 if that was no window
	cycled time.Duration // when it is forgotten
	took   float64       // seconds from the end of the one before the last to its end
}

// cycleAt is the length of the upstream's window as far as it is known, else 0.
func (b *blackout) cycleAt(now time.Duration) float64 {
	if now < b.cycled {
		return b.cycle
	}
	return 0
}

// failure is a request that was not refused and not served: nothing but these is a blackout too, an outage.
func (b *blackout) failure(t *tracking, s *Sample) bool {
	if b.bad && !b.ill && !b.dark {
		return false // refusals say more
	}
	b.ill = b.ill || !b.dark
	return b.refusal(t, s)
}

// refusal looks for a blackout, and reports whether there is one.
func (b *blackout) refusal(t *tracking, s *Sample) bool {
	if s.Outcome == Throttled && b.ill && !b.dark {
		b.bad, b.ill = false, false // a run of refusals begins
	}
	if b.dark {
		b.missed(t, s)
		return true
	}
	if !b.bad {
		b.bad, b.firstBad, b.refused = true, s.Now, 0
		b.before.rate, b.before.top, b.before.quiet, b.before.share = t.rate, t.plateau.top, t.plateau.quiet, t.share
	}
	b.refused++
	dark := (s.Now - b.firstBad).Seconds()
	if !t.has(RuleBlackout) || b.refused < darkRefusals ||
		dark <= max(darkAfter, darkIntervals/t.perSecond(b.before.rate)) || s.Sent < b.firstBad {
		return false
	}
	if t.has(RuleRestore) {
		t.rate, t.plateau.top, t.plateau.quiet = b.before.rate, b.before.top, b.before.quiet
		if b.before.share.given == t.share.given {
			t.share = b.before.share
		}
	}
	b.dark, b.probes = true, 0
	b.wait(t, s)
	return true
}

// missed is a probe that has not succeeded, whatever became of it; also one whose refusal another controller
// answers for.
func (b *blackout) missed(t *tracking, s *Sample) {
	if b.dark && s.Sent >= b.until && s.Sent < s.Now { // else it is no answer, but a change of the bounds
		b.ill = b.ill && s.Outcome != Throttled
		t.retry.confirmed(s)
		b.wait(t, s)
	}
}

// wait sets the instant of the next probe: a longer Retry-After counts as far as it is believed, a shorter
// one unless this is an incident.
func (b *blackout) wait(t *tracking, s *Sample) {
	interval := min(1/t.perSecond(t.rate), believedMost)
	doublings := math.Ldexp(1, b.probes)
	most := probeMost
	if b.ill {
		most = probeIll
	}
	wait := min(max(probeFirst, interval)*doublings, max(most, interval)) * (.75 + .5*t.fraction())
	t.retry.announced(s)
	b.proven = farAway
	if !t.retry.meant(s) {
		b.proven = s.Now + time.Duration(wait*float64(time.Second))
	}
	if announced := s.RetryAfter.Seconds(); announced > wait || announced > 0 && !b.incident(s.Now) {
		wait = max(min(wait, announced), t.retry.wait(announced)) * (1 + retryJitter*t.fraction())
	}
	b.probes = min(b.probes+1, mostDoublings)
	b.until = s.Now + time.Duration(wait*float64(time.Second))
}

// incident reports whether nothing has been served for longer than the end of a window would explain.
func (b *blackout) incident(now time.Duration) bool { return now-b.firstBad > longestWindow }

// clear notes a success of a request that was sent at an instant. Late answers to requests from before the
// first refusal do not count.
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

// lasted is how long what was served has to last, in seconds, if the blackout ends now.
func (b *blackout) lasted(now time.Duration) float64 {
	return max((min(now, b.firstBad+longestWindow, b.proven) - b.began).Seconds(), probeFirst)
}

// end is the first success after a blackout.
func (b *blackout) end(t *tracking, s *Sample) {
	switch {
	case t.fresh: // nothing was served: there is nothing to learn from
		*b = blackout{began: s.Now, firstBad: s.Now}
		return
	case b.ill:
		*b = blackout{began: s.Now, firstBad: s.Now, cycle: b.cycle, cycled: b.cycled + s.Now - b.firstBad}
		return
	}
	took := b.lasted(s.Now)
	t.rate = b.served / took
	if b.held < heldLeast*(b.firstBad-b.began).Seconds() { // little was asked for: it proves little
		t.rate = max(t.rate, b.before.rate*(1-slowCutPart))
	}
	if f := t.share.floor(); t.rate < f && t.has(RuleFloor) {
		if t.rate < floorKept*f && t.share.since < b.began {
			t.share.refute(true)
		} else {
			t.rate = f
		}
	}
	t.plateau.slow = false
	t.plateau.rest(t.rate)
	window := took <= probeSlowest && !b.incident(s.Now) && took < cycleAlike*b.took && b.took < cycleAlike*took
	*b = blackout{began: s.Now, firstBad: s.Now, took: took}
	if window && t.has(RuleCycle) {
		b.cycle = took
		b.cycled = s.Now + time.Duration(cyclesKept*b.cycle*float64(time.Second))
	}
}
