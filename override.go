package quotient

import (
	"fmt"
	"maps"
	"strings"
	"time"
)

// own is the limit of a key that has one of its own. Settings that follow from it are worked out when its
// gate is next touched, each for the pool of the limiter's setting beside which it stands.
type own struct {
	l     *Limiter
	limit Limit
}

// overrides is what a limiter knows of them. Limiter.mu guards it.
type overrides struct {
	limits map[string]Limit
	clocks int // how many need a clock
	walls  int // how many need the wall's
}

// mostOverrides is how many keys may have a limit of their own beside so many keys.
func mostOverrides(maxKeys int) int { return max(1, maxKeys/2) }

// Override gives one key a limit of its own, over the fleet, in place of the limiter's: a larger one for a
// customer who pays for it, Deny() for one who must be stopped. nil takes it off again. It counts at once,
// for those who wait too, and like SetLimit it brings no tokens: rates keep their state by Name and Unit, a
// new one starts with what the old ones would still let through. Every replica has to be told.
//
// A key with a limit of its own is remembered until that is taken off, beside MaxKeys, so there may be
// MaxKeys / 2 (at least one) of them. Of a key that waits or holds permits through the gate which keys
// without room share, nothing but Deny can be set: what is there stays there until done. On an error nothing
// changes.
func (l *Limiter) Override(key string, limit *Limit) error {
	old, err := l.override(key, limit)
	if err == nil { // and without a lock: a handler may ask for Stats
		l.log.Info("override set", "key", key, "old", old, "new", limit)
	}
	return err
}

func (l *Limiter) override(key string, limit *Limit) (old *Limit, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was, had := l.own.limits[key]
	if had {
		old = &was
	}
	switch {
	case limit == nil && !had:
		return nil, nil
	case limit == nil:
		l.own.remove(key)
		l.owned.Store(int64(len(l.own.limits)))
		l.place(key, nil)
	default:
		o := &own{l, limit.clone()}
		if err := l.admitOverride(key, o.limit, had); err != nil {
			return nil, err
		}
		l.own.remove(key)
		l.own.add(strings.Clone(key), o.limit)
		l.owned.Store(int64(len(l.own.limits)))
		l.place(key, o)
	}
	l.version++
	return old, nil
}

// admitOverride checks the limit and that there is room for one more, and makes its units known.
func (l *Limiter) admitOverride(key string, limit Limit, had bool) error {
	units, err := learnUnits(l.units, limit)
	if err != nil {
		return fmt.Errorf("quotient: Override: %w", err)
	}
	if most := mostOverrides(l.maxKeys); !had && len(l.own.limits) >= most {
		return fmt.Errorf("quotient: Override: %q would be one more than %d keys with a limit of their own, half of MaxKeys", clip(key), most)
	}
	if !limit.deny && l.overflows(key) {
		return fmt.Errorf("quotient: Override: %q waits or holds permits in the gate that keys without room share: it can only be denied now", clip(key))
	}
	if !l.roomFor(key) {
		return fmt.Errorf("quotient: Override: no room for %q: MaxKeys keys are busy, and half as many that have had a limit of their own", clip(key))
	}
	if len(units) > len(l.units) {
		l.units = units
		l.publish(l.shards[0].current().limit)
	}
	return nil
}

// roomFor tells whether the key may have a gate of its own, if need be in place of an idle one.
func (l *Limiter) roomFor(key string) bool {
	s := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.tick(l.now())
	return s.get(key) != nil || l.keys.Load() < int64(l.maxKeys+mostOverrides(l.maxKeys)) || s.hasRoomBeyond(now)
}

// overflows reports whether the key waits, or holds permits, through the gate of keys without room. With
// another one it would have its limit twice.
func (l *Limiter) overflows(key string) bool {
	s := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.overflow != nil && s.overflow.more.names[key] > 0
}

