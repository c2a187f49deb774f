package quotient

import (
	"math"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// lawSetting is one of the things that the laws of a key govern, and the bounds of its law.
type lawSetting struct {
	id     int    // 0: requests; a ration's unitID; or slotsID
	unitID int    // of what it takes from a demand: for slots as for requests its weight
	unit   string // as in policy.Quota
	ahead  int    // where gate.queued counts what waits for it
	bounds policy.Bounds
	// Where a law starts:
	start    float64       // events per second, or slots
	saved    float64       // seconds of the rate
	outdated time.Duration // below 0 when the first ask starts it; 0 when the first feedback does
}

// slotsID stands for slots in flight, behind all units.
const slotsID = maxUnits + 1

// startUnknown is the rate, in events per second, that stands in for a start that is none.
const startUnknown = 5

// govern works out what the laws of a key govern: requests always, each unit that a rate counts, and at last the
// slots. With no slot there is nothing to govern.
func (o *options) govern(st *setting, pool Pool, sized bool) {
	if !o.learns {
		return
	}
	for id := range slotsID {
		ls, limit := st.tightest(id)
		if id > 0 && math.IsInf(limit, 1) {
			continue
		}
		ls.bounds = o.bounds(limit, pool, sized)
		st.laws = append(st.laws, ls)
	}
	if st.limit.InFlight > 0 && st.slots > 0 {
		ls := lawSetting{id: slotsID, ahead: len(st.rations), bounds: o.bounds(float64(st.limit.InFlight), pool, sized)}
		ls.bounds.Ceiling = float64(st.slots)
		st.laws = append(st.laws, ls)
	}
	for i := range st.laws {
		o.begin(&st.laws[i])
	}
}

// tightest is the least, in events per second over the fleet, of the rates that count a unit; +Inf without one.
func (st *setting) tightest(id int) (lawSetting, float64) {
	ls, least := lawSetting{id: id, unitID: id, ahead: len(st.rations)}, math.Inf(1)
	for i := range st.rations {
		r := &st.rations[i]
		if r.unitID != id {
			continue
		}
		least = min(least, r.limit)
		if id > 0 {
			ls.unit, ls.ahead = r.unit, i
		}
	}
	return ls, least
}

// bounds divides a limit over the fleet for a law.
func (o *options) bounds(limit float64, pool Pool, sized bool) policy.Bounds {
	b := policy.Bounds{Ceiling: limit}
	if math.IsInf(limit, 1) {
		return b
	}
	share := limit / float64(pool.Replicas)
	if o.ceiling == CeilingShare {
		return policy.Bounds{Share: share, Ceiling: share}
	}
	if sized { // else the default of one replica is nobody's word
		b.Share = share
	}
	return b
}

// begin works out where a law starts under its bounds.
func (o *options) begin(ls *lawSetting) {
	pace := policy.Pace{}
	if law := o.policy.New(uint64(o.phase)); law != nil {
		pace = law.Next(policy.Sample{}, ls.bounds)
	}
	x := pace.Rate
	if !usable(x) || x > maxEvents {
		x = startUnknown
	}
	ls.start, ls.saved = min(x, ls.bounds.Ceiling), savedFor(pace.Saved)
	if pace.Until != 0 {
		ls.outdated = -1
	}
}

// slotsLaw is the index of the law that governs the slots, or -1.
func (st *setting) slotsLaw() int {
	if last := len(st.laws) - 1; last > 0 && st.laws[last].id == slotsID {
		return last
	}
	return -1
}

// verdict is that of a law which holds an ask back.
func (st *setting) verdict(law int, wait time.Duration) verdict {
	if st.laws[law].id == slotsID {
		return verdict{ReasonInFlight, ruleOf(law), wait}
	}
	return verdict{ReasonRate, ruleOf(law), wait}
}

// sameLaws tells whether both settings govern the same things.
func sameLaws(a, b *setting) bool {
	if len(a.laws) != len(b.laws) {
		return false
	}
	for i := range a.laws {
		if a.laws[i].id != b.laws[i].id {
			return false
		}
	}
	return true
}
