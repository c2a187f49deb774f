package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/quotient-go/quotient/bench/arena/sim"
	"github.com/quotient-go/quotient/bench/rig"
)

const preface = `# Arena

Many replicas, each deciding alone, against an upstream that enforces a limit: %d runs in virtual time, seeds
%s. The contender quotient is policy.Tracking, which obeys announced pauses; with tests it tests them before
anything has shown them wrong. Controllers are tuned on the seeds 1 to 4; what is reported is played on 101 to 104.

The contender oracle is no controller, but the best known use of full knowledge. It is one bucket for all
replicas, filled at the limit that the upstream has at that instant, and at .9 of it where slots are limited.
Where the limit falls within a window of a minute (S5, O7) it goes on at the new limit. The window may be used
up already: it is overdrawn there, and can be beaten by a controller that stops. Gossip sends five packets a
second to each neighbour in a binary heap of the replicas. One of twenty is lost, and a packet takes 5 to 50 ms.

Goodput is what was served as a part of what could have been. Figures are means over upstreams, fields and seeds;
a contender that does not read the fields is played once for all levels of them.
`

func (g *grid) report() string {
	page := fmt.Sprintf(preface, g.runs, strings.Trim(fmt.Sprint(g.seeds), "[]")) + g.scores().String()
	if !slices.ContainsFunc(g.cells, cell.ours) {
		return page
	}
	judged := rig.Section{Title: "Goals", Verdicts: g.verdicts()}
	judged.Note = fmt.Sprintf("Missed: %d of %d.", judged.Missed(), len(judged.Verdicts))
	return page + g.details().String() + judged.String()
}

// scores compares the contenders: by means, by scenario, and by what the upstream is and tells.
func (g *grid) scores() *rig.Section {
	s := &rig.Section{Title: "Score", Table: rig.Table{Header: []string{""}}, Note: `
score = min(goodput, 1) x (1 - 429 share)^2 x (0.8 + 0.2 Jain). Scenarios named S and N have goals. Those named O
are our own, made to break controllers; those named H go over a range of ceilings, of random refusals, of wrong hints,
and of windows of a minute. In the means each weighs the same, S9a and S9b together as one. Steady:
later than a minute, and not within twenty seconds of a change; first without the noise of S12, where 2 % are
refused for no reason, then with it.`}
	for _, l := range g.contenders {
		s.Header = append(s.Header, l.Name)
	}
	row := func(name string, figure int, fits func(cell) bool) {
		cells, x := []any{name}, 0.0
		for l := range g.contenders {
			x = g.mean(figure, func(c cell) bool { return c.contender == &g.contenders[l] && fits(c) })
			cells = append(cells, measures[figure].show(x))
		}
		if !math.IsNaN(x) { // else none was played
			s.Add(cells...)
		}
	}
	row("given scenarios", sim.Score, cell.given)
	row("own scenarios", sim.Score, cell.own)
	row("ranges", sim.Score, func(c cell) bool { return !c.given() && !c.own() })
	row("429 %, given", sim.Refused, cell.given)
	row("steady 429 % with fields", sim.Steady, cell.calm)
	row("steady 429 %, S12 included", sim.Steady, cell.told)
	for at := range g.scenarios {
		row(g.scenarios[at].Name, sim.Score, func(c cell) bool { return c.scenario == &g.scenarios[at] })
	}
	for kind := sim.TokenBucket; kind <= sim.Concurrency; kind++ {
		for fields := range sim.Fields(levels) {
			here := func(c cell) bool { return c.kind == kind && c.fields == fields }
			row(fmt.Sprint(kind, ", ", fields), sim.Score, here)
		}
	}
	return s
}

// details are all figures of ours.
func (g *grid) details() *rig.Section {
	t := &rig.Section{Title: "Figures of " + ours, Note: `
Convergence, fall and overshoot are only measured where a scenario has a change to follow. Waits end after
5 s, so p99 is that long where demand exceeds the limit. In pauses: requests of a run in
announced pauses of more than a second, up to ten minutes, before one was served in such a pause.`}
	t.Header = []string{"scenario", ""}
	for _, m := range measures[:sim.Steady] {
		t.Header = append(t.Header, m.name)
	}
	for s := range g.scenarios {
		played := &g.scenarios[s]
		row := []any{played.Name, played.Title}
		for i, m := range measures[:sim.Steady] {
			x := g.mean(i, func(c cell) bool { return c.ours() && c.scenario == played })
			if i == sim.Converged && played.Changes == nil || sim.Fell <= i && i <= sim.Overshoot && x == 0 {
				row = append(row, "-")
			} else {
				row = append(row, m.show(x))
			}
		}
		t.Add(row...)
	}
	return t
}
