package quotient

import (
	"container/heap"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quotient-go/quotient/internal/meter"
)

// Override gives one key a limit of its own on this replica, over the fleet, in place of the limiter's; nil removes
// all that it has. Like SetLimit it brings no tokens, and changes nothing on an error. Such a key is remembered, and
// does not count against MaxKeys; there may be MaxKeys / 2 of them, at least one. If its limit is removed while the
// limiter denies everything, it keeps its rules until something is admitted, or until nothing is missing from them and
// it is forgotten. A key with waiters or permits in the overflow gate can only be denied.
//
// With a ttl of 0 the limit is for good, in place of all that the key has. With one above 0 it ends then, and the
// limiter is kept alive until then. It replaces one that ends too, and stands over one for good, under which the key
// comes back as if Override had set that again at the end; without one its own limit is removed, as Override with nil
// would. The end comes by a timer, on a busy machine some milliseconds late. An error is a ttl below 0, and one beside
// nil.
func (l *Limiter) Override(key string, limit *Limit, ttl time.Duration) error {
	until := time.Time{}
	switch {
	case ttl < 0:
		return fmt.Errorf("quotient: Override: ttl: %v is below 0", ttl)
	case ttl > 0 && limit == nil:
		return fmt.Errorf("quotient: Override: ttl: %v beside no limit", ttl)
	case ttl > 0:
		until = time.Now().Add(ttl)
	}
	old, err := l.override(key, limit, until, false)
	if err == nil && !old.is(limit, until) { // and without a lock: a handler may ask for Stats
		attrs := []any{"key", key, "limit", valueOf(limit)}
		if ttl > 0 {
			attrs = append(attrs, "until", until)
		}
		var was *Limit
		if old != nil {
			was = &old.Limit
		}
		l.log.Info("override set", append(attrs, "was", valueOf(was))...)
		l.warnOf(limit, "key", key)
	}
	return err
}

// warnOf logs what is suspicious in a limit that was set, of a plan or of a key, or the limiter's own; nil is none.
func (l *Limiter) warnOf(limit *Limit, whose ...any) {
	if limit == nil {
		return
	}
	limit.warn(l.log.With(whose...))
	if len(whose) == 0 || whose[0] == "plan" {
		l.warnOfSlots()
	}
}

// override is Override without its log. With try it only returns the error.
func (l *Limiter) override(key string, limit *Limit, until time.Time, try bool) (old *KeyLimit, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was, had := l.overrides.limits[key]
	if had {
		old = was.KeyLimit
	}
	if limit == nil && (try || !had) {
		return nil, nil
	}
	var next *KeyLimit
	if limit != nil {
		next = &KeyLimit{Limit: limit.clone(), Until: until}
		if !until.IsZero() {
			next.Then = old.forGood()
		}
		if err := l.admitOverride(key, next.Limit, had, try); err != nil || try {
			return nil, err
		}
	}
	l.putOverride(key, next)
	return old, nil
}

// overrideBeneath is Override for good, but a limit of the key's own that ends goes on over it until then.
func (l *Limiter) overrideBeneath(key string, limit *Limit) error {
	l.mu.Lock()
	x, had := l.overrides.limits[key]
	if !had || x.Until.IsZero() {
		l.mu.Unlock()
		return l.Override(key, limit, 0)
	}
	defer l.mu.Unlock()
	if limit != nil {
		if err := l.admitOverride(key, *limit, true, false); err != nil {
			return err
		}
	}
	l.putOverride(key, &KeyLimit{x.Limit, x.Until, copyOf(limit)})
	return nil
}

// putOverride puts a key under a limit of its own in place of the one that it has, if any; nil is none. Call with l.mu
// held.
func (l *Limiter) putOverride(key string, k *KeyLimit) {
	l.overrides.set(key, k)
	var w *own
	if k != nil {
		w = &own{o: &l.options, limit: &k.Limit, given: k}
	}
	l.overridden.Store(int64(len(l.overrides.limits)))
	l.place(key, w)
	l.version++
	l.awaitEnd()
}

