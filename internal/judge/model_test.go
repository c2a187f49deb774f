package judge

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

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
		if windowed(r.rate) {
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
		if windowed(r.rate) {
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
		case j >= 0 && windowed(rate):
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
	burst := burstOf(rate)
	r.own, r.size = perSecond/r.n, max(1, burst/r.n)
	if !m.generous {
		r.size = max(1, math.Floor(burst/r.n*1000)/1000)
	}
	if r.ordinal > 0 { // those that have an event may all be others'
		r.sparse = windowed(rate) && int(rate.Events+1e-9) <= r.of-r.weight
	} else {
		r.sparse = windowed(rate) && rate.Events < r.n
	}
	return r
}

// windowed reports whether a rate counts windows, for all or with the fleet.
func windowed(r quotient.Rate) bool {
	return r.Kind == quotient.Window || r.Kind == quotient.CountedWindow
}

// burstOf is that of a rate over the fleet.
func burstOf(rate quotient.Rate) float64 {
	if rate.Kind == quotient.Paced {
		return 1
	}
	if rate.Burst == 0 {
		return max(1, rate.Events)
	}
	return float64(rate.Burst)
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
		if windowed(r) {
			return false
		}
		if r.Kind == quotient.Paced && !r.NoTurns && every(r) > .04999 &&
			(slowest < 0 || every(r) > every(rates[slowest])) {
			slowest = j
		}
	}
	return i == slowest
}

