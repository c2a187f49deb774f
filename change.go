package quotient

import (
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/quotient-go/quotient/internal/meter"
)

// SetLimit changes the limit, over the fleet, at once. Waiters that the new limit admits go at once, the others are
// paced by it. Rates keep their state by Name and Unit, and a new one starts with what the old ones would still admit,
// so that no change brings tokens. On an error nothing changes.
func (l *Limiter) SetLimit(limit Limit) error {
	old, err := l.setLimit(limit.clone(), false)
	if err == nil && !limit.equal(old) { // and without a lock: a handler may ask for Stats
		l.log.Info("limit set", "limit", limit, "was", old)
		l.warnOf(&limit)
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
	old = l.inForce[0].setting.limit
	l.publish(&namedLimit{limit: limit})
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

// counts reports whether a limit in force but for number i counts the unit, or that of a single key. Call with l.mu
// held.
func (l *Limiter) counts(unit string, i int) bool {
	for j, st := range l.inForce.settings() {
		if j != i && (j == 0 || st.planName != "") && st.limit.counts(unit) { // a plan that is off has none
			return true
		}
	}
	for _, own := range l.overrides.limits {
		if own.Limit.counts(unit) {
			return true
		}
	}
	return false
}

// publish puts a limit in force, unless it is nil, and with it what the pool and the units have come to. All shards
// change at one instant, which is not before anything that any of them has done. Then it wakes the gates that have
// waiters. All others follow when they are next touched. Call with l.mu held.
func (l *Limiter) publish(to *namedLimit) {
	olds := l.inForce.settings()
	next := l.successors(olds, to)
	for i := range l.shards {
		l.shards[i].mu.Lock()
	}
	l.clock.Store(l.clockOf(next)) // before it is read: a first window needs the wall clock's time
	at := l.latest()
	l.known = l.known || !l.belief.awaits
	stricter := l.inForce.follow(next, at)
	for i := range l.shards {
		s := &l.shards[i]
		s.latest = at
		for place := range s.plans {
			s.plans[place].unseen = nil
		}
		s.forgetUnits(olds[0].units, next[0].units)
		s.mu.Unlock()
	}
	l.changes++
	for i := range l.shards {
		l.wake(&l.shards[i], stricter)
		if l.changes%catchUp == 0 {
			l.replayAll(&l.shards[i])
		}
	}
}

// inForce is what the limits come to on this replica, worked out once for all shards: that of the limiter's own limit,
// and behind it those of the plans by their places. It is written under Limiter.mu and the locks of all shards, and so
// it may be read under any of them.
type inForce []plan

// named returns the plan of that name, and whether there is one. "" is the limiter's own limit.
func (f inForce) named(name string) (planID, bool) {
	for i := range f {
		if st := f[i].setting; st.planName == name && (i == 0 || name != "") {
			return st.plan, true
		}
	}
	return 0, false
}

// of returns the plan of that id. Calls whose plan has given up its place since are in the limiter's own limit.
func (f inForce) of(id planID) *plan {
	if p := &f[id.place()]; p.setting.plan == id {
		return p
	}
	return &f[0]
}

// settings are the newest.
func (f inForce) settings() (all []*setting) {
	for i := range f {
		all = append(all, f[i].setting)
	}
	return all
}

// follow puts all plans under their next settings as of an instant. It reports whether one may refuse for good what the
// one before did not.
func (f *inForce) follow(next []*setting, at meter.Instant) (stricter bool) {
	for i, st := range next {
		if i == len(*f) {
			*f = append(*f, plan{})
		}
		p := &(*f)[i]
		old := p.setting
		if st == old {
			continue
		}
		if st.at = at; old != nil && old.plan == st.plan {
			old.next, stricter = st, stricter || st.stricter(old)
			if p.setting = st; st.planName != "" {
				p.name = st.planName
			}
			p.fresh.sync()
			continue
		}
		if old != nil { // whose place this plan takes
			old.next = next[0]
		}
		p.begin(st)
	}
	return stricter
}

// newest returns the newest setting of a plan.
func (s *shard) newest(id planID) *setting { return s.l.inForce.of(id).setting }

// unseen returns the gate of a key never seen in a plan: this shard's copy of the one in force, made when it is first
// asked for after a change.
func (s *shard) unseen(id planID) *gate {
	p := s.l.inForce.of(id)
	here := s.here(p.setting.plan.place())
	if here.unseen == nil {
		here.unseen = newGate("", p.fresh, s.latest, 0)
	}
	return here.unseen
}

// namedLimit is a limit, of a plan by its name. A plan without a name is off, and has the limiter's own limit.
type namedLimit struct {
	id    planID
	name  string
	limit Limit
}

// successors are the settings that follow: the same for a limit that stays as it is. One whose place another plan takes
// is followed by that of the limiter's own limit, which is then a new one.
func (l *Limiter) successors(olds []*setting, to *namedLimit) (next []*setting) {
	var all []namedLimit
	for _, st := range olds {
		all = append(all, namedLimit{st.plan, st.planName, st.limit})
	}
	if to != nil {
		all = append(all, *to)[:max(len(all), to.id.place()+1)]
		all[to.id.place()] = *to
	}
	for i, p := range all {
		if p.name == "" {
			p.limit = all[0].limit
		}
		var old *setting
		if i < len(olds) {
			old = olds[i]
		}
		if old != nil && old.plan != p.id {
			next[0] = next[0].joined(olds[0], old)
			old = nil
		}
		next = append(next, l.successor(old, p, len(all) > 1))
	}
	return next
}

// successor returns the setting of a limit that follows old, which is old if nothing changes. It is special beside
// plans.
func (l *Limiter) successor(old *setting, p namedLimit, special bool) *setting {
	if old != nil && old.limit.equal(p.limit) && old.belief == l.belief && slices.Equal(old.units, l.units) &&
		old.special == special && old.planName == p.name {
		return old
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

// joined makes st, which follows old or is old, the successor of another setting of the same limit too.
func (st *setting) joined(old, other *setting) *setting {
	if st == old {
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

// clockOf returns which clock calls need under the settings of all plans and the limits of single keys.
func (l *Limiter) clockOf(all []*setting) (clock uint32) {
	for _, st := range all {
		clock = max(clock, l.clockFor(st))
	}
	for c, keys := range l.overrides.clocks {
		if keys > 0 {
			clock = max(clock, uint32(c))
		}
	}
	return clock
}

// forgetUnits takes what is asked for of units whose places are others' now, and what may be given back of them, off
// all that wait and all permits.
func (s *shard) forgetUnits(old, now []string) {
	for u, unit := range old {
		if unit == now[u] {
			continue
		}
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
}

// wake asks the heads of all queues again. Under a stricter setting it first looks for waiters that it refuses.
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
		next.pinned = true
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
	all := s.gates()
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

// SetDryRun begins or ends a dry run, to see what a limit would do before it does it. The limiter decides as always,
// and also admits what it would have refused or made to wait. Such a call takes nothing, no policy learns from it, and
// Stats.DryRunAdmitted counts it by what stood in its way. TryAcquireUpTo takes what there is room for, and all n only
// if there is room for none. Calls that are not valid are errors as always.
func (l *Limiter) SetDryRun(on bool) {
	if l.setDryRun(on) {
		l.log.Info("dry run set", "dry_run", on, "was", !on)
	}
}

// setDryRun is SetDryRun without its log. It reports whether that has changed something.
func (l *Limiter) setDryRun(on bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.dry.Swap(on)
	if old != on {
		l.version++
	}
	if on && !old {
		for i := range l.shards {
			l.wake(&l.shards[i], false)
		}
	}
	return old != on
}

// DryRun reports whether a dry run is on: all calls are admitted.
func (l *Limiter) DryRun() bool { return l.dry.Load() }

// sync brings the gate up to the newest setting, replaying each that it has missed.
func (g *gate) sync() {
	was, plan, joined := g.setting, g.setting.plan, false
	for g.setting.own != nil && g.setting.base.next != nil {
		base := g.setting.base.next
		if g.endLoan(base.at); g.setting.lapsed() && !base.limit.Deny {
			g.join(base, base.at)
			joined = true
			continue
		}
		g.apply(g.setting.own.beside(base, g.setting, base.begins))
	}
	for g.setting.next != nil {
		g.apply(g.setting.next)
	}
	if g.ext == nil || len(g.ext.plans) == 0 {
		return
	}
	united := joined || plan != g.setting.plan
	for _, other := range g.others() {
		plan = other.setting.plan
		other.sync()
		united = united || plan != other.setting.plan
	}
	if united {
		g.unite()
	}
	if g.setting != was {
		for _, other := range g.others() {
			g.countAs(g.setting.at, other)
		}
	}
}

// apply puts the gate under st, which follows the setting that it is under, at the instant st came into force.
func (g *gate) apply(st *setting) {
	g.advance(st.at, nil)
	if st.begins {
		g.setting = new(setting)
	}
	old := g.setting
	if st.reshaped {
		g.reshape(old, st)
	}
	g.setting = st
	if st.own == nil || !st.lendsAfter(old) { // else what was taken may still be refunded: see rule.fastest
		g.epoch++
	}
	for i := range st.rules {
		r := &st.rules[i]
		if o := old.before(i, st); o != nil {
			switch x := g.resource(r).(type) { // slots follow by themselves
			case *pacer:
				x.follow(st.at, r)
			case meter.Stored:
				x.Follow(st.at, &o.Rule, &r.Rule)
			}
		}
	}
	if len(st.ctrls) == 0 {
		return
	}
	l := g.ext.learned
	l.latest = st.at.At
	for i := range l.pacers {
		if p := &l.pacers[i]; p.ctrl != nil {
			l.due = max(l.due, p.pausedUntil+forgetAfter)
		}
	}
	l.resize(st)
}

// before returns the rule of st that stands for rule i of next, which follows st, or nil.
func (st *setting) before(i int, next *setting) *rule {
	if next.reshaped {
		return st.find(next.rules[i].id)
	}
	return &st.rules[i]
}

// fullGate returns the gate of a key that begins now, and has all that the setting allows.
func (st *setting) fullGate(t meter.Instant) *gate {
	full, g := *st, new(gate)
	full.at, full.startEmpty, full.joins, full.reshaped = t, false, false, true
	g.begin(&full)
	return g
}

// begin puts an empty gate under its first setting: full, or empty on a replica that joins a pool which
// others use already. An empty window opens with the next one.
func (g *gate) begin(st *setting) {
	g.setting = new(setting)
	g.apply(st)
}

// reshape makes what is left of st's rules out of what was left of old's. A rule that stays keeps its state,
// wherever it stands. A new one starts with the least that the old ones of its unit would still admit, so
// that renaming brings no tokens. Where the old ones are full, it starts full.
func (g *gate) reshape(old, st *setting) {
	var first meter.Bucket
	var rest []meter.Stored
	for i := range st.rules {
		r := &st.rules[i]
		switch r.place {
		case placeFirst:
			first = g.bucketFor(old, st, r)
		case placeRest:
			rest = append(rest, g.storedFor(old, st, r))
		}
	}
	if len(rest) > 0 || g.ext != nil {
		g.extend().rest = rest
	}
	if len(st.ctrls) > 0 {
		x := g.extend()
		if x.learned == nil {
			x.learned = new(learned)
		}
		before := x.learned.pacers
		x.learned.pacers = make([]pacer, len(st.ctrls))
		x.learned.start(before, old, st)
	}
	g.first = first
}

// storedFor returns what a gate keeps behind a pointer for r.
func (g *gate) storedFor(old, st *setting, r *rule) meter.Stored {
	switch r.kind {
	case kindWindow:
		w := g.windowFor(old, st, r)
		return &w
	case kindCost:
		return &meter.CostBucket{Bucket: g.bucketFor(old, st, r)}
	case kindTurn:
		b := &meter.TurnBucket{CostBucket: meter.CostBucket{Bucket: g.bucketFor(old, st, r)}}
		if o := old.find(r.id); o != nil {
			if was, ok := g.resource(o).(*meter.TurnBucket); ok {
				b.Closed = was.Closed
			}
		}
		return b
	}
	b := g.bucketFor(old, st, r)
	return &b
}

func (g *gate) windowFor(old, st *setting, r *rule) meter.Window {
	if o := old.find(r.id); o != nil {
		return *g.resource(o).(*meter.Window)
	}
	w := meter.OpenWindow(st.at, r.Schedule)
	if left, used := g.least(old, r.unit, st.at); used {
		w.Used = max(0, w.Quota-int64(math.Floor(left+roundOff)))
	} else if st.joins && !old.counts(r.unit) {
		w.Quota = 0
	}
	return w
}

func (g *gate) bucketFor(old, st *setting, r *rule) meter.Bucket {
	if o := old.find(r.id); o != nil {
		switch b := g.resource(o).(type) {
		case *meter.CostBucket:
			return b.Bucket
		case *meter.TurnBucket:
			return b.Bucket
		case *meter.Bucket:
			return *b
		}
	}
	start := r.Size
	if left, used := g.least(old, r.unit, st.at); used {
		start = min(start, left)
	} else if st.startEmpty && !old.counts(r.unit) {
		start = 0
	}
	return meter.Bucket{Tokens: start, Last: st.at.At}
}

// roundOff is how far a full bucket may seem not to be, in events.
const roundOff = 1e-6

// least returns the least that the rules of a unit would admit now, negative for a debt. It reports whether
// any of them still misses something that it has admitted, or knows that others have. Where everything was
// denied, and no rule has ever counted the unit, those of the other plans of the key tell.
func (g *gate) least(old *setting, unit string, t meter.Instant) (left float64, used bool) {
	left = maxAmount
	for i := range old.rules {
		r := &old.rules[i]
		if r.role != roleRate || r.unit != unit {
			continue
		}
		has, _, _ := g.resource(r).Left(t, &r.Rule)
		if r.kind == kindWindow {
			st := g.resource(r).State(t, &r.Rule)
			left, used = min(left, has), used || st.Used > 0 || st.Has < 0
			continue
		}
		left, used = min(left, has), used || has+roundOff < r.Size
	}
	if old.limit.Deny && !old.counts(unit) {
		for _, other := range g.others() {
			least, some := other.copy().least(other.setting, unit, t) // which may be behind
			left, used = min(left, least), used || some
		}
	}
	return left, used
}
