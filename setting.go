package quotient

import (
	"time"

	"golang.org/x/time/rate"
)

// Ceiling is how far a policy may go past this replica's share.
type Ceiling uint8

const (
	// CeilingShare never lets a replica go past its share, whatever its policy learns.
	CeilingShare Ceiling = iota
	// CeilingLimit lets a replica go up to the whole global limit, in rates and in slots, when its policy has
	// learned that it may; the share is where a law starts. While nobody has said how large the pool is
	// (StartPool, JoinPool, SetPool, Follow) the share is unknown, and laws start cautiously. It is for clients
	// of an upstream that judges for itself and answers 429.
	CeilingLimit
)

// setting is a limit and a pool, worked out for this replica, in force from an instant on.
// It is never changed once it is published, but for next.
//
// Settings form a list. A gate holds the one that it has applied and replays those that
// followed when it is next touched, each at its own instant, so that a lazy gate ends up exactly
// where an eager one would be. Settings that no gate holds any more are garbage.
type setting struct {
	at        time.Time
	limit     Limit
	rations   []ration
	slots     int // of this replica; unbounded when limit.InFlight is 0
	units     []string
	laws      []lawSetting // what laws govern: requests, other units, slots; none under a policy that never learns
	joins     bool         // this replica joined a pool at work: what it has not counted yet starts empty
	origin    time.Time    // of the times that laws are given
	fast      int          // the most events that one token bucket of requests decides on, with slots and laws; 0: look further
	holds     bool         // every permit has something to give back or to learn from
	slotsOnly bool         // slots alone decide
	strict    int          // the rate whose turns, or whose sparse windows, are waited for when the others have room; -1: none
	shut      bool         // nothing is admitted: the pool is awaited
	era       uint32       // counts the settings
	view      view         // of the pool that it was worked out for
	own       *own         // of a key that has a limit of its own; nil for the limiter's
	base      *setting     // the limiter's setting that an own one stands beside
	reshaped  bool         // the rules are not those of the setting before
	next      *setting     // written under all shard locks, read under one
}

// ration is this replica's part of one Rate.
type ration struct {
	name, unit   string
	unitID       int
	limit, share float64 // events per second
	perSecond    rate.Limit
	burst        int // thousandths, of this replica
	most         int // events: the global burst; more can never come at once
	window       *schedule
	turn         *turn         // nil for all but paced rates whose replicas take turns
	grace        time.Duration // within which who was admitted must wake; 0: whenever it likes
}

// view is what a limiter believes about its pool.
type view struct {
	pool  Pool
	sized bool // somebody has said how large the pool is
	shut  bool // nobody has, and AwaitPool waits for it
}

// resolve works out a setting. The limit and the pool are valid.
func (o *options) resolve(limit Limit, v view, units []string) *setting {
	st := &setting{limit: limit, units: units, joins: o.joins || o.awaits, view: v}
	st.shut = v.shut && (len(limit.Rates) > 0 || limit.InFlight > 0)
	if v.shut {
		v.pool = Pool{Replicas: mostReplicas}
	}
	divisor := o.bounding(v)
	for i, r := range limit.Rates {
		st.rations = append(st.rations, o.ration(r, i, divisor, units))
	}
	st.oneTurn()
	st.meet()
	st.slots = o.slots(limit.InFlight, divisor)
	o.govern(st, v.pool, v.sized)
	if !st.shut && st.simple() && st.rations[0].fullIn() < longWait {
		st.fast = st.rations[0].most
	}
	st.holds = limit.InFlight > 0 || len(st.laws) > 0
	st.slotsOnly = !st.shut && len(st.rations) == 0 && len(st.laws) == 0 && limit.InFlight > 0 && !limit.deny
	return st
}

// meet sees to it that the windows of several rates come to be open at one instant. Those of two sparse rates
// never might: so of the sparse ones only that with the longest period is strict, and the others keep the
// event of a window of theirs until it is used.
func (st *setting) meet() {
	st.strict = -1
	for i := range st.rations {
		c := st.rations[i].window
		if st.rations[i].turn != nil {
			st.strict = i // then there are no windows
		}
		if c == nil || !c.sparse() {
			continue
		}
		c.keeps = true
		if st.strict < 0 || c.per > st.rations[st.strict].window.per {
			st.strict = i
		}
	}
	if st.strict >= 0 && st.rations[st.strict].window != nil {
		st.rations[st.strict].window.keeps = false
	}
}

// bounding is the pool that limits are divided by: under CeilingLimit only laws hear of the true one.
func (o *options) bounding(v view) Pool {
	if o.ceiling == CeilingLimit && o.learns && !v.shut {
		return Pool{Replicas: 1}
	}
	return v.pool
}

func (o *options) ration(r Rate, i int, pool Pool, units []string) ration {
	n := float64(pool.Replicas)
	x := ration{
		name: r.name(i), unit: r.Unit, unitID: 1 + indexOf(units, r.Unit),
		limit: r.perSecond(), share: r.perSecond() / n,
		perSecond: rate.Limit(r.perSecond() / n * milli),
		burst:     max(milli, thousandths(r.burst()/n)),
		most:      int(r.burst()),
		grace:     graceOf(r),
	}
	if r.Burst == 1 && !r.NoTurns && !o.learns {
		x.turn = o.turnOf(r, pool)
	}
	if r.Aligned {
		x.window = &schedule{
			per: int64(r.Per), events: uint64(thousandths(r.Events)),
			replicas: uint64(pool.Replicas), ordinal: uint64(pool.Ordinal), phase: o.phase, clock: o.wall,
		}
	}
	return x
}

// slots divides the in-flight limit. The remainder goes to the lowest ordinals, one each,
// and only when the ordinals are fixed: two replicas that hold the same one would exceed the limit.
func (o *options) slots(global int, pool Pool) int {
	share := global / pool.Replicas
	if pool.Fixed && pool.Ordinal > 0 && pool.Ordinal <= global%pool.Replicas {
		share++
	}
	if share == 0 && o.atLeastOne {
		share = 1
	}
	return share
}

// stricter tells whether st may refuse for good what old did not.
func (st *setting) stricter(old *setting) bool {
	if st.limit.deny || old.shut || st.limit.InFlight > 0 && (old.limit.InFlight == 0 || st.slots < old.slots) {
		return true
	}
	for i := range st.rations {
		r := &st.rations[i]
		if j := indexOfRation(old.rations, r); j < 0 || r.most < old.rations[j].most {
			return true
		}
	}
	return false
}

// counts tells whether a rate counts the unit.
func (st *setting) counts(unit string) bool {
	for i := range st.rations {
		if st.rations[i].unit == unit {
			return true
		}
	}
	return false
}

// is tells whether both rations are the same rule, so that state carries over.
func (r *ration) is(o *ration) bool {
	if r.name != o.name || r.unit != o.unit {
		return false
	}
	if r.window == nil || o.window == nil {
		return r.window == o.window
	}
	return r.window.per == o.window.per
}

// longWait is far below the 292 years at which rate.Limiter's own arithmetic wraps around.
const longWait = 30 * 365 * 24 * time.Hour

// fullIn is how long an ask of the global burst takes to come by.
func (r *ration) fullIn() time.Duration {
	return saturated(float64(r.most) * milli / float64(r.perSecond))
}

// simple tells that one token bucket of requests is all there is to decide, but for slots.
func (st *setting) simple() bool {
	return len(st.rations) == 1 && st.rations[0].window == nil && st.rations[0].turn == nil && st.rations[0].unitID == 0 &&
		!st.limit.deny
}