// same reports whether two rules are one, so that its state stays.
func (r *ruleLevel) same(o *ruleLevel) bool {
	return r.name == o.name && r.rate.Unit == o.rate.Unit && windowed(r.rate) == windowed(o.rate) &&
		(!windowed(r.rate) || r.rate.Per == o.rate.Per && r.rate.Zone == o.rate.Zone)
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
		if windowed(o.rate) && m.generous && o.credit > 0 {
			continue // a step may have opened a window in which nothing was used
		}
		if windowed(o.rate) {
			left, used = min(left, o.windowLeft(m.at)), used || o.used > 0 || o.count.known
			continue
		}
		full := o.size
		if m.generous {
			full -= 2e-3 // sizes are counted in thousandths
		}
		left, used = min(left, o.tokens+1e-6), used || o.tokens < full
	}
	empty := (m.joins || windowed(r.rate) && m.awaits) && !counted
	if windowed(r.rate) {
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
		if !windowed(r.rate) {
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
		if windowed(r.rate) {
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

// keepWindow carries a window over a change: what the limit has gained counts at once, up to whole events for each
// ordinal. A share that has grown because the pool shrank counts from the next window on.
func (r *ruleLevel) keepWindow(o *ruleLevel, m *model) {
	o.mark(m)
	r.index, r.used, r.quota, r.credit, r.within = o.index, o.used, o.quota, o.credit, o.within
	r.keepCount(o, m.at)
	defer r.mark(m)
	k := m.windowAt(r)
	q := r.quotaOf(k, m.phase)
	if r.rate.Events > o.rate.Events {
		most := q
		if each := math.Floor(r.rate.Events/float64(r.of) + 1e-9); each > 0 {
			most = each * float64(r.weight)
		}
		r.quota = max(r.quota, min(most, r.quota+q-o.quotaOf(k, m.phase)))
		return
	}
	if m.generous && r.sparse {
		q = max(q, 1) // it may be one that is kept
	}
	r.within = max(r.within, min(r.used, r.quota))
	r.quota = min(r.quota, q)
}

// windowLeft is what is left of a window; below 0 what the next ones owe. Events within the quota of their
// time are not owed when the quota is cut.
func (r *ruleLevel) windowLeft(at time.Time) float64 {
	may := r.allows(at)
	if r.used <= may {
		return may - r.used
	}
	return min(0, max(may, r.within)-r.used)
}

// quotaOf is what a replica may do in a window. With an ordinal fractions carry over, so that the fleet's
// total is exact: each of its ordinals has its part. Without one they are rounded down, but one in so many
// windows is the least.
func (r *ruleLevel) quotaOf(k, phase int64) float64 {
	e, n, w := int64(math.Round(r.rate.Events*1000)), int64(r.of), int64(r.weight)
	if r.ordinal > 0 {
		sum := int64(0)
		for o := r.ordinal; o < r.ordinal+r.weight; o++ {
			upTo := func(k int64) int64 { return floor(k*e+int64(o-1)*1000, n*1000) }
			sum += upTo(k+1) - upTo(k)
		}
		return float64(sum)
	}
	if q := e * w / (1000 * n); q > 0 {
		return float64(q)
	}
	every := (1000*n + e*w - 1) / (e * w)
	if floor(k+phase, every)*every == k+phase {
		return 1
	}
	return 0
}

func floor(a, b int64) int64 {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}

func (m *model) windowAt(r *ruleLevel) int64 {
	return indexOf(r.rate, m.at.Add(m.step))
}

// indexOf is the number of a rate's window at an instant. Those of a zone are of dates.
func indexOf(r quotient.Rate, at time.Time) int64 {
	if r.Zone == "" {
		return floor(at.UnixNano(), int64(r.Per))
	}
	loc, err := time.LoadLocation(r.Zone)
	if err != nil {
		panic(err)
	}
	year, month, day := at.In(loc).Date()
	return floor(time.Date(year, month, day, 0, 0, 0, 0, time.UTC).UnixNano(), int64(r.Per))
}

// open opens a window. A debt is taken over, and so is, where a window keeps its room, an event that was not
// used.
func (r *ruleLevel) open(k int64, m *model) {
	left, spare := r.windowLeft(m.at), r.quota-r.used // of the fleet's events none is kept
	r.index, r.used, r.quota, r.within = k, max(0, -left), r.quotaOf(k, m.phase), 0
	r.count, r.gross = count{}, r.used
	if r.keeps && min(left, spare) >= 1 {
		r.quota = max(r.quota, 1)
	}
}

// stepClock sets the wall clock. A step opens one window at most. That room may be used at any time from
// then on, since a window that is in use goes on for a while. Another one comes of the phase, which has
// changed: one of the windows that real time has room for may begin sooner by the limiter's count. Once a
// part was lent, a step within a window counts too: the end of the loan may be dated by the clock as set.
func (m *model) stepClock(offset time.Duration) {
	m.step = offset
	for i := range m.rules {
		r := &m.rules[i]
		if !windowed(r.rate) {
			continue
		}
		if k := m.windowAt(r); k != r.index || m.lent {
			r.used, r.within = r.quota-min(r.quota, r.windowLeft(m.at)), 0 // only what is owed is taken over
			r.index, r.quota, r.gross = k, max(r.quota, r.quotaOf(k, m.phase)), r.used
			r.credit += 2 * float64(r.weight) * math.Ceil(r.rate.Events/float64(r.of))
			if r.count = (count{}); r.rate.Kind == quotient.CountedWindow { // both windows may be known to be the replica's alone
				r.credit += 2 * math.Ceil(r.rate.Events)
			}
		}
	}
}

// TestJudgeOfCountedWindows plays more histories of TestPropertyEverything with counted windows.
func TestJudgeOfCountedWindows(t *testing.T) {
	for range 12 {
		rapid.Check(t, func(rt *rapid.T) { playProfile(rt, "counted") })
	}
}

// The judge's reading of a counted window. While the others' admissions in it are known, a replica may take
// what they leave of the fleet's events. When the reports are too old it has its share, but no more than was
// left. Windows that open know nothing.

// count is what a replica knows of the others' admissions in a window. The zero value means nothing.
type count struct {
	rule   quotient.Rate
	known  bool
	others float64
	ends   time.Time // then the reports are too old
}

// allows is what a window allows the replica in all.
func (r *ruleLevel) allows(at time.Time) float64 {
	if !r.count.known {
		return r.quota
	}
	fleet := *r
	fleet.of, fleet.ordinal, fleet.weight = 1, 1, 1
	left := max(0, fleet.quotaOf(r.index, 0)-r.count.others)
	if at.Before(r.count.ends) {
		return left
	}
	return min(left, r.quota)
}

// mark notes what is within the limit of a counted window now, and so is never owed. The generous model
// counts what was given back later too.
func (r *ruleLevel) mark(m *model) {
	used := r.used
	if m.generous {
		used = r.gross
	}
	if r.rate.Kind == quotient.CountedWindow || r.count.known {
		r.within = max(r.within, min(used, r.allows(m.at)))
	}
}

// report has a window know of the others.
func (m *model) report(n count) {
	for i := range m.rules {
		r := &m.rules[i]
		if r.rate.Kind == quotient.CountedWindow && ruleOf(r.rate) == ruleOf(n.rule) {
			n.known = true
			r.mark(m)
			r.count = n
			r.mark(m)
		}
	}
}

// keepCount carries a count over a change. Reports from another pool are too old, since its replicas are not
// all known to count.
func (r *ruleLevel) keepCount(o *ruleLevel, at time.Time) {
	r.gross = o.gross
	if r.rate.Kind == quotient.CountedWindow {
		r.count = o.count
	} else {
		r.quota = min(r.quota, o.allows(at)) // no more than the others have left
	}
	if r.n != o.n {
		r.count.ends = time.Time{}
	}
}

// counts reports whether the others' admissions are known of some window.
func (m *model) counts() bool {
	return slices.ContainsFunc(m.rules, func(r ruleLevel) bool { return r.count.known })
}

// inAllPlans is what the judge knows of a key in each of its plans.
func (r *replica) inAllPlans(key string) (all []*keyState) {
	if !r.w.plans {
		return []*keyState{r.key(key)}
	}
	for _, plan := range planNames {
		all = append(all, r.key(strings.TrimSuffix(nameOf(key)+"/"+plan, "/")))
	}
	return all
}

// otherWindows returns a limit with the same rules, of which the windows have other events, or are counted or
// not.
func (w *world) otherWindows(limit quotient.Limit) quotient.Limit {
	limit.Rates = slices.Clone(limit.Rates)
	for i := range limit.Rates {
		if r := &limit.Rates[i]; windowed(*r) {
			r.Kind = w.drawWindow("counted")
			if coin(w.T, "other events") {
				r.Events = w.drawEvents("other")
			}
		}
	}
	return limit
}

// drawWindow is the kind of a window.
func (w *world) drawWindow(label string) quotient.Kind {
	if w.counted > 0 && pick(w.T, 0, 9, label) < w.counted {
		return quotient.CountedWindow
	}
	return quotient.Window
}

// drawEvents are those of a window.
func (w *world) drawEvents(label string) float64 {
	return float64(among(w.T, []int{2, 10, 15, 20, 35, 100}, label+" tenths")) / 10
}

// count has a replica receive what the others have admitted in the present window of a key.
func (w *world) count(r *replica) {
	key := w.drawKey()
	hi, _ := r.key(key).upToNow()
	limit := hi.limit()
	rates := slices.DeleteFunc(slices.Clone(limit.Rates), func(x quotient.Rate) bool { return x.Kind != quotient.CountedWindow })
	if len(rates) == 0 {
		return
	}
	n := count{rule: among(w.T, rates, "rule")}
	others := pick(w.T, 0, int(n.rule.Events)+2, "others")
	lasts := time.Duration(among(w.T, []int{1, 300, 1000, 4000, 20_000, 90_000}, "count")) * time.Millisecond
	n.others, n.ends = float64(others), time.Now().Add(lasts)
	if !reportKey(r.l, nameOf(key), n.rule, int64(others), lasts) {
		return
	}
	until := n.ends.Format("04:05.000000000")
	w.tell("replica %d %s: %s knows of %d by others until %v", r.id, key, n.rule.Name, others, until)
	for _, k := range r.inAllPlans(key) {
		k.items = append(k.items, item{at: time.Now(), count: &n})
	}
}

// The judge's reading of what is lent: a part of a key's limit, in place of a share that is smaller, until an
// instant. Bursts, windows and turns stay as they are.

// loan is a part of the limit of a key on one replica. The zero value means no loan.
type loan struct {
	part float64
	ends time.Time
}

// holds reports whether the loan is in force at an instant.
func (n loan) holds(at time.Time) bool { return n.part > 0 && at.Before(n.ends) }

// lend puts the rates under what is lent now. Under Deny the rules stay as they were.
func (m *model) lend() {
	if m.limit().Deny {
		return
	}
	for i := range m.rules {
		r := &m.rules[i]
		if r.perSecond = r.own; m.loan.holds(m.at) && !windowed(r.rate) && r.loose == 0 {
			r.perSecond = max(r.own, m.loan.part*r.rate.Events/r.rate.Per.Seconds())
		}
	}
}

// advance lets time pass, over the end of a loan.
func (m *model) advance(to time.Time) {
	if n := m.loan; n.part > 0 && !to.Before(n.ends) {
		if n.ends.After(m.at) {
			m.pass(n.ends)
		}
		m.loan = loan{}
		m.lend()
	}
	m.pass(to)
}

// lentSlots is what is lent of the slots now.
func (m *model) lentSlots() int {
	if !m.loan.holds(m.at) {
		return 0
	}
	return int(m.loan.part * float64(m.limit().InFlight))
}

// lend has a replica borrow a part of a key's limit for a while.
func (w *world) lend(r *replica) {
	if w.plans || !w.lends {
		return
	}
	key := w.drawKey()
	n := loan{part: float64(pick(w.T, 0, 64, "part")) / 64}
	lasts := time.Duration(pick(w.T, 1, 5000, "loan")) * time.Millisecond
	n.ends = time.Now().Add(lasts)
	if !lendKey(r.l, key, n.part, lasts) {
		return
	}
	w.tell("replica %d %s: %v is lent until %v", r.id, key, n.part, n.ends.Format("04:05.000000000"))
	k := r.key(key)
	k.items = append(k.items, item{at: time.Now(), loan: &n})
}