// awaitEnd sets the timer for the next end of a limit of a key's own. Call with l.mu held.
func (l *Limiter) awaitEnd() {
	o := &l.overrides
	switch {
	case len(o.ends) == 0 && o.timer == nil:
	case len(o.ends) == 0:
		o.timer.Stop()
	case o.timer == nil:
		o.timer = time.AfterFunc(time.Until(o.ends[0].Until), l.endOverrides)
	default:
		o.timer.Reset(time.Until(o.ends[0].Until))
	}
}

// endOverrides is the timer's call. It ends one by one, so that nobody waits long for the lock.
func (l *Limiter) endOverrides() {
	for x := l.endOverride(); x != nil; x = l.endOverride() {
		l.log.Info("override ended", "key", x.key, "limit", valueOf(x.Then), "was", x.Limit)
	}
}

// endOverride ends one limit of a key's own whose time is over, and returns it; nil if there is none.
func (l *Limiter) endOverride() *ownLimit {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := &l.overrides
	if len(o.ends) == 0 || o.ends[0].Until.After(time.Now()) {
		l.awaitEnd()
		return nil
	}
	x := o.ends[0]
	var next *KeyLimit
	if x.Then != nil {
		next = &KeyLimit{Limit: *x.Then}
	}
	l.putOverride(x.key, next)
	return x
}

// admitOverride checks the limit and that there is room for one more. Without try it makes the units known.
func (l *Limiter) admitOverride(key string, limit Limit, had, try bool) error {
	units, err := l.learnUnits(limit, -1)
	if err != nil {
		return fmt.Errorf("quotient: Override: %w", err)
	}
	if n := maxOverrides(l.maxKeys); !had && len(l.overrides.limits) >= n {
		return fmt.Errorf("quotient: Override: %q would be one more than %d keys with a limit of their own, "+
			"half of MaxKeys", clip(key), n)
	}
	s, _ := l.lock(key)
	overflows := s.overflow.has(key) // with another gate it would have its limit twice
	s.mu.Unlock()
	if !limit.Deny && overflows {
		return fmt.Errorf("quotient: Override: MaxKeys keys are busy, and %q has waiters or permits "+
			"under the limit that further keys share: it can only be denied now", clip(key))
	}
	if !l.roomFor(key) {
		return fmt.Errorf("quotient: Override: no room for %q: MaxKeys keys are busy, "+
			"and half as many that have had a limit of their own", clip(key))
	}
	if !try && !slices.Equal(units, l.units) {
		l.units = units
		l.publish(nil)
	}
	return nil
}

// roomFor reports whether the key may have a gate of its own, if need be in place of an idle one.
func (l *Limiter) roomFor(key string) bool {
	s, h := l.lock(key)
	defer s.mu.Unlock()
	now := s.now()
	if s.find(h) != nil || l.keys.Load() < int64(l.maxKeys+maxOverrides(l.maxKeys)) {
		return true
	}
	return s.hasRoomBeyond(now)
}

// hasRoomBeyond drops an idle key, and reports whether it found one.
func (s *shard) hasRoomBeyond(now meter.Instant) bool {
	if s.earn(maxLooks); !s.evictIdle(now) {
		return false
	}
	s.evicted(1)
	return true
}

// KeyLimit is a limit of a key's own.
type KeyLimit struct {
	Limit Limit     // over the fleet
	Until time.Time // when it ends; zero: it is for good
	Then  *Limit    // what the key's own limit is after that; nil: none, and the limiter's or its plan's counts
}

// forGood is the one that has no end: itself, or what it stands over; nil for none.
func (k *KeyLimit) forGood() *Limit {
	switch {
	case k == nil:
		return nil
	case k.Until.IsZero():
		return &k.Limit
	}
	return k.Then
}

// is reports whether there is that limit with that end, or none.
func (k *KeyLimit) is(limit *Limit, until time.Time) bool {
	if k == nil || limit == nil {
		return k == nil && limit == nil
	}
	return k.Limit.equal(*limit) && k.Until.Equal(until)
}

// overrides are the limits of single keys. Limiter.mu guards them.
type overrides struct {
	limits map[string]*ownLimit
	ends   endings        // of those that end
	timer  *time.Timer    // for the first of them; nil while none had an end
	clocks [numClocks]int // how many need each of the clocks
}

// ownLimit is the limit of a single key.
type ownLimit struct {
	*KeyLimit // of which nothing changes
	key       string
	index     int // in overrides.ends
}

