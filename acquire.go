package quotient

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quotient-go/quotient/internal/meter"
	"github.com/quotient-go/quotient/internal/waited"
	"github.com/quotient-go/quotient/policy"
)

// Acquire admits the call, and waits for its turn if it must. Waiters of a key are served first in, first out within
// their Priority, by the limit and pool in force when their turn comes.
//
// A refusal is a *LimitedError. It comes at once where waiting cannot help: the queue is full, the turn would come
// after MaxWait or the context's deadline, or the call can never be admitted. When the context ends, Acquire fails
// with ctx.Err() and has taken nothing. A call that is not valid fails with an error that names the option and its
// value.
func (l *Limiter) Acquire(ctx context.Context, key string, opts ...CallOption) (Permit, error) {
	if err := ctx.Err(); err != nil {
		return Permit{}, err
	}
	arrived := l.arrival()
	s, h := l.lock(key)
	if len(opts) == 0 && l.clock.Load() == clockNone {
		if p := s.takeFree(h); p.h != nil {
			s.mu.Unlock()
			return p, nil
		}
	}
	s.tick(arrived)
	d := &oneRequest
	if more(opts) {
		own, err := newDemand(opts, s.l.inForce)
		if err != nil {
			s.refuseAsk(err)
			s.mu.Unlock()
			return Permit{}, err
		}
		d = &own
	}
	g := s.gate(h, key, d.plan)
	if g.mustQueue(d.class) || s.admit(g, d).reason != ReasonNone {
		p, err := s.holdBackAndUnlock(ctx, g, key, *d, arrived)
		l.tell(opts, key)
		return p, err
	}
	g.overtake()
	s.countAdmission(g, d)
	p := s.hold(g, key, d)
	if len(opts) > 0 {
		g.tell(opts, s.latest) // first: the callers that wait may be of other plans
	}
	s.recheck(g)
	s.mu.Unlock()
	if l.onAdmit != nil {
		l.admitted(key, arrived.At, arrived.At, p)
	}
	return p, nil
}

// takeFree is gate, admit and hold in one piece, which takes less time, for one request of a key that is
// remembered, where slots alone decide and one is free. Calls need no clock, so there is no MaxHold and no OnAdmit.
func (s *shard) takeFree(hash uint64) Permit {
	g := s.home(hash)
	if g == nil || g.ext != nil || s.left == 1 {
		return Permit{}
	}
	if st := g.setting; !st.slotsOnly || st.special || st.next != nil || int(g.used) >= st.slots {
		return Permit{}
	}
	h := s.takeHolding()
	h.gate, h.weight, h.slots, h.since, h.plan = g, 1, 1, s.latest.At, 0
	h.epoch, h.asked[0] = g.epoch, 1
	g.used++
	g.held++
	g.seen = ticksAt(s.latest)
	s.left--
	s.counts.admitted++
	s.counts.inFlight++
	return Permit{h, h.gen}
}

// tell is gate.tell after a wait.
func (l *Limiter) tell(opts []CallOption, key string) {
	if !slices.ContainsFunc(opts, func(a CallOption) bool { return a.into != nil }) {
		return
	}
	now := l.arrival()
	s, h := l.lock(key)
	defer s.mu.Unlock()
	now = s.tick(now)
	s.peek(h, key, now).tell(opts, now)
}

// Allow takes one request's events from every rate of the key, and reports whether all had room. A slot in flight must
// be free, but is not held. It never waits.
func (l *Limiter) Allow(key string) bool {
	arrived := l.arrival()
	s, h := l.lock(key)
	s.tick(arrived)
	g := s.gate(h, key, 0)
	v := s.try(g, &oneRequest)
	ok := v.reason == ReasonNone
	if !ok {
		ok = !s.stops(g, &oneRequest, v)
	} else if s.countAdmission(g, &oneRequest); g.setting.limit.InFlight > 0 {
		g.used--
	}
	s.recheck(g)
	s.mu.Unlock()
	if ok {
		l.admitted(key, arrived.At, arrived.At, Permit{})
	}
	return ok
}

