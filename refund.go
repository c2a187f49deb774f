package quotient

import (
	"fmt"
	"math"
	"time"
)

// What may be refunded. Had n events not been taken, the bucket would hold up to n more now, but not what it
// would have lost by being full meanwhile. With the headroom (size less tokens) of each instant, that is
// min(n, the least headroom since they were taken): the bucket is a reflected process, and its reflection is
// what a refund must not bring back. A refund of k lowers the headroom of each instant since by k, so that
// the same headroom is not given back twice. What was taken under another limit or pool is never refunded.

// lows are the least headrooms of a bucket between takes: the suffix minima of its headroom, oldest and
// lowest first. A gate has them while permits are out that may be corrected.
type lows []low

type low struct {
	take uint64  // how many had taken when it was noted
	room float64 // thousandths: the least since the low before this one
}

// mostLows bounds the list. The oldest is merged into the next, at the lower of both: the safe side.
const mostLows = 32

// note takes up a headroom. It is lowest just before something is taken.
func (l *lows) note(take uint64, room float64) {
	s := *l
	for len(s) > 0 && s[len(s)-1].room >= room {
		s = s[:len(s)-1]
	}
	if len(s) == mostLows {
		s[1].room = s[0].room
		s = append(s[:0], s[1:]...)
	}
	*l = append(s, low{take, room})
}

// since is the least headroom that was noted at a take or later.
func (l lows) since(take uint64) float64 {
	for _, v := range l {
		if v.take >= take {
			return v.room
		}
	}
	return math.Inf(1)
}

// lower takes a refund off all that was noted at a take or later. What is then no less than a later low is
// none.
func (l *lows) lower(take uint64, refund float64) {
	s := *l
	for i := range s {
		if s[i].take >= take {
			s[i].room = max(0, s[i].room-refund)
		}
	}
	kept := s[:0]
	for _, v := range s {
		for len(kept) > 0 && kept[len(kept)-1].room >= v.room {
			kept = kept[:len(kept)-1]
		}
		kept = append(kept, v)
	}
	*l = kept
}

// headroom is what is missing to a full bucket.
func (b *bucket) headroom(now time.Time) float64 {
	return float64(b.lim.Burst()) - b.tokens(now)
}

// countTake counts an ask with a cost. From then on, until no permit is out, headrooms are noted.
func (g *gate) countTake() {
	m := g.extra()
	m.takes++
	if m.lows == nil {
		m.lows = make([]lows, len(g.setting.rations))
	}
}

// noteLow takes up the headroom of rate i, if somebody may want to know.
func (g *gate) noteLow(i int, now time.Time) {
	m := g.more
	if m == nil || m.lows == nil {
		return
	}
	m.lows[i].note(m.takes, g.bucket(i).headroom(now))
}

// forgetLows starts anew under a setting.
func (g *gate) forgetLows(st *setting) {
	if g.more != nil && g.more.lows != nil {
		g.more.lows = make([]lows, len(st.rations))
	}
}

// era tells one limit and pool of the gate from another: while it stays, what was taken may be given back.
func (g *gate) era() uint64 {
	if g.more == nil {
		return uint64(g.setting.era)
	}
	return uint64(g.more.overrides)<<32 | uint64(g.setting.era)
}

// refundable is what a permit has taken, and may still be given back: requests and events of each unit.
type refundable struct {
	take uint64 // of gate.more.takes
	n    [1 + maxUnits]int
}

// current forgets what was taken under another limit or pool.
func (h *holding) current(era uint64) {
	if h.era != era {
		h.era, h.asked, h.added = era, refundable{}, refundable{}
	}
}

// charge takes n more events of a unit for the permit h, whether they are there or not.
func (g *gate) charge(now time.Time, h *holding, id, n int) {
	counted := false
	for i := range g.setting.rations {
		r := &g.setting.rations[i]
		if r.unitID != id {
			continue
		}
		counted = true
		if r.window != nil {
			w := &g.more.windows[i]
			w.roll(now, r.window)
			w.used += int64(n)
			continue
		}
		g.noteLow(i, now)
		g.bucket(i).owe(now, n*milli)
	}
	if !counted {
		return
	}
	h.added.n[id] += n
	if h.added.take == 0 {
		g.countTake()
		h.added.take = g.more.takes
	}
}

