package quotient

import (
	"encoding/binary"
	"strings"
	"time"
)

// census is a key whose events the replicas count together under one rule.
type census struct {
	window int64  // that is counted
	text   string // under which it is summed; "" before the first
	said   Terms  // under that text
	others taken
	known  int64 // weight of the other replicas that counted it, by the latest complete sum

	before string        // the text of the window before it, which stays for a while; "" for none
	until  time.Duration // instant.at: until when it stays

	asked bool          // this replica names it
	busy  bool          // half of the share was used in this window, or a call was held back
	last  time.Duration // instant.at: when any replica has named it

	used, usedBefore float64 // parts of the limit that this replica used in this window and the one before
}

// These numbers are summed of a counted key. The first two only grow.
const (
	countEvents = iota // that were taken in the window
	countBack          // of them, those that were given back
	countKnown         // weight of the replicas that count it
	countAsked         // how many of them name it
)

// countKey is a key under a counted rule.
type countKey struct {
	rule uint64 // countedID
	key  string
}

// countText is what the events of a key are summed under in one window.
func countText(k countKey, window int64) string {
	b := binary.BigEndian.AppendUint64([]byte(textCount), k.rule)
	return string(binary.AppendVarint(b, window)) + k.key
}

// readCount is the other direction.
func readCount(text string) (k countKey, window int64, ok bool) {
	rest, ok := strings.CutPrefix(text, textCount)
	if !ok || len(rest) < 8 {
		return countKey{}, 0, false
	}
	head := []byte(rest[:min(len(rest), 8+binary.MaxVarintLen64)])
	window, n := binary.Varint(head[8:])
	if n <= 0 {
		return countKey{}, 0, false
	}
	k = countKey{binary.BigEndian.Uint64(head), rest[8+n:]}
	return k, window, k.rule != 0 && countText(k, window) == text
}

// taken is what the others have taken of a window, net of what they have given back. Both sums only grow.
// When a replica is gone, or has started again, they fall. Its takes still count.
type taken struct{ events, back, lost int64 }

// see returns the number for a sum. When a replica joins, what was lost may be in it again.
func (t *taken) see(sum Terms, joined bool) int64 {
	events, back := sum[countEvents]-t.events, sum[countBack]-t.back
	if events < 0 {
		t.lost = min(t.lost+max(0, -events-max(0, -back)), mostCounted)
	} else if joined {
		t.lost -= min(t.lost, max(0, events-max(0, back)))
	}
	t.events, t.back = sum[countEvents], sum[countBack]
	return t.events - t.back + t.lost
}

// count returns the entry of a key, and makes it if there is none.
func (x *exchange) count(k countKey, now time.Duration) *census {
	c := x.counts[k]
	if c == nil {
		c = &census{last: now}
		x.counts[k] = c
	}
	return c
}

// learnOf has this replica count a key that another one names. A key that is only counted is about to go: if
// replicas learned of it from each other, it would never be forgotten.
func (l *Limiter) learnOf(sums Sums, text string, k countKey, now time.Duration) {
	x := &l.exchange
	if x.counts[k] != nil || len(x.counts)-x.counting >= maxLearned*l.spokenKeys {
		return
	}
	if sum, _ := sums.Sum(text); sum[countAsked] > 0 {
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
		if r.counted == 0 {
			continue
		}
		w, held := g.windowOf(r), v.reason != ReasonNone && int(v.rule) == i
		if !w.fresh(s.latest) && (held || w.busy()) {
			s.wanted.counted.note(g)
			return
		}
	}
}

