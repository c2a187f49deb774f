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
		s, add := &g.scenarios[s], judge(ours)
		here := func(c cell) bool { return c.scenario == s }
		if s.Unmeant {
			add(s.Name+" in pauses", sim.Pressed, 0, here)
			add = judge(tests)
		}
		add.all(s, here)
	}
	add := judge(ours)
	add("given scenarios", sim.Score, .91, cell.given)
	judge(gossips)("given scenarios, gossip", sim.Score, .93, cell.given)
	judge(tests)("given scenarios, pauses tested", sim.Score, .924, cell.given)
	judge(tests)("own scenarios, pauses tested", sim.Score, .94, cell.own)
	add("steady 429 % with fields", sim.Steady, .003, cell.calm)
	add("steady 429 % with fields, S12 included", sim.Steady, .005, cell.told)
	return list
}

// all judges a scenario by its goals. Those named N are judged on each upstream. So is how the halving of the limit
// is followed, which is the change that hurts: in a window of a minute no client can send the new limit before it
// ends if that much has been sent already.
func (add judgment) all(s *sim.Scenario, here func(cell) bool) {
	goals := func(name string, fits func(cell) bool) {
		for k, goal := range s.Goals {
			add(name+" "+measures[judged[k]].name, judged[k], goal, fits)
		}
	}
	if s.Name[0] != 'N' {
		goals(s.Name, here)
	}
	for _, kind := range s.Kinds {
		name, on := fmt.Sprint(s.Name, " ", kind), func(c cell) bool { return here(c) && c.kind == kind }
		switch {
		case s.Name[0] == 'N':
			goals(name, on)
			add(name+" score", sim.Score, .98, on)
		case s.Name == "S5":
			add(name+" fall s", sim.Fell, 6, on)
			add(name+" overshoot", sim.Overshoot, 1.5, on)
		}
	}
}