// endings is a heap of limits by their ends.
type endings []*ownLimit

func (e endings) Len() int           { return len(e) }
func (e endings) Less(i, j int) bool { return e[i].Until.Before(e[j].Until) }
func (e endings) Swap(i, j int)      { e[i], e[j], e[i].index, e[j].index = e[j], e[i], j, i }

// Push is heap.Push's.
func (e *endings) Push(x any) {
	last := x.(*ownLimit)
	last.index = len(*e)
	*e = append(*e, last)
}

// Pop is heap.Pop's.
func (e *endings) Pop() any {
	last := (*e)[len(*e)-1]
	*e = slices.Delete(*e, len(*e)-1, len(*e)) // which leaves no pointer behind
	return last
}

// set gives a key a limit in place of the one that it has, if any; nil for none.
func (o *overrides) set(key string, k *KeyLimit) {
	if old, ok := o.limits[key]; ok {
		delete(o.limits, key)
		o.clocks[old.Limit.clock()]--
		if !old.Until.IsZero() {
			heap.Remove(&o.ends, old.index)
		}
	}
	if k == nil {
		return
	}
	if o.limits == nil {
		o.limits = make(map[string]*ownLimit)
	}
	x := &ownLimit{KeyLimit: k, key: strings.Clone(key)}
	o.limits[x.key] = x
	o.clocks[k.Limit.clock()]++
	if !k.Until.IsZero() {
		heap.Push(&o.ends, x)
	}
}

// clock returns which clock calls under the limit need.
func (l Limit) clock() (clock uint32) {
	for _, r := range l.Rates {
		if clock = max(clock, clockMonotonic); r.Kind != Bucket {
			clock = clockWall
		}
	}
	return clock
}

// place puts the key's gate under w, or back under the limiter's limit when w is nil. Call with l.mu held. A
// gate that a colliding key has made is this key's from now on.
func (l *Limiter) place(key string, w *own) {
	l.clock.Store(l.clockOf(l.inForce.settings())) // before it is read
	s, h := l.lock(key)
	now := s.tickWall(l.wallNow())
	g := s.resident(h, key, now)
	s.touch(g, now)
	g.name = strings.Clone(key)
	if w != nil {
		if g.setting.plan > 0 { // then it may be in none
			s.putAway(g, now)
		}
		st := w.beside(s.newest(0), g.setting, false)
		st.at = now
		g.apply(st)
		for _, other := range g.others() {
			g.countAs(now, other)
		}
	} else {
		for _, other := range g.others() {
			other.countAs(now, g)
		}
		s.comeBack(g, 0, now)
		if s.overflow.has(key) { // it was denied meanwhile: nothing is out
			s.remove(g)
			l.keys.Add(-1)
		}
	}
	s.rejectHopeless(g)
	if w != nil && w.limit.Deny {
		s.denyOverflowing(key)
	}
	s.serveAndUnlock(g)
}

// denyOverflowing refuses the callers of a key that wait in the overflow gate. It is entered and left with
// the lock held, which it gives back now and then.
func (s *shard) denyOverflowing(key string) {
	g := s.overflow.gate
	if g == nil || !s.overflow.has(key) || !g.waited() {
		return
	}
	s.rejectIf(g, func(w *waiter) verdict {
		if w.key == key {
			return verdict{ReasonDenied, ruleNone, meter.Never}
		}
		return verdict{}
	})
	s.recheck(g)
}

// resident returns the key's own gate, made if there is none, also beyond MaxKeys.
func (s *shard) resident(hash uint64, key string, now meter.Instant) *gate {
	if g := s.find(hash); g != nil {
		return g
	}
	like := s.unseen(0)
	if o := s.overflow.gate; o != nil && !s.spare(o, now) {
		like = o
	}
	s.l.keys.Add(1)
	return s.newGate(hash, key, like, now)
}

// Overrides returns the limits that single keys have now.
func (l *Limiter) Overrides() map[string]KeyLimit {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, all := time.Now(), make(map[string]KeyLimit, len(l.overrides.limits))
	for key, x := range l.overrides.limits {
		switch {
		case x.Until.IsZero() || x.Until.After(now):
			all[key] = KeyLimit{x.Limit.clone(), x.Until, copyOf(x.Then)}
		case x.Then != nil: // the timer is late
			all[key] = KeyLimit{Limit: x.Then.clone()}
		}
	}
	return all
}

