package quotient

import (
	"time"

	"github.com/quotient-go/quotient/policy"
)

// tally is what a gate counts of a key that the replicas of a pool mention. It also bounds the time for
// which the gate may use a part of the limit that is larger than its share. The shard's lock guards it.
type tally struct {
	ends  time.Duration         // instant.at: of that part, and of the reports
	fleet *policy.Fleet         // what the replicas say of what a controller governs
	since time.Duration         // instant.at: from which on is counted
	taken [1 + maxUnits]float64 // requests, and events of each unit
	slots int32                 // the most in use at once
	wants bool                  // what can be lent, or a controller, has held a call back
}

// lend has this replica use a part of the limit where that is more than its share. Bursts stay as they are:
// the others may have saved up theirs.
func (st *setting) lend(part float64) {
	for i := range st.rules {
		r := &st.rules[i]
		lent := r.limit * part
		switch {
		case !r.lends || lent <= r.share:
		case r.role == roleSlots:
			r.here = max(r.here, int(lent))
			r.share, st.slots = float64(r.here), r.here
		default:
			r.share, r.interval = lent, float64(r.window)/lent
		}
	}
}

// mayLend prepares the rules of a key that is named: of how fast its buckets may fill at most, and of where
// a controller finds the reports.
func (st *setting) mayLend(w *own) {
	if w.tally == nil {
		return
	}
	for i := range st.rules {
		if r := &st.rules[i]; r.lends && r.timed {
			r.fastest = min(r.interval, float64(r.window)/r.limit)
		}
	}
	if w.o.beyond && len(st.ctrls) > 0 {
		st.ctrls[0].news = w.tally
	}
}

// lendsAfter reports whether st differs from old, which came before it, by the part that is lent alone.
func (st *setting) lendsAfter(old *setting) bool {
	return st.own != nil && old.own != nil && st.own.tally != nil && st.own.tally == old.own.tally &&
		st.own.limit == old.own.limit && st.base == old.base
}

// count adds what was taken of the key, or takes it off when sign is -1.
func (p *tally) count(d *demand, slots int32, sign float64) {
	for unit := range p.taken {
		p.taken[unit] += sign * float64(d.of(unit))
	}
	p.slots = max(p.slots, slots)
}
