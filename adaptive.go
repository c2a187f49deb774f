package quotient

import (
	"math"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// forgetAfter is how long a key keeps what it has learned without feedback. Upstreams change their limits
// more seldom than that, and a rate learned before a pause is a guess after it.
const forgetAfter = 10 * time.Minute

// learned is what a key has learned under a policy: feedback goes in, paced permits come out. It has one
// pacer for each controller of the setting. They pace requests, other units and slots. The rates' own
// buckets and the share of the slots bound them from above.
type learned struct {
	pacers []pacer
	latest time.Duration // instant.at of the latest admission, feedback or change
	due    time.Duration // when all is forgotten; 0: nothing has been learned
	seed   uint64        // of the controllers
	last   int           // the pacer that last held a call back; at first that of requests
	slots  int           // that a controller of slots allows: one more than the whole ones it has learned
}

// ctrlTerms is what a rule of the policy adds: what its controller governs, and the bounds of the controller.
type ctrlTerms struct {
	ctrlID uint64 // of what it governs, 0: requests; the unitID of a rate; or slotsID
	bounds policy.Bounds
	// Where a controller starts:
	start   float64       // events per second, or slots
	saved   float64       // seconds of the rate
	expires time.Duration // below 0 when the first call starts it; 0 when the first feedback does
	held    float64       // seconds for which a request takes it: 1 for events; 0, unknown, for slots
	quotas  bool          // upstreams report quotas of it
	news    *tally        // has what the other replicas say of it; nil for nothing
}

// slotsID stands for slots in flight, behind all units.
const slotsID = maxUnits + 1

// startUnknown is the rate, in events per second, that a controller starts at where no start is known.
const startUnknown = 5

// govern adds what the controllers of a key govern: requests always, each unit that a rate counts, and at
// last the slots. With no slot there is nothing to govern.
func (o *options) govern(st *setting, b belief, part float64) {
	if !o.learns {
		return
	}
	rates := st.rules[:len(st.limit.Rates)]
	for unit := range slotsID {
		name, limit := tightest(rates, unit)
		if unit > 0 && math.IsInf(limit, 1) {
			continue
		}
		x := ctrlTerms{ctrlID: uint64(unit), held: 1, quotas: true}
		r := rule{id: id{unit: name}, unitID: unit, reason: ReasonRate, window: time.Second}
		o.addController(st, r, x, o.bounds(limit, b, part))
	}
	if st.limit.InFlight > 0 && st.slots > 0 {
		bounds := o.bounds(float64(st.limit.InFlight), b, part)
		bounds.Ceiling = float64(st.slots)
		r := rule{id: id{unit: inFlightRule}, reason: ReasonInFlight}
		ctrl := o.addController(st, r, ctrlTerms{ctrlID: slotsID}, bounds)
		ctrl.kind, ctrl.role, ctrl.timed, ctrl.hidden = kindControllerSlots, roleControllerSlots, false, true
		ctrl.here, ctrl.most, st.timesHolds = math.MaxInt, math.MaxInt, true
		st.rules = append(st.rules, ctrl)
	}
}

// addController adds the rule of the next controller, and returns a copy of it.
func (o *options) addController(st *setting, r rule, x ctrlTerms, bounds policy.Bounds) rule {
	x.bounds = bounds
	o.begin(&x)
	r.id = id{ctrlRule, r.unit, roleController, int64(x.ctrlID)}
	r.kind, r.timed, r.ctrlTerms = kindController, true, x
	r.limit, r.share = bounds.Ceiling, bounds.Share
	r.most, r.here = math.MaxInt, math.MaxInt
	r.ctrl = 0
	for i := range st.rules {
		if st.rules[i].role == roleController {
			r.ctrl++
		}
	}
	st.rules = append(st.rules, r)
	return r
}

// tightest returns the name of a unit, and the least, in events per second over the fleet, of the rates that
// count it: +Inf without one.
func tightest(rates []rule, unit int) (name string, least float64) {
	least = math.Inf(1)
	for i := range rates {
		if r := &rates[i]; r.unitID == unit {
			name, least = r.unit, min(least, r.limit/r.window.Seconds())
		}
	}
	return name, least
}

// bounds divides a limit over the fleet for a controller. A part of it above 0 is what this replica has in
// place of its share.
func (o *options) bounds(limit float64, in belief, part float64) policy.Bounds {
	b := policy.Bounds{Ceiling: limit}
	if math.IsInf(limit, 1) {
		return b
	}
	share := max(limit/in.pool.parts(), limit*part)
	if !o.beyond {
		return policy.Bounds{Share: share, Ceiling: share}
	}
	if in.sized { // else the default of one replica says nothing about the share
		b.Share = share
	}
	return b
}

// boundsAt returns the bounds of a controller with the reports of the fleet, if it is fresh.
func (r *rule) boundsAt(at time.Duration) policy.Bounds {
	b := r.bounds
	if r.news != nil && at < r.news.ends {
		b.Fleet = r.news.fleet
	}
	return b
}

// begin works out where a controller starts under its bounds.
func (o *options) begin(x *ctrlTerms) {
	pace := policy.Pace{}
	if ctrl := o.policy.New(uint64(o.phase)); ctrl != nil {
		pace = ctrl.Next(policy.Sample{}, x.bounds)
	}
	rate := pace.Rate
	if !usable(rate) || rate > maxEvents {
		rate = startUnknown
	}
	x.start, x.saved = min(rate, x.bounds.Ceiling), savedFor(pace.Saved)
	if pace.Until != 0 {
		x.expires = -1
	}
}

// usage is what a permit has taken, as the controllers see it.
type usage struct {
	weight int           // of requests
	costs  [maxUnits]int // events of each unit, as last corrected
	since  time.Duration // instant.at
}

// ofSlots reports whether the controller governs slots.
func (x *ctrlTerms) ofSlots() bool { return x.ctrlID == slotsID }

// took reports whether the permit has taken any of what the controller governs.
func (x *ctrlTerms) took(u *usage) bool {
	return x.ctrlID == 0 || x.ofSlots() || u.costs[x.ctrlID-1] > 0
}

// cost returns what the permit took of it: events, or seconds of its slots.
func (x *ctrlTerms) cost(u *usage, at time.Duration) float64 {
	switch x.ctrlID {
	case 0:
		return float64(u.weight)
	case slotsID:
		return (at - u.since).Seconds() * float64(u.weight)
	}
	return float64(u.costs[x.ctrlID-1])
}

// quota returns the quota of what the controller governs in the feedback; nil for none.
func (r *rule) quota(f *policy.Feedback) *policy.Quota {
	for i := range f.Quotas {
		if q := &f.Quotas[i]; r.quotas && q.Limit > 0 && q.Unit == r.unit && q.Known() {
			return q
		}
	}
	return nil
}

// observe hands the controllers what the upstream answered to a request, each what concerns it. It sets when
// all is forgotten. A refusal concerns one controller alone.
func (l *learned) observe(f *policy.Feedback, u *usage, p policy.Policy, ctrls []*rule) {
	blamed := -1
	if f.Outcome == policy.Throttled {
		blamed = l.blame(f, u, ctrls)
	}
	l.due = l.latest + forgetAfter // first, should a controller panic
	for i, r := range ctrls {
		pc := &l.pacers[i]
		if pc.ctrl == nil {
			if !pc.begin(p.New(l.seed+r.ctrlID), u.since, l.latest, r) {
				continue
			}
			pc.taken = r.cost(u, l.latest) // a key that was evicted meanwhile would not know of more
		}
		pc.observe(f, u, l.latest, r, blamed < 0 || blamed == i)
		l.due = max(l.due, pc.pausedUntil+forgetAfter) // no feedback can come before it
	}
}

// observe hands the controller its sample. The sample has no outcome where the feedback does not concern the
// controller, but the pause that it announces, which is for the whole key.
func (p *pacer) observe(f *policy.Feedback, u *usage, at time.Duration, r *rule, concerned bool) {
	s := policy.Sample{RetryAfter: f.RetryAfter, Now: at, Sent: u.since, Cost: r.cost(u, at), Paced: p.heldBack}
	if q := r.quota(f); q != nil {
		s.Quota = *q
	}
	if concerned {
		s.Outcome = f.Outcome
	}
	switch taken := p.takenSince(); {
	case !r.ofSlots():
		s.Taken = taken
	case f.Outcome == policy.Success:
		p.observeHeld((at - u.since).Seconds())
		s.Taken = s.Cost
	default:
		s.Cost = 0 // a refusal holds a slot for no time, and a time-out for too long
	}
	p.heldBack = false
	p.apply(at, p.ctrl.Next(s, r.boundsAt(at)), r)
}

// blame returns the controller that gets a refusal, one of those that the request has taken from: an
// upstream answers "429" and not for want of what. If the feedback has quotas, it is the controller whose
// quota is the nearest to its end. Otherwise it is the one that last held calls back, since it was probing,
// or else the controller of requests. A controller that the request has taken nothing from could not hold
// the next one back. See docs/decisions.md, 20.
func (l *learned) blame(f *policy.Feedback, u *usage, ctrls []*rule) int {
	nearest, least := -1, 0.0
	for i, r := range ctrls {
		q := r.quota(f)
		if q == nil || !r.took(u) {
			continue
		}
		if left := q.Remaining / q.Limit; nearest < 0 || left < least {
			nearest, least = i, left
		}
	}
	if nearest < 0 && ctrls[l.last].took(u) {
		return l.last
	}
	return max(nearest, 0)
}

// advance brings the controllers up to now. It forgets what is due, and asks a controller again whose pace
// has expired. A call comes with the policy, and may start a controller. A mere look comes with nil, and
// starts none.
func (l *learned) advance(at time.Duration, st *setting, p policy.Policy) {
	if l.over(at) && l.firstExpiry() > 0 {
		// A controller with a clock needs no feedback: admissions keep it.
		l.due = max(l.due, l.latest+forgetAfter)
	}
	if l.over(at) {
		l.renew(l.due, st, nil)
		l.forget(st.ctrls)
		l.resize(st)
	}
	if l.expired(at) {
		l.renew(at, st, p)
	}
}

// maxMissed bounds how often a controller is asked for paces that have expired while its key had no call. It
// is more than the seconds after which all is forgotten. Beyond it the controller is called once more, for
// now.
const maxMissed = 1024

// renew calls the controllers whose pace has expired, once for each expiry.
func (l *learned) renew(at time.Duration, st *setting, p policy.Policy) {
	if st.awaiting || st.limit.Deny {
		return
	}
	for i, r := range st.ctrls {
		pc := &l.pacers[i]
		for n := 0; n <= maxMissed && pc.expired(at) && (pc.ctrl != nil || p != nil); n++ {
			when := pc.expires
			if pc.ctrl == nil || n == maxMissed {
				when, n = at, maxMissed // it begins now, or goes on from now
			}
			if pc.ctrl == nil {
				l.due = max(l.due, at+forgetAfter)
			}
			pc.renew(when, r, p, l.seed+r.ctrlID)
		}
	}
	l.resize(st)
}

// expired reports whether the pace has to be asked for again.
func (p *pacer) expired(at time.Duration) bool { return p.expires != 0 && at >= p.expires }

// expired reports whether any pace has.
func (l *learned) expired(at time.Duration) bool {
	for i := range l.pacers {
		if l.pacers[i].expired(at) {
			return true
		}
	}
	return false
}

// firstExpiry returns when the first pace expires; 0: never.
func (l *learned) firstExpiry() (first time.Duration) {
	for i := range l.pacers {
		if at := l.pacers[i].expires; at > 0 && (first == 0 || at < first) {
			first = at
		}
	}
	return first
}

// over reports whether no feedback has come for so long that all is forgotten.
func (l *learned) over(at time.Duration) bool { return l.due != 0 && at >= l.due }

// forget drops what was learned, as of the instant at which it was due.
func (l *learned) forget(ctrls []*rule) {
	for i := range l.pacers {
		l.pacers[i].forget(l.due, ctrls[i])
	}
	l.due, l.last = 0, 0
}

// takeNow takes n requests from the first bucket and from those of the controllers, and reports whether it
// did. All must have them, no controller may pause, no pace may have expired, and nothing may be due to be
// forgotten.
func (l *learned) takeNow(at time.Duration, b *bucket, f *fill, n float64) bool {
	if l.over(at) {
		return false
	}
	var has [slotsID + 1]float64
	for i := range l.pacers {
		p := &l.pacers[i]
		if has[i] = p.has(at, &p.fill); has[i] < n || p.pausedUntil != 0 || p.expired(at) {
			return false
		}
	}
	if !b.takeNow(at, f, n) {
		return false
	}
	for i := range l.pacers {
		p := &l.pacers[i]
		p.tokens, p.last = has[i]-n, at
		p.taken += n
	}
	l.latest = at
	return true
}

// copyFrom gives l the tokens of another key's pacers, and nothing that they have learned. Requests that are
// paused there may pass here from now on, one by one.
func (l *learned) copyFrom(o *learned, at time.Duration, st *setting, seed uint64) {
	l.seed = seed
	for i, r := range st.ctrls {
		p := &l.pacers[i]
		if *p = o.pacers[i]; p.ctrl != nil {
			p.forget(at, r)
		}
		p.taken = 0
	}
	l.resize(st)
}

// start fills the pacers at the instant of a setting: with the old one of the same rule, or with a fresh one.
func (l *learned) start(old []pacer, was *setting, st *setting) {
	last := l.last
	l.last = 0
	for i, r := range st.ctrls {
		o := was.find(r.id)
		if o == nil {
			l.pacers[i] = r.startPacer(st.at.at, !st.startEmpty)
			continue
		}
		if l.pacers[i] = old[o.ctrl]; o.ctrl == last {
			l.last = i
		}
	}
}
