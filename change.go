package quotient

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// SetLimit changes the limit, over the fleet, at once. Waiters that the new limit admits go at once, the
// others are paced by it; what was taken stays taken. Rates keep their state by Name and Unit, and a new one
// starts with what the old ones would still admit: no change brings tokens. On an error nothing changes.
func (l *Limiter) SetLimit(limit Limit) error {
	old, err := l.setLimit(limit.clone(), false)
	if err == nil { // and without a lock: a handler may ask for Stats
		l.log.Info("limit set", "old", old, "new", limit)
		limit.warn(l.log)
		l.warnOfSlots()
	}
	return err
}

// setLimit is SetLimit without its log. With try it only returns the error.
func (l *Limiter) setLimit(limit Limit, try bool) (old Limit, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	units, err := l.learnUnits(limit, 0)
	if err != nil || try {
		return Limit{}, err
	}
	l.units = units
	l.version++
	old = l.newest().limit
	l.publish(limit)
	return old, nil
}

// learnUnits checks the limit and returns the units by their places, with those that it adds. Where all places
// are taken, a new unit has that of one which no limit has any more. Setting i, if there is one, is that which
// the limit takes the place of. Call with l.mu held.
func (l *Limiter) learnUnits(limit Limit, i int) ([]string, error) {
	if err := limit.Validate(); err != nil {
		return nil, err
	}
	units := slices.Clone(l.units)
	for j, r := range limit.Rates {
		if r.Unit == "" || slices.Contains(units, r.Unit) {
			continue
		}
		if len(units) < maxUnits {
			units = append(units, r.Unit)
			continue
		}
		free := slices.IndexFunc(units, func(u string) bool { return !limit.counts(u) && !l.counts(u, i) })
		if free < 0 {
			return nil, fmt.Errorf(
				"quotient: Limit.Rates[%d].Unit: %q is one more than the %d units a limiter can count: %q",
				j, r.Unit, maxUnits, units)
		}
		units[free] = r.Unit
	}
	return units, nil
}

// counts reports whether a rate counts the unit.
func (l Limit) counts(unit string) bool {
	return slices.ContainsFunc(l.Rates, func(r Rate) bool { return r.Unit == unit })
}

// counts reports whether the limit of a setting but for number i counts the unit, or that of a single key. Call
// with l.mu held.
func (l *Limiter) counts(unit string, i int) bool {
	if i != 0 && l.newest().limit.counts(unit) {
		return true
	}
	for j, p := range l.plans { // one that is off has no limit
		if j+1 != i && p.limit.counts(unit) {
			return true
		}
	}
	for _, own := range l.overrides.limits {
		if own.counts(unit) {
			return true
		}
	}
	return false
}

// publish puts the limit in force in all shards at one instant, which is not before anything that any of them
// has done. So it does the plans that change. Then it wakes the gates that have waiters. All others follow
// when they are next touched. Call with l.mu held.
func (l *Limiter) publish(limit Limit) {
	olds := l.settings()
	next := l.successors(olds, limit)
	for i := range l.shards {
		l.shards[i].mu.Lock()
	}
	l.clock.Store(l.clockOf(next)) // before it is read: a first aligned rate needs the wall clock's time
	at := l.wallNow()
	for i := range l.shards {
		at = l.shards[i].tickWall(at)
	}
	l.known = l.known || !l.belief.awaits
	stricter := false
	for i, st := range next {
		if st != nil {
			st.at = at
		}
		if i >= len(olds) || st == nil {
			continue
		}
		if old := olds[i]; old.plan != st.plan { // whose place this plan takes
			old.next = next[0]
		} else {
			old.next, stricter = st, stricter || st.stricter(old)
		}
	}
	for i := range l.shards {
		l.shards[i].follow(next, l.plans, at)
	}
	for i := range l.shards {
		l.shards[i].mu.Unlock()
	}
	l.changes++
	for i := range l.shards {
		l.wake(&l.shards[i], stricter)
		if l.changes%catchUp == 0 {
			l.replayAll(&l.shards[i])
		}
	}
}

// settings are the newest, of the limiter's own limit and of the plans by their places. Call with l.mu held.
func (l *Limiter) settings() []*setting {
	s := &l.shards[0] // written under l.mu too
	all := []*setting{s.setting}
	for _, p := range *s.plans {
		all = append(all, p.setting)
	}
	return all
}

// successors are the settings that follow, nil for one that stays as it is. One whose place another plan takes
// is followed by that of the limiter's own limit, which is then a new one.
func (l *Limiter) successors(olds []*setting, limit Limit) []*setting {
	next := []*setting{l.successor(olds[0], namedLimit{limit: limit})}
	for i, p := range l.plans {
		if p.off {
			p.name, p.limit = "", limit
		}
		var old *setting
		if i+1 < len(olds) {
			old = olds[i+1]
		}
		if old != nil && old.plan != p.id {
			next[0] = next[0].joined(olds[0], old)
			old = nil
		}
		next = append(next, l.successor(old, p))
	}
	return next
}

