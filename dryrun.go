package quotient

import "time"

// DryRun makes a limiter that stops nobody, as SetDryRun(true) does.
func DryRun() Option {
	return func(o *options) error { o.dryRun = true; return nil }
}

// SetDryRun begins or ends a dry run. In a dry run the limiter decides as ever, and then admits also what it would have refused, or
// made to wait: to see what a limit would do before it does it. Such an ask takes nothing; its permit has nothing to give back, and no policy
// learns from it. It is counted in Stats.DryRunAdmitted by what stood in its way, and logged, one line a second at most. So for callers
// that never wait the count is what the limiter would have refused. A queue is not played through: Acquire counts each ask that would have had to
// wait, and lets it go. Those who wait when a dry run begins go at once. Asks that are not valid are errors as ever.
// TryAcquireUpTo takes what there is, as ever, and all n only where there is room for nothing.
func (l *Limiter) SetDryRun(on bool) {
	l.mu.Lock()
	old := l.dry.Swap(on)
	if old != on {
		l.version++
	}
	if on && !old {
		for i := range l.shards {
			l.shards[i].wake(false)
		}
	}
	l.mu.Unlock()
	if old != on {
		l.log.Info("dry run set", "old", old, "new", on)
	}
}

// DryRun tells whether the limiter stops nobody.
func (l *Limiter) DryRun() bool { return l.dry.Load() }

// dryPermit is that of an ask which only a dry run has admitted: there is nothing to give back, and nothing to correct.
var dryPermit = Permit{gen: 2}

// stops counts an ask that has been refused, and tells whether it stays so: a dry run admits it all the same.
func (s *shard) stops(v verdict) bool {
	if s.l.dry.Load() {
		s.letBy(v.reason)
		return false
	}
	s.counts.refused[v.reason]++
	return true
}

// letBy counts an ask that only a dry run admits.
func (s *shard) letBy(r Reason) {
	s.counts.admitted++
	s.counts.dryRun[r]++
	s.l.tellDry(r)
}

// passDry admits in a dry run who would have to wait: by what it lacks, or because there is room by now.
func (s *shard) passDry(g *gate, key string, d *demand, now time.Time) Permit {
	v := s.try(g, now, d)
	if v.reason == ReasonNone {
		return s.hold(g, key, d, now)
	}
	s.letBy(v.reason)
	return dryPermit
}

// tellDry logs that a dry run has let somebody by, now and then. A lock is held here, so the line is written by a goroutine of its own.
func (l *Limiter) tellDry(r Reason) {
	last, now := l.dryTold.Load(), int64(time.Since(l.base))
	if last != 0 && now-last < int64(time.Second) || !l.dryTold.CompareAndSwap(last, now) {
		return
	}
	time.AfterFunc(0, func() {
		l.log.Info("dry run: admitted what would have been stopped", "reason", r, "so_far", l.Stats().DryRunAdmitted)
	})
}

// letGo ends a wait that a dry run would not have begun.
func (s *shard) letGo(g *gate, w *waiter, v verdict) {
	w.dry, w.due = v.reason, s.now.Sub(s.l.base)
	w.granted, w.permit = w.due, dryPermit
	s.dequeue(g, w)
	w.ready <- struct{}{}
}
