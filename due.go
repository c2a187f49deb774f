package quotient

import "time"

// What a wait was for. The time that an ask has waited by intent, for its tokens and slots, is the limit's; what came on top, because a
// timer was late or the caller woke late, is overhead, and OnAdmit tells it apart.

// dueAt is when w, which has just been admitted, could have been: at the turn for which the timer was set, if it was late, and
// those behind it when what they have taken was there as well.
func (s *shard) dueAt(g *gate, w *waiter, now time.Time) time.Duration {
	at, turn := now.Sub(s.l.base), g.more.turn
	if turn.IsZero() || !turn.Before(now) {
		return at
	}
	due := turn.Sub(s.l.base)
	if g.more.given {
		due = max(due, at-g.thereFor(now, &w.d))
	}
	return max(due, w.since)
}

// thereFor is how long what d has taken had been there, as far as no bucket was full.
func (g *gate) thereFor(now time.Time, d *demand) time.Duration {
	least := never
	for i := range g.setting.rations {
		r := &g.setting.rations[i]
		if r.window != nil || d.of(r.unitID) == 0 {
			continue
		}
		least = min(least, saturated(g.bucket(i).tokens(now)/float64(r.perSecond)))
	}
	for i := range g.setting.laws {
		if p := &g.more.learned.pacers[i]; d.of(g.setting.laws[i].unitID) > 0 && p.rate > 0 {
			least = min(least, saturated(p.has(now.Sub(g.setting.origin))/p.rate))
		}
	}
	return least
}

// saturated converts seconds: those below 0 count as none, and those beyond every Duration as half of the
// longest.
func saturated(seconds float64) time.Duration {
	return time.Duration(min(max(0, seconds*float64(time.Second)), float64(never/2)))
}

// came counts a waiter that has its admission. Not sooner: it might be given up, or lost, and a count must not fall.
func (s *shard) came(w *waiter) {
	if w.permit != dryPermit {
		s.l.came.Add(1)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.letBy(w.dry)
}
