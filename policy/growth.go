package policy

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
	case t.trial.futile && x >= t.level.held: // what is refused does not tell where the limit is
		return
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
