package policy

import "time"

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
	if t.has(RuleFutile) && t.trial.holds(t) {
		return
	}
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
