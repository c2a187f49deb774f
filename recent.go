package quotient

import (
	"time"

	"github.com/quotient-go/quotient/internal/meter"
)

// recent counts the calls of a key that is being refused, span by span. It begins with a refusal, and ends when a call
// is admitted a minute after the last one. It is an observation, and not a part of what is left of a limit: a gate is
// idle with it as without, and is dropped with it.
type recent struct {
	spans [recentSpans]struct{ admitted, refused uint32 } // the newest first
	last  uint32                                          // number of the newest, since the limiter was made
}

const (
	recentSpan  = 10 * time.Second
	recentSpans = 6
)

// spansSince returns how many spans have begun since the newest, at most all.
func (r *recent) spansSince(t meter.Instant) int {
	return int(min(uint32(t.At/recentSpan)-r.last, recentSpans))
}

// turn makes the span of an instant the newest, and reports whether it was not. The instant is in no earlier one.
func (r *recent) turn(t meter.Instant) bool {
	n := r.spansSince(t)
	if n > 0 {
		copy(r.spans[n:], r.spans[:])
		clear(r.spans[:n])
		r.last = uint32(t.At / recentSpan)
	}
	return n > 0
}

// sum returns what the last minute has; nothing if that has no refusal.
func (r *recent) sum(t meter.Instant) (sum calls) {
	for _, span := range r.spans[:recentSpans-r.spansSince(t)] {
		sum.admitted += uint64(span.admitted)
		sum.refused += uint64(span.refused)
	}
	if sum.refused == 0 {
		return calls{}
	}
	return sum
}

// noted reports whether an admission by g counts for more than the limiter: for a plan, or for its key.
func (g *gate) noted(d *demand) bool { return d.plan != 0 || g.ext != nil && g.ext.recent != nil }

// recentNow is now for a key whose calls are counted by time: those for slots alone have read no clock.
func (s *shard) recentNow() meter.Instant {
	if s.l.clock.Load() == clockNone {
		return s.now()
	}
	return s.latest
}

// countAdmission counts a call that g has admitted.
func (s *shard) countAdmission(g *gate, d *demand) {
	s.counts.admitted++
	if d.plan != 0 || g.ext != nil { // little enough to be inlined
		s.countNoted(g, d)
	}
}

// countNoted counts an admission for its plan, and for a key that was refused.
func (s *shard) countNoted(g *gate, d *demand) {
	if d.plan != 0 {
		s.countPlan(d.plan, calls{admitted: 1})
	}
	if g.ext == nil || g.ext.recent == nil {
		return
	}
	r, now := g.ext.recent, s.recentNow()
	if r.turn(now) && r.sum(now) == (calls{}) {
		g.ext.recent = nil
		g.shrink()
		return
	}
	r.spans[0].admitted++
}

// countRefusal counts a call that is refused.
func (s *shard) countRefusal(g *gate, d *demand, why Reason) {
	s.counts.refused[why]++
	if d.plan != 0 {
		s.countPlan(d.plan, calls{refused: 1})
	}
	s.countHeldBack(g)
}

// countHeldBack counts for the key a call that is refused, or would be without a dry run.
func (s *shard) countHeldBack(g *gate) {
	switch {
	case g.ext == nil: // in one piece, since each admission looks at both
		x := new(struct {
			extension
			r recent
		})
		x.recent, g.ext = &x.r, &x.extension
	case g.ext.recent == nil:
		g.ext.recent = new(recent)
	}
	now := s.recentNow()
	g.ext.recent.turn(now)
	g.ext.recent.spans[0].refused++
	g.seen = ticksAt(now) // without a clock it was seen long ago
}

// calls are counts of them by how they have ended.
type calls struct{ admitted, refused uint64 }

func (c *calls) add(n calls) {
	c.admitted += n.admitted
	c.refused += n.refused
}

// planHere is what a shard has of a plan, by its place.
type planHere struct {
	unseen *gate  // of a key never seen; nil until it is asked for after a change
	id     planID // whose calls are counted
	calls         // that named it. In place 0 they named any plan, also one that has its place no more
}

// here returns what the shard has of the plan in a place, until it is asked for another one.
func (s *shard) here(place int) *planHere {
	for len(s.plans) <= place {
		s.plans = append(s.plans, planHere{})
	}
	return &s.plans[place]
}

// countPlan counts calls that named a plan. The calls of one that has given up its place are the limiter's own.
func (s *shard) countPlan(id planID, n calls) {
	if id = s.newest(id).plan; id == 0 {
		return
	}
	p := s.here(id.place())
	if p.id != id {
		p.id, p.calls = id, calls{}
	}
	p.add(n)
	s.plans[0].add(n)
}
