package quotient

import "time"

// waiter is one caller that waits in a queue. Everything but ready is guarded by the shard's lock until ready
// has been sent to; from then on it is the caller's.
type waiter struct {
	next, prev *waiter
	ready      chan struct{} // holds one: sent to exactly once, when admitted or refused
	key        string
	d          demand
	permit     Permit
	refused    Decision // why it was refused; zero when admitted
	// Each an instant.at: when it was queued, could have been admitted, and was.
	since, due, granted time.Duration
	epoch               uint16        // of the gate when it was admitted
	firstDue            time.Duration // due of the first turn that it has lost; 0: it has lost none
	slotEnds            time.Duration // a caller that wakes after it has lost the turn; 0: it cannot
	queued              bool
	dry                 Reason // what stood in its way, when only a dry run has admitted it
	lostTurns           uint8
	order               uint32 // among those of one instant, going round
}

func newWaiter(d demand) *waiter {
	return &waiter{d: d, ready: make(chan struct{}, 1)}
}

// older reports whether w came before o.
func (w *waiter) older(o *waiter) bool {
	return w.since < o.since || w.since == o.since && int32(w.order-o.order) < 0
}

// rejectBatch is how many waiters are looked at in one hold of a lock for those that cannot be admitted any
// more, and wakeBatch how many are served or refused.
const (
	rejectBatch = 512
	wakeBatch   = 64
)

// hopeless looks at some waiters from one on, or from the head if that one waits no more. It returns those
// that can never be admitted, and the waiter to go on with, nil at the end.
func (q *queue) hopeless(from *waiter, refuses func(*waiter) verdict) (ws []*waiter, next *waiter) {
	if from == nil || !from.queued {
		from = q.head
	}
	w := from
	for n := 0; w != nil && n < rejectBatch && len(ws) < wakeBatch; n++ {
		if v := refuses(w); v.reason != ReasonNone {
			ws = append(ws, w)
		}
		w = w.next
	}
	return ws, w
}

// trickle is the number of admissions of which at least one goes to the waiter that has waited longest.
const trickle = 8

// queue is a FIFO of waiters for each class, in one list: higher classes first. Every operation is O(1), also
// a removal from the middle. The zero value is empty.
type queue struct {
	head   *waiter
	last   [numClasses]*waiter // of each class, the lowest first
	len    int
	passed uint8 // admissions past an older waiter, since the oldest had its turn; see next
}

// push queues w behind all of its class.
func (q *queue) push(w *waiter) { q.insert(w, q.before(w.d.class)) }

// before returns the last of those that stand before one of a class that comes now; nil for none.
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

// next returns the waiter that is served next: the first of the highest class, or, when seven admissions have
// gone past an older one, the oldest of all. None overtakes it because it asks for more, or the large ones
// would starve.
func (q *queue) next() *waiter {
	if q.passed < trickle-1 {
		return q.head
	}
	return q.oldest()
}

// oldest returns the waiter that has waited longest; nil in an empty queue. It is the first of its class.
func (q *queue) oldest() *waiter {
	oldest := q.head
	for w := oldest; w != nil; w = q.last[w.d.class-PriorityLow].next {
		if w.older(oldest) {
			oldest = w
		}
	}
	return oldest
}

// served counts an admission of w, before it leaves the queue.
func (q *queue) served(w *waiter) {
	if q.oldest() == w {
		q.passed = 0
	} else {
		q.passed++
	}
}

// canOvertake reports whether all who wait are of a lower class, and none of them has its turn for having
// waited long.
func (q *queue) canOvertake(class Priority) bool {
	return q.head.d.class < class && q.passed < trickle-1
}

// victim returns the waiter that gives up its place to one of a class when the queue is full: the youngest of
// the lowest class below; nil for none.
func (q *queue) victim(class Priority) *waiter {
	for c := PriorityLow; c < class; c++ {
		if w := q.last[c-PriorityLow]; w != nil {
			return w
		}
	}
	return nil
}

// requeue queues w, which has lost its turn, before all of its class but those that came before it and have
// lost theirs too.
func (q *queue) requeue(w *waiter) {
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

// maxLost is how many turns one caller loses. The next one is taken however late, or a slow machine would
// never act.
//
// Permits of slow paced rates expire: the scheduler, the process or the machine may be stopped, so that a
// caller wakes long after its turn. If it acted then, its event would come close to that of the next turn:
// two events where the rate allows one. So it loses the turn, whose instant is gone, and is queued again
// before all others of its class. The tolerance is a tenth of the interval, which is how long a replica's
// turn lasts (turn.go). No scheduler can be held to less than a tenth of a second, so shorter intervals are
// left alone.
const maxLost = 3

// slotEnd returns the instant.at after which w has lost the turn that it was just given; 0: never.
func (st *setting) slotEnd(w *waiter) time.Duration {
	grace := never
	for i := range st.rules {
		if r := &st.rules[i]; r.grace > 0 && w.d.of(r.unitID) > 0 {
			grace = min(grace, r.grace)
		}
	}
	if w.lostTurns >= maxLost || grace == never {
		return 0
	}
	return w.granted + grace
}
