package quotient_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/policy"
)

// The steps of TestPropertyEverything.

func (w *world) one() *replica {
	return w.fleet[pick(w.T, 0, len(w.fleet)-1, "replica")]
}

func (w *world) chance(in int, label string) bool {
	return pick(w.T, 0, in-1, label) == 0
}

// drawKey is a key, and in a profile with plans the plan in which it is asked for behind a slash.
func (w *world) drawKey() string {
	key := fmt.Sprint("k", pick(w.T, 0, w.keys-1, "key"))
	if w.plans {
		if plan := among(w.T, planNames, "plan"); plan != "" {
			return key + "/" + plan
		}
	}
	return key
}

// nameOf is a key without its plan.
func nameOf(key string) string { name, _, _ := strings.Cut(key, "/"); return name }

// planOf is the plan of a key.
func planOf(key string) string { _, plan, _ := strings.Cut(key, "/"); return plan }

// inPlan adds the plan of a key to calls.
func inPlan(key string, opts []quotient.CallOption) []quotient.CallOption {
	return append(slices.Clip(opts), quotient.Plan(planOf(key)))
}

// drawAsks draws the options of a call, and their sum.
func (w *world) drawAsks(r *replica) (opts []quotient.CallOption, n amounts, class quotient.Priority) {
	n[0] = 1
	if w.chance(3, "weighted") {
		weight := pick(w.T, 1, 7, "weight")
		opts, n[0] = append(opts, quotient.Weight(weight)), float64(weight)
	}
	if w.costs && !w.chance(w.priced, "unpriced") {
		i := w.drawUnit()
		cost := pick(w.T, 0, 9, "cost")
		if w.chance(8, "dear") {
			cost *= 3
		}
		opts, n[i] = append(opts, quotient.Cost(units[i], cost)), float64(cost)
	}
	if w.chance(4, "classed") {
		class = quotient.Priority(pick(w.T, -1, 2, "class"))
		opts = append(opts, class.Option())
	}
	return opts, n, class
}

func (w *world) step(o op) {
	r := w.one()
	switch o {
	case opAllow:
		w.allow(r)
	case opTry:
		w.try(r)
	case opUpTo:
		w.upTo(r)
	case opAcquire:
		w.acquire(r)
	case opSleep:
		w.sleep(time.Duration(among(w.T, w.sleeps, "ms")) * time.Millisecond)
	case opSilence:
		w.sleep(time.Duration(pick(w.T, 1, 20, "seconds")) * time.Second)
	case opForget:
		w.sleep(time.Duration(pick(w.T, 1, 11, "minutes")) * time.Minute)
	case opRelease, opReport, opCorrect, opCorrectRequests, opExpire:
		if len(r.kept) > 0 {
			w.permit(o, r, pick(w.T, 0, len(r.kept)-1, "which"))
		}
	case opLimit:
		w.limit(r)
	case opOverride, opDeny:
		w.override(o, r)
	case opReset:
		w.reset(r)
	case opDryRun:
		r.dry = !r.dry
		r.hang(hook{})
		w.tell("replica %d: dry run %v", r.id, r.dry)
		r.l.SetDryRun(r.dry)
		w.changes()
	case opPool, opPoolFor:
		w.pool(o, r)
	case opTell, opGarbage, opLie:
		w.hint(o, r)
	case opClock:
		w.stepClock(r)
	case opCancel:
		if len(r.calls) > 0 {
			c := r.calls[pick(w.T, 0, len(r.calls)-1, "call")]
			w.tell("replica %d %s: call %d is given up", r.id, c.key, c.seq)
			c.cancel()
		}
	case opJoin, opLeave:
		w.membership(o, r)
	case opLook:
		w.look(r)
	case opComeBack:
		w.comeBack(r)
	case opHook:
		w.setHook(r)
	case opPlan:
		w.setPlan(r, among(w.T, planNames[1:], "plan"), w.drawLimit("plan"))
	case opAll:
		w.all(r)
	case opLend:
		w.lend(r)
	case opCount:
		w.count(r)
	}
}

func (w *world) sleep(d time.Duration) {
	d += time.Duration(pick(w.T, 0, 999, "ns"))
	w.tell("sleep %v", d)
	time.Sleep(d)
}

