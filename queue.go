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
	queued              bool
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

// queue is a FIFO of waiters. Every operation is O(1), also a removal from the middle.
// The zero value is empty.
type queue struct {
	head, tail *waiter
	len        int
}

func (q *queue) push(w *waiter) {
	w.queued, w.prev = true, q.tail
	if q.tail != nil {
		q.tail.next = w
	} else {
		q.head = w
	}
	q.tail = w
	q.len++
}

func (q *queue) remove(w *waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		q.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		q.tail = w.prev
	}
	w.next, w.prev, w.queued = nil, nil, false
	q.len--
}