// joined makes st, which follows old if it is not nil, the successor of another setting of the same limit too.
func (st *setting) joined(old, other *setting) *setting {
	if st == nil {
		same := *old
		same.next, same.begins = nil, false
		st = &same
	}
	if len(st.rules) == 0 {
		st.after(other)
	} else if st.limit.Deny { // the ended plan's rules stay too
		rules := slices.Clone(st.rules)
		for _, r := range st.kept(other) {
			if r.role == roleRate && st.find(r.id) == nil {
				rules = append(rules, r)
			}
		}
		st.rules, st.order, st.ctrls = rules, nil, nil
		st.arrange()
	}
	st.reshaped, st.serial = true, 1+max(old.serial, other.serial)
	return st
}

// successor returns the setting of a limit that follows old, or nil if it is the same.
func (l *Limiter) successor(old *setting, p namedLimit) *setting {
	special := len(l.plans) > 0
	if old != nil && old.limit.equal(p.limit) && old.belief == l.belief && slices.Equal(old.units, l.units) &&
		old.special == special && old.planName == p.name {
		return nil
	}
	st := l.resolve(p.limit, l.belief, l.units, 0)
	st.special, st.plan, st.planName = special, p.id, p.name
	if st.reshaped = true; old != nil {
		st.serial = old.serial + 1
		st.begins = old.belief.awaits && !l.belief.awaits && !l.known
		st.after(old)
	}
	return st
}

// follow puts the shard under settings, one for each plan: nil where there is none.
func (s *shard) follow(next []*setting, limits []namedLimit, at instant) {
	if s.latest = at; next[0] != nil {
		for u, unit := range s.setting.units {
			if unit != next[0].units[u] {
				s.forgetUnit(u)
			}
		}
		s.setting = next[0]
	}
	s.untouched.sync()
	for i, st := range next[1:] {
		if i == len(*s.plans) {
			*s.plans = append(*s.plans, plan{})
		}
		p := &(*s.plans)[i]
		if p.id != limits[i].id {
			*p = plan{id: limits[i].id, untouched: new(gate)}
			p.untouched.begin(st)
		}
		if st != nil {
			p.setting, p.name = st, st.planName
		}
		p.untouched.sync()
	}
}

// forgetUnit takes what is asked for of a unit, and what may be given back, off all that wait and all permits:
// its place is that of another unit now.
func (s *shard) forgetUnit(u int) {
	for g := range s.waiting {
		for w := g.ext.queue.head; w != nil; w = w.next {
			w.d.costs[u] = 0
		}
		for class := range g.ext.backlog {
			g.ext.backlog[class][u+1] = 0
		}
	}
	for _, block := range s.permits.blocks {
		for i := range block {
			h := &block[i]
			h.costs[u], h.asked[u+1], h.added[u+1] = 0, 0, 0
		}
	}
}

// SetPlan gives the plan of that name a limit over the fleet, for each of its keys. Names follow the rules
// of Registry.Add. It applies at once; nil removes the plan, and its keys come under the limiter's own
// limit. A limiter can have 64 plans at a time. On an error nothing changes.
//
// A plan is a class of keys. A call names it with Plan, and a key is in the plan of its latest call. A key
// that changes its plan keeps what it has used: what it takes in one counts in the others that it was in. So
// it gets no more by changing between plans than under the largest alone. Slots in flight are counted once.
// Events taken in another plan are not refunded. A limit of its own (Override) goes before any plan.
func (l *Limiter) SetPlan(name string, limit *Limit) error {
	old, err := l.setPlan(name, limit, false)
	if err == nil { // and without a lock: a handler may ask for Stats
		l.log.Info("plan set", "plan", name, "old", old, "new", limit)
		if limit != nil {
			limit.warn(l.log.With("plan", name))
			l.warnOfSlots()
		}
	}
	return err
}

// setPlan is SetPlan without its log. With try it only returns the error.
func (l *Limiter) setPlan(name string, limit *Limit, try bool) (old *Limit, err error) {
	if !isName(name) {
		return nil, fmt.Errorf("quotient: SetPlan: name: %q is not %s", clip(name), namesAre)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.plans, func(p namedLimit) bool { return p.name == name })
	if i >= 0 && !l.plans[i].off {
		old = &l.plans[i].limit
	}
	id, i := l.placeFor(i)
	p, units := namedLimit{id: id, name: strings.Clone(name), off: limit == nil}, l.units
	switch {
	case limit == nil && old == nil:
		return nil, nil
	case i < 0:
		return nil, fmt.Errorf("quotient: SetPlan: %q would be one more than %d plans", name, l.mostPlans)
	case limit != nil:
		if units, err = l.learnUnits(*limit, i+1); err != nil {
			return nil, fmt.Errorf("quotient: SetPlan: %w", err)
		}
		p.limit = limit.clone()
	}
	if try {
		return nil, nil
	}
	plans := append(slices.Clone(l.plans), p)[:max(i+1, len(l.plans))] // old points into the list
	plans[i] = p
	l.plans, l.units = plans, units
	l.version++
	l.publish(l.newest().limit)
	return old, nil
}