// guarded calls f, and reports whether a hook has panicked in it.
func guarded(f func()) (p any) {
	defer func() {
		if p = recover(); p != nil && p != "OnAdmit" && p != "OnWait" {
			panic(p)
		}
	}()
	f()
	return nil
}

func (w *world) allow(r *replica) {
	key := nameOf(w.drawKey())
	dry, ok := quotient.CountsOf(r.l).Dry, false
	p := guarded(func() { ok = r.l.Allow(key) })
	w.tell("replica %d %s: Allow: %v %v", r.id, key, ok, p)
	switch {
	case !ok && p == nil:
		r.counts.refused++
		r.refused(key, amounts{1},
			&quotient.LimitedError{Decision: quotient.Decision{Reason: quotient.ReasonRate}})
	case r.dry && quotient.CountsOf(r.l).Dry > dry:
		r.counts.admitted++
		r.counts.dry++
	default:
		r.admitted(key, amounts{1}, quotient.Permit{}, time.Now(), false, false)
	}
}

func (w *world) try(r *replica) {
	key := w.drawKey()
	opts, n, class := w.drawAsks(r)
	times := 1
	if w.chance(3, "all there is") {
		times = 30
	}
	for ; times > 0 && w.tryFor(r, key, opts, n, class).OK; times-- {
	}
}

func (w *world) tryFor(r *replica, key string, opts []quotient.CallOption, n amounts,
	class quotient.Priority) quotient.Decision {
	var p quotient.Permit
	var d quotient.Decision
	before, opts := quotient.CountsOf(r.l).Dry, inPlan(key, opts)
	said := []quotient.RuleState{{Name: "nothing yet"}}
	// AppendState is of the plan that a key is in, if it is remembered, and what makes room serves waiters
	// too.
	if !w.plans && len(r.calls) == 0 && w.chance(4, "state") {
		opts = append(opts, quotient.StateInto(&said))
	}
	panicked := guarded(func() { p, d = r.l.TryAcquire(nameOf(key), opts...) })
	w.tell("replica %d %s: TryAcquire %v class %v: %v %v", r.id, key, n, class, d, panicked)
	if told := len(said) == 0 || said[0].Name != "nothing yet"; told && panicked == nil &&
		r.hook() == (hook{}) {
		if now := r.l.AppendState(nil, nameOf(key)); !slices.Equal(now, said) {
			w.broken("replica %d %s: StateInto said %+v, AppendState %+v", r.id, key, said, now)
		}
	}
	switch {
	case panicked != nil && r.dry && quotient.CountsOf(r.l).Dry > before:
		r.counts.admitted++
		r.counts.dry++
	case panicked != nil:
		r.admitted(key, n, p, time.Now(), false, false)
	case d.OK:
		r.keep(r.admitted(key, n, p, time.Now(), false, false))
	default:
		r.counts.refused++
		r.refused(key, n, &quotient.LimitedError{Key: key, Decision: d})
		r.returns(key, n, d)
	}
	return d
}

// returns holds what a controller gives as the time to come back. That is the rest of its pause and what is
// missing at its pace, and never the time between two probes.
func (r *replica) returns(key string, n amounts, d quotient.Decision) {
	if d.Rule != "adaptive" || d.Reason != quotient.ReasonRate || len(r.calls) > 0 || planOf(key) != "" {
		return
	}
	for _, x := range r.l.AppendState(nil, nameOf(key)) {
		if x.Name != d.Rule || x.Unit != d.Unit || x.Pace == 0 {
			continue
		}
		owed := n[unitIndex(x.Unit)] + 40 // the most that one call takes
		if most := x.Reset.Seconds() + owed/x.Pace + 1e-6; d.RetryAfter.Seconds() > most {
			r.w.broken("replica %d %s: a rate of %v a second that pauses for %v gives %v", r.id, key, x.Pace,
				x.Reset, d.RetryAfter)
		}
	}
}

// keep keeps the permit if there is anything to give back.
func (r *replica) keep(h *held) {
	if quotient.IsKept(h.p) {
		r.kept = append(r.kept, h)
	}
}

