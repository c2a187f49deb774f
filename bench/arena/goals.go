package main

import (
	"fmt"
	"math"

	"github.com/quotient-go/quotient/bench/arena/sim"
	"github.com/quotient-go/quotient/bench/rig"
)

// judged are the figures that a scenario's goals are for, in their order.
var judged = [...]int{sim.Goodput, sim.Refused, sim.Jain, sim.Converged, sim.Overshoot, sim.Wait99}

// judgment judges the mean of a figure over the cells that fit, and names it.
type judgment func(name string, figure int, goal float64, fits func(cell) bool)

// verdicts judges ours by the goals of the scenarios that were played. Where pauses are announced that are not
// meant, a controller that obeys is judged by courtesy, and the goals are for one that tests them.
func (g *grid) verdicts() (list []rig.Verdict) {
	judge := func(who string) judgment {
		return func(name string, figure int, goal float64, fits func(cell) bool) {
			seen := g.mean(figure, func(c cell) bool { return c.contender.Name == who && fits(c) })
			if goal >= 0 && !math.IsNaN(seen) {
				list = append(list, measures[figure].judge(name, seen, goal))
			}
		}
	}
	for s := range g.scenarios {
		s := &g.scenarios[s]
		add := judge(ours)
		if s.Unmeant {
			add(s.Name+" sent in pauses", sim.Pressed, 0, func(c cell) bool { return c.scenario == s })
			add = judge(tests)
		}
		all := func(name string, fits func(cell) bool) {
			for k, goal := range s.Goals {
				add(name+" "+measures[judged[k]].name, judged[k], goal, fits)
			}
		}
		here := func(c cell) bool { return c.scenario == s }
		if s.Name[0] != 'N' {
			all(s.Name, here)
		}
		for _, kind := range s.Kinds {
			on := func(c cell) bool { return here(c) && c.kind == kind }
			if name := fmt.Sprint(s.Name, " ", kind); s.Name[0] == 'N' { // its goals are for each upstream
				all(name, on)
				add(name+" score", sim.Score, .98, on)
			}
		}
		if s.Name == "S5" {
			judgeFall(s.Kinds, here, add)
		}
	}
	add := judge(ours)
	add("given scenarios", sim.Score, .91, cell.given)
	judge(gossips)("given scenarios, gossip", sim.Score, .93, cell.given)
	judge(tests)("given scenarios, pauses tested", sim.Score, .924, cell.given)
	judge(tests)("own scenarios, pauses tested", sim.Score, .94, cell.own)
	calm := func(c cell) bool { return c.given() && c.calm() }
	add("steady 429 % with fields", sim.Steady, .003, calm)
	add("steady 429 % with fields, at most", sim.Steady, .005, calm)
	add("steady 429 % with fields, S12 included", sim.Steady, .005,
		func(c cell) bool { return c.given() && c.told() })
	return list
}

// judgeFall judges how the halving of the limit is followed, which is the change that hurts: on the mean of
// the upstreams, and on each. In a window of a minute no client can send the new limit before it ends if
// that much has been sent already.
func judgeFall(kinds []sim.Kind, here func(cell) bool, add judgment) {
	both := func(what string, is func(sim.Kind) bool) {
		on := func(c cell) bool { return here(c) && is(c.kind) }
		add("S5 halving s, "+what, sim.Fell, 6, on)
		add("S5 overshoot, "+what, sim.Overshoot, 1.5, on)
	}
	both("all but window 60s", func(k sim.Kind) bool { return k != sim.Window60 })
	for _, kind := range kinds {
		what := kind.String()
		if kind == sim.Window60 {
			what += " (not before its window ends)"
		}
		both(what, func(k sim.Kind) bool { return k == kind })
	}
}
