package policy

import "math"

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
	ln2                    = 0.693147
)

// served is a success.
func (t *tracking) served(s *Sample, dt float64) {
	t.answers.answers++
	t.retry.served(s)
	t.blackout.clear(s.Sent)
	t.blackout.served += t.cost
	if s.Sent < t.cutAt || t.blackout.dark && !t.retry.judged() {
		return // it was sent before the cut, or before the pause was announced, and says nothing about the time since
	}
	t.share.weigh(t.rate, -doubtServed)
	if t.blackout.dark {
		t.blackout.end(t, s)
		return
	}
	switch claimed := t.fields.read(t, s); {
	case claimed && (t.fields.even || !t.plateau.slow):
		t.fields.steer(t, s.Paced, dt)
	case s.Paced:
		t.grow(dt)
	}
}

// grow raises the rate for dt seconds of success.
func (t *tracking) grow(dt float64) {
	if t.rate <= t.least() { // nothing to lose: start over
		t.plateau.slow = true
	}
	x, double := t.rate, growDouble
	switch {
	case t.plateau.slow:
		t.rate = min(t.rate*(1+ln2*dt/slowDouble), t.rate*slowStepMost)
		return
	case t.level.recovers(t):
		t.level.recover(t, dt)
		return
	case x < t.share.floor():
		x, double = t.share.floor(), leapDouble
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
	k := t.period()
	phase := t.plateau.quiet / k
	gain := t.reference() * growthPart * phase * phase * phase * dt / k
	if t.rate < t.plateau.top {
		gain += (t.plateau.top - t.rate) * min(1, dt/(returnIn*k))
	}
	return gain
}

// rise goes up to x, but no faster than a doubling in so many seconds, and a step a success.
func (t *tracking) rise(x, dt, double float64) {
	t.rate = max(t.rate, min(x, t.rate*(1+ln2*dt/double), t.rate*stepMost))
	t.share.risen(t.rate)
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
	if at := min(t.rate, t.plateau.top, t.delivered()); at > l.held && !t.plateau.slow && !t.blackout.dark {
		l.held += (at - l.held) * min(1, elapsed/levelUp)
	}
}

// recovers reports whether a return is on, or begins.
func (l *level) recovers(t *tracking) bool {
	return l.from > 0 || t.rate < levelFar*l.held && (t.now-t.cutAt).Seconds() > levelQuiet
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
	if l.from > 0 {
		t.rate = min(t.rate, max(l.from, t.rate*levelBack))
		l.from = 0
	}
	l.held *= levelKept
}

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