func (w *world) upTo(r *replica) {
	key, most := w.drawKey(), among(w.T, []int{1, 3, 7, 40}, "up to")
	h := r.hook()
	h.panicOnAdmit = false
	r.hang(h)
	p, n := r.l.TryAcquireUpTo(nameOf(key), most, inPlan(key, nil)...)
	w.tell("replica %d %s: TryAcquireUpTo %d: %d", r.id, key, most, n)
	if n == 0 {
		r.counts.refused++
		r.refused(key, amounts{1},
			&quotient.LimitedError{Decision: quotient.Decision{Reason: quotient.ReasonRate}})
		return
	}
	r.keep(r.admitted(key, amounts{float64(n)}, p, time.Now(), false, false))
}

func (w *world) acquire(r *replica) {
	key := w.drawKey()
	opts, n, class := w.drawAsks(r)
	ctx, cancel := context.WithCancel(context.Background())
	if w.chance(3, "deadline") {
		ctx, cancel = context.WithTimeout(ctx,
			time.Duration(pick(w.T, 1, 9000, "deadline ms"))*time.Millisecond+11)
	}
	w.seq++
	c := &call{began: time.Now(), key: key, n: n, class: class, cancel: cancel, seq: w.seq,
		slow: r.conf.hooked && r.hook() != hook{}}
	r.calls = append(r.calls, c)
	w.tell("replica %d %s: call %d: Acquire %v class %v", r.id, key, c.seq, n, class)
	go func() {
		defer func() { r.done <- c }()
		c.panic = guarded(func() { c.permit, c.err = r.l.Acquire(ctx, nameOf(key), inPlan(key, opts)...) })
		c.at = time.Now()
	}()
}

func (w *world) drawFeedback() policy.Feedback {
	f := policy.Feedback{Outcome: policy.Outcome(pick(w.T, 0, 3, "outcome"))}
	if w.chance(3, "retry") {
		f.RetryAfter = time.Duration(pick(w.T, 1, 4000, "retry after")) * time.Millisecond
	}
	return f
}

func (w *world) permit(o op, r *replica, i int) {
	h := r.kept[i]
	switch o {
	case opRelease:
		w.tell("replica %d %s: release %v", r.id, h.key, h.charged)
		h.p.Done(w.drawFeedback())
		if w.chance(8, "twice") {
			h.p.Release()
		}
		r.kept = slices.Delete(r.kept, i, i+1)
	case opReport:
		h.p.Report(w.drawFeedback())
	case opCorrect:
		w.correct(r, h)
	case opCorrectRequests:
		used := pick(w.T, 0, h.weight, "used")
		err := h.p.Correct("", used)
		w.tell("replica %d %s: Correct requests %d to %d: %v", r.id, h.key, h.weight, used, err)
		if err == nil && h.t != nil {
			h.t.net[0] = min(h.t.net[0], float64(used))
			h.slots, h.weight = min(h.slots, used), used
			r.key(h.key).again()
			w.takeAgain(r, h.key, 0)
		}
	case opExpire:
		in := time.Duration(pick(w.T, -1, 4, "expire in")) * time.Second
		w.tell("replica %d %s: expire %v in %v", r.id, h.key, h.charged, in)
		if h.p.ExpireIn(in); quotient.IsOut(h.p) {
			if h.ends = time.Now().Add(in); in <= 0 {
				h.ends = time.Time{}
			}
		}
	}
}

// correct tells the true cost of a permit. A higher cost is taken now; a lower cost comes off the latest
// takes first.
func (w *world) correct(r *replica, h *held) {
	u := w.drawUnit()
	used := pick(w.T, 0, 15, "cost")
	if now := int(h.charged[u]); now > 0 && !w.chance(4, "more") {
		used = pick(w.T, 0, now, "less")
		if coin(w.T, "nothing") {
			used = 0
		}
	}
	err := h.p.Correct(units[u], used)
	w.tell("replica %d %s: Correct %s %v to %d: %v", r.id, h.key, units[u], h.charged[u], used, err)
	if err != nil || h.t == nil {
		return
	}
	k, more := r.key(h.key), float64(used)-h.charged[u]
	h.charged[u] = float64(used)
	if more > 0 {
		t := &taking{at: time.Now()}
		t.net[u], t.gross[u] = more, more
		h.extra = append(h.extra, t)
		k.items = append(k.items, item{at: t.at, took: t})
		return
	}
	for i := len(h.extra) - 1; i >= 0 && more < 0; i-- {
		back := min(-more, h.extra[i].net[u])
		h.extra[i].net[u] -= back
		more += back
	}
	h.t.net[u] = max(0, h.t.net[u]+more)
	k.again()
	w.takeAgain(r, h.key, u)
}

