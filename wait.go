package quotient

import (
	"context"
	"runtime"
	"time"
)

// wait queues d behind whoever waits already, and returns when it is admitted, refused or
// given up. It is entered with the shard's lock held and leaves without it.
func (s *shard) wait(ctx context.Context, g *gate, key string, d demand, arrived time.Time) (Permit, error) {
	locked := true
	defer func() {
		if locked { // refused, or a foreign context has panicked
			s.mu.Unlock()
		}
	}()
	now := s.tick(s.l.now())
	turn := g.turnOf(now, &d)
	if v := s.mayWait(ctx, g, &d, now, turn); v.reason != ReasonNone {
		s.counts.refused[v.reason]++
		return Permit{}, g.setting.decision(v).Err(key)
	}
	w := newWaiter(d)
	w.key, w.since = key, now.Sub(s.l.base)
	if s.l.leakCheck != nil {
		w.stack = callers(4)
	}
	s.enqueue(g, w, now)
	locked = false
	s.mu.Unlock()
	if s.l.onWait != nil {
		s.announce(g, w, turn.wait)
	}
	select {
	case <-w.ready:
	case <-ctx.Done():
		return Permit{}, s.cancel(g, w, ctx.Err())
	}
	if w.refused.reason != ReasonNone {
		return Permit{}, s.refusal(g, w)
	}
	if s.l.onAdmit != nil {
		s.l.admitted(key, arrived, s.l.base.Add(w.due), w.permit)
	}
	return w.permit, nil
}

// refusal is the error of a waiter that was refused in the queue.
func (s *shard) refusal(g *gate, w *waiter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return g.setting.decision(w.refused).Err(w.key)
}

// decision puts a verdict into words, under the setting that it was made under.
func (st *setting) decision(v verdict) Decision {
	d := Decision{Reason: v.reason}
	if v.wait < never {
		d.RetryAfter = v.wait
	}
	switch {
	case v.rule == ruleInFlight:
		d.Rule, d.Limit, d.Share = inFlightRule, float64(st.limit.InFlight), float64(st.slots)
	case v.law() >= 0 && v.law() < len(st.laws):
		b := st.laws[v.law()].bounds
		d.Rule, d.Limit, d.Share = lawRule, b.Ceiling, b.Share
	case v.rule >= 0 && int(v.rule) < len(st.rations):
		r := &st.rations[v.rule]
		d.Rule, d.Limit, d.Share = r.name, r.limit, r.share
	}
	return d
}

// The names of the rules that are no rates.
const (
	inFlightRule = "in-flight"
	lawRule      = "adaptive"
)

// announce calls the OnWait hook. Should it panic, the caller's place in the queue is given up.
func (s *shard) announce(g *gate, w *waiter, turn time.Duration) {
	returned := false
	defer func() {
		if !returned {
			_ = s.cancel(g, w, nil)
		}
	}()
	if turn == never {
		turn = 0
	}
	s.l.onWait(w.key, turn)
	returned = true
}

// mayWait tells why d must not be queued, if so; else it has counted d as waiting.
func (s *shard) mayWait(ctx context.Context, g *gate, d *demand, now time.Time, turn verdict) verdict {
	if v := g.setting.refuses(d); v.reason != ReasonNone {
		return v
	}
	refuse := func(r Reason) verdict { return verdict{r, turn.rule, turn.wait} }
	waiting := 0
	if g.more != nil {
		waiting = g.more.queue.len
	}
	full := waiting >= s.l.perKey
	if !full && g.knows(now, turn) {
		if s.l.maxWait > 0 && turn.wait > s.l.maxWait {
			return refuse(ReasonWait)
		}
		if end, ok := ctx.Deadline(); ok && turn.wait > end.Sub(now) {
			return refuse(ReasonDeadline)
		}
	}
	if !full && s.l.waiting.Add(1) > int64(s.l.total) {
		s.l.waiting.Add(-1)
		full = true
	}
	if full && g == s.overflow {
		return refuse(ReasonKeys)
	}
	if full {
		return refuse(ReasonQueue)
	}
	return verdict{}
}

