package quotient

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/quotient-go/quotient/internal/fairshare"
	"github.com/quotient-go/quotient/policy"
)

// carry has the source carry what replicas say of keys under a name, until the follower stops. The source may
// hold a lock of its own while it reports, so it is called without the follower's.
func (f *follower) carry(src Source, name string) error {
	if n, ok := src.(numbered); ok {
		src = n.src
	}
	c, ok := src.(Carrier)
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

// beginExchange reports whether nothing is carried yet.
func (l *Limiter) beginExchange() bool {
	x := &l.exchange
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.keys != nil {
		return false
	}
	x.keys, x.counts = make(map[string]*exchanged), make(map[countKey]*census)
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
	x.keys, x.asked, x.lent, x.fleet = nil, 0, 0, Terms{}
	x.counts, x.counting = nil, 0
}

// turn says what this replica uses and wants of each key that is named, and puts in force what follows from
// what the others say.
func (l *Limiter) turn(sums Sums) {
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
		key, ok := strings.CutPrefix(text, textKey)
		if ok && x.keys[key] == nil && len(x.keys)-x.asked < maxLearned*l.spokenKeys {
			x.keys[key] = &exchanged{at: now}
		}
		if key, _, ok := readCount(text); ok {
			l.learnOf(sums, text, key, now)
		}
	}
	l.mu.Lock()
	pool, awaits := l.belief.pool, l.belief.awaits
	l.mu.Unlock()
	if awaits {
		pool.Replicas = maxReplicas
	}
	sums.Say(textTotals, l.totals(pool.weight()))
	all := l.sum(sums, textTotals)
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

// nameKeys has the keys that were held back the most named, as far as there is room for more.
func (l *Limiter) nameKeys(wanted []candidate, now time.Duration) {
	x := &l.exchange
	for _, c := range wanted {
		if x.keys[c.key] == nil && x.asked < l.spokenKeys {
			x.keys[c.key] = &exchanged{last: now, at: now, asked: true}
			x.asked++
		}
	}
}

// exchangeKey is a turn of one key.
func (l *Limiter) exchangeKey(sums Sums, key string, k *exchanged, pool fairshare.Pool) {
	x := &l.exchange
	asked := l.sum(sums, textKey+key)
	s, hash := l.lock(key)
	now := s.now()
	sum, age := asked.sum, asked.ageAt(now.at)
	g := s.ownGate(hash, key)
	seen := s.seen(g, hash, now, k.at)
	k.at = now.at
	l.note(k, seen.Wants)
	if others := sum[fairshare.Asked] - k.said[fairshare.Asked]; !k.asked && others <= 0 {
		s.mu.Unlock()
		l.forgetSpoken(key)
		sums.Say(textKey+key, Terms{})
		delete(x.keys, key)
		return
	}
	x.age = max(x.age, age)
	news := fairshare.Reports{Sum: fairshare.Numbers(sum), Age: age}
	var said fairshare.Numbers
	if fresh := now.at + max(0, l.newsMaxAge-age); l.learns && l.beyond {
		said = s.speakOfController(g, news, pool, fresh)
	} else {
		said = s.lend(g, k, seen, news, pool, fresh)
	}
	if k.said = Terms(said); k.asked {
		k.said[fairshare.Asked] = 1
	}
	if k.lent {
		x.lent++
	}
	if g == nil {
		s.mu.Unlock()
	} else {
		s.serveAndUnlock(g)
	}
	sums.Say(textKey+key, k.said)
}

// lend puts a gate, if there is one, under the part of its limit that follows from the reports, and returns
// what this replica says. The reports are fresh until an instant.
func (s *shard) lend(
	g *gate, k *exchanged, seen fairshare.Seen, news fairshare.Reports, pool fairshare.Pool,
	fresh time.Duration,
) fairshare.Numbers {
	said, part := k.share.Next(k.at, seen, news, pool, s.l.newsMaxAge)
	if k.lent = part > 0; g != nil {
		g.tally().ends = fresh
		s.speak(g, g.tally(), part)
	}
	return said
}

// speakOfController hands a gate's controller the reports, and returns what this replica says of what the
// controller governs.
func (s *shard) speakOfController(
	g *gate, news fairshare.Reports, pool fairshare.Pool, fresh time.Duration,
) (said fairshare.Numbers) {
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
	p.guard(now.at, r, func() {
		if ctrl, ok := p.ctrl.(policy.Reporter); ok {
			p.ask(policy.Sample{Now: now.at, Sent: now.at}, r)
			said = inThousandths(said, ctrl.Report(now.at))
		}
	})
	g.ext.learned.resize(g.setting)
	return said
}

// fleet puts the sum into the words of a controller.
func (r *rule) fleet(sum fairshare.Numbers, pool fairshare.Pool) *policy.Fleet {
	weight := float64(pool.Weight)
	return &policy.Fleet{
		Weight: float64(sum[fairshare.Known]) / weight, Wanting: float64(sum[fairshare.Wanting]) / weight,
		Limit: r.bounds.Share * float64(pool.Replicas) / weight,
		Rate:  float64(sum[fairshare.Rate]) / milli, Used: float64(sum[fairshare.Claim]) / milli,
		Refused: float64(sum[fairshare.Refused]) / milli,
	}
}

// inThousandths adds a controller's word to what a replica says.
func inThousandths(said fairshare.Numbers, w policy.Report) fairshare.Numbers {
	count := func(x float64) int64 {
		if !(x > 0) { // a NaN does not count either
			return 0
		}
		return int64(min(x, maxEvents) * milli)
	}
	if said[fairshare.Refused] = count(w.Refused); w.Wanting {
		said[fairshare.Wanting], said[fairshare.Rate] = said[fairshare.Known], count(w.Rate)
	} else {
		said[fairshare.Claim] = count(w.Rate)
	}
	return said
}

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
	s, hash := l.lock(key)
	g := s.ownGate(hash, key)
	if g == nil {
		s.mu.Unlock()
		return
	}
	s.touch(g, s.now())
	if g.tally() != nil {
		s.speak(g, nil, 0)
	}
	s.serveAndUnlock(g)
}
