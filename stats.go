package quotient

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quotient-go/quotient/internal/carry"
	"github.com/quotient-go/quotient/internal/inside"
	"github.com/quotient-go/quotient/internal/meter"
)

// Stats are a limiter's counts since it was made, and its present state. Those of different shards are not of one
// instant.
type Stats struct {
	Version       uint64               // counts SetLimit, SetPlan, Override, Reset, SetDryRun, SetPool, ends of ttls
	Overrides     int                  // keys with a limit of their own
	PlanStats                          // of the limiter's own limit
	Plans         map[string]PlanStats // by name
	Pool          PoolStats
	Fleet         FleetStats
	Keys, MaxKeys int // remembered now, and at most
	Waiting       int // callers in queues
	InFlight      int // weight of the permits that are out and have something to give back

	Admitted       uint64            // calls
	Refused        map[Reason]uint64 // calls, by reason; reasons that never occurred are absent
	Waited         uint64            // calls that were queued
	Cancelled      uint64            // waiters whose context ended, and claims that TryAcquireAll gave back
	Evicted        uint64            // idle keys that were dropped
	Overflowed     uint64            // calls decided by an overflow gate, because MaxKeys keys were busy
	DoubleReleases uint64            // releases of a permit that was released, or given back by time, before
	Reclaimed      uint64            // permits given back by MaxHold or Permit.ExpireIn
	Expired        uint64            // turns of a paced rate that were lost: the caller woke too late
	DryRunAdmitted map[Reason]uint64 // calls that only a dry run has admitted, by what stood in the way
	Throttled      uint64            // feedback that was policy.Throttled; 0 under policy.Fixed

	more inside.More
}

// PlanStats is a limit in force: the limiter's own, or that of a plan (SetPlan). A call counts for the plan that it
// named (Plan), also for a key with a limit of its own, and for the limiter's own limit if it named none or is not
// valid. So all add up to Stats.Admitted and Stats.Refused, but for plans that were taken off: each takes its counts
// along. If it is set again it goes on from them, or from 0 after another plan has needed its place.
type PlanStats struct {
	Limit             Limit       // over the fleet
	Rules             []RuleState // of a key never seen; none under a limit that denies
	Admitted, Refused uint64      // calls, since the limiter was made
}

// PoolStats is the pool in force and how it came to be.
type PoolStats struct {
	Pool
	Source    string        // "configured", "set", "followed", or "awaited" while AwaitPool admits nothing
	Age       time.Duration // since the last usable report or SetPool; 0 when there was none
	Until     time.Time     // when the ttl of SetPool ends; zero: none is in force
	LastError string

	Reports, Errors, Rejected uint64 // of the source: usable ones, failures, and pools out of range
}

// FleetStats are the sums over the limiters of this name on all live replicas, zero while no source carries them.
type FleetStats struct {
	Replicas          int // that the sum is of, by weight
	Admitted, Refused uint64
	Waiting, InFlight int
	Age               time.Duration // of the oldest part; math.MaxInt64 while one is missing
}

// Stats returns the limiter's numbers, after a look for permits whose time is over.
func (l *Limiter) Stats() Stats {
	out := Stats{
		MaxKeys: l.maxKeys, Waiting: int(l.waiting.Load()),
		Refused: make(map[Reason]uint64), DryRunAdmitted: make(map[Reason]uint64),
	}
	named := make(map[planID]calls)
	for i := range l.shards {
		s := &l.shards[i]
		l.reclaimAll(s)
		s.mu.Lock()
		out.add(&s.counts)
		out.Keys += int(s.n)
		for _, p := range s.plans {
			p.add(named[p.id])
			named[p.id] = p.calls
		}
		s.mu.Unlock()
	}
	out.Admitted += l.collected.Load()
	out.more.Demand, out.Fleet = l.exchange.stats(time.Since(l.base), l.newsMaxAge)
	l.mu.Lock()
	defer l.mu.Unlock()
	named[0] = out.unnamed(named[0])
	out.PlanStats, out.Plans = l.limits(&l.shards[0], named)
	out.Pool = l.poolStats()
	out.Version, out.Overrides = l.version, len(l.overrides.limits)
	out.more.DryRun, out.more.Learns = l.dry.Load(), l.learns
	return out
}

