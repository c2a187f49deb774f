package quotient_test

import (
	"math"
	"slices"
	"time"

	"github.com/quotient-go/quotient"
)

// The judge's own reading of what is promised: a replica's share of a limit, buckets and windows, written
// down from docs/bounds.md without a line of the library. A model replays the history of one key on one
// replica. There are two for each key. The generous one counts what was taken less what was given back, dated
// at its taking. So it has at least as much left as the limiter may have. The other one counts all that was
// ever taken, and so has at most as much left as the limiter must have.

// units are what is counted: requests, and two more.
var units = []string{"", "tok", "row"}

type amounts [3]float64

// close is how far a decision may be beside the model: buckets count thousandths of events.
const slack = 0.003

// ruleLevel is one rate of a key on a replica, and what is left of it.
type ruleLevel struct {
	rate      quotient.Rate
	name      string
	n         float64 // shares of this size that it is divided into
	of        int     // replicas, each counted by its weight
	ordinal   int     // the first of its own
	weight    int
	sparse    bool // some of its windows may allow nothing
	perSecond float64
	own       float64 // perSecond, if nothing were lent
	size      float64 // of the bucket
	tokens    float64
	raw       float64 // tokens, had the bucket no size since something was taken last
	index     int64   // of the window
	quota     float64
	used      float64
	keeps     bool    // of an event that was not used
	within    float64 // of used, what was within the quota of its time
	count     count   // what is known of the others in this window, if the rate is counted
	gross     float64 // of used, with what was given back
	credit    float64 // of the windows that steps of the clock have opened
	loose     float64 // what a turn may be early by
}

// model is one key on one replica.
type model struct {
	generous bool // it counts what was given back as never taken
	joins    bool
	learns   bool // it takes no turns then
	ceiling  bool // of what it learns: the whole limit
	phase    int64
	at       time.Time
	base     quotient.Limit
	plan     string // whose limit that is
	own      *quotient.Limit
	pool     quotient.Pool
	awaiting bool
	awaits   bool // it waited for its first pool, or may: its windows open with the next one
	waited   bool
	known    bool // the pool was known once
	step     time.Duration
	loan     loan
	lent     bool // ever
	rules    []ruleLevel
}

// item is one entry of a key's history: a change, or something taken.
type item struct {
	at       time.Time
	base     *quotient.Limit
	plan     string // of base
	setsOwn  bool
	own      *quotient.Limit
	pool     *quotient.Pool
	awaiting bool
	step     *time.Duration
	took     *taking
	loan     *loan
	count    *count
	never    []item // the key is forgiven: the history of a key never seen
}

// taking is one admission, or one correction upwards. Net falls when something is given back.
type taking struct {
	at         time.Time
	net, gross amounts
}

// play brings the model to an entry of the history, and over it.
func (m *model) play(it item) {
	m.advance(it.at)
	switch {
	case it.took != nil:
		m.take(it.took)
		return
	case it.step != nil:
		m.stepClock(*it.step)
		return
	case it.loan != nil:
		m.loan, m.lent = *it.loan, true
		m.lend()
		return
	case it.count != nil:
		m.report(*it.count)
		return
	case it.never != nil:
		m.forgive(it.never)
		return
	case it.base != nil && it.plan != m.plan:
		return
	case it.base != nil:
		m.base = *it.base
	case it.setsOwn:
		m.own, m.loan = it.own, loan{}
	case it.pool != nil:
		m.pool, m.awaiting = *it.pool, it.awaiting
		if m.waited = m.waited || it.awaiting; m.waited && !m.known && !it.awaiting {
			m.rules = nil // nothing can have been taken: the key begins
		}
		m.known = m.known || !it.awaiting
	}
	m.resolve()
}

// forgive has a key start fresh. It stands as one never seen, and is full under a limit of its own.
func (m *model) forgive(never []item) {
	if m.own == nil {
		u := model{plan: m.plan, generous: m.generous, awaits: m.awaits, joins: m.joins}
		u.learns, u.ceiling, u.phase = m.learns, m.ceiling, m.phase
		for _, it := range never {
			u.play(it)
		}
		u.advance(m.at)
		m.rules = u.rules
		m.lend()
		return
	}
	for i := range m.rules {
		r := &m.rules[i]
		r.tokens, r.raw, r.used, r.credit, r.within = r.size, r.size, 0, 0, 0
		r.count, r.gross = count{}, 0
		if r.rate.Aligned {
			r.index = m.windowAt(r)
			r.quota = r.quotaOf(r.index, m.phase)
		}
	}
}

