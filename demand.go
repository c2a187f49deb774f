package quotient

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/quotient-go/quotient/internal/fairshare"
)

// exchange is what a limiter and the others say of keys. Its lock is taken before all others of a limiter.
type exchange struct {
	mu    sync.Mutex
	keys  map[string]*exchanged // nil while nothing is carried
	asked int                   // of keys: those that this replica names
	at    time.Duration         // instant.at: of the latest turn
	age   time.Duration         // of the oldest reports of the latest turn
	lent  int                   // of keys: those of which this replica has more than its share

	counts   map[countKey]*census
	counting int // of counts: those that this replica names

	fleet          Terms // what the limiters of this name have done together
	fleetAge       time.Duration
	sent, received uint64 // bytes of the source
}

// askedFor is for how long a key that was held back is named: a pause between two bursts is not the end.
const askedFor = 10 * time.Second

// Sums have texts as names: a key behind its prefix, the totals of the limiters, and the counts that they
// share.
const (
	textKey    = "k"
	textTotals = "t"
	textCount  = "c"
)

// These numbers are summed under textTotals.
const (
	totalReplicas = iota
	totalAdmitted
	totalRefused
	totalWaiting
	totalInFlight
)

// sumNews is a sum, and the age of its oldest part at an instant.
type sumNews struct {
	sum     Terms
	age, at time.Duration
}

// sum asks for one. The instant is before that, since the goroutine may be held up on the way.
func (l *Limiter) sum(sums Sums, text string) (n sumNews) {
	n.at = time.Since(l.base)
	n.sum, n.age = sums.Sum(text)
	n.age = max(0, n.age)
	return n
}

// ageAt is the age at a later instant.
func (n *sumNews) ageAt(at time.Duration) time.Duration { return older(n.age, max(0, at-n.at)) }

// older is an age some time later.
func older(age, by time.Duration) time.Duration { return age + min(by, math.MaxInt64-age) }

// totals is what this limiter has done, and of what weight it is.
func (l *Limiter) totals(weight int) Terms {
	t := Terms{
		totalReplicas: int64(weight), totalWaiting: l.waiting.Load(),
		totalAdmitted: int64(l.collected.Load()),
	}
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		t[totalAdmitted] += int64(s.counts.admitted)
		t[totalInFlight] += s.counts.inFlight
		for _, n := range s.counts.refused {
			t[totalRefused] += int64(n)
		}
		s.mu.Unlock()
	}
	return t
}

// exchanged is a key that is named.
type exchanged struct {
	share fairshare.Share
	said  Terms
	at    time.Duration // instant.at: of the latest turn
	last  time.Duration // instant.at: when this replica has held it back
	asked bool          // this replica names it
	lent  bool          // this replica has more than its share
}

// mentions are the keys of a shard that this replica may name.
type mentions struct{ lent, counted candidates }

// candidates are about the keys of a shard that were held back the most of late. Each has one of a few
// places by its hash. A key that takes the place of another must have been held back more often.
type candidates [8]candidate

type candidate struct {
	key string
	n   int
}

// note counts that a key was held back.
func (c *candidates) note(g *gate) {
	switch p := &c[g.half%uint32(len(c))]; {
	case p.n == 0:
		*p = candidate{g.name, 1}
	case p.key == g.name:
		p.n++
	default:
		p.n--
	}
}

// mentioned takes all candidates out of the shards, those that were noted the most first.
func (l *Limiter) mentioned() (lent, counted []candidate) {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		m := *s.wanted
		*s.wanted = mentions{}
		s.mu.Unlock()
		lent, counted = append(lent, m.lent[:]...), append(counted, m.counted[:]...)
	}
	return sorted(lent), sorted(counted)
}

// sorted returns those that were noted at all, the most first.
func sorted(list []candidate) []candidate {
	list = slices.DeleteFunc(list, func(c candidate) bool { return c.n == 0 })
	slices.SortFunc(list, func(a, b candidate) int { return cmp.Or(b.n-a.n, cmp.Compare(a.key, b.key)) })
	return list
}

// noteWanted notes that a rule has held a call back which this replica might have room for, did the others
// lend it theirs.
func (s *shard) noteWanted(g *gate, r *rule) {
	if s.wanted == nil || !r.lends && r.ctrl == noController || s.overflow.is(g) {
		return
	}
	if p := g.tally(); p != nil {
		p.wants = true
		return
	}
	s.wanted.lent.note(g)
}

// speak puts a gate under a part of its limit, which is 0 for its share, and counts what is taken. The part
// ends at an instant. With p nil nothing is counted any more, and the share holds.
func (s *shard) speak(g *gate, p *tally, part float64) {
	old, base := g.setting, g.setting
	w := own{o: &s.l.options}
	if old.own != nil {
		if base, w = old.base, *old.own; w.tally == p && w.part == part {
			return
		}
	}
	w.tally, w.part = p, part
	if p != nil || w.limit != nil {
		st := w.beside(base, old, false)
		st.at = s.latest
		g.apply(st)
		return
	}
	g.join(base, s.latest)
}

// ownGate returns the gate of a key; nil for a key that has none of its own.
func (s *shard) ownGate(hash uint64, key string) *gate {
	if g := s.find(hash); g != nil && g.name == key {
		return g
	}
	return nil
}

// shares reports whether a key without a gate of its own may use another one: that of keys without room, or
// that of a key with the same hash.
func (s *shard) shares(hash uint64) bool { return s.find(hash) != nil || s.overflow.gate != nil }

// seen returns what a gate has seen since it was last asked. Without one nothing was used, unless the key
// shares another one: then nothing is known.
func (s *shard) seen(g *gate, hash uint64, now instant, since time.Duration) fairshare.Seen {
	switch {
	case g == nil && s.shares(hash):
		return fairshare.Seen{}
	case g == nil:
		return fairshare.Seen{Span: now.at - since}
	}
	s.touch(g, now)
	if g.tally() == nil {
		s.speak(g, &tally{since: now.at}, 0)
		return fairshare.Seen{}
	}
	return g.usage(now)
}

// usage returns the part of its limit that the key has used since it was last asked. It also reports whether
// the key wants more: it was held back, and has used most of what it may. It starts the count again.
func (g *gate) usage(now instant) fairshare.Seen {
	p := g.tally()
	seen := fairshare.Seen{Span: now.at - p.since}
	span, busy := float64(seen.Span), g.waited() && g.ext.blocked != ReasonPool
	for i := range g.setting.rules {
		r := &g.setting.rules[i]
		switch {
		case r.ctrl != noController:
			busy = busy || p.wants
		case !r.lends:
		case !r.timed:
			n := max(p.slots, g.used)
			seen.Held = float64(g.used) / r.limit
			seen.Used, busy = max(seen.Used, float64(n)/r.limit), busy || p.wants && int(n) >= r.here
		case span > 0:
			n, full := p.taken[r.unitID], span/r.interval
			seen.Used = max(seen.Used, n/r.limit*float64(r.window)/span)
			seen.Spaced = max(seen.Spaced, saturated(r.interval))
			busy = busy || p.wants && n+fewEvents >= mostPart*full
		}
	}
	seen.Wants = busy
	*p = tally{ends: p.ends, fleet: p.fleet, since: now.at}
	return seen
}

// A key that was held back wants more if it has used so much of what it may. A few events of a rate prove
// too little.
const (
	mostPart  = 0.8
	fewEvents = 2
)