// discharge gives back n events of a unit, as far as the permit h has taken them under the present limit and
// pool and they have not come back by themselves. What was taken last goes back first.
func (g *gate) discharge(now time.Time, h *holding, id, n int) {
	late := min(n, h.added.n[id])
	early := min(n-late, h.asked.n[id])
	h.added.n[id] -= late
	h.asked.n[id] -= early
	for i := range g.setting.rations {
		r := &g.setting.rations[i]
		if r.unitID != id {
			continue
		}
		if r.window != nil {
			g.more.windows[i].giveBack(now, h.s.l.base.Add(h.since), int64(late+early), r.window)
			continue
		}
		g.noteLow(i, now)
		g.refund(i, now, h.added.take, late*milli)
		g.refund(i, now, h.asked.take, early*milli)
	}
}

// refund gives back to rate i as much of n thousandths, taken by the take-th ask, as has not come back by
// itself.
func (g *gate) refund(i int, now time.Time, take uint64, n int) {
	if n <= 0 || g.more == nil || g.more.lows == nil {
		return
	}
	l := &g.more.lows[i]
	if back := int(max(0, min(float64(n), l.since(take)))); back > 0 {
		g.bucket(i).refund(now, back)
		l.lower(take, float64(back))
	}
}

// unspent is how much of n thousandths may come back of an ask that was admitted a moment ago and given up:
// as much as cannot have been refilled since. The headroom was no less than that at any instant since, so
// that no low needs to be lowered for it.
func (r *ration) unspent(now, taken time.Time, n int) int {
	return int(max(0, float64(n)-float64(r.perSecond)*now.Sub(taken).Seconds()))
}

// correct is Permit.Correct.
func (s *shard) correct(p Permit, unit string, used int) error {
	if used < 0 || used > maxAsk {
		return fmt.Errorf("quotient: Permit.Correct(%q): %d is not between 0 and %d", unit, used, maxAsk)
	}
	s.mu.Lock()
	h := p.h
	if unit == "" {
		return s.giveBackAndUnlock(p, used)
	}
	u := indexOf(s.setting.units, unit)
	if h.gen != p.gen || u < 0 {
		released := h.gen != p.gen
		s.mu.Unlock()
		if released {
			return fmt.Errorf("quotient: Permit.Correct(%q): the permit is released", unit)
		}
		return fmt.Errorf("quotient: Permit.Correct: no rate has ever counted %q here", unit)
	}
	g, now := h.gate, s.tick(s.l.now())
	g.sync(s.setting)
	g.settle(now, nil)
	h.current(g.era())
	more := used - h.costs[u]
	if h.costs[u] = used; more > 0 {
		g.charge(now, h, u+1, more)
	} else if more < 0 {
		g.discharge(now, h, u+1, -more)
	}
	g.repace(now, u+1, more)
	s.serveAndUnlock(g)
	return nil
}

// giveBackAndUnlock gives back all but used of a permit's requests, and their slots. Of what rates have let
// through comes back what cannot have been refilled since, and nothing that was taken under another limit or
// pool.
func (s *shard) giveBackAndUnlock(p Permit, used int) error {
	h := p.h
	if h.gen != p.gen || used > h.weight {
		weight, released := h.weight, h.gen != p.gen
		s.mu.Unlock()
		if released {
			return fmt.Errorf("quotient: Permit.Correct: the permit is released")
		}
		return fmt.Errorf("quotient: Permit.Correct: %d is above the %d requests that were taken", used, weight)
	}
	g, now := h.gate, s.tick(s.l.now())
	g.sync(s.setting)
	g.settle(now, nil)
	h.current(g.era())
	back := h.weight - used
	if d := (demand{weight: min(back, h.asked.n[0])}); d.weight > 0 {
		g.giveBack(now, s.l.base.Add(h.since), &d)
		h.asked.n[0] -= d.weight
	}
	slots := int32(min(back, int(h.slots)))
	h.weight, h.slots = used, h.slots-slots
	g.used -= slots
	s.counts.inFlight -= int64(back)
	s.serveAndUnlock(g)
	return nil
}
