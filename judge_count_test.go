package quotient_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient"
)

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
	if r.rate.Counted || r.count.known {
		r.within = max(r.within, min(used, r.allows(m.at)))
	}
}

// report has a window know of the others.
func (m *model) report(n count) {
	for i := range m.rules {
		r := &m.rules[i]
		if r.rate.Counted && r.name == n.rule.Name && r.rate.Unit == n.rule.Unit && r.rate.Per == n.rule.Per {
			n.known = true
			r.mark(m)
			r.count = n
			r.mark(m)
		}
	}
}

// keepCount carries a count over a change. Reports from another pool are too old, since its replicas are not
// all known to count.
func (r *ruleLevel) keepCount(o *ruleLevel) {
	r.gross = o.gross
	if r.rate.Counted {
		r.count = o.count
	}
	if r.n != o.n {
		r.count.ends = time.Time{}
	}
}

// counts reports whether the others' admissions are known of some window.
func (m *model) counts() bool {
	return slices.ContainsFunc(m.rules, func(r ruleLevel) bool { return r.count.known })
}

// otherWindows returns a limit with the same rules, of which the windows have other events, or are counted or
// not.
func (w *world) otherWindows(limit quotient.Limit) quotient.Limit {
	limit.Rates = slices.Clone(limit.Rates)
	for i := range limit.Rates {
		if r := &limit.Rates[i]; r.Aligned {
			r.Counted = pick(w.T, 0, 9, "counted") < w.counted
			if coin(w.T, "other events") {
				r.Events = w.drawEvents("other")
			}
		}
	}
	return limit
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
	rates := slices.DeleteFunc(slices.Clone(limit.Rates), func(x quotient.Rate) bool { return !x.Counted })
	if w.plans || len(rates) == 0 {
		return
	}
	n := count{rule: among(w.T, rates, "rule")}
	others := pick(w.T, 0, int(n.rule.Events)+2, "others")
	lasts := time.Duration(among(w.T, []int{1, 300, 1000, 4000, 20_000, 90_000}, "count")) * time.Millisecond
	n.others, n.ends = float64(others), time.Now().Add(lasts)
	if !quotient.Report(r.l, key, n.rule, int64(others), lasts) {
		return
	}
	until := n.ends.Format("04:05.000000000")
	w.tell("replica %d %s: %s knows of %d by others until %v", r.id, key, n.rule.Name, others, until)
	k := r.key(key)
	k.items = append(k.items, item{at: time.Now(), count: &n})
}
