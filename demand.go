package quotient

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/quotient-go/quotient/internal/carry"
	"github.com/quotient-go/quotient/internal/fairshare"
	"github.com/quotient-go/quotient/internal/meter"
	"github.com/quotient-go/quotient/policy"
)

// carry has the source carry what replicas say of keys under a name, until the follower stops. The source may
// hold a lock of its own while it reports, so it is called without the follower's.
func (f *follower) carry(src Source, name string) error {
	if n, ok := src.(numbered); ok {
		src = n.src
	}
	c, ok := src.(carry.Carrier)
	if f.l.spokenKeys == 0 || !ok || !f.carries(func() {}) {
		return nil
	}
	if !f.l.beginExchange() {
		return errors.New("quotient: Follow: source: another source already carries this limiter's reports")
	}
	end, err := c.Carry(name, f.l.turn)
	if err != nil {
		f.l.endExchange()
		return fmt.Errorf("quotient: Follow: source: %w", err)
	}
	uncarry := func() { end(); f.l.endExchange() }
	if !f.carries(uncarry) {
		uncarry()
	}
	return nil
}

// carries notes what the end of the follower is to end, and reports whether that is still to come.
func (f *follower) carries(uncarry func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ended {
		f.uncarry = uncarry
	}
	return !f.ended
}

// exchange is what a limiter and the others say of keys. Its lock is taken before all others of a limiter.
type exchange struct {
	mu    sync.Mutex
	keys  map[string]*exchanged // nil while nothing is carried
	asked int                   // of keys: those that this replica names
	at    time.Duration         // instant.at: of the latest turn
	age   time.Duration         // of the oldest reports of the latest turn
	lent  int                   // of keys: those of which this replica has more than its share

	counts   map[carry.Count]*census
	counting int // of counts: those that this replica names

	fleet          carry.Terms // what the limiters of this name have done together
	fleetAge       time.Duration
	sent, received uint64 // bytes of the source
}

// beginExchange reports whether nothing is carried yet.
func (l *Limiter) beginExchange() bool {
	x := &l.exchange
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.keys != nil {
		return false
	}
	x.keys, x.counts = make(map[string]*exchanged), make(map[carry.Count]*census)
	x.at, x.age, x.fleetAge = time.Since(l.base), math.MaxInt64, math.MaxInt64
	return true
}

// endExchange puts all keys back under their shares.
func (l *Limiter) endExchange() {
	x := &l.exchange
	x.mu.Lock()
	defer x.mu.Unlock()
	for key := range x.keys {
		l.forgetSpoken(key)
	}
	x.keys, x.asked, x.lent, x.fleet = nil, 0, 0, carry.Terms{}
	x.counts, x.counting = nil, 0
}

// turn says what this replica uses and wants of each key that is named, and puts in force what follows from
// what the others say.
func (l *Limiter) turn(sums carry.Sums) {
	x := &l.exchange
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.keys == nil {
		return
	}
	now := time.Since(l.base)
	lent, counted := l.mentioned()
	l.nameKeys(lent, now)
	l.nameCounts(counted, now)
	for text := range sums.Keys() {
		key, ok := carry.ReadKey(text)
		if ok && x.keys[key] == nil && len(x.keys)-x.asked < maxLearned*l.spokenKeys {
			x.keys[key] = &exchanged{at: now}
		}
		if count, _, ok := carry.ReadCount(text); ok {
			l.learnOf(sums, text, count, now)
		}
	}
	l.mu.Lock()
	pool, awaits := l.belief.pool, l.belief.awaits
	l.mu.Unlock()
	if awaits {
		pool.Replicas = maxReplicas
	}
	sums.Say(carry.Totals, l.totals(pool.weight()))
	all := l.sum(sums, carry.Totals)
	x.fleet, x.fleetAge = all.sum, all.ageAt(now)
	x.sent, x.received = sums.Bytes()
	x.at, x.age, x.lent = now, 0, 0
	for key, k := range x.keys {
		l.exchangeKey(sums, key, k, fairshare.Pool{Replicas: pool.Replicas, Weight: pool.weight()})
	}
	for key, c := range x.counts {
		l.exchangeCount(sums, key, c, pool)
	}
}