// knows tells whether a turn is known: there is one, and no law wants to be asked before it.
func (g *gate) knows(now time.Time, turn verdict) bool {
	if turn.wait == never {
		return false
	}
	i := turn.law()
	if i < 0 || i >= len(g.setting.laws) {
		return true
	}
	at := now.Sub(g.setting.origin)
	outdated := g.more.learned.pacers[i].outdated
	return outdated <= 0 || turn.wait <= outdated-at
}

// turnOf is when d's turn would come behind all that wait, as far as rates alone decide.
// Rates give a lower bound; slots that are taken come free nobody knows when.
func (g *gate) turnOf(now time.Time, d *demand) verdict {
	st := g.setting
	if st.shut {
		return verdict{ReasonPool, ruleNone, never}
	}
	turn := verdict{ReasonRate, ruleNone, 0}
	for i := range st.rations {
		r := &st.rations[i]
		n := d.of(r.unitID)
		if n == 0 {
			continue
		}
		var w time.Duration
		switch {
		case r.window != nil:
			w = g.more.windows[i].until(now, int64(g.queued(i)/milli), int64(n), r.window)
		case r.turn != nil:
			w = r.turn.until(now, g.bucket(i), g.queued(i)/milli)
		default:
			w = g.bucket(i).untilHas(now, float64(g.queued(i)+min(n*milli, r.burst)))
		}
		if w > turn.wait {
			turn.rule, turn.wait = int16(i), w
		}
	}
	if v := g.pacingBehind(now, d); v.wait > turn.wait {
		turn = v
	}
	if turn.wait == 0 && st.limit.InFlight > 0 {
		turn = verdict{ReasonInFlight, ruleInFlight, never}
	}
	return turn
}

// queued is what those who wait ask of rate i, in thousandths; of requests for i = len(rations).
func (g *gate) queued(i int) int {
	if g.more == nil || g.more.ahead == nil {
		return 0
	}
	return thousandths(float64(g.more.ahead[i]))
}

// count adds what d asks for to what is queued, or takes it off.
func (g *gate) count(d *demand, sign int) {
	ahead := g.more.ahead
	for i := range g.setting.rations {
		ahead[i] += sign * d.of(g.setting.rations[i].unitID)
	}
	ahead[len(ahead)-1] += sign * d.weight
}

// countAhead counts anew, after the rules have changed.
func (g *gate) countAhead() {
	if g.more.queue.len == 0 {
		g.more.ahead = nil
		return
	}
	g.more.ahead = make([]int, len(g.setting.rations)+1)
	for w := g.more.queue.head; w != nil; w = w.next {
		g.count(&w.d, 1)
	}
}

func (s *shard) enqueue(g *gate, w *waiter, now time.Time) {
	m := g.extra()
	if m.ahead == nil {
		m.ahead = make([]int, len(g.setting.rations)+1)
	}
	m.queue.push(w)
	g.count(&w.d, 1)
	s.counts.waited++
	if g == s.overflow {
		m.names[w.key]++
	}
	if m.queue.head == w {
		s.waiting[g] = struct{}{}
		s.serve(g, now)
	}
}

// dequeue takes w off the queue, wherever it stands.
func (s *shard) dequeue(g *gate, w *waiter) {
	m := g.more
	m.queue.remove(w)
	g.count(&w.d, -1)
	s.l.waiting.Add(-1)
	if g == s.overflow {
		s.unname(w.key)
	}
	if m.queue.len == 0 {
		s.rest(g)
	}
}

// rest puts away what only a gate with a queue needs.
func (s *shard) rest(g *gate) {
	delete(s.waiting, g)
	m := g.more
	if m.timer != nil {
		m.timer.Stop()
	}
	m.timer, m.ahead, m.turn = nil, nil, time.Time{}
	if m.rest == nil && m.windows == nil && m.learned == nil && len(m.expiring) == 0 && m.names == nil && m.lows == nil {
		g.more = nil
	}
}

// serve admits from the head for as long as there is room, at most wakeBatch, and tells
// whether there may be more to do. Else the gate's timer is set for the head.
func (s *shard) serve(g *gate, now time.Time) bool {
	for range wakeBatch {
		if g.more == nil || g.more.queue.head == nil {
			return false
		}
		w := g.more.queue.head
		v := s.admit(g, now, &w.d)
		now = s.now // admit may have read the clock again
		switch {
		case v.reason == ReasonNone:
			s.grant(g, w, now)
		case v.final():
			s.refuse(g, w, v)
		case s.l.maxWait > 0 && now.Sub(s.l.base)-w.since >= s.l.maxWait:
			v.reason = ReasonWait
			s.refuse(g, w, v)
		default:
			s.schedule(g, v, now)
			return false
		}
	}
	return true
}

