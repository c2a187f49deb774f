package lease

import "time"

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
