package admin

import (
	"log/slog"
	"regexp"

	"github.com/quotient-go/quotient"
)

// PlanState is a plan of a limiter, as in quotient.PlanStats.
type PlanState struct {
	Name  string      `json:"name"`
	Limit LimitState  `json:"limit"` // over the fleet
	Rules []RuleState `json:"rules"` // of the limit, with this replica's share
}

func newPlanStates(plans []quotient.PlanStats) []PlanState {
	states := make([]PlanState, 0, len(plans))
	for _, p := range plans {
		states = append(states, PlanState{p.Name, newLimitState(p.Limit), newRuleStates(p.Rules)})
	}
	return states
}

// namedPlan is what PUT /plan asks for: a plan of that name with a limit, or none.
type namedPlan struct {
	name  string
	limit *quotient.Limit
}

func parsePlan(body []byte) (change, *Problem) {
	v, bad := readPlan(body)
	return change{what: "plan set", field: "plan", value: v.name, show: v.show, apply: v.apply, try: v.try}, bad
}

const (
	longestPlan = 64 // bytes of a name: the limiter's bound
	planRange   = "1 to 64 of a-z, 0-9, '.', '_' and '-'"
)

// planName is what the limiter takes for a name.
var planName = regexp.MustCompile(`\A[a-z0-9._-]{1,64}\z`)

// readPlan reads {"plan":"paid","limit":{...}}; the limit may be null: the plan is taken off. Both must be
// there.
func readPlan(body []byte) (namedPlan, *Problem) {
	f := readForm(body, `{"plan":"paid","limit":{"rates":[{"events":100,"per_seconds":1}]}}`, "plan", "limit")
	v := namedPlan{name: f.text("plan", longestPlan)}
	if !planName.MatchString(v.name) {
		f.wrong("plan", "not a name", planRange)
	}
	v.limit = readLimitOrNull(&f)
	return result(f, v)
}

func (v namedPlan) apply(l *quotient.Limiter) error { return l.SetPlan(v.name, v.limit) }

// show is the plan for the log.
func (v namedPlan) show(l *quotient.Limiter) slog.Value {
	value := slog.StringValue("none")
	for _, p := range l.Stats().Plans {
		if p.Name == v.name {
			value = limitValue(p.Limit)
		}
	}
	return slog.GroupValue(slog.String("plan", v.name), slog.Attr{Key: "limit", Value: value})
}