// TryAcquire admits the call now or not at all: it never waits, and overtakes only a lower Priority. It allocates
// nothing for a remembered key, except a block of 64 permits when more are out than ever before.
func (l *Limiter) TryAcquire(key string, opts ...CallOption) (Permit, Decision) {
	arrived := l.arrival()
	s, hash := l.lock(key)
	s.tick(arrived)
	d := oneRequest
	if more(opts) {
		var err error
		if d, err = newDemand(opts, s.l.inForce); err != nil {
			s.refuseAsk(err)
			s.mu.Unlock()
			return Permit{}, Decision{Reason: ReasonBadRequest, bad: err}
		}
	}
	g := s.gate(hash, key, d.plan)
	v := s.try(g, &d)
	var p Permit
	if v.reason == ReasonNone {
		s.countAdmission(g, &d)
		p = s.hold(g, key, &d)
		g.tell(opts, s.latest)
		s.recheck(g)
	} else if g.tell(opts, s.latest); s.stops(g, &d, v) {
		dec := s.refusal(g, &d, v)
		s.mu.Unlock()
		return Permit{}, dec
	} else {
		p = dryPermit
	}
	s.mu.Unlock()
	l.admitted(key, arrived.At, arrived.At, p)
	return p, Decision{OK: true}
}

// Claim is a call of one limiter, for TryAcquireAll.
type Claim struct {
	Limiter *Limiter
	Key     string
	Options []CallOption
}

// Permits are those of several limiters, in the order of their claims.
type Permits []Permit

// Release releases each.
func (ps Permits) Release() {
	for _, p := range ps {
		p.Release()
	}
}

// Done calls Done of each.
func (ps Permits) Done(f policy.Feedback) {
	for _, p := range ps {
		p.Done(f)
	}
}

// TryAcquireAll admits all claims now, or none of them: a tenant's rate and a route's slots, for one request. If all
// are admitted, it appends the permits to dst and returns -1 with a Decision that is OK. Otherwise it returns dst, the
// index of the first refused claim, and why: what was taken before it goes back, and counts as Cancelled.
func TryAcquireAll(dst Permits, claims ...Claim) (ps Permits, refused int, d Decision) {
	var room [4]claimed
	taken := room[:0]
	for i := range claims {
		taken = append(taken, claimed{l: claims[i].Limiter, key: claims[i].Key})
		if d := taken[i].try(claims[i].Options); !d.OK {
			for j := range i {
				taken[j].undo()
			}
			return dst, i, d
		}
	}
	settled := 0
	defer func() { // should OnAdmit panic, which releases the permit that it was called for
		for i := range taken {
			if settled < len(taken) && i != settled {
				taken[i].permit.Release()
			}
		}
	}()
	for i := range taken {
		taken[i].settle()
		dst, settled = append(dst, taken[i].permit), i+1
	}
	return dst, -1, Decision{OK: true}
}

// claimed is what a claim has taken so far.
type claimed struct {
	l       *Limiter
	key     string
	s       *shard
	hash    uint64
	g       *gate
	d       demand
	arrived time.Duration
	at      time.Duration // when it was taken
	epoch   uint16        // of the gate
	noted   bool          // see gate.noted
	dry     Reason        // what stood in the way, where only a dry run admits it
	permit  Permit
}

