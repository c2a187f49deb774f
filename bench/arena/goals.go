package main

import (
	"math"

	"github.com/quotient-go/quotient/bench/arena/sim"
)

// goal is what the adaptive controller should reach in a scenario: means over upstreams and fields, or on
// every upstream. A field below zero is no goal.
type goal struct {
	scenario                          string
	goodput, refused, jain, converged float64
	overshoot, wait99                 float64
	each                              bool // on every upstream, not on the mean of them
}

// goals are those of the design page on adaptive throttling.
func goals() []goal {
	return []goal{
		{"S1", .99, .01, .99, 0, -1, -1, false},
		{"S2", .985, .005, .99, 6, -1, -1, false},
		{"S3", .99, .02, .98, 3, -1, -1, false},
		{"S4", .98, .015, 1, 8, -1, -1, false},
		{"S5", .98, .02, .98, 6, 1.5, -1, false},
		{"S6", .98, .02, .95, 4, -1, -1, false},
		{"S7", 1, .01, -1, -1, -1, -1, false},
		{"S8", .98, .02, .98, 6, -1, -1, false},
		{"S9a", .98, .02, -1, -1, -1, -1, false},
		{"S9b", .97, .01, -1, -1, -1, -1, false},
		{"S10", .98, .02, .96, 1, -1, -1, false},
		{"S11", 1, .01, .98, -1, -1, -1, false},
		{"S12a", .965, -1, -1, -1, -1, -1, false},
		{"S12b", .94, -1, -1, -1, -1, -1, false},
		{"S13", .98, .014, .95, 10, -1, -1, false},
		{"S14", 1, 0, -1, -1, -1, .1, false},
		{"S15", .88, -1, -1, -1, -1, -1, false},
		{"N1a", .98, .01, -1, -1, -1, -1, true},
		{"N1b", .98, .01, -1, -1, -1, -1, true},
	}
}

// verdict is one figure beside its goal.
type verdict struct {
	what        string
	value, goal float64
	least       bool // at least the goal; else at most
	round       float64
}

// met compares the printed values, so that .9796 meets .98 without surprise.
func (v verdict) met() bool {
	value := math.Round(v.value/v.round) * v.round
	if v.least {
		return value >= v.goal-1e-9
	}
	return value <= v.goal+1e-9
}

// ours reports whether the cell was played by the contender that the goals are about.
func (g *grid) ours(c cell) bool { return g.contenders[c.contender].Name == ours }

// verdicts judges ours, which was played, by the goals of the scenarios that were.
func (g *grid) verdicts() []verdict {
	var list []verdict
	for _, want := range goals() {
		for s := range g.scenarios {
			if g.scenarios[s].Name == want.scenario {
				list = append(list, g.judge(s, want)...)
				if want.scenario == "S5" {
					list = append(list, g.judgeFall(s)...)
				}
			}
		}
	}
	return append(list, g.judgeAll()...)
}

func (g *grid) judge(s int, want goal) (list []verdict) {
	here := func(c cell) bool { return c.scenario == s && g.ours(c) }
	if !want.each {
		return want.verdicts(want.scenario, g.mean(here))
	}
	for _, kind := range g.scenarios[s].AllKinds() {
		m := g.mean(func(c cell) bool { return here(c) && c.kind == kind })
		list = append(list, want.verdicts(want.scenario+" "+kind.String(), m)...)
		list = append(list, verdict{want.scenario + " " + kind.String() + " score", m.score, .98, true, .001})
	}
	return list
}

// judgeFall judges how the halving of the limit is followed, which is the change that hurts: on the mean of
// the upstreams, and on each. In a window of a minute no client can send the new limit before it ends if
// that much has been sent already.
func (g *grid) judgeFall(s int) (list []verdict) {
	here := func(c cell) bool { return c.scenario == s && g.ours(c) }
	add := func(what string, m figures) {
		list = append(list, verdict{"S5 halving s, " + what, m.fell, 6, false, .1},
			verdict{"S5 overshoot, " + what, m.overshoot, 1.5, false, .01})
	}
	add("all but window 60s", g.mean(func(c cell) bool { return here(c) && c.kind != sim.Window60 }))
	for _, kind := range g.scenarios[s].AllKinds() {
		what := kind.String()
		if kind == sim.Window60 {
			what += " (not before its window ends)"
		}
		add(what, g.mean(func(c cell) bool { return here(c) && c.kind == kind }))
	}
	return list
}

func (want goal) verdicts(name string, f figures) (list []verdict) {
	add := func(what string, value, goal, scale, round float64, least bool) {
		if goal >= 0 {
			list = append(list, verdict{name + " " + what, value * scale, goal * scale, least, round})
		}
	}
	add("goodput", f.goodput, want.goodput, 1, .001, true)
	add("429 %", f.refused, want.refused, 100, .1, false)
	add("Jain", f.jain, want.jain, 1, .01, true)
	add("convergence s", f.converged, want.converged, 1, .1, false)
	add("overshoot", f.overshoot, want.overshoot, 1, .01, false)
	add("p99 wait s", f.wait99, want.wait99, 1, .01, false)
	return list
}

// judgeAll judges the means over all scenarios of the page.
func (g *grid) judgeAll() (list []verdict) {
	all := func(c cell) bool { return g.given(c) && g.ours(c) }
	if m := g.meanOfFamilies(all); m.runs > 0 {
		list = append(list,
			verdict{"mean score", m.score, .95, true, .001},
			verdict{"mean score, no worse than the page's controller", m.score, .916, true, .001})
	}
	if m := g.mean(func(c cell) bool { return all(c) && g.calm(c) }); m.runs > 0 {
		list = append(list, verdict{"steady 429 % with fields", m.steady * 100, .3, false, .01},
			verdict{"steady 429 % with fields, at most", m.steady * 100, .5, false, .01})
	}
	if m := g.mean(func(c cell) bool { return all(c) && c.fields == sim.AllFields }); m.runs > 0 {
		list = append(list, verdict{"steady 429 % with fields, S12 included", m.steady * 100, .5, false, .01})
	}
	return list
}

func (v verdict) row() []string {
	word, sign := "**MISSED**", "<="
	if v.met() {
		word = "met"
	}
	if v.least {
		sign = ">="
	}
	return []string{v.what, digits(v.value, v.round), sign + " " + digits(v.goal, v.round), word}
}
