package contenders

import (
	"github.com/quotient-go/quotient/bench/arena/sim"
	"github.com/quotient-go/quotient/policy"
)

// rules are those that policy.Tracking can do without, by the names of the report.
var rules = []struct {
	name string
	rule policy.Rules
}{
	{"floor", policy.RuleFloor},
	{"patience", policy.RulePatience},
	{"return", policy.RuleReturn},
	{"blackout", policy.RuleBlackout},
	{"restore", policy.RuleRestore},
	{"cycle", policy.RuleCycle},
	{"headroom", policy.RuleHeadroom},
	{"doubt", policy.RuleDoubt},
	{"slow start", policy.RuleSlowStart},
	{"recover", policy.RuleRecover},
	{"served", policy.RuleServed},
	{"futile", policy.RuleFutile},
}

// Ablation returns policy.Tracking with all rules, and then without each of them, under the rule's name.
func Ablation() []sim.Contender {
	list := []sim.Contender{{Name: Ours, Policy: the(policy.Tracking{})}}
	for _, r := range rules {
		list = append(list, sim.Contender{Name: r.name, Policy: the(policy.Tracking{Without: r.rule})})
	}
	return list
}
