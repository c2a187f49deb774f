package policy

import "time"

const (
	// floorOfShare is a hair below the share, so that equal replicas at their floors do not hit the limit.
	floorOfShare = 0.99
	// aboveFrom is the rate, in shares, from which on growth probes the share.
	aboveFrom = 0.95
	// Each probe that fails makes the next come that much later, up to the limit.
	patienceGrowth, patienceMost = 1.5, 4.0
	// atFloor is the highest rate, in floors, at which a refusal says something about the floor: above, it
	// may be the controller's own probe. 1.01 leaves one of four clients at three shares for minutes.
	atFloor = 1.03
	// doubtYields is the part by which the floor yields to each refusal until it is paid. Then clients that all have
	// the right share soon leave each other room, and are not refused on.
	doubtYields = 0.02
	// doubtMost refusals at the floor refute the share, beyond doubtPaid in each probing period and doubtServed for
	// each answer, which the probes of others and chance explain.
	doubtMost, doubtPaid, doubtServed = 4.0, 0.25, 0.02
	// doubtPaused is what a refusal is worth that stops the key. An upstream that punishes an excess is seldom seen to
	// refuse, and a share that is a hair too high costs a pause each time.
	doubtPaused = 3.0
	// flapping is the shortest time between two changes of a source that is believed.
	flapping = 15 * time.Second
	// A source is not believed any more after wrongMost shares that were not right, until it has been at rest
	// for restOfSource.
	wrongMost    = 2
	restOfSource = 5 * time.Minute
)

// share is what the controller makes of a hinted share. It is believed until what is seen contradicts it.
// Then it is as if there were none.
type share struct {
	given    float64 // the last share; 0: none
	since    time.Duration
	hint     float64 // what is believed: given, or 0
	lent     float64 // what others do not use, as a part of the share; below 0 they use more
	tooHigh  float64 // the last share, if it was refuted as too high; 0: it was not
	patience float64 // factor of the time between probes above the share
	doubt    float64 // refusals at the floor, less what others' probes explain
	wrong    int     // so many shares were not right
}

// hint takes over a share that has changed, as long as its source is believed. The rate follows by growth and by cuts.
func (t *tracking) hint(given float64) {
	h := &t.share
	if !known(given) {
		given = 0
	}
	if given == h.given {
		return
	}
	rest := t.now - h.since
	switch {
	case h.given > 0 && rest < flapping:
		h.wrong = wrongMost
	case rest >= restOfSource:
		h.wrong = 0
	}
	h.given, h.since = given, t.now
	h.hint, h.tooHigh, h.patience, h.doubt = 0, 0, 1, 0
	if h.wrong < wrongMost {
		h.hint = given
	}
}

// lending is the share that is believed, with what others do not use of theirs.
func (h *share) lending() float64 { return h.hint * (1 + h.lent) }

// floor is the rate that few refusals do not cut; 0 without a share that is believed.
func (h *share) floor() float64 { return floorOfShare * h.lending() * (1 - doubtYields*h.doubt) }

// refute stops believing the share: it is too high.
func (h *share) refute() {
	if h.hint == 0 {
		return
	}
	h.tooHigh, h.hint, h.patience, h.wrong = h.hint, 0, 1, min(h.wrong+1, wrongMost)
}

// weigh adds to the doubt, as long as the rate is at the floor. A refusal there is evidence against it and worth
// 1, or doubtPaused; a probing period is worth -doubtPaid, and a success -doubtServed.
func (h *share) weigh(rate, evidence float64) {
	if rate <= atFloor*h.floor() { // else there is none, or it may be a probe
		h.doubt = min(max(h.doubt+evidence, 0), doubtMost)
	}
}

// hold is where a cut from one rate to another stops: at the floor, unless that is in doubt. A cut below it then
// refutes the share.
func (h *share) hold(from, to float64) float64 {
	low := h.floor()
	if h.doubt < doubtMost || to >= low {
		return max(to, min(from, low))
	}
	h.refute()
	return to
}

// above reports whether a rate probes the share.
func (h *share) above(rate float64) bool {
	return h.hint > 0 && rate >= aboveFrom*h.lending()
}

// probed notes a refusal of a probe.
func (h *share) probed(t *tracking) {
	if h.above(t.rate) && t.has(RulePatience) {
		h.patience = min(h.patience*patienceGrowth, patienceMost)
	}
}

// risen notes a rate that others leave: a share that was too high is not any more.
func (h *share) risen(rate float64) {
	if rate >= h.tooHigh {
		h.tooHigh = 0
	}
}
