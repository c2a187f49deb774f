package policy

import "time"

const (
	// floorOfShare is a hair below the share, so that equal replicas at their floors do not hit the limit.
	floorOfShare = 0.99
	// aboveFrom and aboveTo bound, in shares, what counts as a probe of the share. Beyond, others leave more, and the
	// share is no longer believed.
	aboveFrom, aboveTo = 0.95, 2.0
	// Each probe that fails makes the next come that much later, up to the limit.
	patienceGrowth, patienceMost = 1.5, 8.0
	// atFloor is the highest rate, in floors, at which a refusal says something about the floor: above, it may
	// be the law's own probe. 1.01 leaves one of four clients at three shares for minutes.
	atFloor = 1.03
	// doubtMost refusals at the floor make it yield, beyond one in 1/doubtPaid answers, which probes of others and
	// chance explain.
	doubtMost, doubtPaid = 4.0, 0.05
	// A floor that yields below floorLost shares is lost, and with it all that the share means.
	floorLost = 0.7
	// flapping is the shortest time between two changes of a source that is believed.
	flapping = 15 * time.Second
	// A source is not believed any more after wrongMost shares that were not right, until it has been at rest for restOfSource.
	wrongMost    = 2
	restOfSource = 5 * time.Minute
)

// floor is what the law makes of a hinted share. It is believed until what is seen contradicts it. Then it is as if
// there were none.
type floor struct {
	given    float64 // the last share; 0: none
	since    time.Duration
	hint     float64 // what is believed: given, or 0
	floor    float64 // trusted: not cut below by few refusals
	patience float64 // factor of the time between probes above the share
	doubt    float64 // refusals at the floor, less what others' probes explain
	wrong    int     // so many shares were not right
}

// hint takes over a share that has changed, as long as its source is believed. The rate follows by growth and by cuts.
func (t *tracking) hint(share float64) {
	f := &t.share
	if !known(share) {
		share = 0
	}
	if share == f.given {
		return
	}
	rest := t.now - f.since
	switch {
	case f.given > 0 && rest < flapping:
		f.wrong = wrongMost
	case rest >= restOfSource:
		f.wrong = 0
	}
	f.given, f.since = share, t.now
	f.hint, f.floor, f.patience, f.doubt = 0, 0, 1, 0
	if f.wrong < wrongMost {
		f.hint, f.floor = share, floorOfShare*share
	}
}

// refute stops believing the share.
func (f *floor) refute() {
	if f.hint > 0 {
		f.hint, f.floor, f.patience, f.wrong = 0, 0, 1, min(f.wrong+1, wrongMost)
	}
}

// weigh adds to the doubt what an answer to a request that was sent at a rate is worth. Refusals at the floor
// are evidence against it: each is worth 1. Each success is worth -doubtPaid.
func (f *floor) weigh(rate, evidence float64) {
	if rate <= atFloor*f.floor { // else there is none, or it may be a probe
		f.doubt = min(max(f.doubt+evidence, 0), doubtMost)
	}
}

// hold is where a cut from one rate to another stops: at the floor, unless that is in doubt.
func (f *floor) hold(from, to float64) float64 {
	if f.doubt < doubtMost || to >= f.floor {
		return max(to, min(from, f.floor))
	}
	f.floor = to
	if f.floor < floorLost*f.hint {
		f.refute()
	}
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
		f.refute()
	}
}
