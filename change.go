package quotient

import (
	"fmt"
	"runtime"
	"slices"
)

// SetLimit changes the limit, over the fleet, at once. Waiters that the new limit admits go at once,
// the others are paced by it; whatever was taken stays taken. On an error nothing changes.
//
// Rates keep their state by Name and Unit. A raised burst or a renamed rate brings no
// tokens: they come at the rate.
func (l *Limiter) SetLimit(limit Limit) error {
	old, err := l.setLimit(limit.clone())
	if err == nil { // and without a lock: a handler may ask for Stats
		l.log.Info("limit set", "old", old, "new", limit)
	}
	return err
}

func (l *Limiter) setLimit(limit Limit) (old Limit, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	units, err := learnUnits(l.units, limit)
	if err != nil {
		return Limit{}, err
	}
	l.units = units
	l.version++
	old = l.shards[0].current().limit
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
			return nil, fmt.Errorf("quotient: Limit.Rates[%d].Unit: %q is one more than the %d units a limiter can count: %q",
				i, r.Unit, maxUnits, units)
		}
		units = append(units, r.Unit)
	}
	return units, nil
}

// Limit returns the limit in force, over the fleet.
func (l *Limiter) Limit() Limit { return l.shards[0].current().limit.clone() }

func (s *shard) current() *setting {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.setting
}

// Pool returns the pool in force.
func (l *Limiter) Pool() Pool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.view.pool
}

// publish puts a new setting in force in all shards at one instant, which is not before
// anything that any of them has done, and then sees to the gates that have waiters. All others follow when
// they are next touched. Call with l.mu held.
func (l *Limiter) publish(limit Limit) {
	old := l.shards[0].current()
	st := l.resolve(limit, l.view, l.units)
	if limit.deny {
		st.rations, st.laws = old.rations, old.laws // refused, but not forgotten
	}
	st.era = old.era + 1
	st.origin, st.reshaped = l.base, !sameShape(old, st)
	for i := range l.shards {
		l.shards[i].mu.Lock()
	}
	l.clock.Store(l.clockOf(st)) // before it is read: a first aligned rate needs the wall's time
	st.at = l.now()
	for i := range l.shards {
		if t := l.shards[i].now; t.After(st.at) {
			st.at = t
		}
	}
	old.next = st
	stricter := st.stricter(old)
	for i := range l.shards {
		s := &l.shards[i]
		s.now, s.setting = st.at, st
		s.untouched.sync(st)
	}
	for i := range l.shards {
		l.shards[i].mu.Unlock()
	}
	l.changes++
	for i := range l.shards {
		l.shards[i].wake(stricter)
		if l.changes%catchUp == 0 {
			l.shards[i].replayAll()
		}
	}
}

// wake asks the heads of all queues again. Under a stricter setting it first looks for waiters that it refuses.
func (s *shard) wake(stricter bool) {
	s.mu.Lock()
	gates := make([]*gate, 0, len(s.waiting))
	for g := range s.waiting {
		gates = append(gates, g)
	}
	s.mu.Unlock()
	for _, g := range gates {
		s.mu.Lock()
		if stricter || g.setting.own != nil {
			s.weed(g)
		}
		s.serveAndUnlock(g)
	}
}

// weed refuses the waiters that the newest setting can never admit, wherever they stand. It is entered and left with
// the lock held, which it gives back now and then.
func (s *shard) weed(g *gate) {
	var ws []*waiter
	var next *waiter
	for g.sync(s.setting); g.waited(); {
		ws, next = g.more.queue.unfit(next, g.setting.refuses)
		for _, w := range ws {
			s.refuse(g, w, w.refused)
		}
		if next == nil {
			return
		}
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
	}
}

// replayBatch is how many gates are brought up to date in one hold of a lock: each may have catchUp changes to replay.
const replayBatch = 4

// replayAll brings all gates up to date, so that a list of changes never grows without end
// behind a gate that nobody touches.
func (s *shard) replayAll() {
	for gates := range slices.Chunk(s.gates(), replayBatch) {
		s.mu.Lock()
		for _, g := range gates {
			g.sync(s.setting)
		}
		s.mu.Unlock()
	}
}

func (s *shard) gates() []*gate {
	s.mu.Lock()
	defer s.mu.Unlock()
	gates := s.lru.Values()
	if s.overflow != nil {
		gates = append(gates, s.overflow)
	}
	return gates
}
