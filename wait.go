package quotient

import (
	"cmp"
	"context"
	"runtime"
	"time"

	"github.com/quotient-go/quotient/internal/meter"
)

// waitDry admits in a dry run a call that would have to wait: by what it lacks, or because there is room by now.
func (s *shard) waitDry(g *gate, key string, d *demand, now meter.Instant) Permit {
	v := s.try(g, d)
	if v.reason == ReasonNone {
		s.countAdmission(g, d)
		return s.hold(g, key, d)
	}
	s.admitDry(g, d, v.reason)
	return dryPermit
}

// line queues d, unless it must not wait, and returns its place.
func (s *shard) line(
	ctx context.Context, g *gate, key string, d demand, now meter.Instant,
) (*waiter, error) {
	turn := g.waitBehind(now, &d)
	out, v := s.mayWait(ctx, g, &d, now, turn)
	if v.reason != ReasonNone {
		s.countRefusal(g, &d, v.reason)
		return nil, &LimitedError{key, s.refusal(g, &d, v)}
	}
	w := s.l.newWaiter(d)
	w.key, w.since = key, now.At
	if out != nil {
		out.pinned = true // it may be admitted below, and then its caller goes on without the lock
	}
	s.enqueue(g, w, now)
	if out != nil && out.queued {
		s.preempt(g, out, s.fullReason(g), now)
		s.ask(g, now)
	}
	return w, nil
}

// mayWait returns why d must not be queued, if so. Otherwise it has counted d as waiting, and returns the
// waiter that is to give up its place for it.
func (s *shard) mayWait(
	ctx context.Context, g *gate, d *demand, now meter.Instant, turn verdict,
) (out *waiter, v verdict) {
	if v := g.setting.refuses(d); v.reason != ReasonNone {
		return nil, v
	}
	refuse := func(r Reason) (*waiter, verdict) { return nil, verdict{r, turn.rule, turn.wait} }
	if g.waited() {
		out = g.ext.queue.victim(d.class)
	}
	full := g.waiters() >= s.l.perKey
	if full && out == nil {
		return refuse(s.fullReason(g))
	}
	if g.knows(now, turn) {
		if s.l.maxWait > 0 && turn.wait > s.l.maxWait {
			return refuse(ReasonWait)
		}
		if end, ok := ctx.Deadline(); ok && turn.wait > end.Sub(s.l.base.Add(now.At)) {
			return refuse(ReasonDeadline)
		}
	}
	if s.l.waiting.Add(1) > int64(s.l.total) {
		full = true
	}
	if full && out == nil {
		s.l.waiting.Add(-1)
		return refuse(s.fullReason(g))
	}
	if !full {
		out = nil
	}
	return out, verdict{}
}

// knows reports whether a turn is known: there is one, and no controller wants to be called before it.
func (g *gate) knows(now meter.Instant, turn verdict) bool {
	p := g.pacerOf(turn)
	return turn.wait < meter.Never && (p == nil || p.expires <= 0 || turn.wait <= p.expires-now.At)
}

// fullReason returns why a queue without room refuses.
func (s *shard) fullReason(g *gate) Reason {
	if s.overflow.is(g) {
		return ReasonKeys
	}
	return ReasonQueue
}

func (s *shard) enqueue(g *gate, w *waiter, now meter.Instant) {
	m := g.extend()
	if m.backlog == nil {
		m.backlog = new(backlog)
	}
	if w.lostTurns > 0 {
		m.queue.requeue(w)
	} else {
		m.queue.push(w)
		s.counts.waited++
		w.order = uint32(s.counts.waited)
	}
	m.backlog.add(&w.d, 1)
	if s.overflow.is(g) {
		s.overflow.enter(w.key)
	}
	if m.queue.len == 1 {
		s.waiting[g] = struct{}{}
	}
	if m.queue.next() == w {
		s.ask(g, now)
	}
}

// ask serves the queue when another one is its next. The timer does the rest.
func (s *shard) ask(g *gate, now meter.Instant) {
	if s.serve(g, now) && g.waited() {
		g.ext.ready.at, g.ext.ready.known = s.latest.At, true
		s.arm(g, s.latest)
	}
}

