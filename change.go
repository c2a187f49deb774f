package quotient

import (
	"fmt"
	"runtime"
	"slices"
)

// SetLimit changes the limit, over the fleet, at once. Waiters that the new limit admits go at once, the
// others are paced by it; what was taken stays taken. Rates keep their state by Name and Unit, and a new one
// starts with what the old ones would still let through: no change brings tokens. On an error nothing
// changes.
func (l *Limiter) SetLimit(limit Limit) error {
	old, err := l.setLimit(limit.clone())
	if err == nil { // and without a lock: a handler may ask for Stats
		l.log.Info("limit set", "old", old, "new", limit)
		limit.warn(l.log)
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
	old = l.newest().limit
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
			return nil, fmt.Errorf(
				"quotient: Limit.Rates[%d].Unit: %q is one more than the %d units a limiter can count: %q",
				i, r.Unit, maxUnits, units)
		}
		units = append(units, r.Unit)
	}
	return units, nil
}

// publish puts a new setting in force in all shards at one instant, which is not before anything that any of
// them has done. Then it wakes the gates that have waiters. All others follow when they are next touched.
// Call with l.mu held.
func (l *Limiter) publish(limit Limit) {
	old := l.newest()
	st := l.resolve(limit, l.belief, l.units)
	st.serial = old.serial + 1
	st.after(old)
	for i := range l.shards {
		l.shards[i].mu.Lock()
	}
	l.clock.Store(l.clockOf(st)) // before it is read: a first aligned rate needs the wall clock's time
	st.at = l.wallNow()
	for i := range l.shards {
		st.at = l.shards[i].tickWall(st.at)
	}
	old.next = st
	stricter := st.stricter(old)
	for i := range l.shards {
		s := &l.shards[i]
		s.latest, s.setting = st.at, st
		s.untouched.sync(st)
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
		if stricter || g.setting.override != nil {
			s.rejectHopeless(g)
		}
		s.serveAndUnlock(g)
	}
}

// rejectHopeless refuses the waiters that the newest setting can never admit, wherever they stand. It is
// entered and left with the lock held, which it gives back now and then.
func (s *shard) rejectHopeless(g *gate) {
	s.rejectIf(g, func(w *waiter) verdict { return g.setting.refuses(&w.d) })
}

// rejectIf refuses the waiters for which refuses returns a reason, some in one hold of the lock.
func (s *shard) rejectIf(g *gate, refuses func(*waiter) verdict) {
	var ws []*waiter
	var next *waiter
	for g.sync(s.setting); g.waited(); {
		ws, next = g.ext.queue.hopeless(next, refuses)
		for _, w := range ws {
			s.refuse(g, w, refuses(w))
		}
		if next == nil {
			return
		}
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

// replayAll brings all gates up to date, so that the list of settings does not grow without end behind a gate
// that no ask touches.
func (l *Limiter) replayAll(s *shard) {
	s.mu.Lock()
	all := s.gates()
	s.mu.Unlock()
	for gates := range slices.Chunk(all, replayBatch) {
		s.mu.Lock()
		for _, g := range gates {
			g.sync(s.setting)
		}
		s.mu.Unlock()
	}
}

func (s *shard) gates() []*gate {
	gates := s.order.Keys()
	if s.overflow.gate != nil {
		gates = append(gates, s.overflow.gate)
	}
	return gates
}

// SetDryRun begins or ends a dry run, to see what a limit would do before it does it. The limiter decides as
// ever, and admits also what it would have refused or made to wait. Such an ask takes nothing, and no policy
// learns from it. Stats.DryRunAdmitted counts it by what stood in its way, and one line a second at most is
// logged. A queue is not played through: callers that wait go at once, and each ask that would have had to
// wait counts. Asks that are not valid are errors as ever. TryAcquireUpTo takes what there is, and all n only
// where there is room for nothing.
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
