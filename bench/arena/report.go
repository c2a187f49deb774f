package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/quotient-go/quotient/bench/arena/sim"
)

const preface = `# Arena

Many replicas, each deciding alone, against an upstream that enforces a limit: %d runs in virtual time, seeds
%s. The contender quotient is policy.Tracking. Controllers are tuned on the seeds 1 to 4; what is
reported is played on 101 to 104.

The contender oracle is no controller, but the best known use of full knowledge. It is one bucket for all
replicas, filled at the limit that the upstream has at that instant, and at .9 of it where slots are limited.
Where the limit falls within a window of a minute (S5, O7) it goes on at the new limit. The window may be used
up already: it is overdrawn there, and can be beaten by a controller that stops. The contender eight rules is
the best controller that was known before quotient's. Gossip sends five packets a second to each neighbour in a
binary heap of the replicas. One of twenty is lost, and a packet takes 5 to 50 ms.

score = min(goodput, 1) x (1 - 429 share)^2 x (0.8 + 0.2 Jain). Goodput is what was served as a part of what
could have been. Figures are means over upstreams, fields and seeds; a contender that does not read the fields
is played once for all levels of them. Convergence and overshoot are only measured where a scenario has a
change to follow. Waits end after 5 s, so p99 is that long where demand exceeds the limit.

Scenarios named S and N have goals. Those named O are our own, made to break controllers. In the means each
weighs the same, S9a and S9b together as one. Steady: later than a minute, and not within twenty seconds of a
change; first without the noise of S12, where 2 %% are refused for no reason, then with it.
`

// report is the page of all tables, as markdown.
func (g *grid) report() string {
	var b strings.Builder
	fmt.Fprintf(&b, preface, g.runs.Load(), strings.Trim(fmt.Sprint(g.seeds), "[]"))
	g.scores().print(&b)
	for l, c := range g.contenders {
		if c.Name == ours {
			g.details(l).print(&b)
			g.judged().print(&b)
		}
	}
	return b.String()
}

// scores compares the contenders: by means, by scenario, and by what the upstream is and tells.
func (g *grid) scores() *table {
	t := &table{title: "Score", header: []string{""}}
	for _, l := range g.contenders {
		t.header = append(t.header, l.Name)
	}
	row := func(name string, mean func(func(cell) bool) figures, fits func(cell) bool, show func(figures) string) {
		cells, runs := []string{name}, 0
		for l := range g.contenders {
			m := mean(func(c cell) bool { return c.contender == l && fits(c) })
			cells, runs = append(cells, show(m)), runs+m.runs
		}
		if runs > 0 {
			t.rows = append(t.rows, cells)
		}
	}
	score := func(f figures) string { return digits(f.score, .001) }
	steady := func(f figures) string { return digits(f.steady*100, .01) }
	row("given scenarios", g.meanOfFamilies, g.given, score)
	row("own scenarios", g.meanOfFamilies, func(c cell) bool { return !g.given(c) }, score)
	row("429 %, given", g.meanOfFamilies, g.given, func(f figures) string { return digits(f.refused*100, .1) })
	row("steady 429 % with fields", g.mean, func(c cell) bool { return g.given(c) && g.calm(c) }, steady)
	row("steady 429 %, S12 included", g.mean,
		func(c cell) bool { return g.given(c) && c.fields == sim.AllFields }, steady)
	for s := range g.scenarios {
		row(g.scenarios[s].Name, g.mean, func(c cell) bool { return c.scenario == s }, score)
	}
	for kind := sim.TokenBucket; kind <= sim.Concurrency; kind++ {
		for fields := sim.NoFields; fields <= sim.AllFields; fields++ {
			row(kind.String()+", "+fields.String(), g.meanOfFamilies,
				func(c cell) bool { return c.kind == kind && c.fields == fields }, score)
		}
	}
	return t
}

// details shows all figures of one contender.
func (g *grid) details(l int) *table {
	t := &table{title: "Figures of " + g.contenders[l].Name, header: []string{"scenario", "", "goodput", "429 %",
		"Jain", "convergence s", "fall s", "rise s", "overshoot", "p99 wait s", "score"}}
	for s, played := range g.scenarios {
		m := g.mean(func(c cell) bool { return c.contender == l && c.scenario == s })
		measured := func(v, round float64, is bool) string {
			if !is {
				return "-"
			}
			return digits(v, round)
		}
		t.rows = append(t.rows, []string{played.Name, played.Title, digits(m.goodput, .001), digits(m.refused*100, .1),
			digits(m.jain, .01), measured(m.converged, .1, len(played.Changes) > 0), measured(m.fell, .1, m.fell > 0),
			measured(m.rose, .1, m.rose > 0), measured(m.overshoot, .01, m.overshoot > 0), digits(m.wait99, .01),
			digits(m.score, .001)})
	}
	return t
}

// judged shows each goal.
func (g *grid) judged() *table {
	t := &table{header: []string{"goal", "reached", "wanted", ""}}
	missed := 0
	for _, v := range g.verdicts() {
		t.rows = append(t.rows, v.row())
		if !v.met() {
			missed++
		}
	}
	t.title = fmt.Sprintf("Goals: %d of %d missed", missed, len(t.rows))
	return t
}

// digits prints a figure with as many digits as the rounding has.
func digits(v, round float64) string {
	return strconv.FormatFloat(v, 'f', int(math.Ceil(-math.Log10(round))), 64)
}

// table is a markdown table with padded columns, so that it can also be read as plain text.
type table struct {
	title  string
	header []string
	rows   [][]string
}

func (t *table) print(b *strings.Builder) {
	width, rule := make([]int, len(t.header)), make([]string, len(t.header))
	for _, row := range append([][]string{t.header}, t.rows...) {
		for i, cell := range row {
			width[i] = max(width[i], len(cell))
		}
	}
	for i := range rule {
		rule[i] = strings.Repeat("-", max(3, width[i]))
	}
	fmt.Fprintf(b, "\n## %s\n\n", t.title)
	for _, row := range slices.Concat([][]string{t.header, rule}, t.rows) {
		for i, cell := range row {
			fmt.Fprintf(b, "| %-*s ", width[i], cell)
		}
		fmt.Fprintln(b, "|")
	}
}