// stats returns the figures of the latest turn. reports have aged since then.
func (x *exchange) stats(now, maxAge time.Duration) (d inside.Demand, f FleetStats) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.keys == nil {
		return d, f
	}
	d = inside.Demand{
		Keys: len(x.keys), Named: x.asked, Lent: x.lent, Age: older(x.age, now-x.at), MaxAge: maxAge,
		Sent: x.sent, Received: x.received,
	}
	return d, FleetStats{
		Replicas: int(x.fleet[carry.TotalReplicas]), Age: older(x.fleetAge, now-x.at),
		Admitted: uint64(x.fleet[carry.TotalAdmitted]), Refused: uint64(x.fleet[carry.TotalRefused]),
		Waiting: int(x.fleet[carry.TotalWaiting]), InFlight: int(x.fleet[carry.TotalInFlight]),
	}
}

// poolStats is what is believed about the pool. Call with l.mu held.
func (l *Limiter) poolStats() PoolStats {
	h := &l.hints
	out := PoolStats{
		Pool: l.belief.pool, Source: h.source,
		Reports: h.reports, Errors: h.errors, Rejected: h.rejected, LastError: h.lastError,
		Until: l.standing.until,
	}
	if !h.last.IsZero() {
		out.Age = time.Since(h.last)
	}
	return out
}

func (out *Stats) add(c *counters) {
	out.Admitted += c.admitted
	out.Waited += c.waited
	out.Cancelled += c.cancelled
	out.Evicted += c.evicted
	out.Overflowed += c.overflowed
	out.DoubleReleases += c.doubleReleases
	out.Reclaimed += c.reclaimed
	out.Throttled += c.throttled
	out.Expired += c.expired
	out.InFlight += int(c.inFlight)
	for r := range numReasons {
		if n := c.refused[r]; n > 0 {
			out.Refused[r] += n
		}
		if n := c.dryRun[r]; n > 0 {
			out.DryRunAdmitted[r] += n
		}
	}
}

// unnamed returns the calls that named no plan, beside those that did.
func (out *Stats) unnamed(named calls) calls {
	own := calls{admitted: out.Admitted - named.admitted}
	for _, n := range out.Refused {
		own.refused += n
	}
	own.refused -= named.refused
	return own
}

// limits returns the limit in force, and those of the plans, with the calls of each.
func (l *Limiter) limits(s *shard, counts map[planID]calls) (own PlanStats, plans map[string]PlanStats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	plans = make(map[string]PlanStats)
	for _, st := range l.inForce.settings()[1:] {
		if st.planName != "" {
			plans[st.planName] = s.planStats(st, counts[st.plan], now)
		}
	}
	return s.planStats(s.newest(0), counts[0], now), plans
}

func (s *shard) planStats(st *setting, n calls, now meter.Instant) PlanStats {
	return PlanStats{st.limit.clone(), s.unseen(st.plan).looked(now), n.admitted, n.refused}
}

// looked is where an untouched gate stands.
func (g *gate) looked(now meter.Instant) []RuleState {
	g.advance(now, nil)
	return g.state(nil, now)
}

// reclaimAll gives back what was held for too long, block by block.
func (l *Limiter) reclaimAll(s *shard) {
	for b := 0; ; b++ {
		s.mu.Lock()
		if b >= len(s.permits.blocks) {
			s.mu.Unlock()
			return
		}
		gates := s.reclaimBlock(s.permits.blocks[b])
		s.mu.Unlock()
		for _, g := range gates {
			s.mu.Lock()
			s.serveAndUnlock(g)
		}
	}
}

func (s *shard) reclaimBlock(block *[permitBlock]holding) (gates []*gate) {
	now := s.now()
	for i := range block {
		h := &block[i]
		if !h.out() || h.end == 0 {
			continue
		}
		if g := h.gate; h.end <= now.At {
			s.reclaim(g, now)
			gates = append(gates, g)
		}
	}
	return gates
}