func (m *model) take(t *taking) {
	n := t.gross
	if m.generous {
		n = t.net
	}
	for i := range m.rules {
		r := &m.rules[i]
		if r.rate.Aligned {
			r.used += n[unitIndex(r.rate.Unit)]
			extra := min(r.credit, max(0, r.used-r.allows(m.at)))
			r.used, r.credit = r.used-extra, r.credit-extra
			r.gross += t.gross[unitIndex(r.rate.Unit)]
			r.mark(m)
		} else {
			r.tokens -= n[unitIndex(r.rate.Unit)]
			r.raw = r.tokens
		}
	}
}

func unitIndex(unit string) int { return slices.Index(units, unit) }

// limit is what holds for the key.
func (m *model) limit() quotient.Limit {
	if m.own != nil {
		return *m.own
	}
	return m.base
}

// resolve puts the key under its limit and pool as they are now. Under Deny the rules stay as they were.
func (m *model) resolve() {
	limit := m.limit()
	if limit.Deny {
		return
	}
	old := m.rules
	m.rules = nil
	for i, rate := range limit.Rates {
		r := m.share(rate, i)
		if m.turnsAt(limit.Rates, i) {
			r.loose = 0.1
		}
		if r.loose > 0 { // what lets all of its turns of a cycle follow on each other
			r.size = 1 + float64(r.weight-1)*(1-1/r.n)
		}
		j := slices.IndexFunc(old, func(o ruleLevel) bool { return o.same(&r) })
		switch {
		case j >= 0 && rate.Aligned:
			r.keepWindow(&old[j], m)
		case j >= 0:
			r.tokens = min(old[j].tokens, r.size)
		default:
			m.start(&r, old)
		}
		r.raw = r.tokens
		m.rules = append(m.rules, r)
	}
	m.keep()
	m.lend()
}

// keep marks the windows that keep an event that was not used. These are all rates with less than one event a
// window but that with the longest period, so that there is an instant at which all have room.
func (m *model) keep() {
	strict := -1
	for i := range m.rules {
		r := &m.rules[i]
		if r.keeps = r.sparse; r.keeps && (strict < 0 || r.rate.Per > m.rules[strict].rate.Per) {
			strict = i
		}
	}
	if strict >= 0 {
		m.rules[strict].keeps = false
	}
}

// share is a rate's part of this replica.
func (m *model) share(rate quotient.Rate, i int) ruleLevel {
	r := ruleLevel{rate: rate, name: rate.Name, of: m.pool.Replicas, ordinal: m.pool.Ordinal,
		weight: max(1, m.pool.Weight)}
	if m.ceiling {
		r.of, r.ordinal, r.weight = 1, 0, 1
	}
	if m.awaiting {
		r.of, r.ordinal, r.weight = 1e6, 0, 1
	}
	r.n = float64(r.of) / float64(r.weight)
	if r.name == "" {
		r.name = "rate " + string(rune('1'+i))
	}
	perSecond := rate.Events / rate.Per.Seconds()
	burst := float64(rate.Burst)
	if rate.Burst == 0 {
		burst = max(1, rate.Events)
	}
	r.own, r.size = perSecond/r.n, max(1, burst/r.n)
	if !m.generous {
		r.size = max(1, math.Floor(burst/r.n*1000)/1000)
	}
	if r.ordinal > 0 { // those that have an event may all be others'
		r.sparse = rate.Aligned && int(rate.Events+1e-9) <= r.of-r.weight
	} else {
		r.sparse = rate.Aligned && rate.Events < r.n
	}
	return r
}

// turnsAt reports whether replicas take turns under a rate: it is the slowest of those that are paced, 50 ms
// or longer, and none is aligned.
func (m *model) turnsAt(rates []quotient.Rate, i int) bool {
	p := m.pool
	if m.learns || m.awaiting || p.Ordinal == 0 || p.Replicas == max(1, p.Weight) {
		return false
	}
	slowest := -1
	every := func(r quotient.Rate) float64 { return r.Per.Seconds() / r.Events }
	for j, r := range rates {
		if r.Aligned {
			return false
		}
		if r.Burst == 1 && !r.NoTurns && every(r) > .04999 &&
			(slowest < 0 || every(r) > every(rates[slowest])) {
			slowest = j
		}
	}
	return i == slowest
}

