package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quotient-go/quotient/bench/arena/sim"
	"github.com/quotient-go/quotient/bench/rig"
)

const preface = `# Arena

Many replicas, each deciding alone, against an upstream that enforces a limit: %d runs in virtual time, seeds
%s. The contender quotient is policy.Tracking. Controllers are tuned on the seeds 1 to 4; what is
reported is played on 101 to 104.

The contender oracle is no controller, but the best known use of full knowledge. It is one bucket for all
replicas, filled at the limit that the upstream has at that instant, and at .9 of it where slots are limited.
Where the limit falls within a window of a minute (S5, O7) it goes on at the new limit. The window may be used
up already: it is overdrawn there, and can be beaten by a controller that stops. Gossip sends five packets a
second to each neighbour in a binary heap of the replicas. One of twenty is lost, and a packet takes 5 to 50 ms.

Goodput is what was served as a part of what could have been. Figures are means over upstreams, fields and seeds;
a contender that does not read the fields is played once for all levels of them.
`

func (g *grid) report() string {
	page := fmt.Sprintf(preface, g.runs.Load(), strings.Trim(fmt.Sprint(g.seeds), "[]")) + g.scores().String()
	l := slices.IndexFunc(g.contenders, func(c sim.Contender) bool { return c.Name == ours })
	if l < 0 {
		return page
	}
	judged := rig.Section{Title: "Goals", Verdicts: g.verdicts()}
	judged.Note = fmt.Sprintf("Missed: %d of %d.", judged.Missed(), len(judged.Verdicts))
	return page + g.details(l).String() + judged.String()
}

// scores compares the contenders: by means, by scenario, and by what the upstream is and tells.
func (g *grid) scores() *rig.Section {
	s := &rig.Section{Title: "Score", Table: rig.Table{Header: []string{""}}, Note: `
score = min(goodput, 1) x (1 - 429 share)^2 x (0.8 + 0.2 Jain). Scenarios named S and N have goals. Those named O
are our own, made to break controllers. In the means each weighs the same, S9a and S9b together as one. Steady:
later than a minute, and not within twenty seconds of a change; first without the noise of S12, where 2 % are
refused for no reason, then with it.`}
	for _, l := range g.contenders {
		s.Header = append(s.Header, l.Name)
	}
	row := func(name string, mean func(func(cell) bool) figures, figure int, fits func(cell) bool) {
		cells, runs := []any{name}, 0
		for l := range g.contenders {
			m := mean(func(c cell) bool { return c.contender == l && fits(c) })
			cells, runs = append(cells, m.show(figure)), runs+m.runs
		}
		if runs > 0 {
			s.Add(cells...)
		}
	}
	row("given scenarios", g.meanOfFamilies, score, g.given)
	row("own scenarios", g.meanOfFamilies, score, func(c cell) bool { return !g.given(c) })
	row("429 %, given", g.meanOfFamilies, refused, g.given)
	row("steady 429 % with fields", g.mean, steady, func(c cell) bool { return g.given(c) && g.calm(c) })
	row("steady 429 %, S12 included", g.mean, steady,
		func(c cell) bool { return g.given(c) && c.fields == sim.AllFields })
	for at := range g.scenarios {
		row(g.scenarios[at].Name, g.mean, score, func(c cell) bool { return c.scenario == at })
	}
	for kind := sim.TokenBucket; kind <= sim.Concurrency; kind++ {
		for fields := sim.NoFields; fields <= sim.AllFields; fields++ {
			row(kind.String()+", "+fields.String(), g.meanOfFamilies, score,
				func(c cell) bool { return c.kind == kind && c.fields == fields })
		}
	}
	return s
}

func (g *grid) details(l int) *rig.Section {
	t := &rig.Section{Title: "Figures of " + g.contenders[l].Name, Note: `
Convergence, fall, rise and overshoot are only measured where a scenario has a change to follow. Waits end after
5 s, so p99 is that long where demand exceeds the limit.`, Table: rig.Table{Header: []string{"scenario", ""}}}
	for _, m := range measures[:steady] {
		t.Header = append(t.Header, m.name)
	}
	for s, played := range g.scenarios {
		m := g.mean(func(c cell) bool { return c.contender == l && c.scenario == s })
		row := []any{played.Name, played.Title}
		for i := range measures[:steady] {
			if i == converged && len(played.Changes) == 0 || fell <= i && i <= overshoot && m.of[i] == 0 {
				row = append(row, "-")
			} else {
				row = append(row, m.show(i))
			}
		}
		t.Add(row...)
	}
	return t
}