// recheck serves the queue after a caller was admitted past it and has its permit. The next waiter may be
// another one now, or slots that were held for too long may have come free.
func (s *shard) recheck(g *gate) {
	if g.waited() {
		s.ask(g, s.now()) // a call for slots alone has read no clock, and a timer is set from now on
	}
}

// dequeue takes w off the queue, wherever it stands.
func (s *shard) dequeue(g *gate, w *waiter) {
	m := g.ext
	m.queue.remove(w)
	m.backlog.add(&w.d, -1)
	s.l.waiting.Add(-1)
	if s.overflow.is(g) {
		s.overflow.leave(w.key)
	}
	if m.queue.len > 0 {
		return
	}
	delete(s.waiting, g)
	g.seen = ticksAt(s.now()) // its key was in use until now
	if m.timer != nil {
		m.timer.Stop()
	}
	m.timer, m.backlog, m.ready, m.timed = nil, nil, ready{}, false
	g.shrink()
}

// serve admits the next for as long as there is room, at most wakeBatch, and reports whether there may be
// more to do. Otherwise the gate's timer is set for the next.
func (s *shard) serve(g *gate, now meter.Instant) bool {
	for range wakeBatch {
		if !g.waited() {
			return false
		}
		w := g.ext.queue.next()
		s.enter(g, w.d.plan, now)
		v := s.admit(g, &w.d)
		now = s.latest // admit may have read the clock again
		switch {
		case v.reason == ReasonNone:
			s.grant(g, w, now)
		case s.l.dry.Load():
			s.releaseDry(g, w, v)
		case v.final():
			s.refuse(g, w, v)
		case s.impatient(w, now):
			v.reason = ReasonWait
			s.refuse(g, w, v)
		case s.impatient(g.ext.queue.oldest(), now):
			s.preempt(g, g.ext.queue.oldest(), ReasonWait, now)
		default:
			s.schedule(g, v, now)
			return false
		}
	}
	return true
}

func (s *shard) grant(g *gate, w *waiter, now meter.Instant) {
	w.due, w.granted = s.dueAt(g, w, now), now.At
	w.slotEnds, w.epoch, w.noted = g.setting.slotEnd(w), g.epoch, g.noted(&w.d)
	g.ext.ready.given = true
	w.permit = s.hold(g, w.key, &w.d)
	g.ext.queue.served(w)
	s.dequeue(g, w)
	w.ready <- struct{}{}
}

// dueAt returns when w, which has just been admitted, could have been. If the timer was late, that is the
// turn for which it was set; for the waiters behind, it is when what they have taken was there as well. A
// call waits for its tokens and slots by the limit's intent. Any further delay, because a timer or the
// caller was late, is overhead. OnAdmit reports the two separately.
func (s *shard) dueAt(g *gate, w *waiter, now meter.Instant) time.Duration {
	turn := g.ext.ready
	if !turn.known || turn.at >= now.At {
		return now.At
	}
	due := turn.at
	if turn.given {
		due = max(due, now.At-g.age(now, &w.d))
	}
	return max(due, w.since)
}

func (s *shard) refuse(g *gate, w *waiter, v verdict) {
	s.countRefusal(g, &w.d, v.reason)
	w.refused = &LimitedError{w.key, s.refusal(g, &w.d, v)}
	s.dequeue(g, w)
	w.ready <- struct{}{}
}

// preempt refuses w in favour of others. The refusal has the time at which its turn would come behind them.
func (s *shard) preempt(g *gate, w *waiter, r Reason, now meter.Instant) {
	s.dequeue(g, w)
	v := g.waitBehind(now, &w.d)
	v.reason = r
	s.countRefusal(g, &w.d, r)
	w.refused = &LimitedError{w.key, s.refusal(g, &w.d, v)}
	w.ready <- struct{}{}
}

// releaseDry ends a wait that a dry run would not have begun.
func (s *shard) releaseDry(g *gate, w *waiter, v verdict) {
	w.dry, w.due, w.granted, w.permit = v.reason, s.latest.At, s.latest.At, dryPermit
	s.dequeue(g, w)
	w.ready <- struct{}{}
}

