package quotient

import (
	"time"

	"github.com/quotient-go/quotient/internal/meter"
	"github.com/quotient-go/quotient/policy"
)

// gate stands for one key: a resource for each rule of its setting, and the queue in front of them. The
// shard's lock guards it. A key with one rate and no queue needs these 64 bytes, until it is refused. The
// parts that most keys never need are behind one pointer.
type gate struct {
	first   meter.Bucket // of the first rate that counts requests
	setting *setting     // the newest that has been applied
	ext     *extension   // nil for a key with one rate that is not waited for and was not refused lately
	used    int32        // slots in flight
	held    int32        // permits that point here
	half    uint32       // of the hash of the key: see mark
	eighth  uint8
	seen    uint8  // when it was last asked, by ticksAt; it wraps
	epoch   uint16 // counts the settings applied: what was taken in one may be given back in it; it wraps
	name    string // the key
}

// extension is the part of a gate that is rarely used.
type extension struct {
	// Each call looks at these, and they are one cache line with the first field of the queue:
	plans    []*gate // what is left of the key's limit in the other plans that it was in: see override.go
	expiring []*holding
	recent   *recent // of a key that was refused; nil for another one

	queue   queue
	learned *learned       // nil under a policy that never learns
	rest    []meter.Stored // of the rates that first is not of
	backlog *backlog       // what the queue asks for; nil while it is empty
	timer   *time.Timer    // serves the next; the only timer a gate has
	ready   ready
	timed   bool          // one of the queue asks how long it has waited
	blocked Reason        // what the next waits for
	nextEnd time.Duration // the earliest of the ends of expiring: instant.at
}

// ready is when the next of a queue can be served.
type ready struct {
	at    time.Duration // instant.at
	known bool          // else only a release can tell
	given bool          // the waiter that was next then is served, and those behind it are being served
}

// backlog counts what those who wait ask for, class by class: requests, then events of each unit.
type backlog [numClasses][1 + maxUnits]int64

// verdict is what stands between a demand and its admission. The zero value: nothing.
type verdict struct {
	reason Reason
	rule   int16         // index of the rule, or ruleNone
	wait   time.Duration // until there is room as far as time alone decides; never: unknown
}

const ruleNone = -1

// final reports whether waiting does not help.
func (v *verdict) final() bool {
	return v.reason == ReasonDenied || v.reason == ReasonTooLarge || v.reason == ReasonShare
}

// verdict is the answer of a rule that holds a call back.
func (r *rule) verdict(wait time.Duration) verdict { return verdict{r.reason, int16(r.index), wait} }

// newGate returns a gate for a key with what is left of another one, and nothing else of it. The seed is
// that of its controllers.
func newGate(name string, like *gate, t meter.Instant, seed uint64) *gate {
	g := &gate{name: name, setting: like.setting, first: like.first}
	x := like.ext
	if x == nil {
		return g
	}
	if x.learned != nil {
		g.ext = extensionFor(len(x.learned.pacers))
		g.ext.learned.copyFrom(x.learned, t.At, like.setting, seed)
	}
	if len(x.rest) > 0 {
		rest := make([]meter.Stored, len(x.rest))
		for i, r := range x.rest {
			rest[i] = r.Clone()
		}
		g.extend().rest = rest
	}
	for _, other := range x.plans {
		g.extend().plans = append(g.ext.plans, newGate(name, other, t, 0))
	}
	return g
}

// extensionFor returns an extension with room for n pacers: in one piece for most.
func extensionFor(n int) *extension {
	switch n {
	case 1:
		return inOnePiece(func(p *[1]pacer) []pacer { return p[:] })
	case 2:
		return inOnePiece(func(p *[2]pacer) []pacer { return p[:] })
	case 3:
		return inOnePiece(func(p *[3]pacer) []pacer { return p[:] })
	}
	return &extension{learned: &learned{pacers: make([]pacer, n)}}
}

// inOnePiece returns an extension and an array of pacers behind it.
func inOnePiece[P any](slice func(*P) []pacer) *extension {
	x := new(struct {
		extension
		l learned
		p P
	})
	x.l.pacers, x.learned = slice(&x.p), &x.l
	return &x.extension
}

func (g *gate) extend() *extension {
	if g.ext == nil {
		g.ext = new(extension)
	}
	return g.ext
}

// shrink drops the extension if nothing in it must be kept.
func (g *gate) shrink() {
	x := g.ext
	if len(x.rest)+len(x.plans)+len(x.expiring)+x.queue.len == 0 && x.learned == nil && x.recent == nil {
		g.ext = nil
	}
}

// waited reports whether callers wait.
func (g *gate) waited() bool { return g.ext != nil && g.ext.queue.len > 0 }

// waiters returns how many wait.
func (g *gate) waiters() int {
	if g.ext == nil {
		return 0
	}
	return g.ext.queue.len
}

// resource returns what is left of a rule of the gate's setting.
func (g *gate) resource(r *rule) meter.Meter {
	switch r.place {
	case placeRest:
		return g.ext.rest[r.at]
	case placeSlots:
		return (*keySlots)(g)
	case placeControllers:
		return &g.ext.learned.pacers[r.at]
	case placeControllerSlots:
		return (*keyControllerSlots)(g)
	}
	return &g.first
}

