package quotient

import "time"

// gate stands for one key: its resources and the queue in front of them. The
// shard's lock guards it. What most keys never need is behind one pointer.
type gate struct {
	first   bucket   // of the first rate
	setting *setting // the newest that has been applied
	more    *extra   // nil for a key with one rate and nobody waiting
	slots            // in flight
	held    int32    // permits that point here
	seen    uint32   // when it was last asked, by store.ticks
}

// extra is the part of a gate that is rarely used.
type extra struct {
	rest      []bucket // of the rates after the first
	windows   []window // by rate; nil when none is aligned
	learned   *learned // nil under a policy that never learns
	queue     queue
	ahead     []int          // what the queued ask for, class by class: events by rate, then requests
	timer     *time.Timer    // serves the next; the only timer a gate has
	turn      time.Time      // when the turn of the next comes as far as known; zero: unknown
	given     bool           // who had that turn is served, and those behind it are being served
	blocked   Reason         // what the next waits for
	expiring  []*holding     // of permits that are given back by time
	nextEnd   time.Duration  // the earliest of their ends, from Limiter.base
	lows      []lows         // by rate, while a cost may be corrected; see refund.go
	takes     uint64         // how many asks with a cost have been admitted
	names     map[string]int // of the overflow gate: keys that wait or hold through it
	overrides uint32         // how often the key has got a limit of its own, or lost it
}

// wakeBatch is how many waiters are served in one hold of a lock, so that none is held long.
const wakeBatch = 64

// verdict is what stands between a demand and its admission. The zero value: nothing.
type verdict struct {
	reason Reason
	rule   int16         // index of the ration, or one of the below
	wait   time.Duration // until there is room as far as time alone decides; never: unknown
}

const (
	ruleNone     = -1
	ruleInFlight = -2
	ruleLaw      = -3 // of the first law; those of the others are below it
)

// ruleOf is the rule of a law, by its index.
func ruleOf(law int) int16 { return int16(ruleLaw - law) }

// law is the index of the law that the verdict is of, or below 0.
func (v *verdict) law() int { return ruleLaw - int(v.rule) }

// final tells that waiting does not help.
func (v *verdict) final() bool {
	return v.reason == ReasonDenied || v.reason == ReasonTooLarge || v.reason == ReasonShare
}

// newGate returns a gate with the buckets and windows of another one, and nothing else of it. The seed is
// that of its laws.
func newGate(like *gate, now time.Time, seed uint64) *gate {
	g := &gate{setting: like.setting, slots: slots{size: like.size}}
	g.first.copyFrom(&like.first)
	m := like.more
	if m == nil || m.rest == nil && m.windows == nil && m.learned == nil {
		return g
	}
	if m.learned == nil {
		g.more = new(extra)
	} else {
		g.more = extraFor(len(m.learned.pacers))
		g.more.learned.seed = seed
		m.learned.copyTo(g.more.learned, now.Sub(like.setting.origin), like.setting)
		g.resize()
	}
	g.more.windows, g.more.rest = append([]window(nil), m.windows...), copyBuckets(m.rest)
	return g
}

func copyBuckets(from []bucket) []bucket {
	if len(from) == 0 {
		return nil
	}
	to := make([]bucket, len(from))
	for i := range from {
		to[i].copyFrom(&from[i])
	}
	return to
}

// waited tells that somebody waits.
func (g *gate) waited() bool { return g.more != nil && g.more.queue.len > 0 }

// waiters is how many wait.
func (g *gate) waiters() int {
	if g.more == nil {
		return 0
	}
	return g.more.queue.len
}

func (g *gate) extra() *extra {
	if g.more == nil {
		g.more = new(extra)
	}
	return g.more
}

// bucket is that of rate i, which is not aligned.
func (g *gate) bucket(i int) *bucket {
	if i == 0 {
		return &g.first
	}
	return &g.more.rest[i-1]
}

// admitAtOnce takes n requests where the slots and a single bucket, with laws or without, decide, and have
// room. It is admit for most asks in most limiters, and nothing that admit would refuse.
func (g *gate) admitAtOnce(now time.Time, n int) bool {
	st := g.setting
	slots := st.limit.InFlight > 0
	switch {
	case st.slotsOnly:
		return g.slots.take(n)
	case n > st.fast || slots && n > g.free():
		return false
	case len(st.laws) > 0:
		if !g.passAtOnce(now, n) {
			return false
		}
	case !g.first.lim.AllowN(now, n*milli):
		return false
	}
	if slots {
		g.used += int32(n)
	}
	return true
}

// admit takes all that d asks for, or nothing.
func (g *gate) admit(now time.Time, d *demand) verdict {
	v := g.look(now, d)
	if v.reason == ReasonNone {
		g.take(now, d)
	}
	return v
}

// look tells what stands between d and its admission, and takes nothing.
func (g *gate) look(now time.Time, d *demand) verdict {
	st := g.setting
	if v := st.refuses(d); v.reason != ReasonNone {
		return v
	}
	if st.shut {
		return verdict{ReasonPool, ruleNone, never}
	}
	var worst verdict
	for i := range st.rations {
		if n := d.of(st.rations[i].unitID); n > 0 && i != st.strict {
			if w := g.until(i, now, n); w > worst.wait {
				worst = verdict{ReasonRate, int16(i), w}
			}
		}
	}
	worst = g.strictly(now, d, 0, worst)
	if st.limit.InFlight > 0 {
		if v := g.crowded(d.weight); v.reason != ReasonNone {
			return v
		}
	}
	if v := g.pacing(now, d); v.wait > worst.wait {
		return v
	}
	return worst
}

