package policy

import "time"

const (
	// Fields of fewer than quotaLeast units are too coarse, and resets beyond quotaLongest too far away to steer by.
	quotaLeast   = 5
	quotaLongest = 24 * time.Hour
	// A quota that renews within leakyReset seconds is judged by the least that was left; a longer one by how fast it drains.
	leakyReset = 3 * time.Second
	// The least is taken over so many requests of our own, within these bounds in seconds.
	leastOver, leastShortest, leastLongest = 8.0, 1.0, 20.0
	// drainOver is the shortest time, in seconds, and the fewest requests over which a drain is measured.
	drainOver = 3.0
	// leftOver is the part of a quota that is not counted on.
	leftOver = 0.03
	// headroomGain is the growth a second when all is free; headroomLoss the decline when all is used.
	headroomGain, headroomLoss = 0.2, 0.4
	// headroomKept bounds the decline, as a part of the plateau: what lies below is for refusals to decide.
	headroomKept = 0.8
	// plenty of headroom leaves the growth to slow start.
	plenty = 0.3
	// fullFor periods without a refusal, "full", or nearly, is no longer believed.
	fullFor, fullBelow = 6, 0.05
	// blindFor seconds growth waits for something to steer by; quotas of several kinds may come by turns for ever.
	blindFor = 20.0
)

// headroom reads what the upstream says is left of its quota.
type headroom struct {
	limit    float64
	min      float64 // the least left since
	since    time.Duration
	from     float64 // left when
	fromAt   time.Duration
	used     float64 // by all clients, in units per second; 0: not known
	free     float64 // the part of the quota that is free: below 0 too much is used
	measured bool
	blind    time.Duration // since when it is not measured, under whatever limits
}

// steers sets the rate by the sample's quota, and reports whether it did.
func (h *headroom) steers(t *tracking, s *Sample, dt float64) bool {
	q := s.Quota
	if !q.Known() || q.Limit < quotaLeast || q.Reset > quotaLongest {
		return false
	}
	if h.limit != q.Limit {
		blind := h.blind
		if h.measured || h.limit == 0 {
			blind = s.Now
		}
		*h = headroom{limit: q.Limit, min: q.Remaining, since: s.Now, from: q.Remaining, fromAt: s.Now, blind: blind}
	}
	if h.measured && h.free < fullBelow && t.answers.quiet(s.Now) > fullFor*t.period(t.slowness()) {
		return false
	}
	if q.Reset <= leakyReset {
		h.least(t, q, s.Now)
	} else {
		h.drain(t, q, s.Now)
	}
	if !h.measured && (s.Now-h.blind).Seconds() > blindFor {
		return false
	}
	if t.plateau.slow && (!h.measured || h.free > plenty) {
		return false
	}
	if h.measured {
		h.steer(t, s.Paced, dt)
	}
	return true
}

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

// drain judges by how fast all clients together use the quota up, against how fast it may be used up until it is renewed.
func (h *headroom) drain(t *tracking, q Quota, now time.Duration) {
	switch took := (now - h.fromAt).Seconds(); {
	case q.Remaining > h.from: // renewed
		h.from, h.fromAt = q.Remaining, now
	case took >= max(drainOver, drainOver/t.perSecond(t.rate)):
		h.used, h.measured = max((h.from-q.Remaining)/took, 1e-3), true
		h.from, h.fromAt = q.Remaining, now
	}
	if h.used > 0 {
		h.free = min(1, (q.Remaining-1)/q.Reset.Seconds()/h.used-1)
	}
}

// steer moves the rate by what is free.
func (h *headroom) steer(t *tracking, paced bool, dt float64) {
	switch {
	case h.free <= 0:
		t.rate = max(t.rate*(1+headroomLoss*max(h.free, -1)*dt), min(t.rate, headroomKept*t.plateau.top))
	case paced:
		t.rise(t.rate+t.reference()*headroomGain*min(h.free, 1)*dt, dt, leapDouble)
	}
}
