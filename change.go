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
	units, err := learnUnits(l.units, limit)
	if err != nil || try {
		return Limit{}, err
	}
	l.units = units
	l.version++
	old = l.newest().limit
	l.publish(limit)
	return old, nil
}

// learnUnits checks the limit and returns the units known so far with those that it adds.
func learnUnits(known []string, limit Limit) ([]string, error) {
	if err := limit.Validate(); err != nil {
		return nil, err
	}
	units := slices.Clone(known)
	for i, r := range limit.Rates {
		if r.Unit == "" || slices.Contains(units, r.Unit) {
			continue
		}
		if len(units) == maxUnits {
			return nil, fmt.Errorf(
				"quotient: Limit.Rates[%d].Unit: %q is one more than the %d units a limiter can count: %q",
				i, r.Unit, maxUnits, units)
		}
		units = append(units, r.Unit)
	}
	return units, nil
}

// publish puts the limit in force in all shards at one instant, which is not before anything that any of them
// has done. So it does the plans that change. Then it wakes the gates that have waiters. All others follow
// when they are next touched. Call with l.mu held.
func (l *Limiter) publish(limit Limit) {
	next := []*setting{l.successor(0, limit)}
	for i, p := range l.plans {
		if p.off {
			p.limit = limit
		}
		next = append(next, l.successor(uint8(i+1), p.limit))
	}
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
	for plan, st := range next {
		if old := l.shards[0].newest(uint8(plan)); st != nil && old != nil {
			old.next, stricter = st, stricter || st.stricter(old)
		}
		if st != nil {
			st.at = at
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

// successor returns the next setting of a plan; nil for a plan that stays as it is.
func (l *Limiter) successor(plan uint8, limit Limit) *setting {
	old, special, name := l.shards[0].newest(plan), len(l.plans) > 0, "" // written under l.mu too
	if plan > 0 && !l.plans[plan-1].off {
		name = l.plans[plan-1].name
	}
	if old != nil && old.limit.equal(limit) && old.belief == l.belief && len(old.units) == len(l.units) &&
		old.special == special && old.planName == name {
		return nil
	}
	st := l.resolve(limit, l.belief, l.units, 0)
	st.special, st.plan, st.planName = special, plan, name
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
		s.setting = next[0]
	}
	s.untouched.sync()
	for i, st := range next[1:] {
		if i == len(s.plans.list) {
			s.plans.list = append(s.plans.list, plan{untouched: new(gate)})
			s.plans.list[i].untouched.begin(st)
			s.plans.names = append(s.plans.names, "")
		}
		p := &s.plans.list[i]
		if s.plans.names[i] = limits[i].name; limits[i].off {
			s.plans.names[i] = ""
		}
		if st != nil {
			p.setting = st
		}
		p.untouched.sync()
	}
}

// SetPlan gives the plan of that name a limit over the fleet, for each of its keys. Names follow the rules
// of Registry.Add. It applies at once; nil removes the plan, and its keys come under the limiter's own
// limit. A limiter can have 64 plans in its life. On an error nothing changes.
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
	p, units := namedLimit{name: strings.Clone(name), off: limit == nil}, l.units
	switch {
	case limit == nil && old == nil:
		return nil, nil
	case i < 0 && len(l.plans) == maxPlans:
		return nil, fmt.Errorf("quotient: SetPlan: %q would be one more than %d plans", name, maxPlans)
	case limit != nil:
		if units, err = learnUnits(units, *limit); err != nil {
			return nil, fmt.Errorf("quotient: SetPlan: %w", err)
		}
		p.limit = limit.clone()
	}
	if try {
		return nil, nil
	}
	plans := slices.Clone(l.plans) // old points into the list
	if i < 0 {
		i, plans = len(plans), append(plans, p)
	}
	plans[i] = p
	l.plans, l.units = plans, units
	l.version++
	l.publish(l.newest().limit)
	return old, nil
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
	for plan := range len(l.plans) + 1 {
		st := l.shards[0].newest(uint8(plan)) // written under l.mu too
		if st != nil && st.limit.InFlight > 0 && st.slots == 0 && (plan == 0 || st.planName != "") {
			short = append(short, namedLimit{name: st.planName, limit: st.limit})
		}
	}
	return short
}