// strictly adds the rate whose turns or sparse windows do not wait for the others: the first of them that is
// open when all others have room, behind so many events in thousandths.
func (g *gate) strictly(now time.Time, d *demand, ahead int, worst verdict) verdict {
	i := g.setting.strict
	if i < 0 || worst.wait > longWait {
		return worst
	}
	r := &g.setting.rations[i]
	n := d.of(r.unitID)
	if n == 0 {
		return worst
	}
	from := worst.wait
	if from > 0 {
		from += time.Microsecond // one that closes at that very instant would be missed
	}
	var w time.Duration
	if r.turn != nil {
		w = r.turn.until(now, g.bucket(i), ahead/milli, from)
	} else {
		w = g.more.windows[i].until(now, int64(ahead/milli), int64(n), r.window, from)
	}
	if w > from {
		return verdict{ReasonRate, int16(i), w}
	}
	return worst
}

// crowded tells what stands between n slots and who asks for them. More than a law has learned may be taken
// when nothing is in flight: or an ask might wait for ever.
func (g *gate) crowded(n int) verdict {
	st := g.setting
	if n > st.slots-int(g.used) {
		return verdict{ReasonInFlight, ruleInFlight, never}
	}
	if i := st.slotsLaw(); i >= 0 && n > g.free() && g.used > 0 {
		return st.verdict(i, never)
	}
	return verdict{}
}

// refuses tells whether d can never be admitted under st.
func (st *setting) refuses(d *demand) verdict {
	if st.limit.deny {
		return verdict{ReasonDenied, ruleNone, never}
	}
	if most := st.limit.InFlight; most > 0 && d.weight > st.slots && (!st.shut || d.weight > most) {
		if d.weight > most {
			return verdict{ReasonTooLarge, ruleInFlight, never}
		}
		return verdict{ReasonShare, ruleInFlight, never}
	}
	for i := range st.rations {
		if r := &st.rations[i]; d.of(r.unitID) > r.most {
			return verdict{ReasonTooLarge, int16(i), never}
		}
	}
	return verdict{}
}

// until is how long it takes until rate i has room for n events, if nobody else asks.
func (g *gate) until(i int, now time.Time, n int) time.Duration {
	switch r := &g.setting.rations[i]; {
	case r.window != nil:
		return g.more.windows[i].until(now, 0, int64(n), r.window, 0)
	case r.turn != nil:
		return r.turn.until(now, g.bucket(i), 0, 0)
	}
	return g.bucket(i).until(now, n*milli)
}

// take takes what look has found room for.
func (g *gate) take(now time.Time, d *demand) {
	st := g.setting
	for i := range st.rations {
		r := &st.rations[i]
		n := d.of(r.unitID)
		switch {
		case n == 0:
		case r.window != nil:
			g.more.windows[i].used += int64(n)
		case r.turn != nil:
			if d.priced && r.unitID > 0 {
				g.noteLow(i, now)
			}
			g.bucket(i).owe(now, milli) // at most a tenth of an interval early
		default:
			if d.priced && r.unitID > 0 {
				g.noteLow(i, now)
			}
			g.bucket(i).take(now, n*milli)
		}
	}
	if d.priced {
		g.countTake()
	}
	if st.limit.InFlight > 0 {
		g.slots.used += int32(d.weight)
	}
	if len(st.laws) > 0 {
		g.pass(now, d)
	}
}

// giveBack undoes a take, at the instant taken, of what was never used.
func (g *gate) giveBack(now, taken time.Time, d *demand) {
	for i := range g.setting.rations {
		r := &g.setting.rations[i]
		n := d.of(r.unitID)
		if r.window != nil {
			g.more.windows[i].giveBack(now, taken, int64(n), r.window)
		} else {
			g.bucket(i).refund(now, r.unspent(now, taken, n*milli))
		}
	}
	if len(g.setting.laws) > 0 {
		g.passBack(now, taken, d)
	}
}

// upTo is the largest weight, at most n, for which there is room now.
func (g *gate) upTo(now time.Time, n int) int {
	st := g.setting
	if st.limit.deny || st.shut {
		return 0
	}
	if st.limit.InFlight > 0 {
		n = min(n, st.slots-int(g.used))
	}
	for i := range st.rations {
		r := &st.rations[i]
		switch {
		case r.unitID != 0:
		case r.window != nil:
			w := &g.more.windows[i]
			w.roll(now, r.window)
			n = min(n, int(w.quota-w.used))
		case r.turn != nil:
			if n = min(n, 1); g.until(i, now, 1) > 0 {
				n = 0
			}
		default:
			n = min(n, g.bucket(i).wholeEvents(now))
		}
	}
	if len(st.laws) > 0 {
		n = g.learnedUpTo(now, n)
	}
	return max(n, 0)
}

// idle tells that the gate, of which nothing is out, is as good as absent: equal to u, the gate of a key
// never seen.
func (g *gate) idle(now time.Time, u *gate) bool {
	st := g.setting
	if g.waited() || len(st.laws) > 0 && !g.more.learned.idle(now.Sub(st.origin), u.more.learned) {
		return false
	}
	for i := range st.rations {
		if c := st.rations[i].window; c != nil {
			w, fresh := &g.more.windows[i], &u.more.windows[i]
			w.roll(now, c)
			fresh.roll(now, c)
			if w.index != fresh.index || w.used != fresh.used || w.quota != fresh.quota {
				return false
			}
		} else if g.bucket(i).tokens(now) != u.bucket(i).tokens(now) {
			return false // fewer; or more, after a limit of its own
		}
	}
	return true
}
