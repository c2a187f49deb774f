package quotient

import (
	"cmp"
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
	if s.l.dry.Load() {
		p := s.passDry(g, key, &d, now)
		locked = false
		s.mu.Unlock()
		if s.l.onAdmit != nil {
			s.l.admitted(key, arrived, arrived, p)
		}
		return p, nil
	}
	w, turn, err := s.line(ctx, g, key, d, now)
	if err != nil {
		return Permit{}, err
	}
	locked = false
	s.mu.Unlock()
	if s.l.onWait != nil {
		s.announce(g, w, turn)
	}
	if w, err = s.await(ctx, g, w); err != nil {
		return Permit{}, err
	}
	s.came(w)
	if s.l.onAdmit != nil {
		s.l.admitted(key, arrived, s.l.base.Add(cmp.Or(w.was, w.due)), w.permit)
	}
	return w.permit, nil
}

// line queues d, unless it must not wait, and tells how long as far as that is known.
func (s *shard) line(ctx context.Context, g *gate, key string, d demand, now time.Time) (*waiter, time.Duration, error) {
	turn := g.turnOf(now, &d)
	out, v := s.mayWait(ctx, g, &d, now, turn)
	if v.reason != ReasonNone {
		s.counts.refused[v.reason]++
		return nil, 0, g.setting.decision(v).Err(key)
	}
	w := newWaiter(d)
	w.key, w.since = key, now.Sub(s.l.base)
	if s.l.leakCheck != nil {
		w.stack = callers()
	}
	s.enqueue(g, w, now)
	if out != nil && out.queued {
		s.dismiss(g, out, s.full(g), now)
		s.ask(g, now)
	}
	return w, turn.wait, nil
}

