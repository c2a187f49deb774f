package quotient_test

import (
	"math"
	"time"
)

// keepWindow carries a window over a change: what the limit has gained counts at once, a share that has grown
// because the pool shrank from the next window on.
func (r *ruleLevel) keepWindow(o *ruleLevel, m *model) {
	o.mark(m)
	r.index, r.used, r.quota, r.credit, r.within = o.index, o.used, o.quota, o.credit, o.within
	r.keepCount(o)
	defer r.mark(m)
	k := m.windowAt(r)
	q := r.quotaOf(k, m.phase)
	if r.rate.Events > o.rate.Events {
		r.quota += max(0, q-o.quotaOf(k, m.phase))
		return
	}
	if m.generous && r.sparse {
		q = max(q, 1) // it may be one that is kept
	}
	r.within = max(r.within, min(r.used, r.quota))
	r.quota = min(r.quota, q)
}

// windowLeft is what is left of a window; below 0 what the next ones owe. Events within the quota of their
// time are not owed when the quota is cut.
func (r *ruleLevel) windowLeft(at time.Time) float64 {
	may := r.allows(at)
	if r.used <= may {
		return may - r.used
	}
	return min(0, max(may, r.within)-r.used)
}

// quotaOf is what a replica may do in a window. With an ordinal fractions carry over, so that the fleet's
// total is exact: each of its ordinals has its part. Without one they are rounded down, but one in so many
// windows is the least.
func (r *ruleLevel) quotaOf(k, phase int64) float64 {
	e, n, w := int64(math.Round(r.rate.Events*1000)), int64(r.of), int64(r.weight)
	if r.ordinal > 0 {
		sum := int64(0)
		for o := r.ordinal; o < r.ordinal+r.weight; o++ {
			upTo := func(k int64) int64 { return floor(k*e+int64(o-1)*1000, n*1000) }
			sum += upTo(k+1) - upTo(k)
		}
		return float64(sum)
	}
	if q := e * w / (1000 * n); q > 0 {
		return float64(q)
	}
	every := (1000*n + e*w - 1) / (e * w)
	if floor(k+phase, every)*every == k+phase {
		return 1
	}
	return 0
}

func floor(a, b int64) int64 {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}

func (m *model) windowAt(r *ruleLevel) int64 {
	return floor(m.at.UnixNano()+int64(m.step), int64(r.rate.Per))
}

// open opens a window. A debt is taken over, and so is, where a window keeps its room, an event that was not
// used.
func (r *ruleLevel) open(k int64, m *model) {
	left, spare := r.windowLeft(m.at), r.quota-r.used // of the fleet's events none is kept
	r.index, r.used, r.quota, r.within = k, max(0, -left), r.quotaOf(k, m.phase), 0
	r.count, r.gross = count{}, r.used
	if r.keeps && min(left, spare) >= 1 {
		r.quota = max(r.quota, 1)
	}
}

// stepClock sets the wall clock. A step opens one window at most. That room may be used at any time from
// then on, since a window that is in use goes on for a while. Another one comes of the phase, which has
// changed: one of the windows that real time has room for may begin sooner by the limiter's count. Once a
// part was lent, a step within a window counts too: the end of the loan may be dated by the clock as set.
func (m *model) stepClock(offset time.Duration) {
	m.step = offset
	for i := range m.rules {
		r := &m.rules[i]
		if !r.rate.Aligned {
			continue
		}
		if k := m.windowAt(r); k != r.index || m.lent {
			r.used, r.within = r.quota-min(r.quota, r.windowLeft(m.at)), 0 // only what is owed is taken over
			r.index, r.quota, r.gross = k, max(r.quota, r.quotaOf(k, m.phase)), r.used
			r.credit += 2 * float64(r.weight) * math.Ceil(r.rate.Events/float64(r.of))
			if r.count = (count{}); r.rate.Counted { // both windows may be known to be the replica's alone
				r.credit += 2 * math.Ceil(r.rate.Events)
			}
		}
	}
}
