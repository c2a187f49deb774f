package policy

import (
	"math"
	"time"
)

// Growth, only on success, and only while the pace was what held requests back.
const (
	growthPart = 0.2 // of the reference rate in one period, at its end
	returnIn   = 0.3 // periods to return to the plateau
	growDouble = 6.0 // seconds to double at the fastest
	leapDouble = 2.0 // the same, where there is reason to go fast: back to the floor, or when fields report room
	slowDouble = 1.0 // the same in slow start
	// Times as fast after one success, the sixteenth root of 2, and in slow start the fourth: never a
	// doubling before the first answer is back.
	stepMost, slowStepMost = 1.044, 1.19
	floorReturn            = 2.0 // seconds to come back to the trusted floor
	ln2                    = 0.693147
)

// plateau is the rate that the last cut has proven to be near the limit, and how long the controller has
// been there.
type plateau struct {
	top   float64
	quiet float64 // seconds of growth since the last cut
	slow  bool    // slow start: no cut since the beginning, or since the rate was the least
}

// rest starts a new period at a plateau.
func (p *plateau) rest(top float64) { p.top, p.quiet = top, 0 }

// grow raises the rate for dt seconds of success.
func (t *tracking) grow(dt float64) {
	if t.rate <= t.least() { // nothing to lose: start over
		t.plateau.slow = t.has(RuleSlowStart)
	}
	x, double := t.rate, growDouble
	switch {
	case t.plateau.slow:
		t.rate = min(t.rate*(1+ln2*dt/slowDouble), t.rate*slowStepMost)
		return
	case t.level.recovers(t):
		t.level.recover(t, dt)
		return
	case t.has(RuleFloor) && x < t.share.floor():
		low := t.share.floor()
		x, double = min(x+low*dt/floorReturn, low), leapDouble
	default:
		x += t.probe(dt)
	}
	t.rise(x, dt, double)
}

// probe is the growth of dt seconds: back to the plateau, then slowly and ever faster beyond, as the
// cubic of the time since the cut. (CUBIC, RFC 9438, has the same idea; there the time scale is fixed.)
func (t *tracking) probe(dt float64) float64 {
	if t.company.crowd { // another refusal would say nothing new
		t.plateau.quiet = 0
		return 0
	}
	t.plateau.quiet += dt
	k := t.period(t.slowness())
	phase := t.plateau.quiet / k
	gain := t.reference() * growthPart * phase * phase * phase * dt / k
	if t.has(RuleReturn) && t.rate < t.plateau.top {
		gain += (t.plateau.top - t.rate) * min(1, dt/(returnIn*k))
	}
	return gain
}

// rise goes up to x, but no faster than a doubling in so many seconds, and a step a success.
func (t *tracking) rise(x, dt, double float64) {
	t.rate = max(t.rate, min(x, t.rate*(1+ln2*dt/double), t.rate*stepMost))
	t.share.risen(t.rate)
}

// Cuts. One for each congested period: a refusal of a request that was sent before the last cut says
// nothing new.
const (
	cutPart     = 0.12 // of the rate, at the reference rate; TCP's half would empty a bucket that is nearly right
	cutMost     = 0.4
	cutKept     = 0.4  // of a cut stays: the controller returns to what is left of the rest
	slowCutPart = 0.3  // at the end of slow start, which may have overshot by a doubling
	servedKept  = 0.95 // of what was served lately stays, but not all of the rate
	servedMost  = 0.97
)

type cuts struct {
	last time.Duration
}

// cut lowers the rate.
func (t *tracking) cut(now time.Duration) {
	t.cuts.last = now
	if t.plateau.slow {
		t.plateau.slow = false
		t.rate *= 1 - slowCutPart
		t.plateau.rest(t.rate)
		return
	}
	heavy := t.answers.heavy()
	t.share.probed(t)
	t.level.failed(t)
	x := t.rate * (1 - t.cutSize(heavy))
	if t.has(RuleServed) {
		x = max(x, min(servedMost*t.rate, servedKept*t.answers.delivered(t)))
	}
	if t.has(RuleFloor) {
		x = t.share.hold(t.rate, x)
	}
	kept := cutKept
	if t.company.on && !t.company.chance.holds(now) {
		kept = 1 // it comes back to what the others have
	}
	t.plateau.rest(t.rate - kept*(t.rate-x))
	t.rate = x
}

// cutSize is the part of the rate that goes. A rate that grows slowly after a blackout must be cut less by
// refusals that mean little there.
func (t *tracking) cutSize(heavy bool) float64 {
	u := t.slowness()
	size := min(cutMost, cutPart*u)
	if cycle := t.blackout.cycleAt(t.now); !heavy && cycle > probeEvery*u {
		size *= probeEvery * u / cycle
	}
	return size
}

const (
	// levelUp is the time, in seconds, over which a higher rate becomes the level. Slow start and probes pass sooner.
	levelUp = 20.0
	// levelFar is the part of the level below which the rate has fallen, and levelQuiet the seconds without a refusal
	// after which it returns.
	levelFar, levelQuiet = 0.25, 4.0
	// levelDouble is the seconds in which a return doubles the rate, and levelStep what one success may do.
	levelDouble, levelStep = 1.0, 1.5
	// levelKept is what stays of the level when a return is refused, and levelBack what stays of the rate then.
	levelKept, levelBack = 0.9, 0.3
)

