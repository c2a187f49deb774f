package quotient

import (
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/quotient-go/quotient/internal/meter"
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
	l.clock.Store(l.clockOf(next)) // before it is read: a first window needs the wall clock's time
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
func (s *shard) follow(next []*setting, limits []namedLimit, at meter.Instant) {
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
		next.walked = true
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
	united := joined || plan != g.setting.plan
	for _, other := range g.others() {
		plan = other.setting.plan
		other.sync()
		united = united || plan != other.setting.plan
	}
	if united && g.ext != nil {
		g.unite()
	}
	if g.setting != was {
		for _, other := range g.others() {
			g.countAs(g.setting.at, other)
		}
	}
}

// apply puts the gate under st, which follows the setting that it is under, at the instant st came into
// force.
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
	if !st.lendsAfter(old) { // else what was taken may still be refunded: see rule.fastest
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

// begin puts an empty gate under its first setting: full, or empty on a replica that joins a pool which
// others use already. An empty window opens with the next one.
func (g *gate) begin(st *setting) {
	g.setting = new(setting)
	g.apply(st)
}

// reset has the gate start fresh, as u, the gate of a key never seen. Under a limit of its own it is full.
// Slots, permits and waiters stay. The epoch is another one, so that nothing taken before comes back.
func (g *gate) reset(t meter.Instant, u *gate, seed uint64) {
	if g.setting.overridden() {
		full := *g.setting
		full.at, full.startEmpty, full.joins, full.reshaped = t, false, false, true
		u = new(gate)
		u.begin(&full)
	}
	fresh := newGate("", u, t, seed)
	if st := *g.setting; st.own != nil && !st.overridden() { // slots that are lent may have a controller
		st.at, st.begins, st.reshaped = t, false, !sameShape(fresh.setting, &st)
		fresh.apply(&st)
	}
	g.first = fresh.first
	g.epoch++
	if fresh.ext != nil {
		x := g.extend()
		x.rest, x.learned = fresh.ext.rest, fresh.ext.learned
		g.noteLatest(t)
	}
	if g.ext != nil {
		g.ext.plans = nil
	}
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