// Reset forgives a key on this replica, and reports whether it is remembered: it becomes as one never seen, without
// debts and without what a policy has learned of it. A limit of its own stays, and is full. Permits that are out keep
// their slots, and waiters their order. A key that shares the overflow gate is not forgiven.
func (l *Limiter) Reset(key string) bool {
	known := l.reset(key)
	if known { // and without a lock: a handler may ask for Stats
		l.log.Info("key reset", "key", key)
	}
	return known
}

func (l *Limiter) reset(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, h := l.lock(key)
	g := s.ownGate(h, key)
	if g == nil {
		s.mu.Unlock()
		return false
	}
	l.version++
	now := s.now()
	if s.touch(g, now); g.setting.lapsed() {
		g.join(s.newest(0), now)
	}
	g.reset(now, s.unseen(g.setting.plan), h)
	delete(s.promises, g)
	s.serveAndUnlock(g)
	return true
}

// reset has the gate start fresh, as u, the gate of a key never seen. Under a limit of its own it is full.
// Slots, permits and waiters stay. The epoch is another one, so that nothing taken before comes back.
func (g *gate) reset(t meter.Instant, u *gate, seed uint64) {
	if g.setting.overridden() {
		u = g.setting.fullGate(t)
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
		g.ext.plans, g.ext.recent = nil, nil
		g.shrink()
	}
}