// level is what the controller remembers from before a fall. A limit that has fallen may come back, as after
// an incident. Then the rate returns to the level at once, and not as slowly as it probes.
type level struct {
	held float64 // what has been served for a while
	from float64 // the rate at which a return began; 0: none is on
}

// follow takes over a rate that is served.
func (l *level) follow(t *tracking, elapsed float64) {
	if at := min(t.rate, t.plateau.top, t.answers.delivered(t)); at > l.held && !t.plateau.slow && !t.blackout.dark {
		l.held += (at - l.held) * min(1, elapsed/levelUp)
	}
}

// recovers reports whether a return is on, or begins.
func (l *level) recovers(t *tracking) bool {
	return t.has(RuleRecover) && (l.from > 0 || t.rate < levelFar*l.held && (t.now-t.cuts.last).Seconds() > levelQuiet)
}

// recover returns for dt seconds of success.
func (l *level) recover(t *tracking, dt float64) {
	if l.from == 0 {
		l.from = t.rate
	}
	t.rate = max(t.rate, min(t.rate*(1+ln2*dt/levelDouble), t.rate*levelStep, l.held))
	if t.rate >= l.held {
		l.from = 0
		t.plateau.rest(t.rate)
	}
}

// failed ends a return that is refused: to where it began, or a part of where it came. The level fades then, and
// with each refusal at the least rate.
func (l *level) failed(t *tracking) {
	if l.from == 0 && t.rate > t.least() {
		return
	}
	if l.from > 0 {
		t.rate = min(t.rate, max(l.from, t.rate*levelBack))
		l.from = 0
	}
	l.held *= levelKept
}

// The time scale of a controller: how long it rests between two probes of the limit.
//
// Each probe of N clients that share R requests per second costs about one refusal, so that probing every K
// seconds makes N/(K R) of all requests refusals. Clients that know that they are slow, by their share, therefore probe
// more seldom: K grows with the square root of the time between requests. Without a hint all have the same K.
// A slow one of unequal clients must not be the one that grows slowest, or they never become equal.
const (
	referenceRate = 10.0  // requests per second at which a client probes every probeEvery seconds
	probeEvery    = 8.0   // shorter refuses more, longer follows a limit that rises later
	probeLeast    = 2.0   // seconds
	probeSlowest  = 180.0 // seconds
)

// reference is the rate that growth is a part of. Without a hint it is the rate. Up to the share it is the
// rate or the trusted floor, whichever is higher. Above it it is the square root of rate x share, so that a
// replica far above its share grows no faster than others.
func (t *tracking) reference() float64 {
	h := t.share.lending()
	switch {
	case !known(h):
		return t.rate
	case t.rate > h:
		return math.Sqrt(t.rate * h)
	}
	return max(t.rate, t.share.floor())
}

// slowness is how much longer than at referenceRate a period is, and a cut larger. Without a hint it is 1. A
// share that was too high still proves that the client is at least that slow.
func (t *tracking) slowness() float64 {
	h := &t.share
	switch {
	case h.tooHigh > 0:
		return max(t.slowAt(h.tooHigh), 1)
	case !known(h.hint):
		return 1
	}
	slow := t.slowAt(h.lending())
	if t.cuts.last == -farAway { // the share may be far too low
		return max(min(slow, 1), slow-1)
	}
	return slow
}

// slowAt is the slowness of a client at a rate.
func (t *tracking) slowAt(rate float64) float64 { return math.Sqrt(referenceRate / t.perSecond(rate)) }

// period is the time from a cut to the next probe, in seconds: no shorter than the upstream's window, if that is known.
func (t *tracking) period(slowness float64) float64 {
	k := probeEvery * slowness
	if t.company.many() && t.cuts.last == -farAway {
		k *= firstFaster
	}
	if t.share.above(t.rate) {
		k *= max(1, t.share.patience*min(1, t.share.lending()/t.rate))
	}
	k = min(max(k, probeLeast), probeSlowest)
	return max(k, t.blackout.cycleAt(t.now))
}

// A few refusals prove this much.
const (
	// prior is how many answers without a refusal are assumed before the first: one refusal in two
	// answers proves nothing. Any figure from 4 to 16 gives the same score in the arena.
	prior = 8.0
	// heavyFraction of refusals is beyond what probing or chance bring: then the limit has fallen.
	heavyFraction = 0.12
)

// evidence counts answers and refusals. It forgets in about 2 seconds or 20 requests, whichever
// is longer: long enough to tell 12 % from chance, short enough to see a limit fall.
type evidence struct {
	answers, refusals float64
}

// age forgets.
func (e *evidence) age(dt, memory float64) {
	keep := 1 / (1 + dt/memory)
	e.answers *= keep
	e.refusals *= keep
}

func (e *evidence) served() { e.answers++ }

// memory is for how long answers are remembered, in seconds.
func (t *tracking) memory() float64 { return max(2, 20/t.perSecond(t.rate)) }

// delivered is what was served lately, in units per second.
func (e *evidence) delivered(t *tracking) float64 {
	return (e.answers - e.refusals) / t.memory() * t.cost
}

func (e *evidence) refused() {
	e.answers++
	e.refusals++
}

// heavy reports whether the limit has fallen: this is no chance and no probing.
func (e *evidence) heavy() bool { return e.refusals >= heavyFraction*(e.answers+prior) }
