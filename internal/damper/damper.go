// Package damper turns what a source reports of a pool into the pool that a replica goes by. It is a pure function of
// reports and instants: it has no clock, no lock, no goroutine and no log, and an instant is always an argument. Its
// caller checks reports, leaves out those that are no pool, and sees to it that time does not go back.
//
// A replica's share is its weight over the number of replicas. Too large a share lets too much through, so an error
// must be one toward the smaller share. Three rules follow from that.
//
// Hold-down. A smaller share counts at once, since other replicas are there already. A larger one counts when no
// smaller one was reported within HoldDown: a source that loses sight of replicas for a while changes nothing. That is
// the smallest share in a sliding window of time. Kubernetes' HorizontalPodAutoscaler does the same to its
// recommendations (stabilizationWindowSeconds), and for the same reason. The window is a monotonic queue: a report
// drops all larger shares before it, as it outlasts them, so that the head is the smallest.
//
// Ordinals. Two replicas with one number would both take the slot that a division leaves over. So a number counts when
// the source says that it is fixed, or when the source has repeated the very same pool for one HoldDown: another
// replica that gave way to this one has heard of it by then. A number that is not repeated for a HoldDown is nobody's.
//
// Age. After MaxAge without a report the pool is not known any more. Durations are those of the monotonic clock that
// time.Time carries.
package damper

import "time"

// MaxReplicas is beyond any fleet; a larger number is a misread field.
const MaxReplicas = 1_000_000

// Pool has the fields of quotient.Pool, which see, so that each converts to the other.
type Pool struct {
	Replicas, Ordinal int
	Fixed             bool
	Weight            int // 0 means 1
}

// weight is as how many replicas this one counts.
func (p Pool) weight() int64 { return int64(max(1, p.Weight)) }

// smaller reports whether the share of p is smaller than that of q. Both products are below 2^40.
func (p Pool) smaller(q Pool) bool {
	return p.weight()*int64(q.Replicas) < q.weight()*int64(p.Replicas)
}

// withShareOf returns p as a pool in which this replica has at most the share that it has in q, which is
// smaller: one of more replicas. Where that would be too many it is q, without the ordinal of another pool.
func (p Pool) withShareOf(q Pool) Pool {
	n := (p.weight()*int64(q.Replicas) + q.weight() - 1) / q.weight()
	if n > MaxReplicas {
		return Pool{Replicas: q.Replicas, Weight: q.Weight}
	}
	p.Replicas = int(n)
	return p
}

// Damper is what is known of one source. Its fields must be set before the first report, and must not change.
type Damper struct {
	HoldDown time.Duration // 0: a larger share counts at once, and so does an ordinal
	MaxAge   time.Duration // 0: reports do not grow old
	Once     bool          // the source reports once: that does not grow old
	Began    time.Time     // when the wait for the first report did

	heard     time.Time // when the latest report came; zero: none has
	last      Pool
	since     time.Time // when the source began to report exactly last
	confirmed time.Time // when it last did
	older     []past    // of smaller shares than last, smallest first; each ends later than the one before
}

// past is a pool that a source held until an instant.
type past struct {
	Pool
	until time.Time
}

// mostPast bounds the memory of a source that keeps changing its mind. The largest share is dropped, and
// the next smaller one counts in its stead until then, which is the safe side.
const mostPast = 64

// Report takes note of a pool that the source has reported.
func (d *Damper) Report(p Pool, now time.Time) {
	d.Recall(p, now)
	d.heard = now
}

// Recall takes note of the pool that counted before the first report. It does not count by itself; but a source that
// begins again does not end a hold-down.
func (d *Damper) Recall(p Pool, now time.Time) {
	silent := d.past(d.confirmed, now)
	if d.confirmed = now; p == d.last {
		if silent {
			d.since = now // meanwhile the ordinal may have been another replica's
		}
		return
	}
	if d.last.smaller(p) {
		d.older = append(d.older, past{d.last, now})
	}
	d.last, d.since = p, now
	kept := d.older[:0]
	for _, o := range d.older {
		if o.smaller(p) && !d.past(o.until, now) {
			kept = append(kept, o)
		}
	}
	if d.older = kept; len(kept) > mostPast {
		d.older[len(kept)-2].until = d.older[len(kept)-1].until
		d.older = kept[:len(kept)-1]
	}
}

// past reports whether an instant is a hold-down ago.
func (d *Damper) past(at, now time.Time) bool { return now.Sub(at) >= d.HoldDown }

// Pool returns the pool that counts at an instant, and whether there is one: there is none before the first report and
// when that has grown old.
func (d *Damper) Pool(now time.Time) (p Pool, known bool) {
	if d.heard.IsZero() || d.Old(now) {
		return Pool{}, false
	}
	for _, o := range d.older {
		if !d.past(o.until, now) {
			if p = d.last.withShareOf(o.Pool); !p.Fixed { // any other ordinal is of the pool that is seen now
				p.Ordinal = 0
			}
			return p, true
		}
	}
	switch p = d.last; {
	case p.Fixed:
	case d.HoldDown > 0 && d.past(d.confirmed, now):
		p.Ordinal = 0 // by now it may be another replica's
	default:
		p.Fixed = p.Ordinal > 0 && d.past(d.since, d.confirmed)
	}
	return p, true
}

// Old reports whether no report has come for MaxAge.
func (d *Damper) Old(now time.Time) bool {
	return d.ages() && now.Sub(d.Silent()) >= d.MaxAge
}

// ages reports whether what is known grows old.
func (d *Damper) ages() bool { return d.MaxAge > 0 && (!d.Once || d.heard.IsZero()) }

// Silent returns since when nothing was reported.
func (d *Damper) Silent() time.Time {
	if d.heard.IsZero() {
		return d.Began
	}
	return d.heard
}

// Next returns the next instant at which Pool or Old changes without a report; the zero time when neither does.
func (d *Damper) Next(now time.Time) (next time.Time) {
	sooner := func(from time.Time, by time.Duration) {
		if at := from.Add(by); at.After(now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	for _, o := range d.older {
		sooner(o.until, d.HoldDown)
	}
	if d.last.Ordinal > 0 && !d.last.Fixed {
		sooner(d.confirmed, d.HoldDown)
	}
	if d.ages() {
		sooner(d.Silent(), d.MaxAge)
	}
	return next
}
