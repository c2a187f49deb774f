package policy

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
// with each refusal at the least rate, unless a trial goes on at a low rate.
func (l *level) failed(t *tracking) {
	if l.from == 0 && t.rate > t.least() {
		return
	}
	if l.from > 0 {
		t.rate = min(t.rate, max(l.from, t.rate*levelBack))
		l.from = 0
	}
	if t.trial.until == 0 {
		l.held *= levelKept
	}
}