// same reports whether two rules are one, so that its state stays.
func (r *ruleLevel) same(o *ruleLevel) bool {
	return r.name == o.name && r.rate.Unit == o.rate.Unit && r.rate.Aligned == o.rate.Aligned &&
		(!r.rate.Aligned || r.rate.Per == o.rate.Per)
}

// start is how a new rule starts: with the least that the rules of its unit would still admit, and full where
// they are full. It is empty on a replica that joins and has not counted the unit so far.
func (m *model) start(r *ruleLevel, old []ruleLevel) {
	left, counted, used := math.Inf(1), false, false
	for i := range old {
		o := &old[i]
		if o.rate.Unit != r.rate.Unit {
			continue
		}
		counted = true
		if o.rate.Aligned && m.generous && o.credit > 0 {
			continue // a step may have opened a window in which nothing was used
		}
		if o.rate.Aligned {
			left, used = min(left, o.windowLeft(m.at)), used || o.used > 0
			continue
		}
		full := o.size
		if m.generous {
			full -= 2e-3 // sizes are counted in thousandths
		}
		left, used = min(left, o.tokens+1e-6), used || o.tokens < full
	}
	empty := (m.joins || r.rate.Aligned && m.awaits) && !counted
	if r.rate.Aligned {
		r.index = m.windowAt(r)
		r.quota = r.quotaOf(r.index, m.phase)
		switch {
		case used:
			r.used = max(0, r.quota-math.Floor(left+1e-9))
			r.gross = r.used
		case empty:
			r.quota = 0
		}
		return
	}
	switch {
	case used:
		r.tokens = min(r.size, left)
	case !empty:
		r.tokens = r.size
	}
}

// pass lets time pass: buckets fill, windows open and repay what is owed.
func (m *model) pass(to time.Time) {
	passed := to.Sub(m.at).Seconds()
	m.at = to
	for i := range m.rules {
		r := &m.rules[i]
		if !r.rate.Aligned {
			r.raw += passed * r.perSecond
			r.tokens = min(r.size, r.tokens+passed*r.perSecond)
			continue
		}
		k := m.windowAt(r)
		if k-r.index > 10_000 { // all is repaid by then
			r.used, r.quota, r.index, r.count = 0, 1, k-10, count{}
		}
		for r.index < k {
			r.open(r.index+1, m)
		}
	}
}

// lacks is the first rule that has no room for n; "" when all have. A close case is room for the generous
// model, and none for the other.
func (m *model) lacks(n amounts) string {
	for i := range m.rules {
		r := &m.rules[i]
		want := n[unitIndex(r.rate.Unit)]
		if want == 0 {
			continue
		}
		if r.rate.Aligned {
			room, fresh := r.allows(m.at)+r.credit, r.used <= 0 && !r.count.known
			if r.used+want > room+1e-6 && !((fresh || r.credit > 0) && room > 0 && want > r.quota) {
				return r.name
			}
			continue
		}
		need := min(want, r.size)
		if m.generous && r.tokens < need-slack-r.loose || !m.generous && r.raw < need+slack {
			return r.name
		}
	}
	return ""
}

// turns reports whether a rule may have its replicas take turns: when it has room is not for the model to
// say.
func (m *model) turns() bool {
	return slices.ContainsFunc(m.rules, func(r ruleLevel) bool { return r.loose > 0 })
}

// slots is this replica's part of the in-flight limit; -1 without one.
func (m *model) slots(atLeastOne bool) int {
	g := m.limit().InFlight
	if g == 0 {
		return -1
	}
	n, w := m.pool.Replicas, max(1, m.pool.Weight)
	if m.ceiling {
		n, w = 1, 1
	}
	if m.awaiting {
		n, w = 1_000_000, 1
	}
	first := n - w + 1 // without an ordinal that counts: those that have the least
	if m.pool.Fixed && m.pool.Ordinal > 0 && !m.ceiling && !m.awaiting {
		first = m.pool.Ordinal
	}
	s := 0
	for o := first; o < first+w; o++ {
		if s += g / n; o <= g%n {
			s++
		}
	}
	if s == 0 && atLeastOne {
		s = 1
	}
	return max(s, m.lentSlots())
}