// impatient reports whether w has waited for MaxWait.
func (s *shard) impatient(w *waiter, now meter.Instant) bool {
	return s.l.maxWait > 0 && now.At-w.since >= s.l.maxWait
}

// schedule notes when the next one's turn comes and arms the timer.
func (s *shard) schedule(g *gate, v verdict, now meter.Instant) {
	at := meter.After(now.At, g.pacerOf(v).wakes(now.At, v.wait))
	g.ext.blocked, g.ext.ready = v.reason, ready{at: at, known: v.wait < meter.Never}
	s.arm(g, now)
}

// arm sets the gate's one timer to the next instant at which the queue must be served. That is the turn of
// the next waiter, the end of the oldest one's patience, or the end of a permit's time. MaxWait is one value
// for the limiter, so the patience of the oldest ends first.
func (s *shard) arm(g *gate, now meter.Instant) {
	m, at := g.ext, meter.Never
	if m.ready.known {
		at = m.ready.at
	}
	if s.l.maxWait > 0 {
		at = min(at, meter.After(m.queue.oldest().since, s.l.maxWait))
	}
	if l := m.learned; l != nil {
		if l.due != 0 {
			at = min(at, l.due) // the rates change then
		}
		if first := l.firstExpiry(); first != 0 && !g.setting.awaiting { // else no controller is called
			at = min(at, first)
		}
	}
	if len(m.expiring) > 0 && m.blocked == ReasonInFlight {
		at = min(at, m.nextEnd)
	}
	switch {
	case at == meter.Never: // a release will tell
		if m.timer != nil {
			m.timer.Stop()
		}
	case m.timer == nil:
		m.timer = time.AfterFunc(at-now.At, func() {
			s.mu.Lock()
			s.counts.fired++
			s.serveAndUnlock(g)
		})
	default:
		m.timer.Reset(at - now.At)
	}
}

// slotsAlone reports whether slots alone decide on a gate's queue, and no rule, no patience and none of those
// that wait (timed) counts time. Then no clock is read for a wait: it is a tenth of what the wait costs.
func (s *shard) slotsAlone(g *gate, timed bool) bool {
	st := g.setting
	return st.slotsOnly && !st.special && !timed && s.l.maxWait == 0 && s.l.clock.Load() == clockNone
}

// passOn gives slots that have come free to the next, if nothing else stands between it and its turn. It reports
// whether that is all: those behind it wait for a release too, as it had to, so no look at them is needed.
func (s *shard) passOn(g *gate) bool {
	x, st := g.ext, g.setting
	if x.blocked != ReasonInFlight || st.next != nil || !s.slotsAlone(g, x.timed) || len(x.expiring) > 0 ||
		s.wanted != nil || s.l.dry.Load() {
		return false
	}
	w := x.queue.next()
	if w.d.weight > st.slots-int(g.used) {
		return false
	}
	g.used += int32(w.d.weight)
	s.grant(g, w, s.latest)
	return !g.waited() || int(g.used) >= st.slots
}

// waitNow is now for a gate with a queue.
func (s *shard) waitNow(g *gate, timed bool) meter.Instant {
	if s.slotsAlone(g, timed) {
		return s.latest
	}
	return s.now()
}

// serveAndUnlock asks the next again after something has changed, and gives the lock back,
// now and then also in between, so that no caller waits for it long. The gate may be nil.
func (s *shard) serveAndUnlock(g *gate) {
	for g != nil && g.waited() && !s.passOn(g) {
		now := s.waitNow(g, g.ext.timed)
		s.touch(g, now)
		if !s.serve(g, now) {
			break
		}
		s.mu.Unlock()
		runtime.Gosched() // those who were woken must not have to wait for this goroutine's time slice
		s.mu.Lock()
	}
	s.mu.Unlock()
}