// totals is what this limiter has done, and of what weight it is.
func (l *Limiter) totals(weight int) carry.Terms {
	t := carry.Terms{
		carry.TotalReplicas: int64(weight), carry.TotalWaiting: l.waiting.Load(),
		carry.TotalAdmitted: int64(l.collected.Load()),
	}
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		t[carry.TotalAdmitted] += int64(s.counts.admitted)
		t[carry.TotalInFlight] += s.counts.inFlight
		for _, n := range s.counts.refused {
			t[carry.TotalRefused] += int64(n)
		}
		s.mu.Unlock()
	}
	return t
}

// sumNews is a sum, and the age of its oldest part at an instant.
type sumNews struct {
	sum     carry.Terms
	age, at time.Duration
}

// sum asks for one. The instant is before that, since the goroutine may be held up on the way.
func (l *Limiter) sum(sums carry.Sums, text string) (n sumNews) {
	n.at = time.Since(l.base)
	n.sum, n.age = sums.Sum(text)
	n.age = max(0, n.age)
	return n
}

// ageAt is the age at a later instant.
func (n *sumNews) ageAt(at time.Duration) time.Duration { return older(n.age, max(0, at-n.at)) }

// older is an age some time later.
func older(age, by time.Duration) time.Duration { return age + min(by, math.MaxInt64-age) }

// mentions are the keys of a shard that this replica may name.
type mentions struct{ lent, counted fairshare.Busiest }

// mentioned takes them out of the shards, those that were held back the most first.
func (l *Limiter) mentioned() (lent, counted []fairshare.Held) {
	var all [2][]fairshare.Busiest
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		all[0], all[1] = append(all[0], s.wanted.lent), append(all[1], s.wanted.counted)
		*s.wanted = mentions{}
		s.mu.Unlock()
	}
	return fairshare.Most(all[0]...), fairshare.Most(all[1]...)
}

// exchanged is a key that is named.
type exchanged struct {
	share fairshare.Share
	said  carry.Terms
	at    time.Duration // instant.at: of the latest turn
	last  time.Duration // instant.at: when this replica has held it back
	asked bool          // this replica names it
	lent  bool          // this replica has more than its share
}

// nameKeys has the keys that were held back the most named, as far as there is room for more.
func (l *Limiter) nameKeys(wanted []fairshare.Held, now time.Duration) {
	x := &l.exchange
	for _, c := range wanted {
		if x.keys[c.Key] == nil && x.asked < l.spokenKeys {
			x.keys[c.Key] = &exchanged{last: now, at: now, asked: true}
			x.asked++
		}
	}
}

// exchangeKey is a turn of one key.
func (l *Limiter) exchangeKey(sums carry.Sums, key string, k *exchanged, pool fairshare.Pool) {
	x := &l.exchange
	asked := l.sum(sums, carry.KeyText(key))
	s, hash := l.lock(key)
	now := s.now()
	sum, age := asked.sum, asked.ageAt(now.At)
	g := s.ownGate(hash, key)
	seen := s.seen(g, hash, now, k.at)
	k.at = now.At
	l.note(k, seen.Wants)
	if others := sum[fairshare.Asked] - k.said[fairshare.Asked]; !k.asked && others <= 0 {
		s.mu.Unlock()
		l.forgetSpoken(key)
		sums.Say(carry.KeyText(key), carry.Terms{})
		delete(x.keys, key)
		return
	}
	x.age = max(x.age, age)
	news := fairshare.Reports{Sum: sum, Age: age}
	var said carry.Terms
	if fresh := now.At + max(0, l.newsMaxAge-age); l.learns && l.beyond {
		said = s.speakOfController(g, news, pool, fresh)
	} else {
		said = s.lend(g, k, seen, news, pool, fresh)
	}
	if k.said = said; k.asked {
		k.said[fairshare.Asked] = 1
	}
	if k.lent {
		x.lent++
	}
	s.serveAndUnlock(g)
	sums.Say(carry.KeyText(key), k.said)
}

// askedFor is for how long a key that was held back is named: a pause between two bursts is not the end.
const askedFor = 10 * time.Second

// note has a key named for as long as it is held back now and then.
func (l *Limiter) note(k *exchanged, wants bool) {
	x := &l.exchange
	switch {
	case wants:
		if k.last = k.at; !k.asked && x.asked < l.spokenKeys {
			k.asked = true
			x.asked++
		}
	case k.asked && k.at-k.last >= askedFor:
		k.asked = false
		x.asked--
	}
}

// forgetSpoken puts a key back under its share, and counts no more of it.
func (l *Limiter) forgetSpoken(key string) {
	s, g := l.lockGate(key)
	if g != nil && g.tally() != nil {
		s.speak(g, nil, 0)
	}
	s.serveAndUnlock(g)
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
	s.wanted.lent.Note(g.name, g.half)
}

