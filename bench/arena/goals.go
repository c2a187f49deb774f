package main

import (
	"fmt"
	"math"

	"github.com/quotient-go/quotient/bench/arena/sim"
	"github.com/quotient-go/quotient/bench/rig"
)

// judged are the figures that a scenario's goals are for, in their order.
var judged = [...]int{sim.Goodput, sim.Refused, sim.Jain, sim.Converged, sim.Overshoot, sim.Wait99}

// verdicts judges ours by the goals of the scenarios that were played.
func (g *grid) verdicts() (list []rig.Verdict) {
	add := func(name string, figure int, goal float64, fits func(cell) bool) {
		seen := g.mean(figure, func(c cell) bool { return c.ours() && fits(c) })
		if goal >= 0 && !math.IsNaN(seen) {
			list = append(list, measures[figure].judge(name, seen, goal))
		}
	}
	for s := range g.scenarios {
		s := &g.scenarios[s]
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
	add("mean score", sim.Score, .95, cell.given)
	add("mean score, no worse than the page's controller", sim.Score, .916, cell.given)
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
func judgeFall(kinds []sim.Kind, here func(cell) bool, add func(string, int, float64, func(cell) bool)) {
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