// await returns when w is admitted, refused or given up: w, or what has taken its place since. It is given up
// when the context ends, and when a method of a foreign context panics.
func (s *shard) await(ctx context.Context, g *gate, w *waiter) (*waiter, error) {
	came := false
	defer func() {
		if !came {
			_ = s.cancel(g, w, nil)
		}
	}()
	for {
		select {
		case <-w.ready:
		case <-ctx.Done():
			return nil, endOf(ctx)
		}
		if came = w.refused.reason != ReasonNone; came {
			return nil, s.refusal(g, w)
		}
		if came = !s.overslept(w); came {
			return w, nil
		}
		g, w = s.again(w)
	}
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

// mayWait tells why d must not be queued, if so; else it has counted d as waiting, and tells who is to give up its place for it.
func (s *shard) mayWait(ctx context.Context, g *gate, d *demand, now time.Time, turn verdict) (out *waiter, v verdict) {
	if v := g.setting.refuses(d); v.reason != ReasonNone {
		return nil, v
	}
	refuse := func(r Reason) (*waiter, verdict) { return nil, verdict{r, turn.rule, turn.wait} }
	if g.waited() {
		out = g.more.queue.expendable(d.class)
	}
	full := g.waiters() >= s.l.perKey
	if full && out == nil {
		return refuse(s.full(g))
	}
	if g.knows(now, turn) {
		if s.l.maxWait > 0 && turn.wait > s.l.maxWait {
			return refuse(ReasonWait)
		}
		if end, ok := ctx.Deadline(); ok && turn.wait > end.Sub(now) {
			return refuse(ReasonDeadline)
		}
	}
	if s.l.waiting.Add(1) > int64(s.l.total) {
		full = true
	}
	if full && out == nil {
		s.l.waiting.Add(-1)
		return refuse(s.full(g))
	}
	if !full {
		out = nil
	}
	return out, verdict{}
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

func (s *shard) enqueue(g *gate, w *waiter, now time.Time) {
	m := g.extra()
	if m.ahead == nil {
		m.ahead = g.setting.newAhead()
	}
	if w.lost > 0 {
		m.queue.putBack(w)
	} else {
		m.queue.push(w)
		s.counts.waited++
		w.order = uint32(s.counts.waited)
	}
	g.count(&w.d, 1)
	if g == s.overflow {
		m.names[w.key]++
	}
	if m.queue.len == 1 {
		s.waiting[g] = struct{}{}
	}
	if m.queue.next() == w {
		s.ask(g, now)
	}
}

// ask serves the queue when somebody new is its next. What is left to do then is the timer's.
func (s *shard) ask(g *gate, now time.Time) {
	if s.serve(g, now) && g.waited() {
		g.more.turn = s.now
		s.arm(g, s.now)
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
	m.timer, m.ahead, m.turn, m.given = nil, nil, time.Time{}, false
	if m.rest == nil && m.windows == nil && m.learned == nil && len(m.expiring) == 0 && m.names == nil && m.lows == nil && m.overrides == 0 {
		g.more = nil
	}
}

// serve admits who is next for as long as there is room, at most wakeBatch, and tells
// whether there may be more to do. Else the gate's timer is set for the next.
func (s *shard) serve(g *gate, now time.Time) bool {
	for range wakeBatch {
		if !g.waited() {
			return false
		}
		w := g.more.queue.next()
		v := s.admit(g, now, &w.d)
		now = s.now // admit may have read the clock again
		switch {
		case v.reason == ReasonNone:
			s.grant(g, w, now)
		case s.l.dry.Load():
			s.letGo(g, w, v)
		case v.final():
			s.refuse(g, w, v)
		case s.impatient(w, now):
			v.reason = ReasonWait
			s.refuse(g, w, v)
		case s.impatient(g.more.queue.oldest(), now):
			s.dismiss(g, g.more.queue.oldest(), ReasonWait, now)
		default:
			s.schedule(g, v, now)
			return false
		}
	}
	return true
}

func (s *shard) grant(g *gate, w *waiter, now time.Time) {
	w.due, w.granted = s.dueAt(g, w, now), now.Sub(s.l.base)
	w.lapses, w.era = g.setting.lapse(w), g.era()
	g.more.given = true
	w.permit = s.hold(g, w.key, &w.d, now)
	if h := w.permit.h; h != nil && w.stack != nil {
		h.stack = w.stack
	}
	g.more.queue.served(w)
	s.dequeue(g, w)
	w.ready <- struct{}{}
}

func (s *shard) refuse(g *gate, w *waiter, v verdict) {
	s.counts.refused[v.reason]++
	w.refused = v
	s.dequeue(g, w)
	w.ready <- struct{}{}
}

// schedule notes when the next one's turn comes and arms the timer.
func (s *shard) schedule(g *gate, v verdict, now time.Time) {
	g.more.turn, g.more.given, g.more.blocked = time.Time{}, false, v.reason
	if v.wait < never {
		g.more.turn = now.Add(v.wait)
	}
	s.arm(g, now)
}

// arm sets the gate's one timer to the next instant at which the queue must be asked again: the turn of the
// next, the end of the oldest one's patience, or the end of a permit's time. MaxWait is one value for the
// limiter, so nobody ends before the oldest.
func (s *shard) arm(g *gate, now time.Time) {
	m := g.more
	at := m.turn
	sooner := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if s.l.maxWait > 0 {
		sooner(s.l.base.Add(after(m.queue.oldest().since, s.l.maxWait)))
	}
	if m.learned != nil && m.learned.due != 0 {
		sooner(s.l.base.Add(m.learned.due)) // the rates change then
	}
	if m.learned != nil && !g.setting.shut { // else no law is asked
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
	s.counts.fired++
	s.serveAndUnlock(g)
}

// serveAndUnlock asks the next again after something has changed, and gives the lock back,
// now and then also in between, so that nobody waits for it long.
func (s *shard) serveAndUnlock(g *gate) {
	for g.waited() {
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
	switch {
	case w.queued:
		s.dequeue(g, w)
		s.counts.cancelled++
	case w.refused.reason == ReasonNone:
		s.undo(g, w)
		s.counts.cancelled++
	}
	s.serveAndUnlock(g)
	return err
}

// undo takes back an admission that nobody uses.
func (s *shard) undo(g *gate, w *waiter) {
	if w.permit == dryPermit {
		return
	}
	now := s.tick(s.l.now())
	g.sync(s.setting)
	g.settle(now, nil)
	if w.era == g.era() { // else it was taken under another limit or pool
		g.giveBack(now, s.l.base.Add(w.granted), &w.d)
	}
	if h := w.permit.h; h != nil && h.gen == w.permit.gen {
		s.free(h)
	}
}
