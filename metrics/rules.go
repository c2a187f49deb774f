package metrics

import (
	"fmt"
	"iter"
	"strings"

	"github.com/quotient-go/quotient"
)

// rule is a rule of a limit with its labels, which no other rule of the limit has. Rates have their Limit and
// Share in events per second.
type rule struct {
	quotient.RuleState
	name, unit, kind string
}

// plans iterates over the limits of a limiter: its own, which has no name, and those of its plans, each with
// a name that a scrape can carry.
func plans(s *quotient.Stats) iter.Seq[quotient.PlanStats] {
	return func(yield func(quotient.PlanStats) bool) {
		if !yield(quotient.PlanStats{Limit: s.Limit, Rules: s.Rules}) {
			return
		}
		for _, p := range s.Plans {
			if p.Name = label(p.Name); !yield(p) {
				return
			}
		}
	}
}

// distinct iterates over the rules of a limit with labels that a scrape can carry. Two names that differ only
// in what had to go are told apart by their position: one bad name must not cost the whole scrape.
func distinct(rules []quotient.RuleState) iter.Seq[rule] {
	return func(yield func(rule) bool) {
		taken := make(map[rule]bool, len(rules))
		for i, rs := range rules {
			if rs.Pace > 0 {
				continue // a law, and no rule of the limit
			}
			r := rule{RuleState: rs, name: label(rs.Name), unit: "requests", kind: "rate"}
			if rs.Unit != "" {
				r.unit = label(rs.Unit)
			}
			if rs.Window == 0 { // the slots, whatever the rates are called
				r.kind = "in_flight"
			} else {
				r.Limit, r.Share = r.Limit/rs.Window.Seconds(), r.Share/rs.Window.Seconds()
			}
			for taken[r.labels()] {
				r.name = fmt.Sprintf("%s #%d", r.name, i+1)
			}
			taken[r.labels()] = true
			if !yield(r) {
				return
			}
		}
	}
}

// labels is the rule without its figures.
func (r rule) labels() rule { return rule{name: r.name, unit: r.unit, kind: r.kind} }

// longestLabel bounds how many bytes of a name become a label: operators choose the names of rules and units.
const longestLabel = 64

// label is a name as a label may be: short, and UTF-8. What is not, such as half a rune at the cut, becomes U+FFFD.
func label(name string) string {
	return strings.ToValidUTF8(name[:min(len(name), longestLabel)], "\uFFFD")
}
