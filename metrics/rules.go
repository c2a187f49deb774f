package metrics

import (
	"fmt"
	"iter"
	"strings"

	"github.com/quotient-go/quotient"
)

// rate is a rate of a limit with labels that no other rate of the limit has. Limit and Share are in events
// per second.
type rate struct {
	quotient.RuleState
	name, unit string
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

// rates iterates over the rates of a limit with labels that a scrape can carry. A number tells two names
// apart that become the same label: one bad name must not cost the whole scrape.
func rates(rules []quotient.RuleState) iter.Seq[rate] {
	return func(yield func(rate) bool) {
		taken := make(map[[2]string]bool, len(rules))
		for i, rs := range rules {
			if rs.Window == 0 {
				continue // the slots, or a policy
			}
			r := rate{RuleState: rs, name: label(rs.Name), unit: "requests"}
			if rs.Unit != "" {
				r.unit = label(rs.Unit)
			}
			r.Limit, r.Share = r.Limit/rs.Window.Seconds(), r.Share/rs.Window.Seconds()
			for taken[[2]string{r.name, r.unit}] {
				r.name = fmt.Sprintf("%s #%d", r.name, i+1)
			}
			taken[[2]string{r.name, r.unit}] = true
			if !yield(r) {
				return
			}
		}
	}
}

// longestLabel is the most bytes of a name that become a label. Operators choose the names of rules and
// units.
const longestLabel = 64

// label returns a name as a short label of valid UTF-8. U+FFFD replaces other bytes, and half a rune at the
// cut.
func label(name string) string {
	return strings.ToValidUTF8(name[:min(len(name), longestLabel)], "\uFFFD")
}
