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
// A permit that has nothing to give back (no in-flight limit, no Cost, no learning policy, and not of
// TryAcquireUpTo) is the zero value. All methods of the zero value do nothing; its Correct says so with an
// error. Methods are safe for concurrent use.
type Permit struct {
	h   *holding
	gen uint64 // that of h while this holds it
}

// holding is what a shard remembers of a permit until it is released. The shard's lock guards
// all but s, which never changes.
type holding struct {
	s      *shard
	gate   *gate
	weight int           // of requests
	gen    uint64        // odd while a permit holds this; it goes on counting, so that no two permits have the same: 32 bits would wrap
	slots  int32         // in flight; 0 when they were not limited
	place  int32         // in gate.more.expiring, while end is set
	era    uint64        // of gate.era, under which asked and added were taken
	named  bool          // key is set, and counted if the gate is the overflow gate
	costs  [maxUnits]int // as they were told last
	asked  refundable    // by the ask
	added  refundable    // by corrections
	since  time.Duration // from Limiter.base
	end    time.Duration // when it is given back by time; 0: never
	key    string
	stack  *[16]uintptr // of who took it, for LeakCheck
	next   *holding     // the next that is free
}

// Leak is a permit that was given back by time instead of by its holder.
type Leak struct {
	Key   string
	Held  time.Duration
	Stack string // of the call that took it, one function a line
}

// Release gives the permit's slots back. It never blocks for long.
func (p Permit) Release() {
	if p.h != nil {
		p.h.s.finish(p)
	}
}

// Done hands the key's policy what the upstream said, and releases the permit. Under policy.Fixed it is
// Release. A success is dated by the latest admission or other feedback of its key: the clock is read for
// what complains, names a time to wait or tells a quota, and where a law governs slots.
func (p Permit) Done(f policy.Feedback) {
	switch {
	case p.h == nil:
	case p.h.s.l.learns:
		p.h.s.report(p, &f, true)
	default:
		p.h.s.finish(p)
	}
}

// Report hands the key's policy what the upstream said, and keeps the permit: an answer's head tells before
// its body is read. Each Report, and a Done after it, is one more answer to the law: end with Release. It
// does nothing for a permit that is released.
func (p Permit) Report(f policy.Feedback) {
	if p.h != nil && p.h.s.l.learns {
		p.h.s.report(p, &f, false)
	}
}

// Correct says what the ask has really cost in a unit, in place of the estimate that Cost gave: what is more
// is owed and repaid before the next admission, what is less is given back at once, as far as the bucket has
// not been full since (then it has come back already), the window is still the same, and the limit and the
// pool have not changed. It may be called until the permit is released, each time with the whole cost. It
// fails, and changes nothing, for a negative cost, an unknown unit and a released permit.
//
// The unit "" are the requests of the permit, which can only become fewer: the rest is given back, with its
// slots at once, and to the rates as far as it cannot have come back by itself since. It takes a permit that
// is remembered: one of TryAcquireUpTo, or any under an in-flight limit or a policy that learns.
func (p Permit) Correct(unit string, used int) error {
	if p == dryPermit {
		return nil
	}
	if p.h == nil {
		return fmt.Errorf("quotient: Permit.Correct: the permit was taken without a Cost, and remembers nothing")
	}
	return p.h.s.correct(p, unit, used)
}

// ExpireIn sees to it that the permit is given back d from now at the latest, in place of
// what MaxHold said. Nothing runs at that instant: it is given back when somebody needs it,
// or when statistics are read. A d of 0 or less takes the end off.
func (p Permit) ExpireIn(d time.Duration) {
	if p.h != nil {
		p.h.s.expireIn(p, d)
	}
}

// permits is a shard's store of holdings. It grows by blocks, so that no growth copies
// anything under the lock, and never holds more than were out at once.
type permits struct {
	blocks []*[permitBlock]holding
	free   *holding
}

const permitBlock = 64

// take returns a free holding, now taken.
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

// out tells whether a permit holds h.
func (h *holding) out() bool { return h.gen%2 == 1 }

// hold makes the permit of an ask that g has admitted. Only what can be given back or
// corrected, or is to be learned from, is remembered.
func (s *shard) hold(g *gate, key string, d *demand, now time.Time) Permit {
	if !g.setting.holds && !d.priced && !d.kept {
		return Permit{}
	}
	h := s.takeHolding()
	h.gate, h.weight, h.slots, h.era = g, d.weight, 0, g.era()
	h.asked.n[0] = d.weight
	if g.setting.limit.InFlight > 0 {
		h.slots = int32(d.weight)
	}
	if d.priced {
		h.costs, h.asked.take = d.costs, g.more.takes
		copy(h.asked.n[1:], d.costs[:])
	}
	if len(g.setting.laws) > 0 {
		h.since = g.more.learned.latest // it has just been set to now
	} else if len(g.setting.rations) > 0 {
		h.since = now.Sub(s.l.base)
	}
	g.held++
	s.counts.inFlight += int64(h.weight)
	if s.l.watches || g == s.overflow {
		s.watch(h, key, now)
	}
	return Permit{h, h.gen}
}

// watch notes what only some permits need: a name in the overflow gate, a time, an end, a stack.
func (s *shard) watch(h *holding, key string, now time.Time) {
	h.key, h.named, h.since = key, true, now.Sub(s.l.base)
	if h.gate == s.overflow {
		h.gate.more.names[key]++
	}
	if s.l.maxHold > 0 {
		s.expire(h, after(h.since, s.l.maxHold))
	}
	if s.l.leakCheck != nil {
		h.stack = callers()
	}
}

