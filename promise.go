package quotient

import "time"

// promises is what callers of a key that were refused have been told: for requests and for each unit, the
// instant.at from which on the key's rates are nobody's yet.
//
// Were all told when the next has its turn, all would come at that instant, and all but one in vain. So each is
// told a turn of its own, behind the others' and as far from them as its events take to come. In a window that
// is a part of the window. A promise holds nothing back: who comes first is admitted first. So one that is
// forgotten, with a key that is dropped or with the maps of a store that shrinks, costs a request in vain and no more.
type promises [1 + maxUnits]time.Duration

// mostPromised is how many turns are promised before they are promised once more from the first on. Nobody is
// told to wait longer than behind so many calls like its own, or whoever asks without end, and obeys nothing,
// could send the others away for hours. It is large enough that a herd of twice as many calls two and a half
// times for each answer, and one of ten times as many six times.
const mostPromised = 100

// told returns when a caller is told to come again that a rule has wait: then, or behind what has been promised,
// where its turn comes if no other does. It also returns the time from there to the next one's turn.
func (g *gate) told(t instant, by *rule, d *demand, wait time.Duration, p promises) (in, apart time.Duration) {
	in = p[by.unitID] - t.at
	apart = g.apart(t, by, d, max(0, in-wait))
	if in <= wait || float64(in-wait) > mostPromised*float64(apart) {
		return wait, apart
	}
	for _, r := range g.setting.order {
		if n := d.of(r.unitID); r.timed && n > 0 {
			in = max(in, g.resource(r).until(t, r, in, 0, float64(n)))
		}
	}
	return min(in, never/2), apart
}

// apart returns how long the events that a call takes of a rule need to come. Other rules count that have no
// room for all who have their turn ahead of it, within so long a time.
func (g *gate) apart(t instant, by *rule, d *demand, ahead time.Duration) time.Duration {
	longest := g.interval(t, by) * float64(d.of(by.unitID))
	calls := 1 + float64(ahead)/longest
	for _, r := range g.setting.order {
		if n := float64(d.of(r.unitID)); r.timed && r != by && n > 0 {
			if left, _, _ := g.resource(r).left(t, r); left < n*calls {
				longest = max(longest, n*g.interval(t, r))
			}
		}
	}
	return saturated(longest)
}

// interval returns the time from one event to the next, in nanoseconds, at the rate of a rule.
func (g *gate) interval(t instant, r *rule) float64 {
	switch {
	case r.ctrl != noController:
		return g.ext.learned.pacers[r.ctrl].paced().interval
	case r.counted != 0: // the next windows are expected to allow as much as this one
		_, may, _ := g.resource(r).left(t, r)
		return float64(r.window) / max(may, r.share)
	}
	return r.interval
}

// refusal is the decision against a caller that is refused. It promises what it tells.
func (s *shard) refusal(g *gate, d *demand, v verdict) Decision {
	dec, apart := g.decision(s.latest, d, v, s.promises[g])
	if apart > 0 {
		if s.promises == nil {
			s.promises = make(map[*gate]promises)
		}
		p := s.promises[g]
		p[g.ruleOf(v).unitID] = after(s.latest.at, after(dec.RetryAfter, apart))
		s.promises[g] = p
	}
	return dec
}
