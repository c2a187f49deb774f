package policy_test

import (
	"testing"

	"github.com/quotient-go/quotient/policy"
)

// rules are all rules, and how the behaviour shows that each brings.
var rules = []struct {
	name  string
	rule  policy.Rules
	needs policy.Rules // rules without which there is nothing to see
	seen  func(t *testing.T, without policy.Rules) bool
}{
	{"floor", policy.RuleFloor, 0, func(_ *testing.T, without policy.Rules) bool {
		l := born(10, without)
		l.serveFor(4, 0.1)
		return l.refuse(0.1) >= 9.9
	}},
	{"patience", policy.RulePatience, 0, func(_ *testing.T, without policy.Rules) bool {
		l := born(10, without)
		first := l.untilProbe()
		for range 4 {
			l.refuse(0.1)
			l.untilProbe()
		}
		l.refuse(0.1)
		return l.untilProbe() > 1.7*first
	}},
	{"return", policy.RuleReturn, 0, func(_ *testing.T, without policy.Rules) bool {
		l := born(0, without|policy.RuleSlowStart|policy.RuleServed)
		l.serveFor(10, 0.05)
		before := l.Rate
		l.refuse(0.05)
		return l.serveFor(3, 0.05) > before*0.91
	}},
	{"blackout", policy.RuleBlackout, 0, func(_ *testing.T, without policy.Rules) bool {
		l := born(10, without)
		for range 20 {
			l.refuse(0.1)
		}
		return l.gate() > 0
	}},
	{"restore", policy.RuleRestore, policy.RuleBlackout | policy.RuleFloor,
		func(t *testing.T, without policy.Rules) bool {
			l := born(10, without)
			l.serveFor(8, 0.1)
			l.darken(t, 0.1)
			return l.probe(policy.Success) > 9.8
		}},
	{"cycle", policy.RuleCycle, policy.RuleBlackout, func(t *testing.T, without policy.Rules) bool {
		return gainAfterBlackout(t, 12, without) < 1.03
	}},
	{"headroom", policy.RuleHeadroom, 0, func(_ *testing.T, without policy.Rules) bool {
		return settled(without).quoted(5, 0.1, leaky(0.5)) > 11.5
	}},
	{"doubt", policy.RuleDoubt, policy.RuleHeadroom, func(_ *testing.T, without policy.Rules) bool {
		l := settled(without)
		for range 3 {
			l.quoted(2, 0.1, leaky(0.5))
			l.refuse(0.1)
		}
		low := l.quoted(1, 0.1, leaky(0.5))
		return l.quoted(1, 0.1, leaky(0.5)) < 1.025*low
	}},
	{"slow start", policy.RuleSlowStart, 0, func(_ *testing.T, without policy.Rules) bool {
		return born(0, without).serveFor(1, 0.05) > 9
	}},
	{"recover", policy.RuleRecover, 0, func(_ *testing.T, without policy.Rules) bool {
		return healthy(without).fall().serveFor(8, 0.1) > 6
	}},
	{"served", policy.RuleServed, 0, func(_ *testing.T, without policy.Rules) bool {
		l := born(0, without|policy.RuleSlowStart)
		l.serveFor(10, 0.1)
		before := l.Rate
		return l.refuse(0.1) > before*0.9
	}},
	{"futile", policy.RuleFutile, policy.RuleReturn, func(_ *testing.T, without policy.Rules) bool {
		l := healthy(without)
		l.brownout(45)
		return l.Rate > 2
	}},
}

// Each bit switches its own rule off, and no other but those that have nothing to work on without it.
func TestEveryRuleIsSwitchedByItsBit(t *testing.T) {
	all := policy.Rules(0)
	for _, r := range rules {
		if !r.seen(t, 0) {
			t.Errorf("with all rules, %s does not show", r.name)
		}
		for _, off := range rules {
			if r.needs&off.rule == 0 && r.seen(t, off.rule) == (off.rule == r.rule) {
				t.Errorf("without %s, whether %s shows is %v", off.name, r.name, off.rule == r.rule)
			}
		}
		all |= r.rule
	}
	if all != policy.RuleFutile<<1-1 {
		t.Errorf("the table has the rules %b of all", all)
	}
	l := born(10, all)
	l.serveFor(5, 0.1)
	within(t, "without any rule there are cuts and growth", l.refuse(0.1), 8.8, 8.9)
}