// KeyState is the state of one key on this replica.
type KeyState struct {
	Key               string
	Plan              string      // that it is in; "" for the limiter's own limit
	Rules             []RuleState // none under a limit that denies
	InFlight, Waiting int
	Used              float64   // of the rate, the slots or the pace with the least left: 0 to 1
	Overridden        bool      // the key has a limit of its own
	Until             time.Time // when that ends; zero: never, or the key has none
	Then              *Limit    // its own limit after that, as in KeyLimit
	Part              float64   // of the limit, lent to this replica in place of its share; 0: the share

	// Admitted and Refused are calls in the last minute, of all plans: since 50 to 60 seconds ago, in spans of ten.
	// Counting begins with a refusal. So both are 0 for a key that was not refused in this time, or was reset or
	// dropped as idle since. Waiters count when they return, and those whose context has ended as refused: to their
	// callers it is the same. Calls that are not valid do not count. In a dry run Refused has those of
	// Stats.DryRunAdmitted. Keys that share the overflow gate have its counts. Counting takes 256 bytes for a key with
	// one rate or slots alone, for a minute, and 64 for any other.
	Admitted, Refused uint64
}

// Keys iterates over the keys that are remembered, in no order; those that come or go meanwhile may be missing. A
// million keys take less than a second.
func (l *Limiter) Keys() iter.Seq[KeyState] {
	return func(yield func(KeyState) bool) {
		for i := range l.shards {
			s := &l.shards[i]
			s.mu.Lock()
			gates := s.gates()
			s.mu.Unlock()
			for _, g := range gates {
				if k, ok := s.keyState(g); ok && !yield(k) {
					return
				}
			}
		}
	}
}

// keyState is where a key stands, if it is still remembered. It takes the lock.
func (s *shard) keyState(g *gate) (k KeyState, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.has(g) {
		return KeyState{}, false
	}
	now := s.now()
	s.touch(g, now)
	s.reclaim(g, now)
	k = g.keyState(g.name, now)
	k.Rules = g.state(nil, now)
	return k, true
}

// keyState is where the gate's key stands, but for its rules.
func (g *gate) keyState(key string, now meter.Instant) KeyState {
	var last calls
	if g.ext != nil && g.ext.recent != nil {
		last = g.ext.recent.sum(now)
	}
	k := KeyState{
		Key: key, Plan: g.setting.planName, InFlight: int(g.used), Waiting: g.waiters(),
		Used: g.use(now), Overridden: g.setting.overridden() && !g.setting.lapsed(), Part: g.part(),
		Admitted: last.admitted, Refused: last.refused,
	}
	if k.Overridden {
		k.Until, k.Then = g.setting.own.given.Until, copyOf(g.setting.own.given.Then)
	}
	return k
}

// use returns how much of its fullest rule the gate has used.
func (g *gate) use(now meter.Instant) float64 {
	most := 0.0
	for i := range g.setting.rules {
		r := &g.setting.rules[i]
		left, of, _ := g.resource(r).Left(now, &r.Rule)
		most = max(most, 1-left/max(of, 1))
	}
	return min(max(most, 0), 1)
}

// Rule is one part of a limit: a rate, the slots, or a controller of the policy. The Limit of a controller is the most
// that it may allow, +Inf without a rate, and its Share that divided by the pool, 0 when the size of the pool is
// unknown.
type Rule struct {
	Name         string        // of the rate; "in-flight" for slots, "adaptive" for a controller
	Unit         string        // of the events, "" for requests; "in-flight" for a controller of slots
	Limit, Share float64       // fleet and here: events per Window, or slots; of a controller, per second
	Window       time.Duration // of a rate, its Per; where a controller of events refuses (Decision), a second
}

// exported is what is told of a rule.
func (r *rule) exported() Rule { return Rule{r.name, r.unit, r.limit, r.share, r.window} }

// RuleState is the state of a key under one rule, on this replica. A rate has a Window, a controller has a Pace, and
// slots have neither. The Burst and Left of a controller are those of its pace.
type RuleState struct {
	Rule
	Burst       float64       // events that may come at once, here; 0 for windows and slots
	Left        float64       // events, or slots, that are left here; negative: owed
	Reset       time.Duration // until a rate is full, or a window has room; until a controller's pause ends
	Pace        float64       // what a controller allows, or will after a pause: events per second, or slots
	ForgottenIn time.Duration // until a controller forgets if no feedback comes; 0: nothing has been learned
}

// StateInto makes Acquire, TryAcquire or Check also return the state on which the decision is based: (*into)[:0] gets
// the key under each rule appended, first the rates, then the slots and the controllers. There are none under a limit
// that denies or while AwaitPool waits. *into stays unchanged if the call is not valid, or if the context had ended
// before.
func StateInto(into *[]RuleState) CallOption { return CallOption{kind: optionState, into: into} }