// placeFor returns the id of a plan in place i and that place. If i is below 0 it is a free place: one that
// none has had, else that of a plan that was taken off. It is below 0 without one.
func (l *Limiter) placeFor(i int) (planID, int) {
	switch n := len(l.plans); {
	case i >= 0:
		return l.plans[i].id, i
	case n < l.mostPlans:
		return planID(n + 1), n
	}
	if i = slices.IndexFunc(l.plans, func(p namedLimit) bool { return p.off }); i < 0 {
		return 0, i
	}
	return l.plans[i].id.next(), i
}

// wake asks the heads of all queues again. Under a stricter setting it first looks for waiters that it
// refuses.
func (l *Limiter) wake(s *shard, stricter bool) {
	s.mu.Lock()
	gates := make([]*gate, 0, len(s.waiting))
	for g := range s.waiting {
		gates = append(gates, g)
	}
	s.mu.Unlock()
	for _, g := range gates {
		s.mu.Lock()
		if stricter || g.setting.own != nil {
			s.rejectHopeless(g)
		}
		s.serveAndUnlock(g)
	}
}

// rejectHopeless refuses the waiters that the newest setting can never admit, wherever they stand. It is
// entered and left with the lock held, which it gives back now and then.
func (s *shard) rejectHopeless(g *gate) {
	s.rejectIf(g, func(w *waiter) verdict { return s.settingOf(g, w.d.plan).refuses(&w.d) })
}

// rejectIf refuses the waiters for which refuses returns a reason, some in one hold of the lock.
func (s *shard) rejectIf(g *gate, refuses func(*waiter) verdict) {
	var ws []*waiter
	var next *waiter
	for g.sync(); g.waited(); {
		ws, next = g.ext.queue.hopeless(next, refuses)
		for _, w := range ws {
			s.refuse(g, w, refuses(w))
		}
		if next == nil {
			return
		}
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
	}
}

// catchUp is after how many changes all gates replay, so that no gate ever has more to replay.
const catchUp = 1024

// replayBatch is how many gates are brought up to date in one hold of a lock: each may have catchUp changes
// to replay.
const replayBatch = 4

// replayAll brings all gates up to date, so that the list of settings does not grow without end behind a
// gate that no call touches.
func (l *Limiter) replayAll(s *shard) {
	s.mu.Lock()
	all := s.order.Keys()
	if s.overflow.gate != nil {
		all = append(all, s.overflow.gate)
	}
	s.mu.Unlock()
	for gates := range slices.Chunk(all, replayBatch) {
		s.mu.Lock()
		for _, g := range gates {
			g.sync()
		}
		s.mu.Unlock()
	}
}

// SetDryRun begins or ends a dry run, to see what a limit would do before it does it. The limiter decides as
// always, and also admits calls that it would have refused or made to wait. Such a call takes nothing, and
// no policy learns from it. Stats.DryRunAdmitted counts it by what stood in its way, and one line a second
// at most is logged. Queues are not simulated: waiting callers go at once, and each call that would have
// waited counts. Calls that are not valid are errors as always. TryAcquireUpTo takes what there is room for,
// and all n only if there is room for none.
func (l *Limiter) SetDryRun(on bool) {
	l.mu.Lock()
	old := l.dry.Swap(on)
	if old != on {
		l.version++
	}
	if on && !old {
		for i := range l.shards {
			l.wake(&l.shards[i], false)
		}
	}
	l.mu.Unlock()
	if old != on {
		l.log.Info("dry run set", "old", old, "new", on)
	}
}

// logPool logs a change, without a lock: a handler may ask for Stats.
func (l *Limiter) logPool(old, v belief, source string) {
	switch {
	case v.awaits && !old.awaits:
		l.alarm().Warn("pool not known: nothing is admitted", "last", old.pool, "source", "awaited")
	case old.awaits && !v.awaits:
		l.log.Info("pool changed", "old", "not known", "new", v.pool, "source", source)
	case v.pool != old.pool:
		l.log.Info("pool changed", "old", old.pool, "new", v.pool, "source", source)
	}
	if v != old {
		l.warnOfSlots()
	}
}

// warnOfSlots logs each limit that has fewer slots than replicas, and none here.
func (l *Limiter) warnOfSlots() {
	for _, short := range l.withoutSlots() {
		log := l.log
		if short.name != "" {
			log = log.With("plan", short.name)
		}
		log.Warn("no slot here: what asks under this limit is refused", "in_flight", short.limit.InFlight)
	}
}

// withoutSlots are the limits, the limiter's own and those of its plans, that have slots and none of them
// here.
func (l *Limiter) withoutSlots() (short []namedLimit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.belief.awaits {
		return nil
	}
	for _, st := range l.settings() {
		if st.limit.InFlight > 0 && st.slots == 0 && (st.plan == 0 || st.planName != "") {
			short = append(short, namedLimit{name: st.planName, limit: st.limit})
		}
	}
	return short
}
