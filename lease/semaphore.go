package lease

import (
	"time"
)

// semaphore is the locks of one name, held and pending.
type semaphore struct {
	name              string
	max, level        int64
	gone              bool // not in the configuration any more; it has holders
	acquired, waiting int64
	held, pending     list // in the order of granting, and of asking
	totals            Totals
}

// list is a doubly linked list of locks, oldest first.
type list struct {
	front, back *lock
	len         int
}

func (q *list) push(l *lock) {
	l.prev, l.next = q.back, nil
	if q.back == nil {
		q.front = l
	} else {
		q.back.next = l
	}
	q.back = l
	q.len++
}

func (q *list) remove(l *lock) {
	if l.prev == nil {
		q.front = l.next
	} else {
		l.prev.next = l.next
	}
	if l.next == nil {
		q.back = l.prev
	} else {
		l.next.prev = l.prev
	}
	l.prev, l.next = nil, nil
	q.len--
}

// unlink takes a lock out of the semaphore's lists and sums.
func (s *semaphore) unlink(l *lock, now time.Time) {
	if l.token == 0 {
		s.pending.remove(l)
		s.waiting -= l.count
		return
	}
	s.held.remove(l)
	s.acquired -= l.count
	s.totals.Hold.observe(now.Sub(l.since))
}

// grants reports whether locks may be granted now: not in the grace time, and not without a token.
func (t *Table) grants() bool { return t.grace.IsZero() && t.tokens.Next < t.tokens.End }

// grant gives a lock that is in no list to its peer.
func (t *Table) grant(l *lock, now time.Time) {
	s := l.semaphore
	s.totals.Granted++
	s.totals.Wait.observe(now.Sub(l.since))
	l.token, l.since = t.tokens.Next, now
	t.tokens.Next++
	s.acquired += l.count
	s.held.push(l)
}

// dispatch grants the locks at the head of the queue that fit. It stops at the first that does not.
func (t *Table) dispatch(s *semaphore, now time.Time) {
	for l := s.pending.front; l != nil && t.grants() && s.acquired+l.count <= s.max; l = s.pending.front {
		s.pending.remove(l)
		s.waiting -= l.count
		t.grant(l, now)
		t.notify(l.peer)
	}
}

func (t *Table) dispatchAll(now time.Time) {
	for _, name := range t.config.names() {
		t.dispatch(t.semaphores[name], now)
	}
}

// Totals count what has happened to one semaphore since the Table was made, in locks.
type Totals struct {
	Granted  uint64 // not those restored
	Released uint64 // by their holder
	Expired  uint64 // with their holder
	Broken   uint64 // by an operator
	Restored uint64
	Beyond   uint64    // of those restored: beyond the maximum
	Wait     Histogram // from asking to granting
	Hold     Histogram // from granting or restoring to the end
}

// Bounds are the upper bounds of a Histogram's buckets. Their steps are our choice: from what HTTP takes to an hour.
var Bounds = [...]time.Duration{
	time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second,
	time.Minute, 10 * time.Minute, time.Hour,
}

// Histogram counts durations. The zero value has counted none.
type Histogram struct {
	Buckets [len(Bounds)]uint64 // of at most Bounds[i], and above Bounds[i-1]
	Count   uint64
	Sum     float64 // seconds: nanoseconds of 10,000 holders would overflow in ten days
}

func (h *Histogram) observe(d time.Duration) {
	h.Count++
	h.Sum += d.Seconds()
	for i, bound := range Bounds {
		if d <= bound {
			h.Buckets[i]++
			return
		}
	}
}

// SemaphoreStats is one semaphore at an instant.
type SemaphoreStats struct {
	Name              string
	Semaphore               // of the configuration; the last one where Gone
	Gone              bool  // no longer in the configuration, but held
	Acquired, Pending int64 // sums of counts
	Holders, Waiters  int
	LongestPending    time.Duration // how long the first of the queue has waited
	Totals            Totals
}

// Stats returns every semaphore, in no order. It takes O(n) of them.
func (t *Table) Stats(now time.Time) []SemaphoreStats {
	t.Advance(now)
	all := make([]SemaphoreStats, 0, len(t.semaphores))
	for _, s := range t.semaphores {
		all = append(all, s.stats(now))
	}
	return all
}

func (s *semaphore) stats(now time.Time) SemaphoreStats {
	st := SemaphoreStats{
		Name: s.name, Semaphore: Semaphore{s.max, s.level}, Gone: s.gone,
		Acquired: s.acquired, Pending: s.waiting, Holders: s.held.len, Waiters: s.pending.len,
		Totals: s.totals,
	}
	if first := s.pending.front; first != nil {
		st.LongestPending = now.Sub(first.since)
	}
	return st
}

// Lock is one lock at an instant.
type Lock struct {
	Peer    uint64
	Count   int64
	Token   uint64    // 0: pending
	Since   time.Time // held or pending since
	Expires time.Time // with its peer
}

// Locks returns the oldest locks of a semaphore, at most so many that are held and so many that are pending,
// oldest first. It returns at most 10,000 of each. It reports whether there is such a semaphore.
func (t *Table) Locks(name string, most int, now time.Time) (held, pending []Lock, ok bool) {
	t.Advance(now)
	s := t.semaphores[name]
	if s == nil {
		return nil, nil, false
	}
	return s.held.copy(most), s.pending.copy(most), true
}

func (q *list) copy(most int) []Lock {
	most = max(0, min(most, q.len, maxListed))
	locks := make([]Lock, 0, most)
	for l := q.front; l != nil && len(locks) < most; l = l.next {
		locks = append(locks, l.show())
	}
	return locks
}

func (l *lock) show() Lock { return Lock{l.peer.id, l.count, l.token, l.since, l.peer.expires} }