// tell puts where the gate stands where calls want it.
func (g *gate) tell(opts []CallOption, now meter.Instant) {
	for _, a := range opts {
		if a.into != nil {
			g.advance(now, nil)
			if *a.into = (*a.into)[:0]; !g.setting.awaiting { // else nobody knows what is left
				*a.into = g.state(*a.into, now)
			}
		}
	}
}

// state appends where the gate stands under each rule.
func (g *gate) state(dst []RuleState, now meter.Instant) []RuleState {
	st := g.setting
	if st.limit.Deny {
		return dst
	}
	for i := range st.rules {
		r := &st.rules[i]
		if r.hidden {
			continue
		}
		n := len(dst)
		dst = slices.Grow(dst, 1)[:n+1]
		x := &dst[n]
		*x = RuleState{Rule: r.exported(), Burst: r.burst}
		left, of, full := g.resource(r).Left(now, &r.Rule)
		if x.Left, x.Reset = left, full; r.Counted {
			x.Share = of
		}
		x.Left = min(x.Left, float64(r.most)) // a bucket may hold what several turns in a row admit
		switch {
		case r.ctrl != noController:
			if x.Burst = of; r.unit == inFlightRule {
				x.Left, x.Burst, _ = (*keyControllerSlots)(g).Left(now, &r.Rule)
			}
			g.ext.learned.state(x, now.At, r.ctrl)
		case r.place == placeRest: // slots and the first bucket know no turns
			if wait := g.resource(r).Until(now, &r.Rule, 0, 0, 1); wait > 0 && wait < meter.Never {
				x.Left, x.Reset = min(x.Left, math.Nextafter(1, 0)), max(x.Reset, wait) // outside of its turn
			}
		}
	}
	return dst
}

// state fills in what a controller has learned.
func (l *learned) state(x *RuleState, at time.Duration, ctrl int) {
	x.Pace, x.Window = l.pacers[ctrl].pace, 0
	if l.due != 0 {
		x.ForgottenIn = l.due - at
	}
}

// Explanation is why a call for a key would be admitted, wait or be refused now.
type Explanation struct {
	KeyState
	Remembered bool     // false: a key that would start fresh
	Overflow   bool     // MaxKeys keys are busy, and it shares a gate with others
	Limit      Limit    // that holds for the key, over the fleet
	Next       Decision // what Check returns, but RetryAfter is that of a call for which no other was told a turn

	dryRun bool
	first  Reason // why the first waiter of the key waits; ReasonNone when there is none
	belief belief // of the pool that the limit is divided by
}

// Explain is Check with all that the decision depends on. Without a Plan it goes by the plan that the key is in.
func (l *Limiter) Explain(key string, opts ...CallOption) Explanation {
	now := l.now()
	s, h := l.lock(key)
	defer s.mu.Unlock()
	now = s.tick(now)
	g := s.peek(h, key, now)
	d, err := newDemand(opts, s.l.inForce)
	if slices.ContainsFunc(opts, func(a CallOption) bool { return a.kind == optionPlan }) {
		g = s.within(g, d.plan, now)
	}
	e := Explanation{
		KeyState: g.keyState(key, now), Remembered: s.find(h) != nil, Overflow: s.overflow.is(g),
		dryRun: l.dry.Load(), Limit: g.setting.limit.clone(), belief: g.setting.belief,
	}
	e.Rules = g.state(nil, now)
	if g.waited() {
		e.first = g.ext.blocked
	}
	if err != nil {
		e.Next = Decision{Reason: ReasonBadRequest, bad: err}
		return e
	}
	e.Next = s.answer(g, &d, promises{})
	return e
}

