package policy

import "time"

const (
	// floorOfShare is a hair below the share, so that equal replicas at their floors do not hit the limit.
	floorOfShare = 0.99
	// aboveFrom and aboveTo bound, in shares, what counts as a probe of the share; beyond, others are idle.
	aboveFrom, aboveTo = 0.95, 2.0
	// Each probe that fails makes the next come that much later, up to the limit.
	patienceGrowth, patienceMost = 1.5, 8.0
	// stableHint is how long a hint must have held for its successor to be taken over at once; a source that flaps
	// changes more often.
	stableHint = 15 * time.Second
)

// floor is what the law makes of a hinted share.
type floor struct {
	hint     float64 // 0: none
	since    time.Duration
	floor    float64 // trusted: not cut below by few refusals
	patience float64 // factor of the time between probes above the share
}

// hint takes over a share that has changed. Growth comes back to its floor in floorReturn seconds, but after
// a hint that was stable the rate follows at once. When a fleet grows all replicas go down by the same part,
// and one that was given more takes it.
func (t *tracking) hint(share float64) {
	f := &t.share
	if !known(share) {
		share = 0
	}
	if share == f.hint {
		return
	}
	old, stable := f.hint, t.now-f.since >= stableHint
	f.hint, f.floor, f.since, f.patience = share, floorOfShare*share, t.now, 1
	b := &t.blackout.before // or a blackout would take this back
	b.floor = f.floor
	if old > 0 && share > 0 && stable && !t.blackout.dark && t.has(RuleRescale) {
		t.rate = f.rescaled(t.rate, share/old)
		t.plateau.top = f.rescaled(t.plateau.top, share/old)
		b.rate, b.top = f.rescaled(b.rate, share/old), f.rescaled(b.top, share/old)
	}
}

// rescaled is a rate under a share that is so many times the old one.
func (f *floor) rescaled(rate, times float64) float64 {
	if times > 1 {
		return max(rate, f.floor)
	}
	return max(min(rate, f.hint), rate*times)
}

// hold is where a cut from one rate to another stops. Heavy refusals make the floor yield.
func (f *floor) hold(from, to float64, heavy bool) float64 {
	if !heavy {
		return max(to, min(from, f.floor))
	}
	f.floor = min(f.floor, to)
	return to
}

// above reports whether a rate probes the share.
func (f *floor) above(rate float64) bool {
	return f.hint > 0 && rate >= aboveFrom*f.hint && rate < aboveTo*f.hint
}

// probed notes a refusal of a probe.
func (f *floor) probed(t *tracking) {
	if f.above(t.rate) && t.has(RulePatience) {
		f.patience = min(f.patience*patienceGrowth, patienceMost)
	}
}

// risen notes that others leave more than the share.
func (f *floor) risen(rate float64) {
	if rate >= aboveTo*f.hint {
		f.patience = 1
	}
}
