package quotient

import (
	"math"
	"time"

	"github.com/quotient-go/quotient/internal/meter"
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
	r.id = id{name: ctrlRule, unit: r.unit, role: roleController, per: int64(x.ctrlID)}
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
	if ctrl := o.policy.New(uint64(o.chance.Phase)); ctrl != nil {
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

// blame returns the controller that gets a refusal, one of those that the request has taken from: an upstream answers
// "429" and not for want of what. If the feedback has quotas, it is the controller whose quota is the nearest to its
// end. Otherwise it is the one that last held calls back, since it was probing, or else the controller of requests. A
// controller that the request has taken nothing from could not hold the next one back. One controller for everything
// would cut requests for want of tokens, and to blame all would keep all but one too low. Where two probe at once the
// wrong one may be blamed, which costs one cut.
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

// advance brings the controllers up to now. It forgets what is due, and asks a controller again whose pace has
// expired. A call comes with the policy, and may start a controller. A mere look comes with nil, and starts none.
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

// maxMissed bounds how often a controller is asked for paces that have expired while its key had no call. It is more
// than the seconds after which all is forgotten. Beyond it the controller is called once more, for now.
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

// takeNow takes n requests from the first bucket and from those of the controllers, and reports whether it did. All
// must have them, no controller may pause, no pace may have expired, and nothing may be due to be forgotten.
func (l *learned) takeNow(at time.Duration, b *meter.Bucket, f *meter.Fill, n float64) bool {
	if l.over(at) {
		return false
	}
	var has [slotsID + 1]float64
	for i := range l.pacers {
		p := &l.pacers[i]
		if has[i] = p.Has(at, &p.Fill); has[i] < n || p.pausedUntil != 0 || p.expired(at) {
			return false
		}
	}
	if !b.TakeNow(at, f, n) {
		return false
	}
	for i := range l.pacers {
		p := &l.pacers[i]
		p.Tokens, p.Last = has[i]-n, at
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
			l.pacers[i] = r.startPacer(st.at.At, !st.startEmpty)
			continue
		}
		if l.pacers[i] = old[o.ctrl]; o.ctrl == last {
			l.last = i
		}
	}
}

// pacerBurst is how many seconds of its rate a pacing bucket holds where the controller sets nothing, and at least
// one event. It is enough to even out the jitter of timers, and so little that a new rate shows at once.
const pacerBurst = 0.1

// heldWeight is what one more request counts in the mean time that requests hold a slot. That is a mean over
// about 16 requests, which evens out round trips that differ by some factor.
const heldWeight = 1.0 / 16

// maxPause is the longest for which a controller can stop all at once. It is far beyond the windows of most
// upstreams, and a controller that wants more can pause again when the time has passed.
const maxPause = time.Hour

// minPace is the shortest time for which a pace holds: a controller whose pace has always expired would be
// called without end.
const minPace = time.Millisecond

// pacer is the resource of what a controller governs: the controller, and the bucket that paces it. That is events of
// one unit, or slots, each of which is taken for as long as a request holds it. A controller that allows x slots also
// paces admissions, at x per mean holding time, unless x is all slots: whole slots alone leave a fifth of 20 unused.
type pacer struct {
	meter.Bucket
	meter.Fill                    // of the bucket: what the pace makes of it
	ctrl        policy.Controller // nil until the first feedback: the pace is then where a controller starts
	pace        float64           // what the controller allows: events per second, or slots
	held        float64           // seconds that a request holds a slot, smoothed; 0: unknown; 1 for events
	taken       float64           // since the controller was last asked, less what was given back
	saved       float64           // seconds of the rate that the bucket holds
	probe       time.Duration     // single requests pass, one in each; 0: the pace is in force
	pausedUntil time.Duration     // nothing passes before it; 0: no such instant
	heldBack    bool              // it has held a call back since the controller was last asked
	all         bool              // the pace is all slots that there are, which need no bucket to bound them

	// expires is when the pace does: the next call then asks the controller. Below 0 it is from the start; 0 is never.
	expires time.Duration
	// cut is when the bucket was last made smaller, slower or new: what was taken before does not come back.
	cut time.Duration
}

// startPacer returns the pacer of a key never seen.
func (r *rule) startPacer(at time.Duration, full bool) pacer {
	p := pacer{Fill: meter.Fill{Interval: math.Inf(1)}, saved: r.saved, expires: r.expires, held: r.held}
	p.setPace(at, r.start, r)
	if full || r.held == 0 { // slots are not saved up: none is in use
		p.Tokens = p.Size
	}
	return p
}

// setPace changes the pace, and with it the fill rate and the size. Tokens that are there stay, up to the new size.
func (p *pacer) setPace(at time.Duration, pace float64, r *rule) {
	p.pace, p.all = pace, r.ofSlots() && pace >= r.bounds.Ceiling
	f := p.paced()
	if p.probe > 0 {
		f = meter.Fill{Interval: float64(p.probe), Size: 1}
	}
	if f == p.Fill {
		return
	}
	p.Tokens, p.Last = p.Has(at, &p.Fill), at
	if f.Interval > p.Interval || f.Size < p.Size {
		p.cut = at
	}
	p.Fill = f
}

// paced is how the bucket fills at the pace. Only the number of slots counts while the time that they are held is
// unknown, and while all may be used: a mean of that time, which lags, would refuse calls that find a slot free.
func (p *pacer) paced() meter.Fill {
	held := p.held
	if p.all {
		held = 0
	}
	size := max(1, min(p.pace/held, maxEvents)*p.saved)
	return meter.Fill{Interval: max(float64(time.Second)*held/p.pace, float64(time.Second)/maxEvents), Size: size}
}

// observeHeld notes for how long a request that succeeded has held its slots.
func (p *pacer) observeHeld(seconds float64) {
	if p.held == 0 {
		p.held = seconds
	}
	p.held += (seconds - p.held) * heldWeight
}

// until computes a turn behind a probe by the pace that is expected then: nothing is known of when the probe
// is answered. Only the next probe passes before that.
func (p *pacer) Until(t meter.Instant, _ *meter.Rule, from time.Duration, ahead, n float64) time.Duration {
	paused, has := p.paused(t.At), 1.0
	if paused == 0 {
		has = p.Has(t.At, &p.Fill)
	}
	d := p.In(ahead + min(n, p.Size) - has)
	if p.probe > 0 && d > 0 {
		f := p.paced()
		d = max(1, min(d, f.In(ahead+min(n, f.Size)-has)))
	}
	return max(from, meter.After(paused, d))
}

// wakes returns in what time the next waiter looks again, whose turn comes after so long as far as is known.
// A probe's answer wakes it sooner. Nil is no controller.
func (p *pacer) wakes(at, turn time.Duration) time.Duration {
	if p != nil && p.probe > 0 && p.paused(at) == 0 {
		return p.UntilHas(at, &p.Fill, 1)
	}
	return turn
}

// take takes n. A probe is a single request, whatever it costs.
func (p *pacer) Take(t meter.Instant, _ *meter.Rule, n float64) {
	p.endPause(t.At)
	p.taken += n
	if p.probe > 0 {
		n = min(n, 1)
	}
	p.Spend(t.At, &p.Fill, n)
}

// refund gives back what cannot have been refilled since, unless the bucket was made smaller or slower. At
// least it sets what has come back against what is owed.
func (p *pacer) Refund(t meter.Instant, taken time.Duration, _ *meter.Rule, n float64) {
	p.taken -= n
	p.endPause(t.At)
	back := min(n, -p.Has(t.At, &p.Fill))
	if taken >= p.cut {
		back = max(back, n-float64(t.At-taken)/p.Interval)
	}
	p.Spend(t.At, &p.Fill, -max(0, back))
}

func (p *pacer) UpTo(t meter.Instant, _ *meter.Rule, n int) int {
	if p.paused(t.At) > 0 {
		return 0
	}
	return p.Whole(t.At, &p.Fill, n)
}

func (p *pacer) Left(t meter.Instant, _ *meter.Rule) (events, of float64, full time.Duration) {
	paused := p.paused(t.At) // first: the end of a pause sets what is left
	return p.Has(t.At, &p.Fill), p.Size, paused
}

func (p *pacer) Age(t meter.Instant, _ *meter.Rule) time.Duration {
	return meter.Saturated(p.Has(t.At, &p.Fill) * p.Interval)
}

func (p *pacer) State(t meter.Instant, _ *meter.Rule) meter.State {
	return meter.State{Has: p.Has(t.At, &p.Fill)}
}

// follow hands the controller its new bounds, or starts where a controller does under them.
func (p *pacer) follow(t meter.Instant, r *rule) {
	if p.ctrl == nil {
		p.saved, p.expires = r.saved, r.expires
		p.setPace(t.At, r.start, r)
		return
	}
	p.guard(t.At, r, func() { p.ask(policy.Sample{Now: t.At, Sent: t.At}, r) })
}

// paused returns for how long nothing passes.
func (p *pacer) paused(at time.Duration) time.Duration {
	p.endPause(at)
	return max(0, p.pausedUntil-at)
}

// endPause ends a pause whose time is over.
func (p *pacer) endPause(at time.Duration) {
	if p.pausedUntil != 0 && at >= p.pausedUntil {
		p.resume(p.pausedUntil)
	}
}

// resume ends a pause at an instant: one event may pass at it, whatever there was before.
func (p *pacer) resume(at time.Duration) { p.pausedUntil, p.Tokens, p.Last, p.cut = 0, 1, at, at }

// apply puts a pace in force. One whose rate is nonsense counts for nothing, but the bounds do.
func (p *pacer) apply(at time.Duration, pace policy.Pace, r *rule) {
	at = max(at, p.Last) // a success may be dated before the last look at the bucket
	p.endPause(at)
	x, probe := pace.Rate, pace.Probe()
	if !usable(x) {
		x, pace.NotBefore, probe = p.pace, p.pausedUntil, p.probe
	}
	if p.probe > 0 {
		p.cut = at + 1 // what probes have taken is no part of the pace; some answers are dated by them
	}
	p.saved, p.expires, p.probe = savedFor(pace.Saved), 0, min(probe, maxPause)
	if pace.Until != 0 {
		p.expires = max(pace.Until, at+minPace)
	}
	p.setPace(at, min(x, r.bounds.Ceiling, maxEvents), r)
	switch {
	case pace.NotBefore > at:
		p.pausedUntil = min(pace.NotBefore, at+maxPause)
	case p.pausedUntil != 0:
		p.resume(at)
	}
}

// renew calls the controller, whose pace has expired, and starts one where there is none. A full bucket
// stays full when the pace rises. So a caller that takes everything once a second gets the pace of the
// second that begins, not of the one before.
func (p *pacer) renew(at time.Duration, r *rule, fresh policy.Policy, seed uint64) {
	p.guard(at, r, func() {
		full := p.ctrl != nil && p.UntilHas(at, &p.Fill, p.Size) == 0
		if p.ctrl != nil || p.begin(fresh.New(seed), at, at, r) {
			p.ask(policy.Sample{Now: at, Sent: at, Paced: p.heldBack}, r)
			if p.heldBack = false; full && p.pausedUntil == 0 {
				p.Tokens, p.Last = p.Size, at
			}
			return
		}
		p.expires = 0
	})
}

// begin starts a controller, and reports whether there is one.
func (p *pacer) begin(ctrl policy.Controller, sent, at time.Duration, r *rule) bool {
	if ctrl == nil {
		return false
	}
	p.ctrl = ctrl
	ctrl.Next(policy.Sample{Now: at, Sent: sent}, r.boundsAt(at))
	return true
}

// ask asks the controller for its pace, without any feedback.
func (p *pacer) ask(s policy.Sample, r *rule) {
	if s.Taken = p.takenSince(); r.ofSlots() {
		s.Taken = 0 // for how long the slots are held is unknown yet
	}
	p.apply(s.Now, p.ctrl.Next(s, r.boundsAt(s.Now)), r)
}

// guard drops a controller that panics where no caller has anything to do with it.
func (p *pacer) guard(at time.Duration, r *rule, f func()) {
	defer func() { _ = recover() }()
	orElse(f, func() { p.forget(at, r) })
}

// takenSince returns what was taken since the controller was last asked, and starts the count again.
func (p *pacer) takenSince() float64 {
	n := p.taken
	p.taken = 0
	return n
}

// forget drops what was learned, as of an instant.
func (p *pacer) forget(at time.Duration, r *rule) {
	if p.pausedUntil != 0 {
		p.resume(min(p.pausedUntil, at))
	}
	p.ctrl, p.held, p.heldBack, p.probe = nil, r.held, false, 0
	p.saved, p.expires = r.saved, r.expires
	p.setPace(at, r.start, r)
}

// savedFor returns how many seconds' events a controller wants saved up.
func savedFor(d time.Duration) float64 {
	if d <= 0 {
		return pacerBurst
	}
	return d.Seconds()
}

// usable guards against a controller that answers nonsense.
func usable(x float64) bool { return x > 0 && !math.IsInf(x, 1) }