// String is for an operator, a few lines long.
func (e Explanation) String() string {
	var b strings.Builder
	add := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	add("%q: %s%s.\n", e.Key, e.verdict(), e.lastMinute())
	add("Limit over the fleet: %s", e.Limit)
	switch {
	case e.Then != nil:
		add(" (its own, until %s, then %s)", clock(e.Until), e.Then)
	case e.Overridden && !e.Until.IsZero():
		add(" (its own, until %s)", clock(e.Until))
	case e.Overridden:
		b.WriteString(" (its own)")
	case e.Plan != "":
		add(" (plan %s)", e.Plan)
	}
	add("; %s.\n", e.belief.words())
	for _, r := range e.Rules {
		if !e.belief.awaits { // else nobody knows what is left
			add("%s\n", r.words())
		}
	}
	add("%d in flight, %d waiting", e.InFlight, e.Waiting)
	if e.first != ReasonNone {
		add(", the first of them for: %s", e.first)
	}
	b.WriteString(".")
	switch {
	case e.Overflow:
		b.WriteString(" MaxKeys keys are busy: the key shares one limit with others.")
	case !e.Remembered:
		b.WriteString(" No state is kept for the key: it would start as a new one.")
	}
	return b.String()
}

// clock is an instant on the clock of this machine, with the date unless it is within a day.
func clock(t time.Time) string {
	if time.Until(t) < 24*time.Hour {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// verdict is the answer in words.
func (e Explanation) verdict() string {
	n := e.Next
	if n.OK {
		return "the next request is admitted at once"
	}
	text := "the next request has to wait"
	switch n.Reason {
	case ReasonDenied, ReasonTooLarge, ReasonShare, ReasonBadRequest:
		text = "the next request is refused"
	}
	text += " (" + n.Reason.String()
	if n.Rule.Name != "" {
		text += ", rule " + n.Rule.Name
	}
	text += ")"
	if n.RetryAfter > 0 {
		until := time.Now().Add(n.RetryAfter).Format(time.TimeOnly)
		text += fmt.Sprintf(" for %v, until %s", short(n.RetryAfter), until)
	}
	if e.dryRun {
		text += "; this is a dry run, so it is admitted"
	}
	return text
}

// lastMinute is what callers of the key have met with lately, in words; "" if none was refused.
func (e Explanation) lastMinute() string {
	if e.Refused == 0 {
		return ""
	}
	but, were := ";", "were"
	if e.Next.OK {
		but = ", though"
	}
	switch {
	case e.dryRun:
		were = "would have been"
	case e.Refused == 1:
		were = "was"
	}
	return fmt.Sprintf("%s %d %s refused in the last minute, and %d admitted since the first", but, e.Refused, were,
		e.Admitted)
}

// words is where a key stands under the rule.
func (x RuleState) words() string {
	if x.Pace > 0 {
		return x.learned()
	}
	left := math.Trunc(x.Left*1000)/1000 + 0 // not -0
	s := x.Name + ": " + shareWords(x.Share, x.Limit, x.Unit, x.Window) + ", " + digits(left) + " left"
	if x.Reset > 0 {
		s += fmt.Sprintf(", full in %v", short(x.Reset))
	}
	return s + "."
}

// learned is what a controller has learned in words.
func (x RuleState) learned() string {
	unit := x.Unit
	if unit == "" {
		unit = "requests"
	}
	s := "The policy allows " + digits(x.Pace) + " " + unit
	if unit != inFlightRule {
		s += " a second"
	}
	s += fmt.Sprintf(" (share %s, at most %s)", digits(x.Share), digits(x.Limit))
	if x.Reset > 0 {
		s += fmt.Sprintf(", and nothing for %v", short(x.Reset))
	}
	if x.ForgottenIn > 0 {
		return s + fmt.Sprintf("; forgotten in %v.", x.ForgottenIn.Round(time.Second))
	}
	return s + "; nothing has been learned yet."
}

// probe returns what stands between d and its admission, the waiters included.
func (g *gate) probe(now meter.Instant, d *demand) verdict {
	if !g.mustQueue(d.class) {
		return g.look(now, d)
	}
	if v := g.setting.refuses(d); v.reason != ReasonNone {
		return v
	}
	return g.waitBehind(now, d)
}

// answer returns what a call would be answered now, behind what has been promised. A refusal by the overflow gate has
// the reason ReasonKeys.
func (s *shard) answer(g *gate, d *demand, p promises) Decision {
	v := g.probe(s.latest, d)
	if v.reason == ReasonNone {
		return Decision{OK: true}
	}
	if s.overflow.is(g) && !v.final() {
		v.reason = ReasonKeys
	}
	dec, _ := g.decision(s.latest, d, v, p)
	return dec
}
