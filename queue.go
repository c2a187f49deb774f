package quotient

import "time"

// waiter is one caller that waits in a queue. Everything but ready is guarded by the lock
// of the queue's owner until ready has been sent to; from then on it is the caller's.
type waiter struct {
	next, prev *waiter
	ready      chan struct{} // holds one: sent to exactly once, when admitted or refused
	key        string
	d          demand
	permit     Permit
	refused    verdict      // why it was refused; zero when admitted
	stack      *[16]uintptr // of the caller, for LeakCheck
	// From Limiter.base: when it was queued, could have been admitted, and was.
	since, due, granted time.Duration
	era                 uint64        // of the gate when it was admitted
	was                 time.Duration // due, the first time, of who has lost a turn; 0: nobody has
	lapses              time.Duration // likewise: who wakes later has lost the turn; 0: never
	queued              bool
	dry                 Reason // what stood in its way, when only a dry run has admitted it
	lost                uint8  // turns; see expiry.go
	order               uint32 // among those of one instant, going round
}

func newWaiter(d demand) *waiter {
	return &waiter{d: d, ready: make(chan struct{}, 1)}
}

// weedBatch is how many waiters are looked at in one hold of a lock for those that cannot be admitted any more.
const weedBatch = 512

// unfit looks at some waiters from one on, or from the head if that one waits no more. It returns those that can never
// be admitted, and the waiter to go on with, nil at the end.
func (q *queue) unfit(from *waiter, refuses func(*demand) verdict) (ws []*waiter, next *waiter) {
	if from == nil || !from.queued {
		from = q.head
	}
	w := from
	for n := 0; w != nil && n < weedBatch && len(ws) < wakeBatch; n++ {
		if v := refuses(&w.d); v.reason != ReasonNone {
			w.refused = v
			ws = append(ws, w)
		}
		w = w.next
	}
	return ws, w
}

// queue is a FIFO of waiters for each class, in one list: higher classes first. Every operation is O(1), also a removal from
// the middle. The zero value is empty.
type queue struct {
	head   *waiter
	last   [numClasses]*waiter // of each class, the lowest first
	len    int
	passed uint8 // admissions past somebody older, since the oldest had its turn; see next
}

// push queues w behind all of its class.
func (q *queue) push(w *waiter) { q.insert(w, q.before(w.d.class)) }

// before is the last of those that stand before who comes now, of a class; nil when nobody does.
func (q *queue) before(class Priority) *waiter {
	for c := class; c <= PriorityCritical; c++ {
		if w := q.last[c-PriorityLow]; w != nil {
			return w
		}
	}
	return nil
}

// insert puts w behind another one, or to the front.
func (q *queue) insert(w, behind *waiter) {
	next := q.head
	if behind != nil {
		next = behind.next
		behind.next = w
	} else {
		q.head = w
	}
	w.prev, w.next, w.queued = behind, next, true
	if next != nil {
		next.prev = w
	}
	if next == nil || next.d.class != w.d.class {
		q.last[w.d.class-PriorityLow] = w
	}
	q.len++
}

func (q *queue) remove(w *waiter) {
	if last := &q.last[w.d.class-PriorityLow]; *last == w {
		*last = nil
		if w.prev != nil && w.prev.d.class == w.d.class {
			*last = w.prev
		}
	}
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		q.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	}
	w.next, w.prev, w.queued = nil, nil, false
	if q.len--; q.len == 0 {
		q.passed = 0
	}
}
