package quotient

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/quotient-go/quotient/internal/meter"
	"github.com/quotient-go/quotient/policy"
)

// Permit is one admission. It is a value of a few words: keep it, copy it, hand it to another goroutine. Whichever
// copy is released first counts; any further release does nothing but count as one of Stats.DoubleReleases. The zero
// value is a permit with nothing to give back: no in-flight limit, no Cost, no policy that learns, and neither
// Refundable nor of TryAcquireUpTo.
type Permit struct {
	h   *holding
	gen uint64 // that of h while this holds it
}

// holding is what a shard remembers of a permit until it is released. The shard's lock guards
// all but s, which never changes.
type holding struct {
	s      *shard
	gate   *gate
	gen    uint64        // odd while a permit holds this; never used again for another permit: 32 bits would wrap
	next   *holding      // the next that is free
	slots  int32         // in flight; 0 when they were not limited
	place  int32         // in gate.ext.expiring, while end is set
	plan   planID        // that it was asked for in
	priced bool          // there is a cost: usage and charged have more than the requests
	end    time.Duration // when it is given back by time; 0: never
	usage
	charged
	key string // of a permit that the overflow gate counts by its name
}

// Release gives the permit's slots back. It never blocks for long.
func (p Permit) Release() {
	if p.h != nil {
		p.finish()
	}
}

// Done gives the upstream's feedback to the key's policy, and releases the permit. A success counts as of the key's
// latest admission or feedback, because reading the clock would cost more than it tells.
func (p Permit) Done(f policy.Feedback) {
	switch {
	case p.h == nil:
	case p.h.s.l.learns:
		p.report(&f, true)
	default:
		p.finish()
	}
}

// Report gives the upstream's feedback to the key's policy, and keeps the permit, since an answer's head comes before
// its body. Each counts as one answer, and so does a Done after it: end with Release.
func (p Permit) Report(f policy.Feedback) {
	if p.h != nil && p.h.s.l.learns {
		p.report(&f, false)
	}
}

// Correct replaces the estimate that Cost gave by what the call has really cost in a unit. More is owed, and repaid
// before the next admission. Less comes back at once, but only what the bucket could still hold had it not been taken,
// and nothing once the window has ended or the limit or pool has changed, because others may have it by then. It may
// be called until the permit is released, each time with the whole cost, and fails for a negative cost, an unknown
// unit and a released permit. The unit "" stands for the requests of a permit that has something to release, which can
// only become fewer, and their slots.
func (p Permit) Correct(unit string, used int) error {
	if p == dryPermit {
		return nil
	}
	if p.h == nil {
		return fmt.Errorf(
			"quotient: Permit.Correct: the permit was taken without a Cost, so it cannot be corrected")
	}
	return p.correct(unit, used)
}

// Refund gives its requests back to the rates, for a call that turns out not to count, such as a sign-in that succeeds.
// Until then it counts as any other. What comes back is as with Correct; slots and costs stay, and the permit is still
// to be released. It does nothing for one that is released, or that has nothing to release: see Refundable.
func (p Permit) Refund() {
	if p.h == nil {
		return
	}
	h, s := p.h, p.h.s
	s.mu.Lock()
	if h.gen != p.gen {
		s.mu.Unlock()
		return
	}
	g, now := h.gate, s.now()
	s.touch(g, now)
	h.charged.sync(g)
	h.giveBack(now, h.asked[0])
	s.serveAndUnlock(g)
}

// ExpireIn gives the permit back d from now at the latest, in place of MaxHold; if d is 0 or less, never.
func (p Permit) ExpireIn(d time.Duration) {
	if p.h == nil {
		return
	}
	h, s := p.h, p.h.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.gen != p.gen {
		return
	}
	if h.end != 0 {
		s.unexpire(h)
	}
	if d > 0 {
		s.expire(h, meter.After(s.now().At, d))
	}
}

// permits is a shard's store of holdings. It grows by blocks, so that no growth copies
// anything under the lock, and never holds more than were out at once.
type permits struct {
	blocks []*[permitBlock]holding
	free   *holding
}

const permitBlock = 64

// takeHolding returns a free holding, now taken.
func (s *shard) takeHolding() *holding {
	h := s.permits.free
	if h == nil {
		h = s.permits.grow(s)
	}
	s.permits.free = h.next
	h.gen++
	return h
}

func (t *permits) grow(s *shard) *holding {
	block := new([permitBlock]holding)
	t.blocks = append(t.blocks, block)
	for i := range block {
		block[i].s, block[i].next = s, t.free
		t.free = &block[i]
	}
	return t.free
}

// out reports whether a permit holds h.
func (h *holding) out() bool { return h.gen%2 == 1 }