// cancelAndUnlock gives up a waiter. If it was admitted meanwhile, all it took is given back.
func (s *shard) cancelAndUnlock(g *gate, w *waiter) {
	if w.queued || w.refused == nil {
		s.now() // for the count: it is some time since a call has read the clock
		s.counts.cancelled++
		s.countHeldBack(g)
	}
	switch {
	case w.queued:
		s.dequeue(g, w)
	case w.refused == nil:
		s.undo(g, w.epoch, w.granted, &w.d, w.permit)
	}
	select {
	case <-w.ready: // it has just been admitted or refused
	default:
	}
	s.serveAndUnlock(g)
}

// undo takes back an admission that is not used, taken at an instant in an epoch of the gate.
func (s *shard) undo(g *gate, epoch uint16, taken time.Duration, d *demand, p Permit) {
	if p == dryPermit {
		return
	}
	now := s.now()
	s.touch(g, now)
	if epoch == g.epoch { // else it was taken under another limit or pool
		g.giveBack(now, taken, d)
	}
	if h := p.h; h != nil && h.gen == p.gen {
		s.free(h)
	}
}

// requeue queues what w asks for again, at the head of its class and even if the queue is full. Its slots come back;
// its events are spent. The key is looked up again, since its gate may have been dropped in so long a time.
func (s *shard) requeueAndUnlock(w *waiter) (*gate, *waiter) {
	now := s.now()
	g := s.gate(s.l.hash(w.key), w.key, w.d.plan)
	if h := w.permit.h; h != nil && h.gen == w.permit.gen {
		w.d.costs = h.costs // but for those of a unit that was forgotten meanwhile
		s.free(h)
	}
	s.counts.expired++
	n := s.l.newWaiter(w.d)
	n.key, n.since, n.order = w.key, w.since, w.order
	n.lostTurns, n.firstDue = w.lostTurns+1, cmp.Or(w.firstDue, w.due)
	s.l.waiting.Add(1)
	s.enqueue(g, n, now)
	if v := g.setting.refuses(&n.d); n.queued && v.reason != ReasonNone {
		s.refuse(g, n, v)
	}
	s.serveAndUnlock(g)
	s.l.recycle(w)
	return g, n
}

// pacerOf returns the pacer of the controller that a verdict is of; nil where there is none.
func (g *gate) pacerOf(v verdict) *pacer {
	if v.rule == ruleNone || g.setting.rules[v.rule].ctrl == noController {
		return nil
	}
	return &g.ext.learned.pacers[g.setting.rules[v.rule].ctrl]
}

// waiter is one caller that waits in a queue. Everything but ready is guarded by the shard's lock until ready
// has been sent to; from then on it is the caller's.
type waiter struct {
	next, prev *waiter
	ready      chan struct{} // holds one: sent to exactly once, when admitted or refused
	key        string
	d          demand
	permit     Permit
	refused    *LimitedError // why it was refused; nil when admitted
	// Each an instant.at: when it was queued, could have been admitted, and was.
	since, due, granted time.Duration
	epoch               uint16        // of the gate when it was admitted
	firstDue            time.Duration // due of the first turn that it has lost; 0: it has lost none
	slotEnds            time.Duration // a caller that wakes after it has lost the turn; 0: it cannot
	queued, pinned      bool          // in a queue; a call that looks for others to refuse may come back to it
	noted               bool          // see gate.noted
	dry                 Reason        // what stood in its way, when only a dry run has admitted it
	lostTurns           uint8
	order               uint32 // among those of one instant, going round
}

func newWaiter(d demand) *waiter {
	return &waiter{d: d, ready: make(chan struct{}, 1)}
}

// newWaiter returns one that has been put away, or a new one.
func (l *Limiter) newWaiter(d demand) *waiter {
	w, ok := l.waiters.Get().(*waiter)
	if !ok {
		return newWaiter(d)
	}
	w.d = d
	return w
}

