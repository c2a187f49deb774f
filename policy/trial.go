package policy

import "time"

const (
	// A trial begins when trialFrom of the answers are refusals, and compares with trialAt of the rate. A limit that
	// serves more than that part would refuse nothing there; where trialMost and more are refused it may serve less,
	// and the trial proves nothing.
	trialFrom, trialAt, trialMost = 0.3, 0.35, 0.8
	// Refusals that are rarer than trialPart of what they were have followed the rate. In one memory of answers half
	// of the old ones is forgotten.
	trialPart = 0.75
	// trialHeld is how far above the level a rate may be: only where a rate has been served is it strange that it is
	// refused now.
	trialHeld = 1.2
	// longestMemory bounds, in seconds, how long a trial at a low rate lasts. Without it that is one memory of answers.
	longestMemory = 60.0
	// trialFor is how long cuts are futile, before the next trial.
	trialFor = time.Minute
)

// trial finds out whether refusals follow the rate. If they do not they have another cause, as when half of all
// requests are refused at random. Cuts are futile then, and only lose what could be served.
type trial struct {
	rate              float64       // at which it began; 0: none is on
	answers, refusals float64       // since it began, or since the rate is low
	part              float64       // of the answers that were refusals before the rate was low
	until             time.Duration // when it ends; 0: the rate is not low yet
	futile            bool          // cuts are
}

// count counts answers.
func (r *trial) count(answers, refusals float64) {
	r.answers += answers
	r.refusals += refusals
}

// holds reports whether the rate is not to be cut.
func (r *trial) holds(t *tracking) bool {
	part := r.refusals / max(r.answers, 1)
	switch {
	case !t.answers.heavy() || r.futile && (t.now >= r.until || t.answers.part() > trialMost):
		*r = trial{}
	case r.rate == 0 && t.answers.part() >= trialFrom && t.rate <= trialHeld*t.level.held:
		*r = trial{rate: t.rate}
	case r.rate == 0:
	case r.until == 0 && t.rate <= trialAt*r.rate:
		until := t.now + time.Duration(min(t.memory(), longestMemory)*float64(time.Second))
		*r = trial{rate: r.rate, part: part, until: until}
		if part > trialMost {
			*r = trial{}
		}
	case r.until != 0 && !r.futile && t.now >= r.until:
		if part < trialPart*r.part {
			*r = trial{}
			break
		}
		r.futile, r.until = true, t.now+trialFor
	}
	return r.until != 0
}
