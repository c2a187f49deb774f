package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/quotient-go/quotient/bench/arena/contenders"
)

const preface = `# Arena

Many replicas, each deciding alone, against an upstream that enforces a limit: %d runs in virtual time, seeds %s.
The contender quotient is %s. Controllers are tuned on the seeds 1 to 4; what is reported is played on 101 to 104.

The contender oracle is no controller, but the best known use of full knowledge. It is one bucket for all replicas, filled
at the limit that the upstream has at that instant, and at .9 of it where slots are limited. Where the limit falls within a
window of a minute (S5, O7) it goes on at the new limit. The window may be used up already: it is overdrawn there, and can be
beaten by a controller that stops. The contender eight rules is the best controller that was known before quotient's.

score = min(goodput, 1) x (1 - 429 share)^2 x (0.8 + 0.2 Jain). Goodput is what was served as a part of what could
have been. Figures are means over upstreams, fields and seeds; a contender that does not read the fields
is played once for all levels of them. Convergence and overshoot are only measured where a scenario has a
change to follow. Waits end after 5 s, so p99 is that long where demand exceeds the limit.
`

// report prints all tables as markdown.
func (g grid) report(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, preface, g.played(), seedList(g.seeds), contenders.OurPolicy())
	g.summary(&b)
	g.byScenario(&b)
	g.byUpstream(&b, "Score by upstream and by what it tells", func(cell) bool { return true })
	g.byUpstream(&b, "One client alone: score of N1", func(c cell) bool { return family(g.scenarios[c.scenario].Name) == "N1" })
	g.steadyByUpstream(&b)
	for s := range g.scenarios {
		g.following(&b, s)
	}
	for s := range g.scenarios {
		g.scenarioTable(&b, s)
	}
	liveTable(&b, g.seeds)
	g.goalList(&b)
	_, err := w.Write(b.Bytes())
	return err
}

func (g grid) scenarioTable(b *bytes.Buffer, s int) {
	t := table{header: []string{"contender", "goodput", "429 %", "Jain", "convergence s", "overshoot", "p99 wait s", "score"}}
	for l, ctrl := range g.contenders {
		m := g.mean(func(c cell) bool { return c.contender == l && c.scenario == s })
		converged, overshoot := "-", "-"
		if len(g.scenarios[s].Changes) > 0 {
			converged = digits(m.converged, .1)
		}
		if m.overshoot > 0 {
			overshoot = digits(m.overshoot, .01)
		}
		t.add(ctrl.Name, digits(m.goodput, .001), digits(m.refused*100, .1), digits(m.jain, .01), converged, overshoot,
			digits(m.wait99, .01), digits(m.score, .001))
	}
	fmt.Fprintf(b, "\n## %s: %s\n\n", g.scenarios[s].Name, g.scenarios[s].Title)
	t.print(b)
}

func (g grid) goalList(b *bytes.Buffer) {
	list := g.verdicts()
	if len(list) == 0 {
		return
	}
	missed := 0
	fmt.Fprintf(b, "\n## Goals\n\n")
	for _, v := range list {
		fmt.Fprintln(b, v)
		if !v.met() {
			missed++
		}
	}
	fmt.Fprintf(b, "\n%d of %d goals missed.\n", missed, len(list))
}

// show prints a figure of a mean, or a dash when it is a mean of nothing.
func (f figures) show(v, round float64) string {
	if f.runs == 0 {
		return "-"
	}
	return digits(v, round)
}

// digits prints a figure with as many digits as the rounding has.
func digits(v, round float64) string {
	return strconv.FormatFloat(v, 'f', int(math.Ceil(-math.Log10(round))), 64)
}

func seedList(seeds []uint64) string {
	var s []string
	for _, n := range seeds {
		s = append(s, strconv.FormatUint(n, 10))
	}
	return strings.Join(s, ", ")
}

// table is a markdown table with padded columns, so that it can also be read as plain text.
type table struct {
	header []string
	rows   [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print(b *bytes.Buffer) {
	width, rule := make([]int, len(t.header)), make([]string, len(t.header))
	for _, row := range append([][]string{t.header}, t.rows...) {
		for i, cell := range row {
			width[i] = max(width[i], len(cell))
		}
	}
	for i := range rule {
		rule[i] = strings.Repeat("-", width[i])
	}
	for _, row := range append([][]string{t.header, rule}, t.rows...) {
		for i, cell := range row {
			fmt.Fprintf(b, "| %-*s ", width[i], cell)
		}
		fmt.Fprintln(b, "|")
	}
}
