package quotient

import (
	"fmt"
	"math"
	"time"
)

// What may be refunded. Had n events not been taken, the bucket would hold up to n more
// now, but not what it would have lost by being full meanwhile. With the headroom (size less tokens) of each
// instant, that is min(n, the least headroom since they were taken): the bucket is a
// reflected process, and its reflection is what a refund must not bring back.

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

// forgetLows starts anew under a setting: what was taken under another one is not given back.
func (g *gate) forgetLows(st *setting) {
	if g.more == nil || g.more.lows == nil {
		return
	}
	g.more.lows = make([]lows, len(st.rations))
	for i := range g.more.lows {
		g.more.lows[i].note(g.more.takes, 0)
	}
}

// adjust takes n more events of unit u from rate i for the permit h, whether they are there or not, or gives
// back -n, as far as they have not come back by themselves since they were taken.
func (g *gate) adjust(i int, now time.Time, h *holding, u, n int) {
	c := g.setting.rations[i].window
	switch {
	case c != nil && n > 0:
		w := &g.more.windows[i]
		w.roll(now, c)
		w.used += int64(n)
	case c != nil:
		g.more.windows[i].giveBack(now, h.s.l.base.Add(h.since), int64(-n), c)
	case n > 0:
		g.noteLow(i, now)
		g.bucket(i).owe(now, n*milli)
	case n < 0:
		g.noteLow(i, now)
		late := min(-n, h.extra[u]) // what was taken last goes back first
		back := g.refundable(i, h.late, late*milli)
		g.bucket(i).refund(now, back)
		g.bucket(i).refund(now, min(g.refundable(i, h.take, (-n-late)*milli), int(g.bucket(i).headroom(now))))
	}
	if n > 0 && h.late == 0 {
		g.countTake()
		h.late = g.more.takes
	}
}

// refundable is how much of n thousandths may come back to rate i, that were taken by the take-th ask or later.
func (g *gate) refundable(i int, take uint64, n int) int {
	if g.more == nil || g.more.lows == nil || n <= 0 {
		return 0
	}
	return int(max(0, min(float64(n), g.more.lows[i].since(take))))
}

// unspent is how much of n thousandths may come back of an ask that was admitted a moment ago and given
// up: as much as cannot have been refilled since.
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
	for i := range g.setting.rations {
		if g.setting.rations[i].unitID == u+1 {
			g.adjust(i, now, h, u, used-h.costs[u])
		}
	}
	g.repace(now, u+1, used-h.costs[u])
	h.extra[u] = max(0, h.extra[u]+used-h.costs[u])
	h.costs[u] = used
	s.serveAndUnlock(g)
	return nil
}

// giveBackAndUnlock gives back all but used of a permit's requests, and their slots. Of what rates have let through comes back what
// cannot have been refilled since, and nothing that was taken under another limit or pool.
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
	back := demand{weight: h.weight - used}
	if back.weight > 0 && h.era == g.setting.era {
		g.giveBack(now, s.l.base.Add(h.since), &back)
	}
	slots := int32(min(back.weight, int(h.slots)))
	h.weight, h.slots = used, h.slots-slots
	g.used -= slots
	s.counts.inFlight -= int64(back.weight)
	s.serveAndUnlock(g)
	return nil
}
