package quotient

import (
	"math"
	"slices"
)

// plan is a named limit beside the limiter's own, in one shard: a chain of settings, and the gate of a key
// never seen. Its place never changes. A plan that was taken off has the limiter's own limit.
//
// A key is in the plan of its latest call, and its gate has what is left of that plan. The rest of its former
// plans stays in gates of their own, and all that the key takes counts there too. They stay until the key is
// idle in all of them.
type plan struct {
	setting   *setting // the newest
	untouched *gate
}

// plans are those of a shard.
type plans struct {
	list  []plan
	names []string // "" for one that was taken off
}

// maxPlans is how many plans a limiter can have in its life: few enough to look at all of them.
const maxPlans = 64

// newest returns the newest setting of a plan; nil for one that the shard does not know yet.
func (s *shard) newest(plan uint8) *setting {
	switch {
	case plan == 0:
		return s.setting
	case int(plan) > len(s.plans.list):
		return nil
	}
	return s.plans.list[plan-1].setting
}

// settingOf returns the setting that a call of a plan comes under at a gate.
func (s *shard) settingOf(g *gate, plan uint8) *setting {
	if st := g.setting; st.own != nil && (st.plan == plan || st.overridden() && !st.lapsed()) {
		return st
	}
	return s.newest(plan)
}

// unseen returns the gate of a key never seen in a plan.
func (s *shard) unseen(plan uint8) *gate {
	if plan > 0 {
		return s.plans.list[plan-1].untouched
	}
	return s.untouched
}

// enter brings a gate into a plan. A key with a limit of its own is in none. One that has lost it comes back
// where something is admitted.
func (s *shard) enter(g *gate, plan uint8, now instant) {
	switch st := g.setting; {
	case st.lapsed():
		if !s.newest(plan).limit.Deny {
			s.comeBack(g, plan, now)
		}
	case st.plan != plan && !st.overridden():
		s.change(g, plan, now)
	}
}

// change brings a gate into another plan.
func (s *shard) change(g *gate, to uint8, now instant) {
	s.touch(g, now)
	s.putAway(g, now)
	next := s.leftIn(g, to, now)
	for _, other := range g.others() {
		next.countAs(now, other)
	}
	g.join(next.setting, now) // slots and controllers go on
	if g.first = next.first; next.ext != nil {
		g.ext.rest = next.ext.rest
	}
}

// join puts a gate under a setting that is in force for other keys, as of now.
func (g *gate) join(to *setting, now instant) {
	g.advance(now, nil) // a loan that ends has another shape
	st := *to
	st.at, st.reshaped, st.begins = now, !sameShape(g.setting, to), false
	g.apply(&st)
	g.setting = to
}

// comeBack puts a gate whose key loses its own limit under that of a plan. Where that denies everything the
// key keeps its rules, as all others do, until something is admitted.
func (s *shard) comeBack(g *gate, plan uint8, now instant) {
	to, old := s.newest(plan), g.takeOut(plan)
	if to.limit.Deny {
		w := own{o: &s.l.options, limit: &to.limit, lapsed: true}
		st := w.beside(to, g.setting, false)
		st.at = now
		g.apply(st)
	} else {
		g.join(to, now)
	}
	if old != nil {
		g.deduct(now, old, func(*rule) float64 { return math.Inf(1) })
		g.countAs(now, old)
	}
	for _, other := range g.others() {
		g.countAs(now, other)
	}
}

// others returns what is left of the other plans that the key was in.
func (g *gate) others() []*gate {
	if g.ext == nil {
		return nil
	}
	return g.ext.plans
}

// putAway keeps what is left of the plan that a gate is in, unless the gate is idle in all its plans. While
// it misses something in one, all are kept: else what has come back in another would be taken off it again. A
// plan that has always denied everything is as if the key had not been there.
func (s *shard) putAway(g *gate, now instant) {
	if st := g.setting; st.limit.Deny && len(st.rules) == 0 {
		return
	}
	u := s.unseen(g.setting.plan)
	left := newGate(g.name, u, now, 0)
	if left.first = g.first; left.ext != nil {
		for i, r := range g.ext.rest {
			left.ext.rest[i] = r.clone()
		}
	}
	if len(g.others()) > 0 || !left.idle(now, u) {
		g.extend().plans = append(g.extend().plans, left)
	}
}

