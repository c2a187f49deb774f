package quotient

import "time"

// Allow takes one request's events from every rate of the key if all have room, and tells
// whether it did. A slot in flight must be free, but is not held. It never waits.
func (l *Limiter) Allow(key string) bool {
	arrived := l.arrival()
	s := l.shard(key)
	s.mu.Lock()
	now := s.tick(arrived)
	g := s.gate(key, now)
	v := s.try(g, now, &oneRequest)
	if g.setting.limit.InFlight > 0 && v.reason == ReasonNone {
		g.give(1)
	}
	ok := v.reason == ReasonNone || !s.stops(v)
	s.overtaken(g)
	s.mu.Unlock()
	if l.onAdmit != nil && ok {
		l.admitted(key, arrived, arrived, Permit{})
	}
	return ok
}

// TryAcquire admits the ask now or not at all: it never waits, and overtakes only those of a lower Priority. For a key that is
// remembered it allocates nothing, but for a new block of 64 permits when more are out than ever before.
func (l *Limiter) TryAcquire(key string, asks ...Ask) (Permit, Decision) {
	arrived := l.arrival()
	s := l.shard(key)
	s.mu.Lock()
	now := s.tick(arrived)
	d, err := newDemand(asks, s.setting.units)
	if err != nil {
		s.counts.refused[ReasonAsk]++
		s.mu.Unlock()
		return Permit{}, Decision{Reason: ReasonAsk, bad: err}
	}
	g := s.gate(key, now)
	v := s.try(g, now, &d)
	var p Permit
	if v.reason == ReasonNone {
		p = s.hold(g, key, &d, now)
		s.overtaken(g)
	} else if s.stops(v) {
		dec := s.decide(g, v)
		s.mu.Unlock()
		return Permit{}, dec
	} else {
		p = dryPermit
	}
	s.mu.Unlock()
	if l.onAdmit != nil {
		l.admitted(key, arrived, arrived, p)
	}
	return p, Decision{OK: true}
}

// Check tells what TryAcquire would answer now. It takes nothing, counts no ask and remembers no key; permits of
// the key whose time is over are given back.
func (l *Limiter) Check(key string, asks ...Ask) Decision {
	now := l.now()
	s := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	now = s.tick(now)
	d, err := newDemand(asks, s.setting.units)
	if err != nil {
		return Decision{Reason: ReasonAsk, bad: err}
	}
	g := s.peek(key, now)
	s.reclaim(g, now)
	return s.decide(g, g.stands(now, &d))
}

// stands tells what stands between d and its admission, those who wait included.
func (g *gate) stands(now time.Time, d *demand) verdict {
	if !g.behind(d.class) {
		return g.look(now, d)
	}
	if v := g.setting.refuses(d); v.reason != ReasonNone {
		return v
	}
	return g.turnOf(now, d)
}

// peek is gate for who only looks: a key that is not remembered has the gate it would start with.
func (s *shard) peek(key string, now time.Time) *gate {
	g := s.last.gate // who asks where a key stands has often just asked for it
	if !s.last.is(key) {
		g = s.get(key)
	}
	switch {
	case g != nil:
	case s.overflow != nil && !s.spare(s.overflow, now):
		if g = s.overflow; g.more.names[key] == 0 && s.hasRoom(now) {
			g = newGate(g, now, 0)
		}
	default:
		g = s.untouched
	}
	g.sync(s.setting)
	g.settle(now, nil)
	return g
}

// decide puts a verdict into words. What the overflow gate refuses is refused for want of keys.
func (s *shard) decide(g *gate, v verdict) Decision {
	if v.reason == ReasonNone {
		return Decision{OK: true}
	}
	if g == s.overflow && !v.final() {
		v.reason = ReasonKeys
	}
	return g.setting.decision(v)
}

// TryAcquireUpTo admits as many of n requests as there is room for now, as one permit of that weight,
// and returns how many: for readers of batches. It never waits; 0 comes with the zero Permit, as for an n below 1.
// What of it was not needed goes back by Permit.Correct("", used). Release the permit, also under rates alone.
func (l *Limiter) TryAcquireUpTo(key string, n int) (Permit, int) {
	if n < 1 {
		return Permit{}, 0
	}
	arrived := l.arrival()
	p, taken := l.shard(key).upTo(key, n, arrived)
	if l.onAdmit != nil && taken > 0 {
		l.admitted(key, arrived, arrived, p)
	}
	return p, taken
}

// upTo is TryAcquireUpTo.
func (s *shard) upTo(key string, n int, arrived time.Time) (Permit, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.tick(arrived)
	g := s.gate(key, now)
	if g.more != nil && len(g.more.expiring) > 0 {
		now = s.tick(s.l.now())
		s.reclaim(g, now)
	}
	d := demand{weight: 1, kept: true} // if there is room for nothing, this is refused and counted
	if !g.behind(d.class) {
		g.settle(now, s.l.policy)
		d.weight = max(1, g.upTo(now, min(n, maxAsk)))
	}
	if v := s.try(g, now, &d); v.reason == ReasonNone {
		p := s.hold(g, key, &d, now)
		s.overtaken(g)
		return p, d.weight
	} else if s.stops(v) {
		return Permit{}, 0
	}
	return dryPermit, n
}

// try admits d if all has room and it stands behind nobody. Who gets a refusal counts it, with stops.
func (s *shard) try(g *gate, now time.Time, d *demand) verdict {
	var v verdict
	if !g.behind(d.class) {
		v = s.admit(g, now, d)
	} else if v = g.setting.refuses(d); v.reason == ReasonNone {
		v = g.turnOf(now, d)
	}
	if v.reason == ReasonNone {
		s.counts.admitted++
		if g.waited() {
			g.more.queue.passed++
		}
		return v
	}
	if g == s.overflow && !v.final() {
		v.reason = ReasonKeys
	}
	return v
}
