package quotient

import (
	"fmt"
	"time"
)

// Priority is the class of an ask. It matters where callers wait: Acquire's queues serve higher classes first, and first in, first out
// within a class. An ask without one is PriorityNormal, the zero value.
//
// Nobody who stays in the queue starves: of any eight admissions of a key while callers wait, at least one goes to who has waited longest,
// whatever its class. When its turn has come so, all others wait behind it, also those of a higher class, until there is room for what it asks.
// When a queue is full (MaxWaiting), an ask of a higher class takes the place of the youngest waiter of the lowest class in it, which
// is refused with ReasonQueue: so the lowest class is refused first. An ask of a higher class than all who wait is admitted at once
// where there is room for it.
type Priority int8

// The classes, lowest first.
const (
	PriorityLow      Priority = iota - 1 // work that can wait: batches, prefetching
	PriorityNormal                       // the default
	PriorityHigh                         // somebody looks at a screen and waits
	PriorityCritical                     // health checks, and what keeps the rest going
)

const numClasses = int(PriorityCritical-PriorityLow) + 1

// trickle is the number of admissions of which at least one goes to who has waited longest.
const trickle = 8

var priorityNames = [numClasses]string{"low", "normal", "high", "critical"}

func (p Priority) valid() bool { return p >= PriorityLow && p <= PriorityCritical }

// Ask makes a call of this class. The last one of a call counts. One that is none of the four classes makes the ask not valid. It allocates
// nothing.
func (p Priority) Ask() Ask { return Ask{n: int(p), kind: askClass} }

// String returns low, normal, high or critical; invalid for anything else.
func (p Priority) String() string {
	if !p.valid() {
		return "invalid"
	}
	return priorityNames[p-PriorityLow]
}

// ParsePriority is the class of a name as String spells it.
func ParsePriority(name string) (Priority, error) {
	for i, n := range priorityNames {
		if n == name {
			return PriorityLow + Priority(i), nil
		}
	}
	return 0, fmt.Errorf("quotient: Priority: %.40q is not one of %q", name, priorityNames)
}

// next is who is served next: the first of the highest class, or, when seven admissions have gone past somebody older, the oldest of
// all. Nobody overtakes it because it asks for more, or the large ones would starve.
func (q *queue) next() *waiter {
	if q.passed < trickle-1 {
		return q.head
	}
	return q.oldest()
}

// oldest is who has waited longest; nil in an empty queue. It is the first of its class.
func (q *queue) oldest() *waiter {
	oldest := q.head
	for w := oldest; w != nil; w = q.last[w.d.class-PriorityLow].next {
		if w.older(oldest) {
			oldest = w
		}
	}
	return oldest
}

// older tells whether w came before o.
func (w *waiter) older(o *waiter) bool {
	return w.since < o.since || w.since == o.since && int32(w.order-o.order) < 0
}

// served counts an admission of w, before it leaves the queue.
func (q *queue) served(w *waiter) {
	if q.oldest() == w {
		q.passed = 0
	} else {
		q.passed++
	}
}

// yields tells whether all who wait are of a lower class, and none of them has its turn for having waited long.
func (q *queue) yields(class Priority) bool {
	return q.head.d.class < class && q.passed < trickle-1
}

// expendable is who gives up its place to one of a class when the queue is full: the youngest of the lowest class below; nil for nobody.
func (q *queue) expendable(class Priority) *waiter {
	for c := PriorityLow; c < class; c++ {
		if w := q.last[c-PriorityLow]; w != nil {
			return w
		}
	}
	return nil
}

// behind tells whether an ask of a class must stand behind somebody. One that need not overtakes all who wait, which counts, and which
// overtaken has to follow.
func (g *gate) behind(class Priority) bool {
	return g.waited() && !g.more.queue.yields(class)
}

// overtaken sees to those who wait after somebody was admitted past them and has its permit: another one may be next now, or slots
// may have come free that were held for too long.
func (s *shard) overtaken(g *gate) {
	if g.waited() {
		s.ask(g, s.now)
	}
}

// dismiss refuses w in favour of others, and tells it when its turn would come behind them.
func (s *shard) dismiss(g *gate, w *waiter, r Reason, now time.Time) {
	s.dequeue(g, w)
	v := g.turnOf(now, &w.d)
	v.reason = r
	s.counts.refused[r]++
	w.refused = v
	w.ready <- struct{}{}
}

// full is why a queue without room refuses.
func (s *shard) full(g *gate) Reason {
	if g == s.overflow {
		return ReasonKeys
	}
	return ReasonQueue
}

// impatient tells that w has waited for MaxWait.
func (s *shard) impatient(w *waiter, now time.Time) bool {
	return s.l.maxWait > 0 && now.Sub(s.l.base)-w.since >= s.l.maxWait
}