// takeOut returns what is left of a plan that a gate was in, and keeps it no more; nil for nothing.
func (g *gate) takeOut(plan uint8) *gate {
	i := slices.IndexFunc(g.others(), func(other *gate) bool { return other.setting.plan == plan })
	if i < 0 {
		return nil
	}
	old := g.ext.plans[i]
	g.ext.plans = slices.Delete(g.ext.plans, i, i+1)
	return old
}

// leftIn returns what is left for a gate in a plan that it is not in. In one that is new to it that is as for
// a key never seen, less the most that the key misses in any other.
func (s *shard) leftIn(g *gate, plan uint8, now instant) *gate {
	if old := g.takeOut(plan); old != nil {
		return old
	}
	next := newGate(g.name, s.unseen(plan), now, 0)
	next.deduct(now, g, func(r *rule) float64 {
		most := g.missing(s.unseen(g.setting.plan), r, now)
		for _, other := range g.others() {
			most = max(most, other.missing(s.unseen(other.setting.plan), r, now))
		}
		return most
	})
	return next
}

// missing returns how much less the gate has than u, one never seen. It is asked for a rule of another plan,
// and goes by its own rule of that id, or else by the most of those of the unit.
func (g *gate) missing(u *gate, of *rule, now instant) (most float64) {
	for i := range g.setting.rules {
		r := &g.setting.rules[i]
		if r.role != roleRate || r.unit != of.unit {
			continue
		}
		has, _, _ := g.resource(r).left(now, r)
		all, _, _ := u.resource(r).left(now, r)
		misses := all - has
		if w, ok := g.resource(r).(*window); ok && w.counts() {
			misses = float64(w.used) // and not what others have admitted
		}
		if r.id == of.id {
			return misses
		}
		most = max(most, misses)
	}
	return most
}

// spread counts what a gate has just taken in the other plans that its key was in.
func (g *gate) spread(now instant, d *demand) {
	for _, other := range g.others() {
		other.deduct(now, g, func(r *rule) float64 { return float64(d.of(r.unitID)) })
	}
}

// deduct takes from each rate, but leaves as much as the gate that the key is in has left. So a small plan
// owes nothing for what a large one has let through.
func (g *gate) deduct(now instant, in *gate, amount func(*rule) float64) {
	for i := range g.setting.rules {
		r := &g.setting.rules[i]
		if r.role != roleRate {
			continue
		}
		least, _ := in.least(in.setting, r.unit, now)
		has, _, _ := g.resource(r).left(now, r)
		if n := math.Ceil(min(amount(r), has-least)); n > 0 {
			g.resource(r).take(now, r, n)
		}
	}
}

// idleElsewhere reports whether a gate is as good as absent in the other plans.
func (s *shard) idleElsewhere(g *gate, now instant) bool {
	for _, other := range g.others() {
		if other.advance(now, nil); !other.idle(now, s.unseen(other.setting.plan)) {
			return false
		}
	}
	return true
}

// within returns a gate for a mere look in a plan: a copy, unless it is in that plan.
func (s *shard) within(g *gate, plan uint8, now instant) *gate {
	if st := g.setting; st.plan == plan || st.overridden() && !st.lapsed() {
		return g
	}
	c := g.copy()
	s.enter(c, plan, now)
	return c
}

// copy returns a copy of all that a look needs, with the same queue.
func (g *gate) copy() *gate {
	c := *g
	if g.ext == nil {
		return &c
	}
	x := *g.ext
	x.rest, x.plans = slices.Clone(x.rest), slices.Clone(x.plans)
	for i, r := range x.rest {
		x.rest[i] = r.clone()
	}
	for i, p := range x.plans {
		x.plans[i] = p.copy()
	}
	if x.learned != nil {
		l := *x.learned
		l.pacers = slices.Clone(l.pacers)
		x.learned = &l
	}
	c.ext = &x
	return &c
}