// callers is the stack of the call that takes a permit.
func callers() *[16]uintptr {
	stack := new([16]uintptr)
	runtime.Callers(3, stack[:])
	return stack
}

// free takes the holding off its gate, and puts it away.
func (s *shard) free(h *holding) {
	g := h.gate
	if h.end != 0 {
		s.unexpire(h)
	}
	g.used -= h.slots
	if g.held--; g.held == 0 && g.more != nil {
		g.more.lows = nil
	}
	s.counts.inFlight -= int64(h.weight)
	h.asked.n[0] = 0
	if h.asked.take != 0 || h.added.take != 0 || h.costs != [maxUnits]int{} {
		h.costs, h.asked, h.added = [maxUnits]int{}, refundable{}, refundable{}
	}
	if h.named {
		if g == s.overflow {
			s.unname(h.key)
		}
		h.key, h.named, h.stack = "", false, nil
	}
	h.gate = nil // or it would keep alive all settings since
	h.gen++
	h.next, s.permits.free = s.permits.free, h
}

func (s *shard) finish(p Permit) {
	s.mu.Lock()
	h := p.h
	if h.gen != p.gen {
		s.counts.doubleReleases++
		s.mu.Unlock()
		return
	}
	g := h.gate
	s.free(h)
	if g.more == nil {
		s.mu.Unlock()
		return
	}
	s.serveAndUnlock(g)
}

// report hands feedback to the laws of the permit's gate; done also releases it.
func (s *shard) report(p Permit, f *policy.Feedback, done bool) {
	s.mu.Lock()
	h, fed := p.h, false
	g := h.gate
	defer func() {
		if fed {
			return
		}
		if done && h.gen == p.gen { // a law has panicked, and nobody else can give the slots back
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

// feed hands feedback to the gate's laws.
func (s *shard) feed(g *gate, h *holding, f *policy.Feedback) {
	if f.Outcome == policy.Throttled {
		s.counts.throttled++
	}
	if g.setting != s.setting {
		g.sync(s.setting)
	}
	st, l := g.setting, g.more.learned
	at := l.latest
	if f.Outcome != policy.Success || f.RetryAfter != 0 || f.Quotas[0].Limit != 0 || st.slotsLaw() >= 0 {
		at = s.tick(s.l.now()).Sub(st.origin) // else the clock would be half the price of a success
	}
	if l.stale(at) || l.overdue(at) {
		g.settle(st.origin.Add(at), nil)
	}
	l.latest = at
	l.hears(f, h, s.l.policy, st.laws)
	if st.slotsLaw() >= 0 {
		g.resize()
	}
}

func (s *shard) expireIn(p Permit, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := p.h
	if h.gen != p.gen {
		return
	}
	if h.end != 0 {
		s.unexpire(h)
	}
	if d > 0 {
		s.expire(h, after(s.tick(s.l.now()).Sub(s.l.base), d))
	}
}

// after is t + d without overflow.
func after(t, d time.Duration) time.Duration { return t + min(d, never-t) }

func (s *shard) expire(h *holding, end time.Duration) {
	m := h.gate.extra()
	h.end, h.place = end, int32(len(m.expiring))
	m.expiring = append(m.expiring, h)
	if len(m.expiring) == 1 || end < m.nextEnd {
		m.nextEnd = end
		if m.queue.head != nil {
			s.arm(h.gate, s.now) // who waits for slots may have these
		}
	}
}

// unexpire takes the holding off its gate's list; nextEnd stays, at worst too early.
func (s *shard) unexpire(h *holding) {
	m := h.gate.more
	last := m.expiring[len(m.expiring)-1]
	m.expiring[h.place] = last
	last.place = h.place
	m.expiring[len(m.expiring)-1] = nil
	m.expiring = m.expiring[:len(m.expiring)-1]
	h.end = 0
}

// reclaim gives back the gate's permits whose time is over. It looks only when the
// earliest end has come, so that its cost is shared by the permits that have one.
func (s *shard) reclaim(g *gate, now time.Time) {
	if g.more == nil || len(g.more.expiring) == 0 {
		return
	}
	at := now.Sub(s.l.base)
	if at < g.more.nextEnd {
		return
	}
	var over []*holding
	next := never
	for _, h := range g.more.expiring {
		if h.end <= at {
			over = append(over, h)
		} else if h.end < next {
			next = h.end
		}
	}
	g.more.nextEnd = next
	for _, h := range over {
		s.leaked(h, at)
		s.free(h)
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

// formatStack leaves out the limiter's own frames at its top.
func formatStack(pcs []uintptr) string {
	var b strings.Builder
	for frames := runtime.CallersFrames(pcs); ; {
		f, more := frames.Next()
		if f.Function != "" && (b.Len() > 0 || !ours(f.Function)) {
			fmt.Fprintf(&b, "%s %s:%d\n", f.Function, f.File, f.Line)
		}
		if !more {
			return b.String()
		}
	}
}

// ours tells whether a function is a method of a Limiter or of one of its shards.
func ours(function string) bool {
	_, method, _ := strings.Cut(function, "quotient.(*")
	return strings.HasPrefix(method, "Limiter).") || strings.HasPrefix(method, "shard).")
}