// ownGate returns the gate of a key; nil for a key that has none of its own.
func (s *shard) ownGate(hash uint64, key string) *gate {
	if g := s.find(hash); g != nil && g.name == key {
		return g
	}
	return nil
}

// lockGate returns the key's shard, locked, and its own gate, brought up to now; nil for a key that has none.
func (l *Limiter) lockGate(key string) (*shard, *gate) {
	s, hash := l.lock(key)
	g := s.ownGate(hash, key)
	if g != nil {
		s.touch(g, s.now())
	}
	return s, g
}

// shares reports whether a key without a gate of its own may use another one: that of keys without room, or
// that of a key with the same hash.
func (s *shard) shares(hash uint64) bool { return s.find(hash) != nil || s.overflow.gate != nil }

// seen returns what a gate has seen since it was last asked. Without one nothing was used, unless the key
// shares another one: then nothing is known.
func (s *shard) seen(g *gate, hash uint64, now meter.Instant, since time.Duration) fairshare.Seen {
	switch {
	case g == nil && s.shares(hash):
		return fairshare.Seen{}
	case g == nil:
		return fairshare.Seen{Span: now.At - since}
	}
	s.touch(g, now)
	if g.tally() == nil {
		s.speak(g, &tally{since: now.At}, 0)
		return fairshare.Seen{}
	}
	return g.usage(now)
}

// usage returns the part of its limit that the key has used since it was last asked. It also reports whether
// the key wants more: it was held back, and has used most of what it may. It starts the count again.
func (g *gate) usage(now meter.Instant) fairshare.Seen {
	p := g.tally()
	seen := fairshare.Seen{Span: now.At - p.since}
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
			n, full := p.taken[r.unitID], span/r.Interval
			seen.Used = max(seen.Used, n/r.limit*float64(r.window)/span)
			seen.Spaced = max(seen.Spaced, meter.Saturated(r.Interval))
			busy = busy || p.wants && n+fewEvents >= mostPart*full
		}
	}
	seen.Wants = busy
	*p = tally{ends: p.ends, fleet: p.fleet, since: now.At}
	return seen
}

// A key that was held back wants more if it has used so much of what it may. A few events of a rate prove too little.
const (
	mostPart  = 0.8
	fewEvents = 2
)