// nameCounts names the keys that were noted the most, as far as there is room for more.
func (l *Limiter) nameCounts(wanted []candidate, now time.Duration) {
	x := &l.exchange
	for _, w := range wanted {
		for _, rule := range l.countedRules(w.key) {
			k := countKey{rule, w.key}
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
	s, hash := l.lock(key)
	defer s.mu.Unlock()
	g := s.ownGate(hash, key)
	if g == nil {
		return nil
	}
	g.sync()
	for i := range g.setting.rules {
		if r := &g.setting.rules[i]; r.counted != 0 {
			rules = append(rules, r.counted)
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
func (l *Limiter) exchangeCount(sums Sums, k countKey, c *census, pool Pool) {
	x := &l.exchange
	s, _, r, is := l.countedGate(k)
	if r == nil {
		s.mu.Unlock()
		l.forgetCount(sums, k, c)
		return
	}
	now, w := s.latest, *is
	if f := w.fleet; f != nil && f.index == c.window && f.index != w.index {
		c.said[countEvents], c.said[countBack] = f.total, f.back
	}
	s.mu.Unlock()
	x.enterWindow(sums, k, c, w.index, now.at, l.newsMaxAge)
	news := l.othersSay(sums, c)
	said := l.learnCount(k, c, news, pool)
	if c.busy {
		x.name(c, l.spokenKeys)
	}
	if c.asked {
		said[countAsked] = 1
	}
	if c.asked || news.sum[countAsked] > 0 {
		c.last = now.at
	}
	if now.at-c.last >= askedFor && c.before == "" {
		l.forgetCount(sums, k, c)
		return
	}
	c.said = said
	sums.Say(c.text, said)
}

// othersSay returns what the other replicas say of a window.
func (l *Limiter) othersSay(sums Sums, c *census) sumNews {
	n := l.sum(sums, c.text)
	for i := range n.sum {
		n.sum[i] = min(max(0, n.sum[i]-c.said[i]), mostCounted)
	}
	return n
}

// learnCount puts the reports in force, unless the window is over. It returns what this replica has to say.
func (l *Limiter) learnCount(k countKey, c *census, news sumNews, pool Pool) (said Terms) {
	s, g, r, w := l.countedGate(k)
	if r == nil {
		s.mu.Unlock()
		return said
	}
	if w.index == c.window {
		c.learn(w, r, s.latest, news, pool, l.newsMaxAge)
		c.busy, c.used = c.busy || w.busy(), float64(w.used)/r.limit
		said[countEvents], said[countBack] = w.used+w.fleet.back, w.fleet.back
		said[countKnown] = int64(pool.weight())
	}
	s.serveAndUnlock(g)
	return said
}

// mostCounted bounds what is believed of a sum.
const mostCounted = 1 << 60

// learn puts in force what the others have admitted. A sum that lacks a part may be too small.
func (c *census) learn(w *window, r *rule, t instant, news sumNews, pool Pool, maxAge time.Duration) {
	sum, age, ends := news.sum, news.ageAt(t.at), time.Duration(0)
	others := sum[countEvents] - sum[countBack]
	if w.counts() {
		others, ends = max(others, w.fleet.others), w.fleet.ends
	}
	if age <= maxAge {
		joined := sum[countKnown] > c.known
		c.known = sum[countKnown]
		n := c.others.see(sum, joined)
		if others = max(others, n); c.known+int64(pool.weight()) >= int64(pool.Replicas) {
			others, ends = n, t.at+maxAge-age
		}
	}
	w.learn(t, r.schedule, max(0, others), ends)
}

// countedGate returns the gate of a counted key, and its window under the rule, brought up to now. The rule is
// nil when there is none, or no room for the key. The shard is locked.
func (l *Limiter) countedGate(k countKey) (*shard, *gate, *rule, *window) {
	s, hash := l.lock(k.key)
	now := s.now()
	g := s.find(hash)
	if g == nil && s.setting.counting(k.rule) != nil && s.overflow.gate == nil && s.makeRoom(now) {
		g = s.newGate(hash, k.key, s.untouched, now)
	}
	if g == nil || g.name != k.key {
		return s, nil, nil, nil
	}
	s.touch(g, now)
	r, w := g.counting(k.rule)
	if r != nil {
		w.roll(now, r.schedule)
	}
	return s, g, r, w
}

// enterWindow begins to count a window, unless it is counted already. The text of the one before stays for a
// grace: at replicas whose clocks are behind that window still goes on.
func (x *exchange) enterWindow(
	sums Sums, k countKey, c *census, index int64, now, grace time.Duration,
) {
	enters := c.text == "" || c.window != index
	if c.before != "" && (enters || now >= c.until) {
		sums.Say(c.before, Terms{})
		c.before = ""
	}
	if !enters {
		return
	}
	if c.before, c.until = c.text, now+grace; c.before != "" {
		sums.Say(c.before, c.said)
	}
	c.window, c.text = index, countText(k, index)
	c.said, c.others, c.known = Terms{}, taken{}, 0
	if !c.busy {
		x.unname(c)
	}
	c.busy, c.usedBefore, c.used = false, c.used, 0
}

// forgetCount has a key divided again.
func (l *Limiter) forgetCount(sums Sums, k countKey, c *census) {
	x := &l.exchange
	for _, text := range []string{c.before, c.text} {
		if text != "" {
			sums.Say(text, Terms{})
		}
	}
	x.unname(c)
	delete(x.counts, k)
	s, hash := l.lock(k.key)
	defer s.mu.Unlock()
	g := s.ownGate(hash, k.key)
	if g == nil {
		return
	}
	s.touch(g, s.now())
	if _, w := g.counting(k.rule); w != nil && w.fleet != nil {
		w.fleet.ends = 0 // what the others had left by then is no more now
	}
}