// try takes what is claimed. A refusal counts, an admission not yet.
func (c *claimed) try(opts []CallOption) Decision {
	arrived := c.l.arrival()
	c.arrived = arrived.At
	s, hash := c.l.lock(c.key)
	defer s.mu.Unlock()
	s.tick(arrived)
	var err error
	if c.d, err = newDemand(opts, s.l.inForce); err != nil {
		s.refuseAsk(err)
		return Decision{Reason: ReasonBadRequest, bad: err}
	}
	g := s.gate(hash, c.key, c.d.plan)
	v := s.try(g, &c.d)
	c.s, c.hash, c.g, c.at, c.dry = s, hash, g, s.latest.At, v.reason
	switch {
	case v.reason == ReasonNone:
		c.permit, c.epoch, c.noted = s.hold(g, c.key, &c.d), g.epoch, g.noted(&c.d)
		g.tell(opts, s.latest)
		s.recheck(g)
		return Decision{OK: true}
	case c.l.dry.Load():
		c.permit = dryPermit
		g.tell(opts, s.latest)
		return Decision{OK: true}
	}
	g.tell(opts, s.latest)
	s.countRefusal(g, &c.d, v.reason)
	return s.refusal(g, &c.d, v)
}

// undo gives back what was taken, unless its gate has been dropped: then all had come back.
func (c *claimed) undo() {
	s := c.s
	s.mu.Lock()
	s.counts.cancelled++
	if c.permit == dryPermit || s.find(c.hash) != c.g && !s.overflow.is(c.g) {
		s.mu.Unlock()
		return
	}
	s.undo(c.g, c.epoch, c.at, &c.d, c.permit)
	s.serveAndUnlock(c.g)
}

// settle counts the admission.
func (c *claimed) settle() {
	c.l.countLate(c.s, c.g, &c.d, c.permit, c.noted, c.dry)
	c.l.admitted(c.key, c.arrived, c.arrived, c.permit)
}

// Check returns what TryAcquire would answer now, dry run or not. It takes nothing, counts nothing and remembers no
// key.
func (l *Limiter) Check(key string, opts ...CallOption) Decision {
	now := l.now()
	s, h := l.lock(key)
	defer s.mu.Unlock()
	now = s.tick(now)
	d, err := newDemand(opts, s.l.inForce)
	if err != nil {
		return Decision{Reason: ReasonBadRequest, bad: err}
	}
	own := s.peek(h, key, now)
	g := s.within(own, d.plan, now)
	g.tell(opts, now)
	return s.answer(g, &d, s.promises[own])
}

// TryAcquireUpTo admits as many of n requests as there is room for now, as one permit of that weight, and returns how
// many: for readers of batches. 0 comes with the zero Permit, also if n is below 1 or the call is not valid.
// Permit.Correct("", used) gives back what was not needed. Release the permit, also under rates alone.
func (l *Limiter) TryAcquireUpTo(key string, n int, opts ...CallOption) (Permit, int) {
	if n < 1 {
		return Permit{}, 0
	}
	arrived := l.arrival()
	s, h := l.lock(key)
	s.tick(arrived)
	p, taken := s.upTo(h, key, n, opts)
	s.mu.Unlock()
	if taken > 0 {
		l.admitted(key, arrived.At, arrived.At, p)
	}
	return p, taken
}

// upTo admits as many of n requests as there is room for.
func (s *shard) upTo(hash uint64, key string, n int, opts []CallOption) (Permit, int) {
	d, err := newDemand(opts, s.l.inForce)
	if err != nil {
		s.refuseAsk(err)
		return Permit{}, 0
	}
	g := s.gate(hash, key, d.plan)
	if g.ext != nil && len(g.ext.expiring) > 0 {
		s.reclaim(g, s.now())
	}
	d.weight, d.kept = 1, true // if there is room for nothing, this is refused and counted
	if !g.mustQueue(d.class) {
		g.advance(s.latest, s.l.policy)
		room, by := g.upTo(s.latest, min(n, maxAmount))
		if d.weight = max(1, room); by != nil {
			s.noteWanted(g, by)
		}
	}
	if v := s.try(g, &d); v.reason == ReasonNone {
		s.countAdmission(g, &d)
		p := s.hold(g, key, &d)
		s.recheck(g)
		return p, d.weight
	} else if s.stops(g, &d, v) {
		return Permit{}, 0
	}
	return dryPermit, n
}