// lend puts a gate, if there is one, under the part of its limit that follows from the reports, and returns
// what this replica says. The reports are fresh until an instant.
func (s *shard) lend(
	g *gate, k *exchanged, seen fairshare.Seen, news fairshare.Reports, pool fairshare.Pool,
	fresh time.Duration,
) carry.Terms {
	said, part := k.share.Next(k.at, seen, news, pool, s.l.newsMaxAge)
	if k.lent = part > 0; g != nil {
		g.tally().ends = fresh
		s.speak(g, g.tally(), part)
	}
	return said
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

// tally is what a gate counts of a key that the replicas of a pool mention. It also bounds the time for
// which the gate may use a part of the limit that is larger than its share. The shard's lock guards it.
type tally struct {
	ends  time.Duration         // instant.at: of that part, and of the reports
	fleet *policy.Fleet         // what the replicas say of what a controller governs
	since time.Duration         // instant.at: from which on is counted
	taken [1 + maxUnits]float64 // requests, and events of each unit
	slots int32                 // the most in use at once
	wants bool                  // what can be lent, or a controller, has held a call back
}

// count adds what was taken of the key, or takes it off when sign is -1.
func (p *tally) count(d *demand, slots int32, sign float64) {
	for unit := range p.taken {
		p.taken[unit] += sign * float64(d.of(unit))
	}
	p.slots = max(p.slots, slots)
}

// lend has this replica use a part of the limit where that is more than its share. Bursts stay as they are:
// the others may have saved up theirs.
func (st *setting) lend(part float64) {
	for i := range st.rules {
		r := &st.rules[i]
		lent := r.limit * part
		switch {
		case !r.lends || lent <= r.share:
		case r.role == roleSlots:
			r.here = max(r.here, int(lent))
			r.share, r.Size, st.slots = float64(r.here), float64(r.here), r.here
		default:
			r.share, r.Interval = lent, float64(r.window)/lent
		}
	}
}

// mayLend prepares the rules of a key that is named: of how fast its buckets may fill at most, and of where
// a controller finds the reports.
func (st *setting) mayLend(w *own) {
	if w.tally == nil {
		return
	}
	for i := range st.rules {
		if r := &st.rules[i]; r.lends && r.timed {
			r.Fastest = min(r.Interval, float64(r.window)/r.limit)
		}
	}
	if w.o.beyond && len(st.ctrls) > 0 {
		st.ctrls[0].news = w.tally
	}
}

// lendsAfter reports whether st differs from old, which came before it, by the part that is lent alone.
func (st *setting) lendsAfter(old *setting) bool {
	return old.own != nil && st.own.tally != nil && st.own.tally == old.own.tally &&
		st.own.limit == old.own.limit && st.base == old.base
}

// speakOfController hands a gate's controller the reports, and returns what this replica says of what the
// controller governs.
func (s *shard) speakOfController(
	g *gate, news fairshare.Reports, pool fairshare.Pool, fresh time.Duration,
) (said carry.Terms) {
	said[fairshare.Known] = int64(pool.Weight)
	if g == nil || len(g.setting.ctrls) == 0 {
		return said
	}
	now, r := s.latest, g.setting.ctrls[0]
	p, t := &g.ext.learned.pacers[0], g.tally()
	t.ends, t.fleet = fresh, nil
	if news.Age <= s.l.newsMaxAge && news.Sum[fairshare.Known] >= int64(pool.Replicas) {
		t.fleet = r.fleet(news.Sum, pool)
	}
	p.guard(now.At, r, func() {
		if ctrl, ok := p.ctrl.(policy.Reporter); ok {
			p.ask(policy.Sample{Now: now.At, Sent: now.At}, r)
			said = inThousandths(said, ctrl.Report(now.At))
		}
	})
	g.ext.learned.resize(g.setting)
	return said
}

// fleet puts the sum into the words of a controller.
func (r *rule) fleet(sum carry.Terms, pool fairshare.Pool) *policy.Fleet {
	weight := float64(pool.Weight)
	return &policy.Fleet{
		Weight: float64(sum[fairshare.Known]) / weight, Wanting: float64(sum[fairshare.Wanting]) / weight,
		Limit: r.bounds.Share * float64(pool.Replicas) / weight,
		Rate:  float64(sum[fairshare.Rate]) / meter.Milli, Used: float64(sum[fairshare.Claim]) / meter.Milli,
		Refused: float64(sum[fairshare.Refused]) / meter.Milli,
	}
}

// inThousandths adds a controller's word to what a replica says.
func inThousandths(said carry.Terms, w policy.Report) carry.Terms {
	count := func(x float64) int64 {
		if !(x > 0) { // a NaN does not count either
			return 0
		}
		return int64(min(x, maxEvents) * meter.Milli)
	}
	if said[fairshare.Refused] = count(w.Refused); w.Wanting {
		said[fairshare.Wanting], said[fairshare.Rate] = said[fairshare.Known], count(w.Rate)
	} else {
		said[fairshare.Claim] = count(w.Rate)
	}
	return said
}

// census is a key whose events the replicas count together under one rule.
type census struct {
	window int64       // that is counted
	text   string      // under which it is summed; "" before the first
	said   carry.Terms // under that text
	others carry.Taken
	known  int64 // weight of the other replicas that counted it, by the latest complete sum

	before string        // the text of the window before it, which stays for a while; "" for none
	until  time.Duration // instant.at: until when it stays

	asked bool          // this replica names it
	busy  bool          // half of the share was used in this window, or a call was held back
	last  time.Duration // instant.at: when any replica has named it

	used, usedBefore float64 // parts of the limit that this replica used in this window and the one before
}

// count returns the entry of a key, and makes it if there is none.
func (x *exchange) count(k carry.Count, now time.Duration) *census {
	c := x.counts[k]
	if c == nil {
		c = &census{last: now}
		x.counts[k] = c
	}
	return c
}

// learnOf has this replica count a key that another one names. A key that is only counted is about to go: if
// replicas learned of it from each other, it would never be forgotten.
func (l *Limiter) learnOf(sums carry.Sums, text string, k carry.Count, now time.Duration) {
	x := &l.exchange
	if x.counts[k] != nil || len(x.counts)-x.counting >= maxLearned*l.spokenKeys {
		return
	}
	if sum, _ := sums.Sum(text); sum[carry.CountAsked] > 0 {
		x.count(k, now)
	}
}

// noteCounted notes a key whose events the fleet should count: half of the share of a window is used, or its
// rule has held a call back.
func (s *shard) noteCounted(g *gate, v verdict) {
	if s.wanted == nil || s.overflow.is(g) {
		return
	}
	for i := range g.setting.rules {
		r := &g.setting.rules[i]
		if r.countID == 0 {
			continue
		}
		w, held := g.windowOf(r), v.reason != ReasonNone && int(v.rule) == i
		if !w.Fresh(s.latest) && (held || w.Busy()) {
			s.wanted.counted.Note(g.name, g.half)
			return
		}
	}
}

// nameCounts names the keys that were noted the most, as far as there is room for more.
func (l *Limiter) nameCounts(wanted []fairshare.Held, now time.Duration) {
	x := &l.exchange
	for _, w := range wanted {
		for _, rule := range l.countedRules(w.Key) {
			k := carry.Count{Rule: rule, Key: w.Key}
			if c := x.counts[k]; c != nil || x.counting < l.spokenKeys || x.giveWay() {
				x.count(k, now).busy = true
				x.name(x.counts[k], l.spokenKeys)
			}
		}
	}
}

// name has this replica name a key, if there is room for one more.
func (x *exchange) name(c *census, most int) {
	if !c.asked && x.counting < most {
		c.asked = true
		x.counting++
	}
}

// unname has this replica name a key no more.
func (x *exchange) unname(c *census) {
	if c.asked {
		c.asked = false
		x.counting--
	}
}

// countedRules returns the counted rules that a key is under.
func (l *Limiter) countedRules(key string) (rules []uint64) {
	s, g := l.lockGate(key)
	defer s.mu.Unlock()
	if g == nil {
		return nil
	}
	for i := range g.setting.rules {
		if r := &g.setting.rules[i]; r.Counted {
			rules = append(rules, r.countID)
		}
	}
	return rules
}

// giveWay has this replica name the key no more that has used the least, and reports whether there was one.
// A busy key keeps its place.
func (x *exchange) giveWay() bool {
	var least *census
	for _, c := range x.counts {
		if c.asked && !c.busy && (least == nil || c.most() < least.most()) {
			least = c
		}
	}
	if least != nil {
		x.unname(least)
	}
	return least != nil
}

// most is the larger part of the limit that this replica has used in this window and the one before.
func (c *census) most() float64 { return max(c.used, c.usedBefore) }

// exchangeCount is a turn of one counted key.
func (l *Limiter) exchangeCount(sums carry.Sums, k carry.Count, c *census, pool Pool) {
	x := &l.exchange
	s, _, r, is := l.countedGate(k)
	if r == nil {
		s.mu.Unlock()
		l.forgetCount(sums, k, c)
		return
	}
	now, w := s.latest, *is
	if f := w.Fleet; f != nil && f.Index == c.window && f.Index != w.Index {
		c.said[carry.CountEvents], c.said[carry.CountBack] = f.Total, f.Back
	}
	s.mu.Unlock()
	x.enterWindow(sums, k, c, w.Index, now.At, l.newsMaxAge)
	news := l.othersSay(sums, c)
	said := l.learnCount(k, c, news, pool)
	if c.busy {
		x.name(c, l.spokenKeys)
	}
	if c.asked {
		said[carry.CountAsked] = 1
	}
	if c.asked || news.sum[carry.CountAsked] > 0 {
		c.last = now.At
	}
	if now.At-c.last >= askedFor && c.before == "" {
		l.forgetCount(sums, k, c)
		return
	}
	c.said = said
	sums.Say(c.text, said)
}

// enterWindow begins to count a window, unless it is counted already. The text of the one before stays for a
// grace: at replicas whose clocks are behind that window still goes on.
func (x *exchange) enterWindow(
	sums carry.Sums, k carry.Count, c *census, index int64, now, grace time.Duration,
) {
	enters := c.text == "" || c.window != index
	if c.before != "" && (enters || now >= c.until) {
		sums.Say(c.before, carry.Terms{})
		c.before = ""
	}
	if !enters {
		return
	}
	if c.before, c.until = c.text, now+grace; c.before != "" {
		sums.Say(c.before, c.said)
	}
	c.window, c.text = index, k.Text(index)
	c.said, c.others, c.known = carry.Terms{}, carry.Taken{}, 0
	if !c.busy {
		x.unname(c)
	}
	c.busy, c.usedBefore, c.used = false, c.used, 0
}

// othersSay returns what the other replicas say of a window.
func (l *Limiter) othersSay(sums carry.Sums, c *census) sumNews {
	n := l.sum(sums, c.text)
	for i := range n.sum {
		n.sum[i] = min(max(0, n.sum[i]-c.said[i]), carry.MostCounted)
	}
	return n
}

// learnCount puts the reports in force, unless the window is over. It returns what this replica has to say.
func (l *Limiter) learnCount(k carry.Count, c *census, news sumNews, pool Pool) (said carry.Terms) {
	s, g, r, w := l.countedGate(k)
	if r == nil {
		s.mu.Unlock()
		return said
	}
	if w.Index == c.window {
		c.learn(w, r, s.latest, news, pool, l.newsMaxAge)
		c.busy, c.used = c.busy || w.Busy(), float64(w.Used)/r.limit
		said[carry.CountEvents], said[carry.CountBack] = w.Used+w.Fleet.Back, w.Fleet.Back
		said[carry.CountKnown] = int64(pool.weight())
	}
	s.serveAndUnlock(g)
	return said
}

// learn puts in force what the others have admitted. A sum that lacks a part may be too small.
func (c *census) learn(w *meter.Window, r *rule, t meter.Instant, news sumNews, pool Pool, maxAge time.Duration) {
	sum, age, ends := news.sum, news.ageAt(t.At), time.Duration(0)
	others := sum[carry.CountEvents] - sum[carry.CountBack]
	if w.Counts() {
		others, ends = max(others, w.Fleet.Others), w.Fleet.Ends
	}
	if age <= maxAge {
		joined := sum[carry.CountKnown] > c.known
		c.known = sum[carry.CountKnown]
		n := c.others.See(sum, joined)
		if others = max(others, n); c.known+int64(pool.weight()) >= int64(pool.Replicas) {
			others, ends = n, t.At+maxAge-age
		}
	}
	w.Learn(t, r.Schedule, max(0, others), ends)
}

// countedGate returns the gate of a counted key, and its window under the rule, brought up to now. The rule is
// nil when there is none, or no room for the key. The shard is locked.
func (l *Limiter) countedGate(k carry.Count) (*shard, *gate, *rule, *meter.Window) {
	s, hash := l.lock(k.Key)
	now := s.now()
	g := s.find(hash)
	if g == nil && s.newest(0).counting(k.Rule) != nil && s.overflow.gate == nil && s.makeRoom(now) {
		g = s.newGate(hash, k.Key, s.unseen(0), now)
	}
	if g == nil || g.name != k.Key {
		return s, nil, nil, nil
	}
	s.touch(g, now)
	r, w := g.counting(k.Rule)
	if r != nil {
		w.Roll(now, r.Schedule)
	}
	return s, g, r, w
}

// forgetCount has a key divided again.
func (l *Limiter) forgetCount(sums carry.Sums, k carry.Count, c *census) {
	x := &l.exchange
	for _, text := range []string{c.before, c.text} {
		if text != "" {
			sums.Say(text, carry.Terms{})
		}
	}
	x.unname(c)
	delete(x.counts, k)
	s, g := l.lockGate(k.Key)
	defer s.mu.Unlock()
	if g == nil {
		return
	}
	if _, w := g.counting(k.Rule); w != nil && w.Fleet != nil {
		w.Fleet.Ends = 0 // what the others had left by then is no more now
	}
}

// counting returns the counted rule of that countedID, and the key's window, in the plan that the key is in. If
// that has none, it is of the plan that was left last: the fleet counts on. They are nil if there is none.
func (g *gate) counting(rule uint64) (r *rule, w *meter.Window) {
	for _, other := range append(slices.Clip(g.others()), g) {
		if o := other.setting.counting(rule); o != nil {
			r, w = o, other.windowOf(o)
		}
	}
	return r, w
}

// countAs has the gate count on from another one of its key, of another plan: a counted rule has one count in
// all of them.
func (g *gate) countAs(t meter.Instant, other *gate) {
	for i := range g.setting.rules {
		r := &g.setting.rules[i]
		if r.countID == 0 {
			continue
		}
		if o := other.setting.counting(r.countID); o != nil {
			w := other.windowOf(o)
			w.Roll(t, o.Schedule)
			g.windowOf(r).CountAs(t, r.Schedule, w)
		}
	}
}

// counting returns the counted rule of that countedID, or nil.
func (st *setting) counting(rule uint64) *rule {
	for i := range st.rules {
		if r := &st.rules[i]; r.countID == rule {
			return r
		}
	}
	return nil
}

// windowOf returns the window of a counted rule.
func (g *gate) windowOf(r *rule) *meter.Window { return g.resource(r).(*meter.Window) }
