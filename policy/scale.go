package policy

import "math"

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
		k *= t.share.patience
	}
	k = min(max(k, probeLeast), probeSlowest)
	return max(k, t.blackout.cycleAt(t.now))
}