// holdBackAndUnlock is waitAndUnlock, and calls the OnHeldBack hook. Should that panic, the permit is released.
func (s *shard) holdBackAndUnlock(
	ctx context.Context, g *gate, key string, d demand, arrived meter.Instant,
) (Permit, error) {
	l := s.l
	if l.onHeldBack == nil {
		return s.waitAndUnlock(ctx, g, key, d, arrived, nil)
	}
	held, queued := HeldBack{Key: key, Rule: g.holds(s.latest, &d)}, false
	began := cmp.Or(arrived.At, l.now().At)
	p, err := s.waitAndUnlock(ctx, g, key, d, arrived, &queued)
	if p == dryPermit || err == nil && !queued { // in a dry run there may be room by now
		return p, err
	}
	if queued {
		held.Waited = l.now().At - began
	}
	if limited, ok := err.(*LimitedError); ok {
		held.Rule = limited.Rule
	}
	held.Err = err
	orElse(func() { l.onHeldBack(ctx, held) }, p.Release)
	return p, err
}

// holds returns the rule that holds d back now; zero where no single one does.
func (g *gate) holds(now meter.Instant, d *demand) (r Rule) {
	v := g.setting.refuses(d)
	if v.reason == ReasonNone {
		v = g.waitBehind(now, d)
	}
	if by := g.ruleOf(v); by != nil {
		r = by.exported()
	}
	return r
}

// waitAndUnlock queues d behind the waiters, and returns when it is admitted, refused or given up. It notes that it has
// queued d, if anybody asks.
func (s *shard) waitAndUnlock(
	ctx context.Context, g *gate, key string, d demand, arrived meter.Instant, queued *bool,
) (Permit, error) {
	locked := true
	defer func() {
		if locked { // refused, or a foreign context has panicked
			s.mu.Unlock()
		}
	}()
	hook, timed := ctx.Value(waited.Key{}).(waited.Hook)
	now := s.waitNow(g, timed)
	if s.l.dry.Load() {
		p := s.waitDry(g, key, &d, now)
		locked = false
		s.mu.Unlock()
		s.l.admitted(key, arrived.At, arrived.At, p)
		return p, nil
	}
	w, err := s.line(ctx, g, key, d, now)
	if err != nil {
		return Permit{}, err
	}
	if queued != nil {
		*queued = true
	}
	if timed && w.queued {
		g.ext.timed = true
	}
	locked = false
	s.mu.Unlock()
	c := caller{s, g, w}
	if err = c.await(ctx); err != nil {
		s.l.recycle(c.w)
		return Permit{}, err
	}
	s.l.countLate(s, c.g, &c.w.d, c.w.permit, c.w.noted, c.w.dry)
	p, due := c.w.permit, cmp.Or(c.w.firstDue, c.w.due)
	s.l.recycle(c.w)
	s.l.admitted(key, arrived.At, due, p)
	if timed {
		s.l.hook(hook, cmp.Or(arrived.At, now.At), due, p)
	}
	return p, nil
}

// admitted calls the OnAdmit hook, if there is one, with how long a caller waited and how much of that was overhead.
func (l *Limiter) admitted(key string, arrived, due time.Duration, p Permit) {
	if l.onAdmit != nil {
		l.tellAdmitted(key, arrived, due, p)
	}
}

func (l *Limiter) tellAdmitted(key string, arrived, due time.Duration, p Permit) {
	l.hook(func(waited, overhead time.Duration) { l.onAdmit(key, waited, overhead) }, arrived, due, p)
}

// hook calls f for an admission. Should that panic, the permit is released: no other caller can.
func (l *Limiter) hook(f func(waited, overhead time.Duration), arrived, due time.Duration, p Permit) {
	now := l.now().At
	orElse(func() { f(now-arrived, now-due) }, p.Release)
}

// orElse calls f, and undo if f does not return.
func orElse(f, undo func()) {
	returned := false
	defer func() {
		if !returned {
			undo()
		}
	}()
	f()
	returned = true
}

// caller is one that waits, without the lock.
type caller struct {
	s *shard
	g *gate
	w *waiter
}

