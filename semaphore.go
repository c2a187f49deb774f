package quotient

import (
	"math"
	"time"

	"github.com/quotient-go/quotient/internal/meter"
)

// The slots of a key are a semaphore that its gate keeps: Limit.InFlight says how many there are in the
// fleet, slots how many of them this replica has, gate.used how many are taken, and the gate's queue holds
// those who wait for one. A permit takes as many as its weight and gives them back once.

// slots divides the in-flight limit. The remainder goes to the lowest ordinals, one each,
// and only when the ordinals are fixed: two replicas that hold the same one would exceed the limit.
// Without one a replica has what the highest ordinals have, which is the least.
func (o *options) slots(global int, pool Pool) int {
	w, before := pool.weight(), pool.Replicas-pool.weight()
	if pool.Fixed && pool.Ordinal > 0 {
		before = pool.Ordinal - 1
	}
	share := global/pool.Replicas*w + min(max(0, global%pool.Replicas-before), w)
	if share == 0 && o.atLeastOne {
		share = 1
	}
	return share
}

// slotRule is this replica's part of an in-flight limit.
func slotRule(global, here int) rule {
	return rule{
		id: id{name: inFlightRule, role: roleSlots}, kind: kindSlots, reason: ReasonInFlight, ctrl: noController,
		limit: float64(global), share: float64(here), most: global, here: here,
		Rule: meter.Rule{Fill: meter.Fill{Size: float64(here)}},
	}
}

// keySlots is the resource of an in-flight rule: the slots that are not in use. When their number falls below
// what is taken, nothing is revoked: the debt drains with the releases.
type keySlots gate

func (s *keySlots) Until(_ meter.Instant, r *meter.Rule, _ time.Duration, _, n float64) time.Duration {
	if n > r.Size-float64(s.used) {
		return meter.Never
	}
	return 0
}

func (s *keySlots) Take(_ meter.Instant, _ *meter.Rule, n float64) { s.used += int32(n) }
func (s *keySlots) UpTo(_ meter.Instant, r *meter.Rule, n int) int {
	return min(n, int(r.Size)-int(s.used))
}

func (s *keySlots) Left(_ meter.Instant, r *meter.Rule) (events, of float64, full time.Duration) {
	return r.Size - float64(s.used), r.Size, 0
}

func (s *keySlots) Refund(meter.Instant, time.Duration, *meter.Rule, float64) {} // a permit gives them back
func (s *keySlots) Age(meter.Instant, *meter.Rule) time.Duration              { return meter.Never }
func (s *keySlots) State(meter.Instant, *meter.Rule) meter.State {
	return meter.State{Used: int64(s.used)}
}

// keyControllerSlots bounds slots by the whole ones that a controller has learned. When nothing is in flight
// more may be taken, or a call might wait for ever.
type keyControllerSlots gate

func (s *keyControllerSlots) Until(_ meter.Instant, _ *meter.Rule, _ time.Duration, _, n float64) time.Duration {
	if s.used > 0 && n > float64(s.ext.learned.slots-int(s.used)) {
		return meter.Never
	}
	return 0
}

func (s *keyControllerSlots) UpTo(_ meter.Instant, _ *meter.Rule, n int) int {
	return min(n, s.ext.learned.slots-int(s.used))
}

func (s *keyControllerSlots) Left(meter.Instant, *meter.Rule) (events, of float64, full time.Duration) {
	return float64(s.ext.learned.slots - int(s.used)), float64(s.ext.learned.slots), 0
}

func (s *keyControllerSlots) Take(meter.Instant, *meter.Rule, float64)                  {} // slots take
func (s *keyControllerSlots) Refund(meter.Instant, time.Duration, *meter.Rule, float64) {}
func (s *keyControllerSlots) Age(meter.Instant, *meter.Rule) time.Duration              { return meter.Never }
func (s *keyControllerSlots) State(meter.Instant, *meter.Rule) meter.State              { return meter.State{} }

// resize sets the number of slots by the last controller, if that is one of slots. It is one above the whole
// slots of the pace: the controller's bucket keeps the mean below that, and a slot that waits for its round
// trip is not missing.
func (l *learned) resize(st *setting) {
	if !st.timesHolds {
		return
	}
	last := len(st.ctrls) - 1
	l.slots = int(min(st.ctrls[last].bounds.Ceiling, math.Floor(min(l.pacers[last].pace, maxInFlight))+1))
}

// warnOfSlots logs each limit that has fewer slots than replicas, and none here.
func (l *Limiter) warnOfSlots() {
	for _, short := range l.withoutSlots() {
		log := l.log
		if short.name != "" {
			log = log.With("plan", short.name)
		}
		log.Warn("no slot here: what asks under this limit is refused", "in_flight", short.limit.InFlight)
	}
}

// withoutSlots are the limits, the limiter's own and those of its plans, that have slots and none of them here.
func (l *Limiter) withoutSlots() (short []namedLimit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.belief.awaits {
		return nil
	}
	for _, st := range l.inForce.settings() {
		if st.limit.InFlight > 0 && st.slots == 0 && (st.plan == 0 || st.planName != "") {
			short = append(short, namedLimit{name: st.planName, limit: st.limit})
		}
	}
	return short
}

// slotEnd returns the instant.at after which w has lost the turn that it was just given; 0: never.
func (st *setting) slotEnd(w *waiter) time.Duration {
	grace := meter.Never
	for i := range st.rules {
		if r := &st.rules[i]; r.grace > 0 && w.d.of(r.unitID) > 0 {
			grace = min(grace, r.grace)
		}
	}
	if w.lostTurns >= maxLost || grace == meter.Never {
		return 0
	}
	return w.granted + grace
}