// SetPlan gives a plan, which is a class of keys, a limit over the fleet for each of its keys; nil removes it, and its
// keys come under the limiter's own limit. Names follow the rules of Registry.Add, and there can be 64. On an error
// nothing changes. A key is in the plan that its latest call named (Plan). What it takes in one plan counts in the
// others that it was in, so that it gets no more by changing between plans than under the largest alone. An Override
// goes before any plan.
func (l *Limiter) SetPlan(name string, limit *Limit) error {
	old, err := l.setPlan(name, limit, false)
	if err == nil && !sameLimit(limit, old) { // and without a lock: a handler may ask for Stats
		l.log.Info("plan set", "plan", name, "limit", valueOf(limit), "was", valueOf(old))
		l.warnOf(limit, "plan", name)
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
	i := slices.IndexFunc(l.inForce[1:], func(p plan) bool { return p.name == name }) + 1
	if st := l.inForce[i].setting; st.planName == name {
		old = &st.limit
	}
	id, units := l.placeFor(i), l.units
	to := namedLimit{id: id}
	switch {
	case limit == nil && old == nil:
		return nil, nil
	case id == 0:
		return nil, fmt.Errorf("quotient: SetPlan: %q would be one more than %d plans", name, l.chance.Plans)
	case limit != nil:
		if units, err = l.learnUnits(*limit, id.place()); err != nil {
			return nil, fmt.Errorf("quotient: SetPlan: %w", err)
		}
		to.name, to.limit = strings.Clone(name), limit.clone()
	}
	if try {
		return nil, nil
	}
	l.units = units
	l.version++
	l.publish(&to)
	return old, nil
}

// placeFor returns the id of the plan in place i. For place 0 it is that of a free place: one that none has had, else
// that of a plan that was taken off; 0 without one.
func (l *Limiter) placeFor(i int) planID {
	if n := len(l.inForce); i == 0 && n <= l.chance.Plans {
		return planID(n)
	}
	if i > 0 {
		return l.inForce[i].setting.plan
	}
	for _, st := range l.inForce.settings()[1:] {
		if st.planName == "" {
			return st.plan.next()
		}
	}
	return 0
}

// maxPlans is how many plans a limiter can have at a time: few enough to look at all of them.
const maxPlans = 64

// plan is a limit of the limiter in force: a chain of settings, and the gate of a key never seen. A plan that was taken
// off has the limiter's own limit. When another one needs its place, its chain ends in that of the limiter's own limit:
// so its keys come there when they are next touched.
//
// A key is in the plan of its latest call, and its gate has what is left of that plan. The rest of its former
// plans stays in gates of their own, and all that the key takes counts there too. They stay until the key is
// idle in all of them.
type plan struct {
	name    string   // also of a plan that was taken off, as long as no other needs its place
	setting *setting // the newest; its planName is "" for the limiter's own limit, and for a plan that was taken off
	fresh   *gate    // of a key never seen. Looks may change it: shards look at copies (unseen)
}

// planID is the place of a plan, counted from 1, and above it how many plans had that place before. 0 is the
// limiter's own limit.
type planID uint32

const placeBits = 8

// place counts from 0, which is that of the limiter's own limit.
func (id planID) place() int { return int(id & (1<<placeBits - 1)) }

// next is the id of the plan that takes the place.
func (id planID) next() planID { return id + 1<<placeBits }

// begin puts a plan under its first setting.
func (p *plan) begin(st *setting) {
	*p = plan{name: st.planName, setting: st, fresh: new(gate)}
	p.fresh.begin(st)
}

// settingOf returns the setting that a call of a plan comes under at a gate.
func (s *shard) settingOf(g *gate, id planID) *setting {
	newest := s.newest(id)
	if st := g.setting; st.own != nil && (st.plan == newest.plan || st.overridden() && !st.lapsed()) {
		return st
	}
	return newest
}

// enter brings a gate into a plan. A key with a limit of its own is in none. One that has lost it comes back
// where something is admitted.
func (s *shard) enter(g *gate, id planID, now meter.Instant) {
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
func (s *shard) change(g *gate, to planID, now meter.Instant) {
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
func (g *gate) join(to *setting, now meter.Instant) {
	g.advance(now, nil) // a loan that ends has another shape
	st := *to
	st.at, st.reshaped, st.begins = now, !sameShape(g.setting, to), false
	g.apply(&st)
	g.setting = to
}

// comeBack puts a gate whose key loses its own limit under that of a plan. Where that denies everything the
// key keeps its rules, as all others do, until something is admitted.
func (s *shard) comeBack(g *gate, plan planID, now meter.Instant) {
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
func (s *shard) putAway(g *gate, now meter.Instant) {
	if st := g.setting; st.limit.Deny && len(st.rules) == 0 {
		return
	}
	u := s.unseen(g.setting.plan)
	left := newGate(g.name, u, now, 0)
	if left.first = g.first; left.ext != nil {
		for i, r := range g.ext.rest {
			left.ext.rest[i] = r.Clone()
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
func (s *shard) leftIn(g *gate, plan planID, now meter.Instant) *gate {
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
func (g *gate) missing(u *gate, of *rule, now meter.Instant) (most float64) {
	for i := range g.setting.rules {
		r := &g.setting.rules[i]
		if r.role != roleRate || r.unit != of.unit {
			continue
		}
		has, _, _ := g.resource(r).Left(now, &r.Rule)
		all, _, _ := u.resource(r).Left(now, &r.Rule)
		misses := all - has
		if w, ok := g.resource(r).(*meter.Window); ok && w.Counts() {
			misses = float64(w.Used) // and not what others have admitted
			if o, ok := u.resource(r).(*meter.Window); ok && o.Counts() {
				misses -= float64(o.Used) // a gate of the same key: see unite
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
func (g *gate) spread(now meter.Instant, d *demand) {
	for _, other := range g.others() {
		other.deduct(now, g, func(r *rule) float64 { return float64(d.of(r.unitID)) })
	}
}

// deduct takes from each rate, but leaves as much as the gate that the key is in has left. So a small plan
// owes nothing for what a large one has let through.
func (g *gate) deduct(now meter.Instant, in *gate, amount func(*rule) float64) {
	for i := range g.setting.rules {
		r := &g.setting.rules[i]
		if r.role != roleRate {
			continue
		}
		least, _ := in.least(in.setting, r.unit, now)
		has, _, _ := g.resource(r).Left(now, &r.Rule)
		if n := math.Ceil(min(amount(r), has-least)); n > 0 {
			g.resource(r).Take(now, &r.Rule, n)
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
func (s *shard) idleElsewhere(g *gate, now meter.Instant) bool {
	for _, other := range g.others() {
		if other.advance(now, nil); !other.idle(now, s.unseen(other.setting.plan)) {
			return false
		}
	}
	return true
}

// within returns a gate for a mere look in a plan: a copy, unless it is in that plan.
func (s *shard) within(g *gate, plan planID, now meter.Instant) *gate {
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
		x.rest[i] = r.Clone()
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
