package quotient

import (
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// Permit is one admission. It is a value of a few words: keep it, copy it, hand it to
// another goroutine. Whichever copy is released first counts; any further release is
// detected, counted in Stats.DoubleReleases and does nothing.
//
// A permit that has nothing to give back (no in-flight limit, no Cost, no learning policy) is the
// zero value. All methods of the zero value do nothing. Methods are safe for concurrent use.
type Permit struct {
	s    *shard
	slot uint32
	gen  uint32
}

// holding is what a shard remembers of a permit until it is released.
type holding struct {
	gate  *gate // nil while the slot is free
	key   string
	d     demand
	since time.Duration // from Limiter.base
	end   time.Duration // when it is given back by time; 0: never
	slots int32         // in flight; 0 when they were not limited
	gen   uint32        // of the permit that holds this slot; it goes on counting while the slot is free
	next  uint32        // the next free slot
	place uint32        // in gate.more.expiring, while end is set
	stack *[16]uintptr  // of who took it, for LeakCheck
}

// Leak is a permit that was given back by time instead of by its holder.
type Leak struct {
	Key   string
	Held  time.Duration
	Stack string // of the call that took it, one function a line
}

// Release gives the permit's slots back. It never blocks for long.
func (p Permit) Release() {
	if p.s != nil {
		p.s.finish(p, nil)
	}
}

// Done hands the key's policy what the upstream said, and releases the permit. Under
// policy.Fixed it is Release.
func (p Permit) Done(f policy.Feedback) {
	if p.s != nil {
		p.s.finish(p, &f)
	}
}

// Correct says what the ask has really cost in a unit, in place of the estimate that Cost
// gave: what is more is owed and repaid before the next admission, what is less is given
// back at once. It may be called until the permit is released, each time with the whole cost. It fails,
// and changes nothing, for a negative cost, an unknown unit and a released permit.
func (p Permit) Correct(unit string, used int) error {
	if p.s == nil {
		return fmt.Errorf("quotient: Permit.Correct: the permit was taken without a Cost")
	}
	return p.s.correct(p, unit, used)
}

// ExpireIn sees to it that the permit is given back d from now at the latest, in place of
// what MaxHold said. Nothing runs at that instant: it is given back when somebody needs it,
// or when statistics are read. A d of 0 or less takes the end off.
func (p Permit) ExpireIn(d time.Duration) {
	if p.s != nil {
		p.s.expireIn(p, d)
	}
}

// permits is a shard's table of holdings. It grows by blocks, so that no growth copies
// anything under the lock, and never holds more than were out at once.
type permits struct {
	blocks []*[permitBlock]holding
	free   uint32 // the first free slot plus 1; 0: none
}

const permitBlock = 64

func (t *permits) at(slot uint32) *holding { return &t.blocks[slot/permitBlock][slot%permitBlock] }

// add returns a free slot, now taken, of a generation that no permit before had.
func (t *permits) add() (uint32, *holding) {
	if t.free == 0 {
		base := uint32(len(t.blocks)) * permitBlock
		t.blocks = append(t.blocks, new([permitBlock]holding))
		for i := uint32(permitBlock); i > 0; i-- {
			t.at(base + i - 1).next = t.free
			t.free = base + i
		}
	}
	slot := t.free - 1
	h := t.at(slot)
	t.free = h.next
	h.gen++
	return slot, h
}

// get returns the holding of a permit, or nil when it was released before.
func (t *permits) get(p Permit) *holding {
	if h := t.at(p.slot); h.gen == p.gen {
		return h
	}
	return nil
}

func (t *permits) drop(slot uint32) {
	h := t.at(slot)
	h.gate, h.key, h.stack, h.slots = nil, "", nil, 0
	h.gen++
	h.next = t.free
	t.free = slot + 1
}

// hold makes the permit of an ask that g has admitted. Only what can be given back or
// corrected, or is to be learned from, is remembered.
func (s *shard) hold(g *gate, key string, d *demand, now time.Time) Permit {
	if g.setting.limit.InFlight == 0 && g.setting.law == nil && !d.priced() {
		return Permit{}
	}
	slot, h := s.permits.add()
	h.gate, h.key, h.d, h.since = g, key, *d, now.Sub(s.l.base)
	if g.setting.limit.InFlight > 0 {
		h.slots = int32(d.weight)
	}
	g.held++
	s.counts.inFlight += int64(d.weight)
	if g == s.overflow {
		g.more.names[key]++
	}
	if s.l.maxHold > 0 {
		s.expire(slot, h, now.Sub(s.l.base)+s.l.maxHold)
	}
	if s.l.leakCheck != nil {
		h.stack = new([16]uintptr)
		runtime.Callers(3, h.stack[:])
	}
	return Permit{s: s, slot: slot, gen: h.gen}
}

// free takes the holding off its gate.
func (s *shard) free(slot uint32) {
	h := s.permits.at(slot)
	g := h.gate
	if h.end != 0 {
		s.unexpire(h)
	}
	g.give(int(h.slots))
	g.held--
	s.counts.inFlight -= int64(h.d.weight)
	if g == s.overflow {
		s.unname(h.key)
	}
	s.permits.drop(slot)
}

func (s *shard) finish(p Permit, f *policy.Feedback) {
	s.mu.Lock()
	h := s.permits.get(p)
	if h == nil {
		s.counts.doubleReleases++
		s.mu.Unlock()
		return
	}
	g := h.gate
	if f != nil && g.setting.law != nil {
		s.feed(g, s.l.base.Add(h.since), *f)
	}
	s.free(p.slot)
	s.serveAndUnlock(g)
}

// feed hands feedback to the gate's law.
func (s *shard) feed(g *gate, sent time.Time, f policy.Feedback) {
	now := s.tick(s.l.now())
	g.sync(s.setting)
	if f.Outcome == policy.Throttled {
		s.counts.throttled++
	}
	if g.setting.law != nil {
		g.forget(now)
		g.more.pacer.feed(g.setting.law, s.l.base, now, sent, f)
	}
}

func (s *shard) correct(p Permit, unit string, used int) error {
	if used < 0 || used > maxAsk {
		return fmt.Errorf("quotient: Permit.Correct(%q): %d is not between 0 and %d", unit, used, maxAsk)
	}
	s.mu.Lock()
	h := s.permits.get(p)
	u := indexOf(s.setting.units, unit)
	if h == nil || u < 0 {
		s.mu.Unlock()
		if h == nil {
			return fmt.Errorf("quotient: Permit.Correct(%q): the permit is released", unit)
		}
		return fmt.Errorf("quotient: Permit.Correct: no rate has ever counted %q here", unit)
	}
	g, now := h.gate, s.tick(s.l.now())
	g.sync(s.setting)
	for i := range g.setting.rations {
		if g.setting.rations[i].unitID == u+1 {
			g.adjust(i, now, used-h.d.costs[u])
		}
	}
	h.d.costs[u] = used
	s.serveAndUnlock(g)
	return nil
}

func (s *shard) expireIn(p Permit, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.permits.get(p)
	if h == nil {
		return
	}
	if h.end != 0 {
		s.unexpire(h)
	}
	if d > 0 {
		s.expire(p.slot, h, s.tick(s.l.now()).Sub(s.l.base)+d)
		if g := h.gate; g.more.queue.head != nil {
			s.arm(g, s.now)
		}
	}
}

func (s *shard) expire(slot uint32, h *holding, end time.Duration) {
	m := h.gate.extra()
	h.end, h.place = end, uint32(len(m.expiring))
	m.expiring = append(m.expiring, slot)
	if len(m.expiring) == 1 || end < m.nextEnd {
		m.nextEnd = end
	}
}

// unexpire takes the holding off its gate's list; nextEnd stays, at worst too early.
func (s *shard) unexpire(h *holding) {
	m := h.gate.more
	last := m.expiring[len(m.expiring)-1]
	m.expiring[h.place] = last
	s.permits.at(last).place = h.place
	m.expiring = m.expiring[:len(m.expiring)-1]
	h.end = 0
}

// reclaim gives back the gate's permits whose time is over. It looks only when the
// earliest end has come, so that its cost is shared by the permits that have one.
func (s *shard) reclaim(g *gate, now time.Time) {
	at := now.Sub(s.l.base)
	if g.more == nil || len(g.more.expiring) == 0 || at < g.more.nextEnd {
		return
	}
	var over []uint32
	next := never
	for _, slot := range g.more.expiring {
		if end := s.permits.at(slot).end; end <= at {
			over = append(over, slot)
		} else if end < next {
			next = end
		}
	}
	g.more.nextEnd = next
	for _, slot := range over {
		s.leaked(s.permits.at(slot), at)
		s.free(slot)
	}
}

// leaked counts a permit that is given back by time, and reports it from a goroutine of its own:
// the shard's lock is held here.
func (s *shard) leaked(h *holding, now time.Duration) {
	s.counts.reclaimed++
	report := s.l.leakCheck
	if report == nil {
		return
	}
	leak, stack := Leak{Key: h.key, Held: now - h.since}, h.stack
	time.AfterFunc(0, func() {
		leak.Stack = formatStack(stack[:])
		report(leak)
	})
}

func formatStack(pcs []uintptr) string {
	var b strings.Builder
	for frames := runtime.CallersFrames(pcs); ; {
		f, more := frames.Next()
		if f.Function != "" {
			fmt.Fprintf(&b, "%s %s:%d\n", f.Function, f.File, f.Line)
		}
		if !more {
			return b.String()
		}
	}
}