func (s *shard) grant(g *gate, w *waiter, now time.Time) {
	w.due = now.Sub(s.l.base)
	if t := g.more.turn; !t.IsZero() && t.Before(now) {
		w.due = t.Sub(s.l.base) // its tokens were there then; the timer was late
	}
	w.granted = now.Sub(s.l.base)
	g.more.turn = time.Time{}
	w.permit = s.hold(g, w.key, &w.d, now)
	if h := w.permit.h; h != nil && w.stack != nil {
		h.stack = w.stack
	}
	s.counts.admitted++
	s.dequeue(g, w)
	w.ready <- struct{}{}
}

func (s *shard) refuse(g *gate, w *waiter, v verdict) {
	s.counts.refused[v.reason]++
	w.refused = v
	s.dequeue(g, w)
	w.ready <- struct{}{}
}

// schedule notes when the head's turn comes and arms the timer.
func (s *shard) schedule(g *gate, v verdict, now time.Time) {
	g.more.turn, g.more.blocked = time.Time{}, v.reason
	if v.wait < never {
		g.more.turn = now.Add(v.wait)
	}
	s.arm(g, now)
}

// arm sets the gate's one timer to the next instant at which the head must be asked again: its
// turn, the end of its patience, or the end of a permit's time. MaxWait is one value for the
// limiter, so nobody behind the head ends before it.
func (s *shard) arm(g *gate, now time.Time) {
	m := g.more
	at := m.turn
	sooner := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if s.l.maxWait > 0 {
		sooner(s.l.base.Add(after(m.queue.head.since, s.l.maxWait)))
	}
	if m.learned != nil && m.learned.due != 0 {
		sooner(s.l.base.Add(m.learned.due)) // the rates change then
	}
	if m.learned != nil {
		if at := m.learned.outdated(); at != 0 {
			sooner(s.l.base.Add(at))
		}
	}
	if len(m.expiring) > 0 && m.blocked == ReasonInFlight {
		sooner(s.l.base.Add(m.nextEnd))
	}
	switch {
	case at.IsZero(): // a release will tell
		if m.timer != nil {
			m.timer.Stop()
		}
	case m.timer == nil:
		m.timer = time.AfterFunc(at.Sub(now), func() { s.fire(g) })
	default:
		m.timer.Reset(at.Sub(now))
	}
}

// fire is the timer's call.
func (s *shard) fire(g *gate) {
	s.mu.Lock()
	s.serveAndUnlock(g)
}

// serveAndUnlock asks the head again after something has changed, and gives the lock back,
// now and then also in between, so that nobody waits for it long.
func (s *shard) serveAndUnlock(g *gate) {
	for g.more != nil && g.more.queue.head != nil {
		now := s.tick(s.l.now())
		g.sync(s.setting)
		g.settle(now, nil)
		if !s.serve(g, now) {
			break
		}
		s.mu.Unlock()
		runtime.Gosched() // those who were woken must not have to wait for this goroutine's time slice
		s.mu.Lock()
	}
	s.mu.Unlock()
}

// cancel gives up a waiter. If it was admitted meanwhile, all it took is given back.
func (s *shard) cancel(g *gate, w *waiter, err error) error {
	s.mu.Lock()
	s.counts.cancelled++
	switch {
	case w.queued:
		s.dequeue(g, w)
	case w.refused.reason == ReasonNone:
		s.undo(g, w)
	}
	s.serveAndUnlock(g)
	return err
}

// undo takes back an admission that nobody uses.
func (s *shard) undo(g *gate, w *waiter) {
	s.counts.admitted--
	now := s.tick(s.l.now())
	g.sync(s.setting)
	g.settle(now, nil)
	g.giveBack(now, s.l.base.Add(w.granted), &w.d)
	if h := w.permit.h; h != nil && h.gen == w.permit.gen {
		s.free(h)
	}
}
