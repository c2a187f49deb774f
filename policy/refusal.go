package policy

import (
	"math"
	"time"
)

// refused is a refusal. It is evidence against the share, and for or against what fields claim. It may begin a
// blackout or a pause. Otherwise it cuts the rate, once for each congestion: a refusal of a request that was sent
// before the last cut says nothing new.
func (t *tracking) refused(s *Sample) {
	t.answers.refused(s.Now)
	was, late := t.blackout.dark, s.Sent < t.cutAt
	begins := t.blackout.refusal(t, s) && !was
	paused := begins && t.blackout.paused
	if worth := 1.0; !late && !t.fresh {
		if paused {
			worth = doubtPaused
		}
		t.share.weigh(t.rate, worth)
	}
	switch {
	case begins && !paused:
		t.cutAt = s.Now // what was sent before says nothing more
	case late:
		return
	case was || t.fresh: // a limit that others had used up when the controller began says nothing about the rate
		t.cutAt = s.Now
		return
	default:
		t.cut(s.Now)
	}
	if t.fields.measured {
		t.fields.judge()
	}
}

const (
	cutPart     = 0.12 // of the rate, at the reference rate; TCP's half would empty a bucket that is nearly right
	cutMost     = 0.4
	cutKept     = 0.4  // of a cut stays: the controller returns to what is left of the rest
	slowCutPart = 0.3  // at the end of slow start, which may have overshot by a doubling
	servedKept  = 0.95 // of what was served lately stays, but not all of the rate
	servedMost  = 0.97
)

// plateau is the rate that the last cut has proven to be near the limit, and how long the controller has been there.
type plateau struct {
	top   float64
	quiet float64 // seconds of growth since the last cut
	slow  bool    // slow start: no cut since the beginning, or since the rate was the least
}

// rest starts a new period at a plateau.
func (p *plateau) rest(top float64) { p.top, p.quiet = top, 0 }

// cut lowers the rate.
func (t *tracking) cut(now time.Duration) {
	t.cutAt = now
	if t.plateau.slow {
		t.plateau.slow = false
		t.rate *= 1 - slowCutPart
		t.plateau.rest(t.rate)
		return
	}
	heavy := t.answers.heavy()
	t.share.probed(t.rate)
	if t.level.from > 0 || t.rate <= t.least() {
		t.level.failed(t)
	}
	x := max(t.rate*(1-t.cutSize(heavy)), min(servedMost*t.rate, servedKept*t.delivered()))
	x, kept := t.share.hold(t.rate, x), cutKept
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
	if cycle := t.window(); !heavy && cycle > probeEvery*u {
		size *= probeEvery * u / cycle
	}
	return size
}

// The least rate: 20 requests in 1000 seconds, or a fiftieth of the share that is believed or of the level. A
// controller that goes lower gets too few answers; one that stays higher makes half of the requests of a thousand
// clients refusals. Both parts yield: refusals end the belief, and wear the level down.
const (
	leastRate    = 0.02 // requests per second
	leastOfShare = 0.02
)

// least is the rate at which cuts end.
func (t *tracking) least() float64 {
	return max(leastRate*t.cost, leastOfShare*max(t.share.hint, t.level.held))
}

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
	reported          float64 // refusals lately, as at an instant
	reportedAt        time.Duration
}

// age forgets.
func (e *evidence) age(dt, memory float64) {
	keep := 1 / (1 + dt/memory)
	e.answers *= keep
	e.refusals *= keep
}

func (e *evidence) refused(now time.Duration) {
	e.answers++
	e.refusals++
	e.reported, e.reportedAt = e.lately(now)+1, now
}

// lately is how many refusals there were in the last second or so.
func (e *evidence) lately(now time.Duration) float64 {
	return e.reported * math.Exp(-max(0, (now-e.reportedAt).Seconds()))
}

// heavy reports whether the limit has fallen: this is no chance and no probing.
func (e *evidence) heavy() bool { return e.refusals >= heavyFraction*(e.answers+prior) }

// memory is for how long answers are remembered, in seconds.
func (t *tracking) memory() float64 { return max(2, 20/t.perSecond(t.rate)) }

// delivered is what was served lately, in units per second.
func (t *tracking) delivered() float64 {
	return (t.answers.answers - t.answers.refusals) / t.memory() * t.cost
}

// remember takes in what time does to the evidence, and the successes in it that were only counted.
func (t *tracking) remember(elapsed, dt float64) {
	t.answers.age(elapsed, t.memory())
	t.answers.answers += t.counted
	t.blackout.served += t.counted * t.cost
	if t.share.hint > 0 {
		t.share.weigh(t.rate, -doubtPaid*dt/t.period()-doubtServed*t.counted)
	}
}

const (
	floorOfShare = 0.99 // a hair below the share, so that equal replicas at their floors do not hit the limit
	aboveFrom    = 0.95 // the rate, in shares, from which on growth probes the share
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
	flapping    = 15 * time.Second // the shortest time between two changes of a source that is believed
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
func (h *share) probed(rate float64) {
	if h.above(rate) {
		h.patience = min(h.patience*patienceGrowth, patienceMost)
	}
}

// risen notes a rate that others leave: a share that was too high is not any more.
func (h *share) risen(rate float64) {
	if rate >= h.tooHigh {
		h.tooHigh = 0
	}
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

// slowness is how much longer than at referenceRate a period is, and a cut larger. Without a hint it is 1. A
// share that was too high still proves that the client is at least that slow.
func (t *tracking) slowness() float64 {
	h := &t.share
	switch {
	case h.tooHigh > 0:
		return max(t.slowAt(h.tooHigh), 1)
	case h.hint == 0:
		return 1
	}
	slow := t.slowAt(h.lending())
	if t.cutAt == -farAway { // the share may be far too low
		return max(min(slow, 1), slow-1)
	}
	return slow
}

// slowAt is the slowness of a client at a rate.
func (t *tracking) slowAt(rate float64) float64 { return math.Sqrt(referenceRate / t.perSecond(rate)) }

// period is the time from a cut to the next probe, in seconds: no shorter than the upstream's window, if that is known.
func (t *tracking) period() float64 {
	k := probeEvery * t.slowness()
	if t.cutAt == -farAway && t.company.on && t.company.many() {
		k *= firstFaster
	}
	if t.share.above(t.rate) {
		k *= max(1, t.share.patience*min(1, t.share.lending()/t.rate))
	}
	return max(min(max(k, probeLeast), probeSlowest), t.window())
}

// window is the length of the upstream's window as far as blackouts have shown it, else 0.
func (t *tracking) window() float64 {
	if t.now < t.blackout.cycled {
		return t.blackout.cycle
	}
	return 0
}

// perSecond is a rate in requests per second.
func (t *tracking) perSecond(rate float64) float64 { return rate / t.cost }