// hold makes the permit of a call that g has admitted. Only what can be given back or corrected, or is to be
// learned from, is remembered.
func (s *shard) hold(g *gate, key string, d *demand) Permit {
	if !g.setting.holds && !d.priced && !d.kept {
		return Permit{}
	}
	h := s.takeHolding()
	h.gate, h.weight, h.since, h.slots = g, d.weight, s.latest.At, 0
	h.epoch, h.asked[0], h.plan = g.epoch, d.weight, d.plan
	if g.setting.limit.InFlight > 0 {
		h.slots = int32(d.weight)
	}
	if d.priced {
		h.priced, h.costs = true, d.costs
		copy(h.asked[1:], d.costs[:])
	}
	g.held++
	s.counts.inFlight += int64(h.weight)
	if s.overflow.is(g) {
		h.key = key
		s.overflow.enter(key)
	}
	if s.l.maxHold > 0 {
		s.expire(h, meter.After(h.since, s.l.maxHold))
	}
	return Permit{h, h.gen}
}

// expire has the holding given back by time at end.
func (s *shard) expire(h *holding, end time.Duration) {
	m := h.gate.extend()
	h.end, h.place = end, int32(len(m.expiring))
	m.expiring = append(m.expiring, h)
	if len(m.expiring) == 1 || end < m.nextEnd {
		m.nextEnd = end
		if m.queue.head != nil {
			s.arm(h.gate, s.latest) // the callers that wait for slots may have these
		}
	}
}

// unexpire takes the holding off its gate's list; nextEnd stays, at worst too early.
func (s *shard) unexpire(h *holding) {
	m := h.gate.ext
	last := m.expiring[len(m.expiring)-1]
	m.expiring[h.place] = last
	last.place = h.place
	m.expiring[len(m.expiring)-1] = nil
	m.expiring = m.expiring[:len(m.expiring)-1]
	h.end = 0
}

// reclaim gives back the gate's permits whose time is over. It looks only when the
// earliest end has come, so that its cost is shared by the permits that have one. A timer for each would cost more
// than the permit, and a goroutine would have to be stopped.
func (s *shard) reclaim(g *gate, now meter.Instant) {
	if g.ext == nil || len(g.ext.expiring) == 0 || now.At < g.ext.nextEnd {
		return
	}
	var over []*holding
	next := meter.Never
	for _, h := range g.ext.expiring {
		if h.end <= now.At {
			over = append(over, h)
		} else if h.end < next {
			next = h.end
		}
	}
	g.ext.nextEnd = next
	for _, h := range over {
		s.leaked(h)
		s.free(h)
	}
}

// leaked counts a permit that is given back by time, and logs now and then that there are such.
func (s *shard) leaked(h *holding) {
	s.counts.reclaimed++
	key, l := cmp.Or(h.gate.name, h.key), s.l
	l.leakLog.Do(func() {
		time.AfterFunc(0, func() { // a lock is held here
			l.log.Warn("a permit was not released in time", "key", clip(key))
		})
	})
}

// free takes the holding off its gate, and puts it away.
func (s *shard) free(h *holding) {
	g := h.gate
	if h.end != 0 {
		s.unexpire(h)
	}
	g.used -= h.slots
	g.held--
	s.counts.inFlight -= int64(h.weight)
	h.asked[0] = 0
	if h.priced {
		h.priced, h.costs, h.charged = false, [maxUnits]int{}, charged{}
	}
	if s.overflow.is(g) {
		s.overflow.leave(h.key)
		h.key = ""
	}
	h.gate = nil // or it would keep alive all settings since
	h.gen++
	h.next, s.permits.free = s.permits.free, h
}

func (p Permit) finish() {
	h, s := p.h, p.h.s
	s.mu.Lock()
	if h.gen != p.gen {
		s.counts.doubleReleases++
		s.mu.Unlock()
		return
	}
	g := h.gate
	s.free(h)
	if g.ext == nil {
		s.mu.Unlock()
		return
	}
	s.serveAndUnlock(g)
}

// report hands feedback to the controllers of the permit's gate; done also releases it.
func (p Permit) report(f *policy.Feedback, done bool) {
	h, s, fed := p.h, p.h.s, false
	s.mu.Lock()
	g := h.gate
	defer func() {
		if fed {
			return
		}
		if done && h.gen == p.gen { // a controller has panicked, and no other caller can give the slots back
			s.free(h)
		}
		s.mu.Unlock()
	}()
	if h.gen != p.gen {
		if done {
			s.counts.doubleReleases++
		}
		return
	}
	s.feed(g, h, f)
	if done {
		s.free(h)
	}
	fed = true
	s.serveAndUnlock(g)
}

