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
	probeIll = 2.0
	// longestInterval bounds, in seconds, how seldom a key probes that is seldom used when all is well.
	longestInterval = 1800.0
	mostDoublings   = 6   // more would overflow, some day
	retryJitter     = 0.1 // spreads those that got the same Retry-After: later only
	cyclesKept      = 3   // how many cycles the length of the last one is remembered
	// cycleAlike bounds how unlike two cycles in a row may be that show a window. The first may have begun in
	// its middle.
	cycleAlike = 4.0
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
	refused  int           // so many since the last success
	firstBad time.Duration // the first of them
	before   float64       // the rate at the first of them

	dark   bool
	ill    bool          // of requests that failed and were not refused: they say nothing about the limit
	paused bool          // of announced pauses that are obeyed: these say nothing about it either
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

// failure is a request that was not refused and not served: nothing but these is a blackout too, an outage.
func (b *blackout) failure(t *tracking, s *Sample) bool {
	if b.refused > 0 && !b.ill && !b.dark && !t.obeys(s, b.again(s)) {
		return false // refusals say more
	}
	b.ill = b.ill || !b.dark
	return b.refusal(t, s)
}

// again reports whether a request was sent after the one before it was known to be refused.
func (b *blackout) again(s *Sample) bool { return b.refused > 0 && s.Sent >= b.firstBad }

// refusal looks for a blackout, and reports whether there is one.
func (b *blackout) refusal(t *tracking, s *Sample) bool {
	again := b.again(s)
	if b.dark {
		b.missed(t, s)
		return true
	}
	if s.Outcome == Throttled {
		t.retry.announced(s)
		if b.ill {
			b.refused, b.ill = 0, false // a run of refusals begins
		}
	}
	if b.refused == 0 {
		b.firstBad, b.before = s.Now, t.rate
	}
	b.refused++
	if t.obeys(s, again) {
		b.enter(t, s, true)
		return true
	}
	dark := (s.Now - b.firstBad).Seconds()
	if b.refused < darkRefusals ||
		dark <= max(darkAfter, darkIntervals/t.perSecond(b.before)) || s.Sent < b.firstBad {
		return false
	}
	b.enter(t, s, false)
	return true
}

// enter stops the key: in a pause that was announced, or in a blackout.
func (b *blackout) enter(t *tracking, s *Sample, paused bool) {
	b.dark, b.paused, b.probes = true, paused, 0
	b.wait(t, s)
}

// elsewhere is an answer that another controller of the key is told. A pause that it announces is the key's.
func (b *blackout) elsewhere(t *tracking, s *Sample) {
	if !b.dark && t.obeys(s, false) {
		b.refused, b.firstBad, b.before = 1, s.Now, t.rate
		b.enter(t, s, true)
		return
	}
	b.missed(t, s)
}

// missed is an answer in a blackout: a probe that has not succeeded, whatever became of it, also one whose refusal
// another controller answers for, or what was in flight and names a later end.
func (b *blackout) missed(t *tracking, s *Sample) {
	if b.dark && s.Sent < b.until && t.obeys(s, true) && s.RetryAfter > b.until-s.Now {
		b.wait(t, s)
	}
	if b.dark && s.Sent >= b.until && s.Sent < s.Now { // else it is no answer, but a change of the bounds
		b.ill = b.ill && s.Outcome != Throttled
		if b.paused && s.Outcome == Throttled && !t.obeys(s, true) { // from now on it is a blackout
			b.paused, b.began, b.firstBad = false, b.began+s.Now-b.firstBad, s.Now
		}
		t.retry.confirmed(s)
		b.probes = min(b.probes+1, mostDoublings)
		b.wait(t, s)
	}
}

// wait sets the instant of the next probe: a longer Retry-After counts as far as it is believed, a shorter
// one unless this is an incident.
func (b *blackout) wait(t *tracking, s *Sample) {
	interval := min(1/t.perSecond(t.rate), longestInterval)
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
		wait = max(min(wait, announced), min(announced, t.retry.believed)) * (1 + retryJitter*t.fraction())
	}
	b.until = s.Now + time.Duration(wait*float64(time.Second))
}

// incident reports whether nothing has been served for longer than the end of a window would explain.
func (b *blackout) incident(now time.Duration) bool { return now-b.firstBad > longestWindow }

// clear notes a success of a request that was sent at an instant. Late answers to requests from before the
// first refusal do not count.
func (b *blackout) clear(sent time.Duration) {
	if sent >= b.firstBad {
		b.refused = 0
	}
}

// lasted is how long what was served has to last, in seconds, if the blackout ends now.
func (b *blackout) lasted(now time.Duration) float64 {
	return max((min(now, b.firstBad+longestWindow, b.proven) - b.began).Seconds(), probeFirst)
}

