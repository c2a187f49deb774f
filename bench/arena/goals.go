package main

import (
	"math"
	"strconv"

	"github.com/quotient-go/quotient/bench/arena/sim"
	"github.com/quotient-go/quotient/bench/rig"
)

// goal is what the adaptive controller should reach in a scenario: means over upstreams and fields, or on
// every upstream. A figure below zero is no goal.
type goal struct {
	scenario string
	wanted   [len(judged)]float64
	each     bool // on every upstream, not on the mean of them
}

// judged are the figures that a goal has.
var judged = [...]int{goodput, refused, jain, converged, overshoot, wait99}

// goals are those of the design page on adaptive throttling.
func goals() []goal {
	return []goal{
		{"S1", [...]float64{.99, .01, .99, 0, -1, -1}, false},
		{"S2", [...]float64{.985, .005, .99, 6, -1, -1}, false},
		{"S3", [...]float64{.99, .02, .98, 3, -1, -1}, false},
		{"S4", [...]float64{.98, .015, 1, 8, -1, -1}, false},
		{"S5", [...]float64{.98, .02, .98, 6, 1.5, -1}, false},
		{"S6", [...]float64{.98, .02, .95, 4, -1, -1}, false},
		{"S7", [...]float64{1, .01, -1, -1, -1, -1}, false},
		{"S8", [...]float64{.98, .02, .98, 6, -1, -1}, false},
		{"S9a", [...]float64{.98, .02, -1, -1, -1, -1}, false},
		{"S9b", [...]float64{.97, .01, -1, -1, -1, -1}, false},
		{"S10", [...]float64{.98, .02, .96, 1, -1, -1}, false},
		{"S11", [...]float64{1, .01, .98, -1, -1, -1}, false},
		{"S12a", [...]float64{.965, -1, -1, -1, -1, -1}, false},
		{"S12b", [...]float64{.94, -1, -1, -1, -1, -1}, false},
		{"S13", [...]float64{.98, .014, .95, 10, -1, -1}, false},
		{"S14", [...]float64{1, 0, -1, -1, -1, .1}, false},
		{"S15", [...]float64{.88, -1, -1, -1, -1, -1}, false},
		{"N1a", [...]float64{.98, .01, -1, -1, -1, -1}, true},
		{"N1b", [...]float64{.98, .01, -1, -1, -1, -1}, true},
	}
}

// judge compares the printed values, so that .9796 meets .98 without surprise.
func (m measure) judge(name string, value, goal float64) rig.Verdict {
	value, goal = value*m.scale, goal*m.scale
	printed := math.Round(value/m.round) * m.round
	v := rig.Verdict{Name: name, Bound: "<= " + digits(goal, m.round), Seen: digits(value, m.round),
		OK: printed <= goal+1e-9}
	if m.least {
		v.Bound, v.OK = ">= "+digits(goal, m.round), printed >= goal-1e-9
	}
	return v
}

// digits prints a figure with as many digits as the rounding has.
func digits(v, round float64) string {
	return strconv.FormatFloat(v, 'f', int(math.Ceil(-math.Log10(round))), 64)
}

// verdicts judges ours, which was played, by the goals of the scenarios that were.
func (g *grid) verdicts() (list []rig.Verdict) {
	add := func(name string, f figures, i int, goal float64) {
		if f.runs > 0 && goal >= 0 {
			list = append(list, measures[i].judge(name, f.of[i], goal))
		}
	}
	for _, want := range goals() {
		all := func(name string, f figures) {
			for k, i := range judged {
				add(name+" "+measures[i].name, f, i, want.wanted[k])
			}
		}
		here := func(c cell) bool { return g.ours(c) && g.scenarios[c.scenario].Name == want.scenario }
		if !want.each {
			all(want.scenario, g.mean(here))
		}
		for kind := sim.TokenBucket; want.each && kind <= sim.Concurrency; kind++ {
			m, name := g.mean(func(c cell) bool { return here(c) && c.kind == kind }), want.scenario+" "+kind.String()
			all(name, m)
			add(name+" score", m, score, .98)
		}
		if want.scenario == "S5" {
			g.judgeFall(here, add)
		}
	}
	g.judgeAll(add)
	return list
}

// judgeFall judges how the halving of the limit is followed, which is the change that hurts: on the mean of
// the upstreams, and on each. In a window of a minute no client can send the new limit before it ends if
// that much has been sent already.
func (g *grid) judgeFall(here func(cell) bool, add func(string, figures, int, float64)) {
	both := func(what string, is func(sim.Kind) bool) {
		m := g.mean(func(c cell) bool { return here(c) && is(c.kind) })
		add("S5 halving s, "+what, m, fell, 6)
		add("S5 overshoot, "+what, m, overshoot, 1.5)
	}
	both("all but window 60s", func(k sim.Kind) bool { return k != sim.Window60 })
	for kind := sim.TokenBucket; kind <= sim.Concurrency; kind++ {
		what := kind.String()
		if kind == sim.Window60 {
			what += " (not before its window ends)"
		}
		both(what, func(k sim.Kind) bool { return k == kind })
	}
}

// judgeAll judges the means over all scenarios of the page.
func (g *grid) judgeAll(add func(string, figures, int, float64)) {
	all := func(c cell) bool { return g.given(c) && g.ours(c) }
	mean := g.meanOfFamilies(all)
	add("mean score", mean, score, .95)
	add("mean score, no worse than the page's controller", mean, score, .916)
	calm := g.mean(func(c cell) bool { return all(c) && g.calm(c) })
	add("steady 429 % with fields", calm, steady, .003)
	add("steady 429 % with fields, at most", calm, steady, .005)
	fields := g.mean(func(c cell) bool { return all(c) && c.fields == sim.AllFields })
	add("steady 429 % with fields, S12 included", fields, steady, .005)
}