// admitNow takes n requests where the slots and a single bucket, with controllers or without, decide, and
// have room. It is admit for most calls in most limiters, and nothing that admit would refuse.
func (g *gate) admitNow(t meter.Instant, n int) bool {
	st := g.setting
	slots := st.limit.InFlight > 0
	switch {
	case slots && n > st.slots-int(g.used), n > st.fastMax && !st.slotsOnly:
		return false
	case st.slotsOnly:
	case len(st.ctrls) > 0:
		l := g.ext.learned
		if slots && n > l.slots-int(g.used) || !l.takeNow(t.At, &g.first, &st.first, float64(n)) {
			return false
		}
	case !g.first.TakeNow(t.At, &st.first, float64(n)):
		return false
	}
	if slots {
		g.used += int32(n)
	}
	if p := g.tally(); p != nil {
		p.count(&demand{weight: n}, g.used, 1)
	}
	return true
}

// admit takes all that d asks for, or nothing.
func (g *gate) admit(t meter.Instant, d *demand) verdict {
	v := g.look(t, d)
	if v.reason == ReasonNone {
		g.take(t, d)
	}
	return v
}

// look returns what stands between d and its admission, and takes nothing.
func (g *gate) look(t meter.Instant, d *demand) verdict {
	if v := g.setting.refuses(d); v.reason != ReasonNone {
		return v
	}
	if g.setting.awaiting {
		return verdict{ReasonPool, ruleNone, meter.Never}
	}
	return g.longest(t, d, nil)
}

// waitBehind returns when d's turn would come behind all that wait in its class and above, as far as time
// alone decides. Some waiters of lower classes may come first too; a later call goes before none of the
// others. Rates give a lower bound. When slots that are taken come free is unknown.
func (g *gate) waitBehind(t meter.Instant, d *demand) verdict {
	st := g.setting
	if st.awaiting {
		return verdict{ReasonPool, ruleNone, meter.Never}
	}
	if st.slotsOnly {
		return st.order[0].verdict(meter.Never)
	}
	b := new(backlog)
	if g.ext != nil && g.ext.backlog != nil {
		b = g.ext.backlog
	}
	v := g.longest(t, d, b)
	switch {
	case v.wait > 0:
		return v
	case st.limit.InFlight > 0:
		return st.order[0].verdict(meter.Never) // slots are tried first
	}
	return verdict{ReasonRate, ruleNone, 0}
}

// longest returns the rule that makes d wait the longest, behind a backlog unless that is nil. Behind one,
// rules that time alone does not refill are left out.
func (g *gate) longest(t meter.Instant, d *demand, b *backlog) (worst verdict) {
	for _, r := range g.setting.order {
		n := d.of(r.unitID)
		if n == 0 || b != nil && !r.timed || r.strict && worst.wait > meter.LongWait {
			continue
		}
		from, ahead := time.Duration(0), 0.0
		if b != nil {
			ahead = b.ahead(r.unitID, d.class)
		}
		if r.strict && worst.wait > 0 {
			from = worst.wait + time.Microsecond // a turn that closes at that very instant would be missed
		}
		w := g.resource(r).Until(t, &r.Rule, from, ahead, float64(n))
		if w == from && from > worst.wait { // a window may open before from, and waits are cut to whole nanoseconds
			w = g.resource(r).Until(t, &r.Rule, worst.wait, ahead, float64(n))
			from = worst.wait
		}
		if w > max(worst.wait, from) {
			worst = r.verdict(w)
		}
	}
	return worst
}

// refuses returns why d can never be admitted under st.
func (st *setting) refuses(d *demand) verdict {
	if st.limit.Deny {
		return verdict{ReasonDenied, ruleNone, meter.Never}
	}
	for _, r := range st.order {
		switch n := d.of(r.unitID); {
		case n > r.most:
			return verdict{ReasonTooLarge, int16(r.index), meter.Never}
		case n > r.here && !st.awaiting:
			return verdict{ReasonShare, int16(r.index), meter.Never}
		}
	}
	return verdict{}
}

// take takes what look has found room for.
func (g *gate) take(t meter.Instant, d *demand) {
	for _, r := range g.setting.order {
		if n := d.of(r.unitID); n > 0 {
			g.resource(r).Take(t, &r.Rule, float64(n))
		}
	}
	if p := g.tally(); p != nil {
		p.count(d, g.used, 1)
	}
	g.noteLatest(t)
}

// age returns for how long what d has taken had been there, as far as no bucket was full.
func (g *gate) age(t meter.Instant, d *demand) time.Duration {
	least := meter.Never
	for _, r := range g.setting.order {
		if d.of(r.unitID) > 0 {
			least = min(least, g.resource(r).Age(t, &r.Rule))
		}
	}
	return least
}

// mustQueue reports whether a call of a class must wait behind others. A call that need not wait overtakes
// all waiters: that is counted (queue.passed), and recheck must follow.
func (g *gate) mustQueue(class Priority) bool {
	return g.waited() && !g.ext.queue.canOvertake(class)
}

