package quotient

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/quotient-go/quotient/internal/trial"
)

func init() {
	trial.Limit, trial.Plan, trial.Override = (*Limiter).setLimit, (*Limiter).setPlan, (*Limiter).override
}

// Override gives one key a limit of its own, over the fleet, in place of the limiter's; nil removes it. It
// applies at once, and like SetLimit it brings no tokens. It applies to this replica only. On an error
// nothing changes.
//
// A key with a limit of its own is remembered until that is removed, and does not count against MaxKeys. If it
// is removed while the limiter denies everything, the key keeps its rules until something is admitted.
// There may be MaxKeys / 2 such keys, at least one. A key with waiters or permits in the overflow gate can
// only be denied.
func (l *Limiter) Override(key string, limit *Limit) error {
	old, err := l.override(key, limit, false)
	if err == nil { // and without a lock: a handler may ask for Stats
		l.log.Info("override set", "key", key, "old", old, "new", limit)
		if limit != nil {
			limit.warn(l.log.With("key", key))
		}
	}
	return err
}

// override is Override without its log. With try it only returns the error.
func (l *Limiter) override(key string, limit *Limit, try bool) (old *Limit, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was, had := l.overrides.limits[key]
	if had {
		old = &was
	}
	switch {
	case limit == nil && (try || !had):
		return nil, nil
	case limit == nil:
		l.overrides.remove(key)
		l.overridden.Store(int64(len(l.overrides.limits)))
		l.place(key, nil)
	default:
		mine := limit.clone()
		if err := l.admitOverride(key, mine, had, try); err != nil || try {
			return nil, err
		}
		l.overrides.remove(key)
		l.overrides.add(strings.Clone(key), mine)
		l.overridden.Store(int64(len(l.overrides.limits)))
		l.place(key, &own{o: &l.options, limit: &mine})
	}
	l.version++
	return old, nil
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
		l.publish(l.newest().limit)
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
func (s *shard) hasRoomBeyond(now instant) bool {
	if s.earn(maxLooks); !s.evictIdle(now) {
		return false
	}
	s.evicted(1)
	return true
}

func (o *overrides) add(key string, limit Limit) {
	if o.limits == nil {
		o.limits = make(map[string]Limit)
	}
	o.limits[key] = limit
	o.count(limit, 1)
}

func (o *overrides) remove(key string) {
	if limit, ok := o.limits[key]; ok {
		delete(o.limits, key)
		o.count(limit, -1)
	}
}

func (o *overrides) count(limit Limit, sign int) {
	clock, wall := limit.clocks()
	if clock {
		o.clocks += sign
	}
	if wall {
		o.walls += sign
	}
}

// clocks reports whether calls under the limit need a clock, and whether they need the wall clock.
func (l Limit) clocks() (clock, wall bool) {
	for _, r := range l.Rates {
		wall = wall || r.Aligned || r.Burst == 1
	}
	return len(l.Rates) > 0, wall
}

// clockOf returns which clock calls need. It depends on the next settings, those that stay where there is
// none, and the limits of single keys.
func (l *Limiter) clockOf(next []*setting) uint32 {
	clock, wall := l.overrides.clocks > 0, l.overrides.walls > 0
	all := l.settings()
	for i, st := range next {
		if i == len(all) {
			all = append(all, st)
		} else if st != nil {
			all[i] = st
		}
	}
	for _, st := range all {
		c := l.clockFor(st)
		clock, wall = clock || c != clockNone, wall || c == clockWall
	}
	switch {
	case wall:
		return clockWall
	case clock:
		return clockMonotonic
	}
	return clockNone
}

// place puts the key's gate under w, or back under the limiter's limit when w is nil. Call with l.mu held. A
// gate that a colliding key has made is this key's from now on.
func (l *Limiter) place(key string, w *own) {
	l.clock.Store(l.clockOf(nil)) // before it is read
	s, h := l.lock(key)
	now := s.tickWall(l.wallNow())
	g := s.resident(h, key, now)
	s.touch(g, now)
	g.name = strings.Clone(key)
	if w != nil {
		if g.setting.plan > 0 { // then it may be in none
			s.putAway(g, now)
		}
		st := w.beside(s.setting, g.setting, false)
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
			return verdict{ReasonDenied, ruleNone, never}
		}
		return verdict{}
	})
	s.recheck(g)
}

// resident returns the key's own gate, made if there is none, also beyond MaxKeys.
func (s *shard) resident(hash uint64, key string, now instant) *gate {
	if g := s.find(hash); g != nil {
		return g
	}
	like := s.untouched
	if o := s.overflow.gate; o != nil && !s.spare(o, now) {
		like = o
	}
	s.l.keys.Add(1)
	return s.newGate(hash, key, like, now)
}

// Overrides returns the limits that single keys have.
func (l *Limiter) Overrides() map[string]Limit {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := maps.Clone(l.overrides.limits)
	for key, limit := range all {
		all[key] = limit.clone()
	}
	return all
}

// Reset forgives a key, and reports whether it is remembered: it becomes as one never seen, without debts
// and without what a policy has learned of it. A limit of its own stays, and is full. Permits that are out
// keep their slots, and give back nothing else. Waiters stay in order, and go at once where there is room.
// It applies to this replica only. A key that shares the overflow gate is not forgiven, because the others
// of that gate would be too.
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
		g.join(s.setting, now)
	}
	g.reset(now, s.unseen(g.setting.plan), h)
	delete(s.promises, g)
	s.serveAndUnlock(g)
	return true
}