// feed hands feedback to the gate's controllers.
func (s *shard) feed(g *gate, h *holding, f *policy.Feedback) {
	if f.Outcome == policy.Throttled {
		s.counts.throttled++
	}
	if g.setting.next != nil || g.setting.special { // as for a call: else it is the newest
		g.sync()
	}
	st, l := g.setting, g.ext.learned
	at := l.latest
	plain := f.Outcome == policy.Success && f.RetryAfter == 0 && f.Quotas[0].Limit == 0
	if !plain || st.timesHolds || l.firstExpiry() > 0 { // the clock is half the price of a success
		now := s.now()
		if at = now.At; st.special {
			g.endLoan(now)
			st = g.setting
		}
	}
	l.advance(at, st, nil)
	l.latest = at
	l.observe(f, &h.usage, s.l.policy, st.ctrls)
	l.resize(st)
}

// correct is Correct of a permit that is remembered.
func (p Permit) correct(unit string, used int) error {
	if used < 0 || used > maxAmount {
		return fmt.Errorf("quotient: Permit.Correct(%q): %d is not between 0 and %d", unit, used, maxAmount)
	}
	h, s := p.h, p.h.s
	s.mu.Lock()
	if unit == "" {
		return s.giveBackAndUnlock(p, used)
	}
	u := slices.Index(s.newest(0).units, unit)
	if h.gen != p.gen || u < 0 {
		released := h.gen != p.gen
		s.mu.Unlock()
		if released {
			return fmt.Errorf("quotient: Permit.Correct(%q): the permit is released", unit)
		}
		return fmt.Errorf("quotient: Permit.Correct: unit: no rate of the limiter has counted %q", unit)
	}
	g, now := h.gate, s.now()
	s.touch(g, now)
	more := used - h.costs[u]
	if more > 0 {
		s.enter(g, h.plan, now)
	}
	h.charged.sync(g)
	h.priced = true
	if h.costs[u] = used; more > 0 {
		g.charge(now, &h.charged, u+1, more)
		var d demand
		d.costs[u] = more
		g.spread(now, &d)
	} else if more < 0 {
		g.discharge(now, h.since, &h.charged, u+1, -more)
	}
	s.serveAndUnlock(g)
	return nil
}

// giveBackAndUnlock gives back all but used of a permit's requests, and their slots. A rate gets back the
// events that cannot have been refilled since. Events taken under another limit or pool do not come back.
func (s *shard) giveBackAndUnlock(p Permit, used int) error {
	h := p.h
	if h.gen != p.gen || used > h.weight {
		weight, released := h.weight, h.gen != p.gen
		s.mu.Unlock()
		if released {
			return fmt.Errorf("quotient: Permit.Correct: the permit is released")
		}
		return fmt.Errorf("quotient: Permit.Correct: %d is above the %d requests that were taken",
			used, weight)
	}
	g, now := h.gate, s.now()
	s.touch(g, now)
	h.charged.sync(g)
	back := h.weight - used
	h.giveBack(now, min(back, h.asked[0]))
	slots := int32(min(back, int(h.slots)))
	h.weight, h.slots = used, h.slots-slots
	g.used -= slots
	s.counts.inFlight -= int64(back)
	s.serveAndUnlock(g)
	return nil
}

// giveBack gives n of the requests back to the rates.
func (h *holding) giveBack(now meter.Instant, n int) {
	if n > 0 {
		h.gate.giveBack(now, h.since, &demand{weight: n})
		h.asked[0] -= n
	}
}

// charged is what a permit has taken and may still give back: requests, and events of each unit. The call
// takes when it is admitted, and a correction when it comes.
type charged struct {
	epoch        uint16 // of the gate: what was taken under another limit or pool stays taken
	asked, added [1 + maxUnits]int
	addedAt      time.Duration // when the first of added was
}

// sync forgets what was taken under another limit or pool.
func (c *charged) sync(g *gate) {
	if c.epoch != g.epoch {
		*c = charged{epoch: g.epoch}
	}
}

// charge takes n more events of a unit, whether they are there or not.
func (g *gate) charge(t meter.Instant, c *charged, unit, n int) {
	counted := false
	for _, r := range g.setting.order {
		if r.unitID == unit {
			counted = true
			g.resource(r).Take(t, &r.Rule, float64(n))
		}
	}
	if p := g.tally(); p != nil {
		p.taken[unit] += float64(n)
	}
	if counted {
		if c.added == [1 + maxUnits]int{} {
			c.addedAt = t.At
		}
		c.added[unit] += n
	}
}

// discharge gives back n events of a unit that were asked for at an instant. It gives back no more than was
// taken under the present limit and pool, and has not come back by itself. The latest takes go back first.
func (g *gate) discharge(t meter.Instant, since time.Duration, c *charged, unit, n int) {
	late := min(n, c.added[unit])
	early := min(n-late, c.asked[unit])
	c.added[unit] -= late
	c.asked[unit] -= early
	if p := g.tally(); p != nil {
		p.taken[unit] -= float64(late + early)
	}
	for _, r := range g.setting.order {
		if r.unitID == unit && r.timed {
			g.resource(r).Refund(t, c.addedAt, &r.Rule, float64(late))
			g.resource(r).Refund(t, since, &r.Rule, float64(early))
		}
	}
}