// takeAgain has calls take what has come back, and what should not have.
func (w *world) takeAgain(r *replica, key string, unit int) {
	if w.windows < 10 || !coin(w.T, "take again") {
		return
	}
	n, opts := amounts{1}, []quotient.CallOption(nil)
	if unit > 0 {
		n[unit], opts = 1, append(opts, quotient.Cost(units[unit], 1))
	}
	for times := 12; times > 0 && w.tryFor(r, key, opts, n, 0).OK; times-- {
	}
}

// all calls for several keys at once. When one is refused, the others are as if they had not been called.
func (w *world) all(r *replica) {
	h := r.hook()
	h.panicOnAdmit = false
	r.hang(h)
	var keys []string
	var wants []amounts
	var claims []quotient.Claim
	for range pick(w.T, 1, 3, "claims") {
		key := w.drawKey()
		opts, n, _ := w.drawAsks(r)
		keys, wants = append(keys, key), append(wants, n)
		claims = append(claims, quotient.Claim{Limiter: r.l, Key: nameOf(key), Options: inPlan(key, opts)})
	}
	ps, refused, d := quotient.TryAcquireAll(nil, claims...)
	w.tell("replica %d %s: TryAcquireAll %v: %d %v", r.id, keys, wants, refused, d)
	if d.OK {
		for i, p := range ps {
			r.keep(r.admitted(keys[i], wants[i], p, time.Now(), false, false))
		}
		return
	}
	r.counts.refused++
	r.counts.cancelled += uint64(refused)
	alone := true
	for i, key := range keys[:refused] {
		alone = alone && nameOf(key) != nameOf(keys[refused])
		if k := r.key(key); w.plans { // what has counted in other plans does not come back there
			k.items = append(k.items, item{at: time.Now(), took: &taking{at: time.Now(), gross: wants[i]}})
		}
	}
	if !alone {
		return
	}
	r.refused(keys[refused], wants[refused], &quotient.LimitedError{Key: keys[refused], Decision: d})
}

// look looks at everything, which changes nothing.
func (w *world) look(r *replica) {
	key := w.drawKey()
	opts, _, _ := w.drawAsks(r)
	in := func(d quotient.Decision) string {
		return (&quotient.LimitedError{Key: key, Decision: d}).Error()
	}
	name, opts := nameOf(key), inPlan(key, opts)
	before := r.l.Check(name, opts...)
	r.l.Explain(name, opts...)
	r.l.AppendState(nil, name)
	r.l.Top(3)
	for range r.l.Keys() {
	}
	if after := r.l.Check(name, opts...); !r.conf.learns && quotient.CountsOf(r.l).Overflowed == 0 &&
		in(before) != in(after) {
		w.broken("replica %d %s: a look has made of %+v %+v", r.id, key, before, after)
	}
}

// comeBack asks for something. If the answer has a time to come back it asks again then: the time must be
// right, if no other call has come.
func (w *world) comeBack(r *replica) {
	key := w.drawKey()
	opts, n, class := w.drawAsks(r)
	d := w.tryFor(r, key, opts, n, class)
	if hi, _ := r.key(key).upToNow(); hi.loan.part > 0 || hi.counts() {
		return // it may end meanwhile, and the next window may be the replica's alone
	}
	if d.OK || d.RetryAfter == 0 || d.RetryAfter > time.Hour || d.Reason != quotient.ReasonRate || !r.exact ||
		r.stepped || len(r.calls) > 0 || quotient.CountsOf(r.l).Overflowed > 0 {
		return
	}
	pool := r.poolings
	w.tell("sleep %v", d.RetryAfter)
	time.Sleep(d.RetryAfter)
	synctest.Wait()
	w.judge()
	if again := w.tryFor(r, key, opts, n, class); !again.OK && again.Reason == quotient.ReasonRate &&
		again.RetryAfter > time.Microsecond && pool == r.poolings {
		w.broken("replica %d %s: asked to come back after %v, and refused then: %+v", r.id, key,
			d.RetryAfter, again)
	}
}