// end is the first success after a blackout.
func (b *blackout) end(t *tracking, s *Sample) {
	if t.fresh || b.ill || b.paused { // there is nothing to learn from
		*b = blackout{began: s.Now, firstBad: s.Now, cycle: b.cycle, cycled: b.cycled + s.Now - b.firstBad}
		return
	}
	took := b.lasted(s.Now)
	t.rate = b.served / took
	if b.held < heldLeast*(b.firstBad-b.began).Seconds() { // little was asked for: it proves little
		t.rate = max(t.rate, b.before*(1-slowCutPart))
	}
	if f := t.share.floor(); t.rate < f {
		if t.rate < floorKept*f && t.share.since < b.began {
			t.share.refute()
		} else {
			t.rate = f
		}
	}
	t.plateau.slow = false
	t.plateau.rest(t.rate)
	window := took <= probeSlowest && !b.incident(s.Now) && took < cycleAlike*b.took && b.took < cycleAlike*took
	*b = blackout{began: s.Now, firstBad: s.Now, took: took}
	if window {
		b.cycle = took
		b.cycled = s.Now + time.Duration(cyclesKept*b.cycle*float64(time.Second))
	}
}

const (
	// longestPause is how much of an announced pause is waited out unless Retry says otherwise: ten minutes.
	// A limiter stops a key for mostPause at most (Pace.NotBefore).
	longestPause, mostPause = 10 * time.Minute, time.Hour
	// testAfter is how many seconds of a pause are waited out before the first test, once an upstream's pauses
	// have been refuted. A pause that is announced for no longer than that needs no test.
	testAfter = 10.0
	// rounding is how far apart two announcements of the same end may be, and how early an honest one may
	// end. Each is rounded up to whole seconds, and read up to a second late.
	rounding = 2 * time.Second
	// rounded is the longest pause that does not stop a key by itself, but only the second time in a row: it is
	// mostly a wait of milliseconds in whole seconds. The first is answered by a cut.
	rounded = time.Second
)

// Retry is how a pause is taken that an upstream announces, in Retry-After or the like. The zero value obeys:
// the first announcement stops new requests of the key until the pause has ended, while those in flight go on. A
// pause of a second or less may be a rounded-up millisecond, so it stops the key only if the next refusal announces one
// too, and not if it is over before the pace allows the next request.
type Retry struct {
	// Longest is how much of a pause is waited out; then a single request tests whether it is meant. 0 or less
	// means ten minutes, and more than an hour an hour.
	Longest time.Duration
	// Test is for an upstream that is known to announce pauses that it does not mean. Without it a controller finds
	// that out when a request is served before the end of a pause; with it, it knows from the beginning. From then on a
	// pause stops the key only when nothing is served any more, and is tested after ten seconds.
	Test bool
}

// retry is what the controller makes of Retry-After. An announced pause is a prediction: nothing is served
// before its end. A request that is served all the same, although it was sent after the refusal, refutes it.
// A refused probe that was sent before the end, and is given the same end, confirms it.
type retry struct {
	most     float64       // seconds of a pause that are ever waited out
	believed float64       // seconds that are waited out before a test; most as long as no pause was refuted
	at, end  time.Duration // of the pause that was announced last; equal when it was judged
}

// judged reports whether no announced pause waits for the success that refutes it.
func (r *retry) judged() bool { return r.end <= r.at }

// announced notes a pause that a refusal announces.
func (r *retry) announced(s *Sample) {
	if s.RetryAfter > 0 {
		r.at, r.end = s.Now, s.Now+min(s.RetryAfter, farAway)
	}
}

// confirmed notes that a probe was refused. Called before its own announcement is noted.
func (r *retry) confirmed(s *Sample) {
	moved := s.Now + min(s.RetryAfter, farAway) - r.end
	if s.RetryAfter > 0 && s.Sent < r.end-rounding && max(moved, -moved) <= rounding {
		r.believed = min(2*r.believed, r.most)
	}
}

// served compares a success with the pause that stands. One that was waited out proves nothing.
func (r *retry) served(s *Sample) {
	if s.Sent < r.at || r.judged() {
		return
	}
	if s.Now < r.end-rounding {
		r.believed = max(min(r.believed/2, testAfter), probeFirst)
	}
	r.end = r.at
}

// obeys reports whether a refusal stops the key by itself: it announces a pause, none was refuted, and for one of a
// second or less, it is another one (again), and the pace alone does not keep it.
func (t *tracking) obeys(s *Sample, again bool) bool {
	short := again && s.RetryAfter.Seconds() > 1/t.perSecond(t.rate)
	return t.retry.believed >= t.retry.most && (s.RetryAfter > rounded || short)
}

// meant reports whether the time until the announced end counts as time in which nothing is served.
// It does when it is short, when a test has confirmed the last one, or when the fields name the same end.
func (r *retry) meant(s *Sample) bool {
	off := s.Quota.Reset - s.RetryAfter
	agrees := s.Quota.Known() && max(off, -off) <= rounding
	return agrees || r.believed > testAfter || (r.end-r.at).Seconds() <= testAfter
}