// giveBack undoes a take, at the instant taken, of what was never used. Slots come back by their release.
func (g *gate) giveBack(t meter.Instant, taken time.Duration, d *demand) {
	for _, r := range g.setting.order {
		if n := d.of(r.unitID); n > 0 && r.timed {
			g.resource(r).Refund(t, taken, &r.Rule, float64(n))
		}
	}
	if p := g.tally(); p != nil {
		p.count(d, g.used, -1)
	}
	g.noteLatest(t)
}

// noteLatest dates what comes next for the controllers.
func (g *gate) noteLatest(t meter.Instant) {
	if len(g.setting.ctrls) > 0 {
		g.ext.learned.latest = t.At
	}
}

// advance ends what is lent, and brings the controllers up to now; p is nil where no call may start one.
func (g *gate) advance(t meter.Instant, p policy.Policy) {
	g.endLoan(t)
	if len(g.setting.ctrls) > 0 {
		g.ext.learned.advance(t.At, g.setting, p)
	}
}

// tally returns what is counted of the gate's key; nil for a key that is not named.
func (g *gate) tally() *tally {
	if g.setting.own == nil {
		return nil
	}
	return g.setting.own.tally
}

// part returns what is lent of the limit; 0 for the share.
func (g *gate) part() float64 {
	if g.setting.own == nil {
		return 0
	}
	return g.setting.own.part
}

// endLoan puts a gate back under its share, as of the instant at which its part has ended, if it has.
func (g *gate) endLoan(t meter.Instant) {
	old := g.setting.own
	if old == nil || old.part == 0 || t.At < old.tally.ends {
		return
	}
	w, ends := *old, old.tally.ends
	w.part, w.tally.ends = 0, meter.Never // it ends once
	st := w.beside(g.setting.base, g.setting, false)
	st.at = meter.Instant{At: ends, Wall: t.Wall - int64(t.At-ends)}
	g.apply(st)
}

// noteHeldBack notes that a rule has held a call back, for its controller. For a key that has learned
// nothing it notes nothing, or an idle key would differ from one never seen.
func (g *gate) noteHeldBack(r *rule) {
	if r.ctrl != noController && g.ext.learned.due != 0 {
		g.ext.learned.pacers[r.ctrl].heldBack, g.ext.learned.last = true, r.ctrl
	}
}

// upTo returns the largest weight, at most n, for which there is room now, and the rule that allows no more.
func (g *gate) upTo(t meter.Instant, n int) (most int, by *rule) {
	st := g.setting
	if st.limit.Deny || st.awaiting {
		return 0, nil
	}
	for _, r := range st.order {
		if r.unitID != 0 {
			continue
		}
		if most := g.resource(r).UpTo(t, &r.Rule, n); most < n {
			n, by = most, r
			g.noteHeldBack(r)
		}
	}
	return max(n, 0), by
}

// idle reports whether a gate without permits and slots in use is as good as absent: equal to u, the gate of
// a key never seen.
func (g *gate) idle(t meter.Instant, u *gate) bool {
	st := g.setting
	if g.waited() || len(st.ctrls) > 0 && g.ext.learned.due != 0 {
		return false
	}
	if st.own != nil && !sameShape(st, u.setting) { // under Deny it keeps its rules
		return false
	}
	for i := range st.rules {
		r := &st.rules[i]
		if g.resource(r).State(t, &r.Rule) != u.resource(r).State(t, &r.Rule) {
			return false // less; or more, after a limit of its own
		}
	}
	return true
}

// ahead returns how much of a unit the waiters of a class and above want.
func (b *backlog) ahead(unit int, class Priority) (sum float64) {
	for c := class; c <= PriorityCritical; c++ {
		sum += float64(b[c-PriorityLow][unit])
	}
	return sum
}

// add counts what d asks for, or takes it off when sign is -1.
func (b *backlog) add(d *demand, sign int) {
	mine := &b[d.class-PriorityLow]
	for unit := range mine {
		mine[unit] += int64(sign) * int64(d.of(unit))
	}
}

// ruleOf returns the rule that a verdict is of; nil for no single one.
func (g *gate) ruleOf(v verdict) *rule {
	if i := int(v.rule); i != ruleNone && i < len(g.setting.rules) {
		return &g.setting.rules[i]
	}
	return nil
}

// decision puts a verdict on a call into words, behind what has been promised. It also returns how far the next turn
// is from that of the call, or 0 if that is not known. The share of a counted rule is what its window allows now.
func (g *gate) decision(t meter.Instant, asks *demand, v verdict, p promises) (d Decision, apart time.Duration) {
	d.Reason = v.reason
	if v.wait < meter.Never {
		d.RetryAfter = v.wait
	}
	if r := g.ruleOf(v); r != nil {
		d.Rule = r.exported()
		if r.Counted {
			_, d.Share, _ = g.resource(r).Left(t, &r.Rule)
		}
		if d.RetryAfter > time.Microsecond { // else its turn has come: waits are cut to whole nanoseconds
			d.RetryAfter, apart = g.told(t, r, asks, d.RetryAfter, p)
		}
	}
	return d, apart
}
