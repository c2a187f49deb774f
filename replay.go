package quotient

import "math"

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
			g.resource(r).follow(st.at, o, r)
		}
	}
	if len(st.ctrls) == 0 {
		return
	}
	l := g.ext.learned
	l.latest = st.at.at
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
func (g *gate) reset(t instant, u *gate, seed uint64) {
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
	var first bucket
	var rest []stored
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
func (g *gate) storedFor(old, st *setting, r *rule) stored {
	switch r.kind {
	case kindWindow:
		w := g.windowFor(old, st, r)
		return &w
	case kindCost:
		return &costBucket{bucket: g.bucketFor(old, st, r)}
	case kindTurn:
		b := &turnBucket{costBucket: costBucket{bucket: g.bucketFor(old, st, r)}}
		if o := old.find(r.id); o != nil {
			if was, ok := g.resource(o).(*turnBucket); ok {
				b.closed = was.closed
			}
		}
		return b
	}
	b := g.bucketFor(old, st, r)
	return &b
}

// windowOf returns the window of a counted rule.
func (g *gate) windowOf(r *rule) *window { return g.resource(r).(*window) }

func (g *gate) windowFor(old, st *setting, r *rule) window {
	if o := old.find(r.id); o != nil {
		return *g.resource(o).(*window)
	}
	w := openWindow(st.at, r.schedule)
	if left, used := g.least(old, r.unit, st.at); used {
		w.used = max(0, w.quota-int64(math.Floor(left+roundOff)))
	} else if st.joins && !old.counts(r.unit) {
		w.quota = 0
	}
	return w
}

func (g *gate) bucketFor(old, st *setting, r *rule) bucket {
	if o := old.find(r.id); o != nil {
		switch b := g.resource(o).(type) {
		case *costBucket:
			return b.bucket
		case *turnBucket:
			return b.bucket
		case *bucket:
			return *b
		}
	}
	start := r.size
	if left, used := g.least(old, r.unit, st.at); used {
		start = min(start, left)
	} else if st.startEmpty && !old.counts(r.unit) {
		start = 0
	}
	return bucket{tokens: start, last: st.at.at}
}

// roundOff is how far a full bucket may seem not to be, in events.
const roundOff = 1e-6

// least returns the least that the rules of a unit would admit now, negative for a debt. It reports whether
// any of them still misses something that it has admitted, or knows that others have. Where everything was
// denied, and no rule has ever counted the unit, those of the other plans of the key tell.
func (g *gate) least(old *setting, unit string, t instant) (left float64, used bool) {
	left = maxAmount
	for i := range old.rules {
		r := &old.rules[i]
		if r.role != roleRate || r.unit != unit {
			continue
		}
		has, _, _ := g.resource(r).left(t, r)
		if r.kind == kindWindow {
			st := g.resource(r).state(t, r)
			left, used = min(left, has), used || st.used > 0 || st.has < 0
			continue
		}
		left, used = min(left, has), used || has+roundOff < r.size
	}
	if old.limit.Deny && !old.counts(unit) {
		for _, other := range g.others() {
			least, some := other.copy().least(other.setting, unit, t) // which may be behind
			left, used = min(left, least), used || some
		}
	}
	return left, used
}

// tally returns what is counted of the gate's key; nil for a key that is not named.
func (g *gate) tally() *tally {
	if g.setting.own == nil {
		return nil
	}
	return g.setting.own.tally
}

// part returns what is lent of the limit; 0 for the share.
func (g *gate) part() float64 {
	if g.setting.own == nil {
		return 0
	}
	return g.setting.own.part
}

// endLoan puts a gate back under its share, as of the instant at which its part has ended, if it has.
func (g *gate) endLoan(t instant) {
	old := g.setting.own
	if old == nil || old.part == 0 || t.at < old.tally.ends {
		return
	}
	w, ends := *old, old.tally.ends
	w.part, w.tally.ends = 0, never // it ends once
	st := w.beside(g.setting.base, g.setting, false)
	st.at = instant{ends, t.wall - int64(t.at-ends)}
	g.apply(st)
}