// hasRoomBeyond drops an idle key, and tells whether it found one.
func (s *shard) hasRoomBeyond(now time.Time) bool {
	if s.earn(mostLooks); !s.evictIdle(now) {
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

// clocks tells whether asks under the limit need a clock, and the wall's.
func (l Limit) clocks() (clock, wall bool) {
	for _, r := range l.Rates {
		wall = wall || r.Aligned || r.Burst == 1
	}
	return len(l.Rates) > 0, wall
}

// clockOf tells which clock asks need under st, and under the limits that keys have of their own.
func (l *Limiter) clockOf(st *setting) uint32 {
	clock := l.clockFor(st)
	switch {
	case l.own.walls > 0:
		return clockWall
	case l.own.clocks > 0 && clock == clockNone:
		return clockMonotonic
	}
	return clock
}

// place puts the key's gate under o, or back under the limiter's limit when o is nil. Call with l.mu held.
func (l *Limiter) place(key string, o *own) {
	l.clock.Store(l.clockOf(l.shards[0].current())) // before it is read
	s := l.shard(key)
	s.mu.Lock()
	now := s.tick(l.now())
	g := s.resident(key, now)
	g.sync(s.setting)
	g.settle(now, nil)
	g.extra().overrides++ // nothing comes back of what was taken before
	if o != nil {
		st := o.beside(s.setting, g.setting)
		st.at = now
		g.apply(st)
	} else {
		st := *s.setting
		st.at, st.reshaped = now, !sameShape(g.setting, &st)
		g.apply(&st)
		g.setting = s.setting
		if s.overflow != nil && s.overflow.more.names[key] > 0 { // it was denied meanwhile: nothing is out
			s.lru.Remove(key)
			s.last.gate = nil
			l.keys.Add(-1)
		}
	}
	s.weed(g)
	if o != nil && o.limit.deny {
		s.denyOverflowing(key)
	}
	s.serveAndUnlock(g)
}

// denyOverflowing refuses the callers of a key that wait in the overflow gate. It is entered and left with
// the lock held.
func (s *shard) denyOverflowing(key string) {
	g := s.overflow
	if g == nil || g.more.names[key] == 0 {
		return
	}
	var denied []*waiter
	for w := g.more.queue.head; w != nil; w = w.next {
		if w.key == key {
			denied = append(denied, w)
		}
	}
	for _, w := range denied {
		s.refuse(g, w, verdict{ReasonDenied, ruleNone, never})
	}
	if g.waited() {
		s.ask(g, s.now)
	}
}

// resident is the key's own gate, made if there is none, also beyond MaxKeys.
func (s *shard) resident(key string, now time.Time) *gate {
	if g := s.get(key); g != nil {
		return g
	}
	like := s.untouched
	if o := s.overflow; o != nil && !s.spare(o, now) {
		like = o
	}
	g := newGate(like, now, s.l.lawSeed(key))
	s.l.keys.Add(1)
	s.add(key, g)
	return g
}

// beside works out the setting of o beside the limiter's, after old.
func (o *own) beside(base, old *setting) *setting {
	st := o.l.resolve(o.limit, base.view, base.units)
	if o.limit.deny {
		st.rations, st.laws = old.rations, old.laws // refused, but not forgotten
	}
	st.own, st.base, st.at, st.origin = o, base, base.at, base.origin
	st.era = base.era
	st.reshaped = !sameShape(old, st)
	return st
}

// syncOwn is sync for a gate whose key has a limit of its own.
func (g *gate) syncOwn(newest *setting) {
	for base := g.setting.base; base != newest; {
		base = base.next
		g.apply(g.setting.own.beside(base, g.setting))
	}
}

// OverrideOf returns the limit that the key has of its own, and whether it has one.
func (l *Limiter) OverrideOf(key string) (Limit, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	limit, ok := l.own.limits[key]
	return limit.clone(), ok
}

// Overrides returns the limits that single keys have.
func (l *Limiter) Overrides() map[string]Limit {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := maps.Clone(l.own.limits)
	for key, limit := range all {
		all[key] = limit.clone()
	}
	return all
}
