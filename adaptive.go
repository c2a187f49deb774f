package quotient

import (
	"slices"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// forgetAfter is how long a key keeps what it has learned without feedback; upstreams change
// their limits more seldom than that, and a rate learned before a pause is a guess after it.
const forgetAfter = 10 * time.Minute

// learned joins a policy to a key: feedback in, paced permits out. It has one pacer for each of
// setting.laws, which pace requests, other units and slots; the rates' own buckets and the share of the slots bound them from
// above.
type learned struct {
	pacers []pacer
	latest time.Duration // of admissions, feedback and changes, on the clock of the laws
	due    time.Duration // when all is forgotten, on the same clock; 0: nothing has been learned
	seed   uint64        // of the laws
	last   int           // the pacer that last held an ask back; at first that of requests
}

// extraFor returns an extra with room for n pacers: in one piece for the keys that would have none without a policy.
func extraFor(n int) *extra {
	switch n {
	case 1:
		x := new(struct {
			extra
			l learned
			p [1]pacer
		})
		x.l.pacers, x.learned = x.p[:], &x.l
		return &x.extra
	case 2:
		x := new(struct {
			extra
			l learned
			p [2]pacer
		})
		x.l.pacers, x.learned = x.p[:], &x.l
		return &x.extra
	case 3:
		x := new(struct {
			extra
			l learned
			p [3]pacer
		})
		x.l.pacers, x.learned = x.p[:], &x.l
		return &x.extra
	}
	return &extra{learned: &learned{pacers: make([]pacer, n)}}
}

// copyTo gives m the tokens of l, and nothing that it has learned. What is gated may pass from now on, one by one.
func (l *learned) copyTo(m *learned, at time.Duration, st *setting) {
	for i := range l.pacers {
		p := &m.pacers[i]
		if *p = l.pacers[i]; p.law != nil {
			p.open(at)
			p.forget(at, &st.laws[i])
		}
		p.taken = 0
	}
}

// hears tells the laws what the upstream said about a request, each what concerns it, and sets when all is forgotten.
// A refusal concerns one law alone.
func (l *learned) hears(f *policy.Feedback, h *holding, p policy.Policy, laws []lawSetting) {
	accused := -1
	if f.Outcome == policy.Throttled {
		accused = l.accused(f, h, laws)
	}
	l.due = l.latest + forgetAfter // first, should a law panic
	for i := range laws {
		ls, pc := &laws[i], &l.pacers[i]
		if pc.law == nil {
			if !pc.begin(p.New(l.seed+uint64(ls.id)), h.since, l.latest, ls) {
				continue
			}
			pc.taken = h.cost(ls.id, l.latest) // a key that was evicted meanwhile would not know of more
		}
		pc.hears(f, h, l.latest, ls, accused < 0 || accused == i)
		l.due = max(l.due, pc.notBefore+forgetAfter) // nothing can be heard before it
	}
}

// hears tells one law. What it is not concerned in has no outcome for it.
func (p *pacer) hears(f *policy.Feedback, h *holding, at time.Duration, ls *lawSetting, concerned bool) {
	s := policy.Sample{Now: at, Sent: h.since, Cost: h.cost(ls.id, at), Taken: p.told(ls), Paced: p.paced}
	if q := ls.quota(f); q != nil {
		s.Quota = *q
	}
	if concerned {
		s.Outcome, s.RetryAfter = f.Outcome, f.RetryAfter
	}
	switch {
	case ls.id != slotsID:
	case f.Outcome == policy.Success:
		p.holds(h.heldFor(at))
		s.Taken = s.Cost
	default:
		s.Cost = 0 // a refusal holds a slot for no time, and a time-out for too long
	}
	p.paced = false
	p.heed(at, p.law.Next(s, ls.bounds), ls)
}

// begin starts a law, and tells whether there is one.
func (p *pacer) begin(law policy.Law, sent, at time.Duration, ls *lawSetting) bool {
	if law == nil {
		return false
	}
	p.law = law
	law.Next(policy.Sample{Now: at, Sent: sent}, ls.bounds)
	return true
}

// settle brings what the laws say up to now: what is over is forgotten, and a law whose pace is out of date is asked again. A law that
// wants it starts with an ask, which has the policy; who only looks has nil, and starts none.
func (g *gate) settle(now time.Time, p policy.Policy) {
	if len(g.setting.laws) == 0 || g.more == nil || g.more.learned == nil {
		return
	}
	l, at := g.more.learned, now.Sub(g.setting.origin)
	if l.stale(at) && l.outdated() > 0 {
		l.due = max(l.due, l.latest+forgetAfter) // a law with a clock needs no feedback: it is kept by what is admitted
	}
	if l.stale(at) {
		g.refresh(l.due, nil)
		l.forget(g.setting.laws)
		g.resize()
	}
	if l.overdue(at) {
		g.refresh(at, p)
	}
}

// refresh asks the laws whose pace is out of date, each time that it was.
func (g *gate) refresh(at time.Duration, p policy.Policy) {
	st, l, changed := g.setting, g.more.learned, false
	if st.shut || st.limit.deny {
		return
	}
	for i := range l.pacers {
		pc, ls := &l.pacers[i], &st.laws[i]
		for n := 0; n <= mostMissed && pc.outdated != 0 && at >= pc.outdated && (pc.law != nil || p != nil); n++ {
			when := pc.outdated
			if pc.law == nil || n == mostMissed {
				when, n = at, mostMissed // it begins now, or goes on from now
			}
			if pc.law == nil {
				l.due = max(l.due, at+forgetAfter)
			}
			pc.renew(when, ls, p, l.seed+uint64(ls.id))
			changed = true
		}
	}
	if changed && st.slotsLaw() >= 0 {
		g.resize()
	}
}

// mostMissed is how often a law is asked for the times that nobody has asked for its key: more than the seconds after which it is
// forgotten. After that it is asked once more, for now.
const mostMissed = 1024

// overdue tells that a pace is out of date.
func (l *learned) overdue(at time.Duration) bool {
	for i := range l.pacers {
		if p := &l.pacers[i]; p.outdated != 0 && at >= p.outdated {
			return true
		}
	}
	return false
}

// outdated is when the first pace is out of date; 0: never.
func (l *learned) outdated() (first time.Duration) {
	for i := range l.pacers {
		if at := l.pacers[i].outdated; at > 0 && (first == 0 || at < first) {
			first = at
		}
	}
	return first
}

// stale tells that no feedback has come for long.
func (l *learned) stale(at time.Duration) bool { return l.due != 0 && at >= l.due }

// forget drops what was learned, as of the instant it was due.
func (l *learned) forget(laws []lawSetting) {
	for i := range l.pacers {
		l.pacers[i].forget(l.due, &laws[i])
	}
	l.due, l.last = 0, 0
}

// idle tells that nothing is learned and the buckets equal those of a key never seen.
func (l *learned) idle(at time.Duration, u *learned) bool {
	for i := range l.pacers {
		if l.pacers[i].has(at) != u.pacers[i].has(at) {
			return false
		}
	}
	return l.due == 0
}

// heldBack notes that a law has held an ask back. Of a key that has learned nothing nothing is noted, or an idle key
// would differ from one never seen.
func (l *learned) heldBack(i int) {
	if l.due != 0 {
		l.pacers[i].paced, l.last = true, i
	}
}

// passAtOnce takes n requests from the only bucket and from the laws', if all have them, no law has shut a gate, no pace is out of date,
// and nothing is to be forgotten.
func (g *gate) passAtOnce(now time.Time, n int) bool {
	l, at := g.more.learned, now.Sub(g.setting.origin)
	if l.stale(at) {
		return false
	}
	for i := range l.pacers {
		p := &l.pacers[i]
		if p.notBefore != 0 || p.outdated != 0 && at >= p.outdated {
			return false
		}
		if p.tokens, p.last = p.has(at), at; p.tokens < float64(n) {
			return false
		}
	}
	if !g.first.lim.AllowN(now, n*milli) {
		return false
	}
	for i := range l.pacers {
		l.pacers[i].tokens -= float64(n)
		l.pacers[i].taken += float64(n)
	}
	l.latest = at
	return true
}

// pacing is how long the laws' buckets hold d back.
func (g *gate) pacing(now time.Time, d *demand) (worst verdict) {
	at := now.Sub(g.setting.origin)
	for i := range g.setting.laws {
		if n := d.of(g.setting.laws[i].unitID); n > 0 {
			if w := g.more.learned.pacers[i].until(at, n); w > worst.wait {
				worst = g.setting.verdict(i, w)
			}
		}
	}
	return worst
}

// pacingBehind is pacing behind all who wait.
func (g *gate) pacingBehind(now time.Time, d *demand) (worst verdict) {
	at := now.Sub(g.setting.origin)
	for i := range g.setting.laws {
		ls := &g.setting.laws[i]
		n := d.of(ls.unitID)
		if n == 0 {
			continue
		}
		p := &g.more.learned.pacers[i]
		ahead := float64(g.queued(ls.ahead, d.class)) / milli
		if w := p.untilHas(at, ahead+min(float64(n), p.size)); w > worst.wait {
			worst = g.setting.verdict(i, w)
		}
	}
	return worst
}

// pass takes what d asks for from the pacing buckets.
func (g *gate) pass(now time.Time, d *demand) {
	at := now.Sub(g.setting.origin)
	g.more.learned.latest = at
	for i := range g.setting.laws {
		if n := d.of(g.setting.laws[i].unitID); n > 0 {
			g.more.learned.pacers[i].take(at, float64(n))
		}
	}
}

// passBack gives back what pass took at an instant, and was never used.
func (g *gate) passBack(now, taken time.Time, d *demand) {
	at := now.Sub(g.setting.origin)
	g.more.learned.latest = at
	for i := range g.setting.laws {
		if n := d.of(g.setting.laws[i].unitID); n > 0 {
			g.more.learned.pacers[i].giveBack(at, now.Sub(taken), float64(n))
		}
	}
}

// resize sets the number of slots: this replica's, or one more than the whole ones that a law has learned. The law's bucket
// keeps the mean below that, and a slot that waits for its round trip is not missing.
func (g *gate) resize() {
	g.size = int32(g.setting.slots)
	if i := g.setting.slotsLaw(); i >= 0 {
		g.size = min(g.size, int32(min(g.more.learned.pacers[i].pace, maxInFlight))+1)
	}
}

// applyLaws puts the gate's pacers under the setting's bounds. What is governed as before keeps what it has learned.
func (g *gate) applyLaws(st *setting) {
	if len(st.laws) == 0 {
		return
	}
	at := st.at.Sub(st.origin)
	g.settle(st.at, nil)
	l := g.extra().learned
	switch {
	case l == nil:
		l = &learned{pacers: make([]pacer, len(st.laws))}
		g.more.learned = l
		l.start(nil, nil, st, at)
	case !sameLaws(g.setting, st):
		old := slices.Clone(l.pacers)
		l.pacers = make([]pacer, len(st.laws))
		l.start(old, g.setting.laws, st, at)
	}
	l.latest = at
	for i := range st.laws {
		p := &l.pacers[i]
		if p.law == nil {
			p.saved, p.outdated = st.laws[i].saved, st.laws[i].outdated
			p.setPace(at, st.laws[i].start, &st.laws[i])
			continue
		}
		p.rebound(at, &st.laws[i])
		l.due = max(l.due, p.notBefore+forgetAfter)
	}
}

// start fills pacers: with an old one of the same id, or with a fresh one.
func (l *learned) start(old []pacer, laws []lawSetting, st *setting, at time.Duration) {
	last := l.last
	l.last = 0
	for i := range st.laws {
		id := st.laws[i].id
		j := slices.IndexFunc(laws, func(ls lawSetting) bool { return ls.id == id })
		if j < 0 {
			l.pacers[i] = st.laws[i].fresh(at, !st.joins)
			continue
		}
		if l.pacers[i] = old[j]; j == last {
			l.last = i
		}
	}
}

// learnedUpTo is how many of n requests the laws let through now, and notes if they are fewer.
func (g *gate) learnedUpTo(now time.Time, n int) int {
	l, at := g.more.learned, now.Sub(g.setting.origin)
	for i := range l.pacers {
		ls := &g.setting.laws[i]
		if ls.unitID != 0 {
			continue
		}
		most := l.pacers[i].upTo(at, n)
		if ls.id == slotsID {
			most = min(most, g.free())
		}
		if most < n {
			l.heldBack(i)
			n = most
		}
	}
	return n
}

// repace takes n more of a unit when the true cost of an ask is told. What it has cost less is set against what is owed, and
// no more: the bucket may have been full since, or shut.
func (g *gate) repace(now time.Time, id, n int) {
	at := now.Sub(g.setting.origin)
	for i := range g.setting.laws {
		if g.setting.laws[i].id != id {
			continue
		}
		p := &g.more.learned.pacers[i]
		p.taken += float64(n)
		if p.open(at); n < 0 {
			n = -min(-n, int(max(0, -p.has(at))))
		}
		p.pay(at, float64(n))
	}
}

// lawSeed is the seed of a key's laws: another one on each replica.
func (l *Limiter) lawSeed(key string) uint64 {
	if !l.learns {
		return 0
	}
	return shardHash(^l.seed, key)
}