// await returns when the waiter is admitted, refused or given up. It is given up when the context ends, and
// when a method of a foreign context panics. Another waiter may have taken its place since.
func (c *caller) await(ctx context.Context) error {
	done := false
	defer func() {
		if !done {
			c.cancel()
		}
	}()
	for {
		select {
		case <-c.w.ready:
		case <-ctx.Done():
			return endOf(ctx)
		}
		if done = c.w.refused != nil; done {
			return c.w.refused
		}
		if done = !c.wokeLate(); done {
			return nil
		}
		c.s.mu.Lock()
		c.g, c.w = c.s.requeueAndUnlock(c.w)
	}
}

// countLate counts a call that was admitted before, when it returns. Not sooner: it might be given up, or lose its
// turn, and a count must not fall. The dry reason is that of a call which only a dry run has admitted.
func (l *Limiter) countLate(s *shard, g *gate, d *demand, p Permit, noted bool, dry Reason) {
	if p != dryPermit && !noted {
		l.collected.Add(1)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p == dryPermit {
		s.admitDry(g, d, dry)
	} else {
		s.countAdmission(g, d)
	}
}

// wokeLate reports whether the waiter was admitted, and its caller has woken too late.
func (c *caller) wokeLate() bool {
	return c.w.slotEnds > 0 && time.Since(c.s.l.base) > c.w.slotEnds
}

// cancel gives the waiter up.
func (c *caller) cancel() {
	c.s.mu.Lock()
	c.s.cancelAndUnlock(c.g, c.w)
}

// Do runs fn when the key's turn has come, and returns what it returns. It fails as Acquire does, but where
// MaxWaiting(0, …) permits no queue it tries again and again until the context ends. The permit is released also when
// fn panics. For the policy a nil error is policy.Success, and any other one policy.Failed, unless an error in its
// chain has a method Feedback() policy.Feedback.
func Do[T any](ctx context.Context, l *Limiter, key string, fn func(context.Context) (T, error)) (T, error) {
	p, err := l.persist(ctx, key)
	if err != nil {
		var none T
		return none, err
	}
	f := policy.Feedback{Outcome: policy.Failed} // should fn panic
	defer func() { p.Done(f) }()
	v, err := fn(ctx)
	f = feedbackOf(err)
	return v, err
}

func feedbackOf(err error) policy.Feedback {
	var carrier interface{ Feedback() policy.Feedback }
	switch {
	case err == nil:
		return policy.Feedback{Outcome: policy.Success}
	case errors.As(err, &carrier):
		return carrier.Feedback()
	}
	return policy.Feedback{Outcome: policy.Failed}
}

// Back-off of a caller that may not queue: it starts at about a timer's accuracy and doubles, as is usual.
const (
	firstBackOff = 2 * time.Millisecond
	lastBackOff  = time.Second
)

// persist is Acquire, and where no caller may queue it tries again and again.
func (l *Limiter) persist(ctx context.Context, key string) (Permit, error) {
	for backOff := firstBackOff; ; backOff = min(2*backOff, lastBackOff) {
		p, err := l.Acquire(ctx, key)
		var limited *LimitedError
		if l.perKey > 0 || !errors.As(err, &limited) ||
			limited.Reason != ReasonQueue && limited.Reason != ReasonKeys {
			return p, err
		}
		jitter := time.Duration(rand.Int64N(int64(backOff))) + 1 // it breaks up callers in step
		pause := cmp.Or(limited.RetryAfter, jitter)              // a turn of its own, if there are turns
		if end, ok := ctx.Deadline(); ok && pause > time.Until(end) {
			pause = l.Explain(key).Next.RetryAfter + jitter // too late for it: it comes when there is room
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return Permit{}, ctx.Err()
		}
	}
}

// touch brings a gate up to now: first the settings, then the controllers. It starts no controller, and
// takes no permit back: reclaim comes behind it.
func (s *shard) touch(g *gate, now meter.Instant) {
	g.sync()
	g.advance(now, nil)
}

// admit is gate.admit, but takes back first what was held for too long.
func (s *shard) admit(g *gate, d *demand) verdict {
	fast, now := !d.priced, s.latest
	if g.ext != nil {
		s.reclaim(g, now) // or a hot key that is never short of slots would pile up what is never released
		fast = fast && len(g.ext.plans) == 0
	}
	if fast && g.admitNow(now, d.weight) {
		return verdict{}
	}
	g.advance(now, s.l.policy)
	v := g.admit(now, d)
	if v.reason == ReasonInFlight && g.ext != nil && len(g.ext.expiring) > 0 {
		now = s.now() // slots alone are decided on without a clock
		s.reclaim(g, now)
		v = g.admit(now, d)
	}
	if v.reason == ReasonNone {
		g.spread(now, d)
	} else if v.rule != ruleNone {
		g.noteHeldBack(&g.setting.rules[v.rule])
		s.noteWanted(g, &g.setting.rules[v.rule])
	} else if v.reason == ReasonPool {
		s.l.noteAwaiting()
	}
	if g.setting.census {
		s.noteCounted(g, v)
	}
	return v
}

// try admits d if all has room and it must not queue behind others. The caller counts it.
func (s *shard) try(g *gate, d *demand) verdict {
	var v verdict
	if !g.mustQueue(d.class) {
		v = s.admit(g, d)
	} else {
		v = g.probe(s.latest, d)
	}
	if v.reason == ReasonNone {
		g.overtake()
		return v
	}
	if s.overflow.is(g) && !v.final() {
		v.reason = ReasonKeys
	}
	return v
}

// overtake notes that g has admitted a call past those that wait, if there are any.
func (g *gate) overtake() {
	if g.waited() {
		g.ext.queue.passed++
	}
}

// stops counts a call that has been refused, and reports whether it stays refused: a dry run admits it all the same.
func (s *shard) stops(g *gate, d *demand, v verdict) bool {
	if s.l.dry.Load() {
		s.admitDry(g, d, v.reason)
		return false
	}
	s.countRefusal(g, d, v.reason)
	return true
}

// refuseAsk counts a call that is not valid, and logs now and then that there are such of an unknown plan.
func (s *shard) refuseAsk(err error) {
	s.counts.refused[ReasonBadRequest]++
	plan, ok := err.(unknownPlan)
	if l := s.l; ok {
		l.planLog.Do(func() {
			time.AfterFunc(0, func() { // a lock is held here
				l.log.Warn("a call names a plan that the limiter does not have", "plan", string(plan))
			})
		})
	}
}

// dryPermit is that of a call which only a dry run has admitted: there is nothing to give back, and nothing
// to correct.
var dryPermit = Permit{gen: 2}

// admitDry counts a call that only a dry run admits, and logs now and then that there are such.
func (s *shard) admitDry(g *gate, d *demand, r Reason) {
	s.counts.admitted++
	if s.counts.dryRun[r]++; d.plan != 0 {
		s.countPlan(d.plan, calls{admitted: 1})
	}
	s.countHeldBack(g)
	l := s.l
	l.dryLog.Do(func() {
		time.AfterFunc(0, func() { // a lock is held here
			l.log.Info("dry run: admitted what would have been stopped",
				"reason", r.String(), "so_far", l.Stats().DryRunAdmitted[r])
		})
	})
}

// peek returns the gate of a key for a mere look, in the plan that it is in. A key that is not remembered has
// the gate it would start with.
func (s *shard) peek(hash uint64, key string, now meter.Instant) *gate {
	g := s.find(hash)
	switch {
	case g != nil && (!g.setting.overridden() || g.name == key):
	case s.overflow.gate != nil && !s.spare(s.overflow.gate, now):
		if g = s.overflow.gate; !s.overflow.has(key) && s.hasRoom(now) {
			g = newGate(key, g, now, 0)
		}
	default:
		g = s.unseen(0)
	}
	s.touch(g, now)
	s.reclaim(g, now)
	return g
}
