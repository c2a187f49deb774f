package quotient

import (
	"cmp"
	"time"
)

// Permits of slow paced rates expire. A caller that was given its turn and wakes long after it (the scheduler was busy, the process or
// the machine was stopped) would act close to, or at, the instant of the next turn: two events where the rate allows one. So it
// loses the turn, whose instant is gone, and is queued again before all others of its class. The tolerance is a tenth of the interval, as long
// as a replica's turn lasts (turn.go); below a tenth of a second no scheduler can be held to it, so shorter intervals are left alone.
const (
	leastPaced = time.Second // the shortest interval whose permits expire
	mostLost   = 3           // turns that one caller loses; the next is taken however late, or a slow machine would never act
)

// graceOf is how late the caller of a rate may wake; 0 is as late as it likes.
func graceOf(r Rate) time.Duration {
	interval := float64(r.Per) / r.Events
	if r.Burst != 1 || r.Aligned || interval < float64(leastPaced) {
		return 0
	}
	return time.Duration(min(interval*turnPart, float64(longWait)))
}

// lapse is the instant, from Limiter.base, after which w has lost the turn that it was just given; 0: never.
func (st *setting) lapse(w *waiter) time.Duration {
	if w.lost >= mostLost {
		return 0
	}
	grace := time.Duration(0)
	for i := range st.rations {
		r := &st.rations[i]
		if r.grace > 0 && w.d.of(r.unitID) > 0 && (grace == 0 || r.grace < grace) {
			grace = r.grace
		}
	}
	if grace == 0 {
		return 0
	}
	return w.granted + grace
}

// overslept tells that w was admitted, and has woken too late.
func (s *shard) overslept(w *waiter) bool {
	return w.lapses > 0 && time.Since(s.l.base) > w.lapses
}

// again queues what w asks for anew, at the head of its class and even if the queue is full. Its slots come back; its events are
// spent. The key is looked up anew, since its gate may have been dropped in so long a time.
func (s *shard) again(w *waiter) (*gate, *waiter) {
	s.mu.Lock()
	now := s.tick(s.l.now())
	g := s.gate(w.key, now)
	if h := w.permit.h; h != nil && h.gen == w.permit.gen {
		s.free(h)
	}
	s.counts.expired++
	n := newWaiter(w.d)
	n.key, n.stack, n.since, n.order, n.lost, n.was = w.key, w.stack, w.since, w.order, w.lost+1, cmp.Or(w.was, w.due)
	s.l.waiting.Add(1)
	s.enqueue(g, n, now)
	if v := g.setting.refuses(&n.d); n.queued && v.reason != ReasonNone {
		s.refuse(g, n, v)
	}
	s.serveAndUnlock(g)
	return g, n
}

// putBack queues w, which has lost its turn, before all of its class but those who came before it and have lost theirs too.
func (q *queue) putBack(w *waiter) {
	var behind *waiter
	if w.d.class < PriorityCritical {
		behind = q.before(w.d.class + 1)
	}
	next := q.head
	if behind != nil {
		next = behind.next
	}
	for next != nil && next.d.class == w.d.class && next.older(w) {
		behind, next = next, next.next
	}
	q.insert(w, behind)
}
