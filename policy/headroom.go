package policy

import "time"

const (
	// Fields of fewer than quotaLeast units are too coarse, and resets beyond quotaLongest too far away to steer by.
	quotaLeast   = 5
	quotaLongest = 24 * time.Hour
	// A quota that renews within leakyReset seconds is judged by the least that was left; a longer one by how
	// fast it drains.
	leakyReset = 3 * time.Second
	// The least is taken over so many requests of our own, within these bounds in seconds.
	leastOver, leastShortest, leastLongest = 8.0, 1.0, 20.0
	// drainOver is the shortest time, in seconds, and the fewest requests over which a drain is measured.
	drainOver = 3.0
	leftOver  = 0.04 // the part of a quota that is not counted on
	// headroomGain is the growth a second when all is free, by the square of what is, on top of the
	// controller's own; headroomLoss the decline when all is used.
	headroomGain, headroomLoss = 0.4, 0.4
	// headroomKept bounds the decline, as a part of the plateau: what lies below is for refusals to decide.
	headroomKept = 0.8
	// roomLeast is the part that must be free for a refusal to contradict the fields. Less is used up within
	// a round trip.
	roomLeast = 0.2
	// fullFor periods without a refusal "full", or nearly, wears the trust out: fields may claim it for ever.
	fullFor, fullBelow = 120, 0.05
	// longReset makes a quota a long one. Short ones are at most a minute in practice, with a reset rounded
	// up; long ones an hour.
	longReset = 5 * time.Minute
	// spendLeast is how many seconds a long quota that is used fast must last at least, or the clients slow down.
	spendLeast = 10.0
)

// headroom is what fields claim to be left of a quota, and how far they are trusted. They never replace the
// controller: they make its growth faster or slower, as far as they are trusted.
type headroom struct {
	trust    float64 // from 0 to 1
	limit    float64
	min      float64 // the least left since
	since    time.Duration
	from     float64 // left when
	fromAt   time.Duration
	used     float64 // by all clients, in units per second; 0: not known
	free     float64 // the part of the quota that is free: below 0 too much is used
	measured bool
	long     bool // its reset was further away than longReset
	even     bool // and it is to be spent evenly: that is no claim to be doubted, but what the user has asked for
}

// read takes in what an answer says, and reports whether that is a claim.
func (h *headroom) read(t *tracking, s *Sample) bool {
	q := s.Quota
	if !q.Known() || q.Limit < quotaLeast || q.Reset > quotaLongest {
		return false
	}
	if h.limit != q.Limit {
		*h = headroom{trust: h.trust, limit: q.Limit, min: q.Remaining, since: s.Now, from: q.Remaining, fromAt: s.Now}
	}
	h.long = h.long || q.Reset > longReset
	h.even = h.long && t.spend == SpendEvenly
	if q.Reset <= leakyReset {
		h.least(t, q, s.Now)
	} else {
		h.drain(t, q, s.Now)
	}
	return h.claims()
}

// repeats reports whether a quota is unknown, or the same as before and no new low.
func (h *headroom) repeats(q *Quota) bool {
	return q.Limit == 0 || q.Limit == h.limit && q.Remaining >= h.min && q.Reset <= leakyReset
}

// claims reports whether something is known. Room in a long quota says nothing about the limit of a second.
func (h *headroom) claims() bool { return h.measured && (h.even || !h.long || h.free <= 0) }

// least judges by the least that was left. A new low counts at once.
func (h *headroom) least(t *tracking, q Quota, now time.Duration) {
	h.min = min(h.min, q.Remaining)
	over := min(max(leastOver/t.perSecond(t.rate), leastShortest), leastLongest)
	if (now - h.since).Seconds() >= over {
		h.free, h.measured = h.min/q.Limit-leftOver, true
		h.min, h.since = q.Remaining, now
	} else if left := q.Remaining/q.Limit - leftOver; left < h.free {
		h.free = left
	}
}

// drain judges by how fast all clients together use the quota up, against how fast it may be used up until it
// is renewed.
func (h *headroom) drain(t *tracking, q Quota, now time.Duration) {
	switch took := (now - h.fromAt).Seconds(); {
	case q.Remaining > h.from: // renewed
		h.from, h.fromAt = q.Remaining, now
	case took >= max(drainOver, drainOver/t.perSecond(t.rate)):
		h.used, h.measured = max((h.from-q.Remaining)/took, 1e-3), true
		h.from, h.fromAt = q.Remaining, now
	}
	lasts := q.Reset.Seconds()
	if h.long && !h.even {
		lasts = min(lasts, spendLeast)
	}
	if h.used > 0 {
		h.free = min(1, (q.Remaining-1)/lasts/h.used-1)
	}
}

// judge compares a refusal with the claim that stands. Room is contradicted, little or none confirmed; either
// is worth a half.
func (h *headroom) judge() {
	switch {
	case !h.claims():
	case h.free > roomLeast:
		h.trust /= 2
	default:
		h.trust = (1 + h.trust) / 2
	}
}

// steer moves the rate by what is free, and by the controller's own growth as far as the fields leave it.
func (h *headroom) steer(t *tracking, paced bool, dt float64) {
	if h.free < fullBelow {
		h.trust = max(0, h.trust-dt/(fullFor*t.period()))
	}
	trust, gain, least, room := h.trust, headroomGain, headroomKept*t.plateau.top, max(h.free, 0)
	if h.even {
		trust, gain, least = 1, 0, 0
	}
	if room == 0 {
		t.rate = max(t.rate*(1+trust*headroomLoss*max(h.free, -1)*dt), min(t.rate, least))
	}
	if h.even && room == 0 {
		t.plateau.rest(t.rate)
	}
	if paced {
		t.rise(t.rate+t.reference()*trust*gain*room*room*dt, dt, leapDouble)
		t.grow(dt * (1 - trust*(1-room)))
	}
}
