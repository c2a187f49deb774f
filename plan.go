package quotient

import (
	"math"
	"slices"
)

// plan is a named limit beside the limiter's own, in one shard: a chain of settings, and the gate of a key
// never seen. A plan that was taken off has the limiter's own limit. When another one needs its place, its
// chain ends in that of the limiter's own limit: so its keys come there when they are next touched.
//
// A key is in the plan of its latest call, and its gate has what is left of that plan. The rest of its former
// plans stays in gates of their own, and all that the key takes counts there too. They stay until the key is
// idle in all of them.
type plan struct {
	id        planID
	name      string   // "" for one that was taken off
	setting   *setting // the newest
	untouched *gate
}

// planID is the place of a plan, counted from 1, and above it how many plans had that place before. 0 is the
// limiter's own limit.
type planID uint32

const placeBits = 8

func (id planID) place() int { return int(id&(1<<placeBits-1)) - 1 }

// next is the id of the plan that takes the place.
func (id planID) next() planID { return id + 1<<placeBits }

// plans are those of a shard, by their places.
type plans []plan

// maxPlans is how many plans a limiter can have at a time: few enough to look at all of them.
const maxPlans = 64

// named returns the plan of that name, and whether there is one. "" is the limiter's own limit.
func (ps plans) named(name string) (planID, bool) {
	for i := range ps {
		if p := &ps[i]; p.name == name && name != "" {
			return p.id, true
		}
	}
	return 0, name == ""
}

// of returns the plan of that id; nil for the limiter's own limit. That is also where the calls are whose plan
// has given up its place since.
func (s *shard) of(id planID) *plan {
	if id == 0 {
		return nil
	}
	if p := &(*s.plans)[id.place()]; p.id == id {
		return p
	}
	return nil
}

// newest returns the newest setting of a plan.
func (s *shard) newest(id planID) *setting {
	if p := s.of(id); p != nil {
		return p.setting
	}
	return s.setting
}

// settingOf returns the setting that a call of a plan comes under at a gate.
func (s *shard) settingOf(g *gate, id planID) *setting {
	newest := s.newest(id)
	if st := g.setting; st.own != nil && (st.plan == newest.plan || st.overridden() && !st.lapsed()) {
		return st
	}
	return newest
}

// unseen returns the gate of a key never seen in a plan.
func (s *shard) unseen(id planID) *gate {
	if p := s.of(id); p != nil {
		return p.untouched
	}
	return s.untouched
}

// enter brings a gate into a plan. A key with a limit of its own is in none. One that has lost it comes back
// where something is admitted.
func (s *shard) enter(g *gate, id planID, now instant) {
	switch st := g.setting; {
	case st.lapsed():
		if !s.newest(id).limit.Deny {
			s.comeBack(g, id, now)
		}
	case st.plan != id && !st.overridden() && st.plan != s.newest(id).plan:
		s.change(g, id, now)
	}
}

// change brings a gate into another plan.
func (s *shard) change(g *gate, to planID, now instant) {
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
func (s *shard) comeBack(g *gate, plan planID, now instant) {
	to := s.newest(plan)
	if to.limit.Deny {
		w := own{o: &s.l.options, limit: &to.limit, lapsed: true}
		st := w.beside(to, g.setting, false)
		st.at = now
		g.apply(st)
	} else {
		old := g.takeOut(to.plan)
		if g.join(to, now); old != nil {
			g.deduct(now, old, func(*rule) float64 { return math.Inf(1) })
			g.countAs(now, old)
		}
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
func (g *gate) takeOut(plan planID) *gate {
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
func (s *shard) leftIn(g *gate, plan planID, now instant) *gate {
	next := s.unseen(plan)
	if old := g.takeOut(next.setting.plan); old != nil {
		return old
	}
	next = newGate(g.name, next, now, 0)
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
			if o, ok := u.resource(r).(*window); ok && o.counts() {
				misses -= float64(o.used) // a gate of the same key: see unite
			}
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

// unite puts together what a gate has in one plan, after plans of its key have ended in the limiter's own
// limit. The least of each rate is left.
func (g *gate) unite() {
	list := g.ext.plans
	g.ext.plans = nil
	for _, p := range list {
		same := g
		if p.setting.plan != g.setting.plan || g.setting.overridden() {
			same = nil
		}
		for _, other := range g.ext.plans {
			if other.setting.plan == p.setting.plan {
				same = other
			}
		}
		if same == nil {
			g.ext.plans = append(g.ext.plans, p)
			continue
		}
		same.deduct(p.setting.at, p, func(r *rule) float64 { return p.missing(same, r, p.setting.at) })
		same.countAs(p.setting.at, p)
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
func (s *shard) within(g *gate, plan planID, now instant) *gate {
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