// recycle keeps a waiter for another caller. It is in no queue, and its own caller has done with it.
func (l *Limiter) recycle(w *waiter) {
	if w.pinned {
		return
	}
	*w = waiter{ready: w.ready}
	l.waiters.Put(w)
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
	len    int
	head   *waiter
	last   [numClasses]*waiter // of each class, the lowest first
	passed uint8               // admissions past an older waiter, since the oldest had its turn; see next
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

// next returns the waiter that is served next: the first of the highest class, or, when seven admissions have gone
// past an older one, the oldest of all. None overtakes it because it asks for more, or the large ones would starve.
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

// maxLost is how many turns one caller loses. The next one is taken however late, or a slow machine would never act.
//
// Permits of slow paced rates expire: the scheduler, the process or the machine may be stopped, so that a caller
// wakes long after its turn. If it acted then, its event would come close to that of the next turn: two events where
// the rate allows one. So it loses the turn, whose instant is gone, and is queued again before all others of its
// class. The tolerance is a tenth of the interval, which is how long a replica's turn lasts (turn.go). No scheduler
// can be held to less than a tenth of a second, so shorter intervals are left alone.
const maxLost = 3

// promises is what callers of a key that were refused have been told: for requests and for each unit, the
// instant.at from which on the key's rates are nobody's yet.
//
// Were all told when the next has its turn, all would come at that instant, and all but one in vain. So each is
// told a turn of its own, behind the others' and as far from them as its events take to come. In a window that
// is a part of the window. A promise holds nothing back: who comes first is admitted first. So one that is
// forgotten, with a key that is dropped or with the maps of a store that shrinks, costs a request in vain and no more.
type promises [1 + maxUnits]time.Duration

// mostPromised is how many turns are promised before they are promised once more from the first on. Nobody is
// told to wait longer than behind so many calls like its own, or whoever asks without end, and obeys nothing,
// could send the others away for hours. It is large enough that a herd of twice as many calls two and a half
// times for each answer, and one of ten times as many six times.
const mostPromised = 100

// told returns when a caller is told to come again that a rule has wait: then, or behind what has been promised,
// where its turn comes if no other does. It also returns the time from there to the next one's turn.
func (g *gate) told(t meter.Instant, by *rule, d *demand, wait time.Duration, p promises) (in, apart time.Duration) {
	in = p[by.unitID] - t.At
	apart = g.apart(t, by, d, max(0, in-wait))
	if in <= wait || float64(in-wait) > mostPromised*float64(apart) {
		return wait, apart
	}
	for _, r := range g.setting.order {
		if n := d.of(r.unitID); r.timed && n > 0 {
			in = max(in, g.resource(r).Until(t, &r.Rule, in, 0, float64(n)))
		}
	}
	return min(in, meter.Never/2), apart
}

// apart returns how long the events that a call takes of a rule need to come. Other rules count that have no
// room for all who have their turn ahead of it, within so long a time.
func (g *gate) apart(t meter.Instant, by *rule, d *demand, ahead time.Duration) time.Duration {
	longest := g.interval(t, by) * float64(d.of(by.unitID))
	calls := 1 + float64(ahead)/longest
	for _, r := range g.setting.order {
		if n := float64(d.of(r.unitID)); r.timed && r != by && n > 0 {
			if left, _, _ := g.resource(r).Left(t, &r.Rule); left < n*calls {
				longest = max(longest, n*g.interval(t, r))
			}
		}
	}
	return meter.Saturated(longest)
}

// interval returns the time from one event to the next, in nanoseconds, at the rate of a rule.
func (g *gate) interval(t meter.Instant, r *rule) float64 {
	switch {
	case r.ctrl != noController:
		return g.ext.learned.pacers[r.ctrl].paced().Interval
	case r.Counted: // the next windows are expected to allow as much as this one
		_, may, _ := g.resource(r).Left(t, &r.Rule)
		return float64(r.window) / max(may, r.share)
	}
	return r.Interval
}

// refusal is the decision against a caller that is refused. It promises what it tells.
func (s *shard) refusal(g *gate, d *demand, v verdict) Decision {
	dec, apart := g.decision(s.latest, d, v, s.promises[g])
	if apart > 0 {
		if s.promises == nil {
			s.promises = make(map[*gate]promises)
		}
		p := s.promises[g]
		p[g.ruleOf(v).unitID] = meter.After(s.latest.At, meter.After(dec.RetryAfter, apart))
		s.promises[g] = p
	}
	return dec
}
