package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

const ablationPreface = `# What each rule is worth

policy.Tracking with all its rules, and without one of them at a time: %d runs in virtual time, seeds %s.
Controllers are tuned on the seeds 1 to 4; 101 to 104 were never tuned on. Worth is the score with all rules less the score
without this one: a negative figure means that the controller is better without it. Means are over all scenarios, given and own,
each of which weighs the same (S9a and S9b together as one).

With all rules the score is %s.

`

// leastWorth is what a rule must be worth to be kept: a controller of fewer rules is the better one at the
// same score.
const leastWorth = .003

// firstReported is the first of the seeds that are not for tuning.
const firstReported = 101

// worth is what one rule is worth.
type worth struct {
	rule                      string
	without, all              float64
	given, own, tuning, fresh string  // worth over a part of the cells, or a dash
	most, least               float64 // over scenarios
	mostIn, leastIn           string
}

// ablation prints what each rule is worth, the most worth first.
func (g grid) ablation(w io.Writer) error {
	every := func(cell) bool { return true }
	var list []worth
	for l := 1; l < len(g.contenders); l++ {
		list = append(list, g.worthOf(l))
	}
	slices.SortStableFunc(list, func(a, b worth) int { return cmp.Compare(b.all, a.all) })
	var b bytes.Buffer
	fmt.Fprintf(&b, ablationPreface, g.played(), seedList(g.seeds), digits(g.scoreOf(0, every).score, .0001))
	t := table{header: []string{"without", "score", "worth", "given", "own", "seeds 1-4", "seeds 101-104", "worth most in", "least in"}}
	var light []string
	for _, x := range list {
		t.add(x.rule, digits(x.without, .0001), signed(x.all), x.given, x.own, x.tuning, x.fresh,
			x.mostIn+" "+signed(x.most), x.leastIn+" "+signed(x.least))
		if x.all < leastWorth {
			light = append(light, x.rule)
		}
	}
	t.print(&b)
	if len(light) > 0 {
		fmt.Fprintf(&b, "\nWorth less than %v: %s.\n", leastWorth, strings.Join(light, ", "))
	}
	_, err := w.Write(b.Bytes())
	return err
}

// scoreOf is the mean of contender l over the cells that fit.
func (g grid) scoreOf(l int, fits func(cell) bool) figures {
	return g.meanOfFamilies(func(c cell) bool { return c.contender == l && fits(c) })
}

// worthOf is what the rule is worth that contender l does without.
func (g grid) worthOf(l int) worth {
	part := func(fits func(cell) bool) (x float64, shown string) {
		all, without := g.scoreOf(0, fits), g.scoreOf(l, fits)
		x = all.score - without.score
		if all.runs == 0 {
			return x, "-"
		}
		return x, signed(x)
	}
	every := func(cell) bool { return true }
	x := worth{rule: g.contenders[l].Name, without: g.scoreOf(l, every).score}
	x.all, _ = part(every)
	_, x.given = part(g.given)
	_, x.own = part(func(c cell) bool { return !g.given(c) })
	_, x.tuning = part(func(c cell) bool { return c.seed < firstReported })
	_, x.fresh = part(func(c cell) bool { return c.seed >= firstReported })
	for s := range g.scenarios {
		here, _ := part(func(c cell) bool { return c.scenario == s })
		if s == 0 || here > x.most {
			x.most, x.mostIn = here, g.scenarios[s].Name
		}
		if s == 0 || here < x.least {
			x.least, x.leastIn = here, g.scenarios[s].Name
		}
	}
	return x
}

func signed(x float64) string { return fmt.Sprintf("%+.4f", x) }
