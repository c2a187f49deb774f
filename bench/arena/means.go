package main

import (
	"bytes"
	"fmt"

	"github.com/quotient-go/quotient/bench/arena/contenders"
	"github.com/quotient-go/quotient/bench/arena/sim"
)

// summary shows the mean of all, by contender.
func (g grid) summary(b *bytes.Buffer) {
	t := table{header: []string{"contender", "score", "429 %", "steady 429 % with fields", "with S12", "score, own scenarios"}}
	for l, ctrl := range g.contenders {
		mine := func(c cell) bool { return c.contender == l && g.given(c) }
		m := g.meanOfFamilies(mine)
		own := g.meanOfFamilies(func(c cell) bool { return c.contender == l && !g.given(c) })
		told := g.mean(func(c cell) bool { return mine(c) && g.calm(c) })
		noisy := g.mean(func(c cell) bool { return mine(c) && c.fields == sim.AllFields })
		t.add(ctrl.Name, m.show(m.score, .001), m.show(m.refused*100, .1), told.show(told.steady*100, .01),
			noisy.show(noisy.steady*100, .01), own.show(own.score, .001))
	}
	fmt.Fprintf(b, `
## Mean over scenarios

Each scenario weighs the same, S9a and S9b together as one. Steady: later than a minute, and not within twenty seconds of a
change; first without the noise of S12, where 2 %% are refused for no reason, then with it.

`)
	t.print(b)
}

// byScenario shows the score, and how far ours is from the best controller that was known before.
func (g grid) byScenario(b *bytes.Buffer) {
	t := table{header: append([]string{"scenario"}, g.names()...)}
	ours, before := g.index(contenders.Ours), g.index(contenders.Before)
	if ours >= 0 && before >= 0 {
		t.header = append(t.header, "gain over "+contenders.Before)
	}
	for s := range g.scenarios {
		row := []string{g.scenarios[s].Name}
		scores := make([]float64, len(g.contenders))
		for l := range g.contenders {
			scores[l] = g.mean(func(c cell) bool { return c.contender == l && c.scenario == s }).score
			row = append(row, digits(scores[l], .001))
		}
		if ours >= 0 && before >= 0 {
			row = append(row, fmt.Sprintf("%+.3f", scores[ours]-scores[before]))
		}
		t.add(row...)
	}
	fmt.Fprintf(b, "\n## Score by scenario\n\n")
	t.print(b)
}

// byUpstream shows the score by what the upstream is and tells, over the cells that fit.
func (g grid) byUpstream(b *bytes.Buffer, title string, fits func(cell) bool) {
	t := table{header: append([]string{"upstream", "fields"}, g.names()...)}
	for kind := sim.TokenBucket; kind <= sim.Concurrency; kind++ {
		for fields := sim.NoFields; fields <= sim.AllFields; fields++ {
			row := []string{kind.String(), fields.String()}
			runs := 0
			for l := range g.contenders {
				m := g.meanOfFamilies(func(c cell) bool {
					return fits(c) && c.contender == l && c.kind == kind && c.fields == fields
				})
				row = append(row, m.show(m.score, .001))
				runs += m.runs
			}
			if runs > 0 {
				t.add(row...)
			}
		}
	}
	if len(t.rows) > 0 {
		fmt.Fprintf(b, "\n## %s\n\n", title)
		t.print(b)
	}
}

// steadyByUpstream shows where ours is refused in calm times although fields tell all.
func (g grid) steadyByUpstream(b *bytes.Buffer) {
	l := g.index(contenders.Ours)
	if l < 0 {
		return
	}
	t := table{header: []string{"scenario"}}
	for kind := sim.TokenBucket; kind <= sim.Concurrency; kind++ {
		t.header = append(t.header, kind.String())
	}
	row := func(name string, fits func(cell) bool) {
		cells := []string{name}
		for kind := sim.TokenBucket; kind <= sim.Concurrency; kind++ {
			m := g.mean(func(c cell) bool {
				return c.contender == l && c.kind == kind && c.fields == sim.AllFields && fits(c)
			})
			cells = append(cells, m.show(m.steady*100, .01))
		}
		t.add(cells...)
	}
	for s := range g.scenarios {
		row(g.scenarios[s].Name, func(c cell) bool { return c.scenario == s })
	}
	row("mean of given, without S12", func(c cell) bool { return g.given(c) && g.calm(c) })
	fmt.Fprintf(b, "\n## Steady 429 %% of %s with fields\n\n", contenders.Ours)
	t.print(b)
}

// following shows how a scenario in which the limit both falls and rises is followed, by upstream.
func (g grid) following(b *bytes.Buffer, s int) {
	t := table{header: append([]string{"upstream", "measured"}, g.names()...)}
	all := g.mean(func(c cell) bool { return c.scenario == s })
	if all.fell == 0 || all.rose == 0 {
		return
	}
	for _, kind := range g.scenarios[s].AllKinds() {
		fell, over, rose := []string{kind.String(), "fall, s"}, []string{kind.String(), "overshoot"}, []string{kind.String(), "rise, s"}
		for l := range g.contenders {
			m := g.mean(func(c cell) bool { return c.contender == l && c.scenario == s && c.kind == kind })
			fell, over, rose = append(fell, digits(m.fell, .1)), append(over, digits(m.overshoot, .01)), append(rose, digits(m.rose, .1))
		}
		t.add(fell...)
		t.add(over...)
		t.add(rose...)
	}
	fmt.Fprintf(b, "\n## %s: seconds to follow the limit down and up, and the most sent after the fall\n\n", g.scenarios[s].Name)
	t.print(b)
}

// names are those of the contenders.
func (g grid) names() (list []string) {
	for _, l := range g.contenders {
		list = append(list, l.Name)
	}
	return list
}

// index is the contender of that name, -1 for none.
func (g grid) index(name string) int {
	for i, l := range g.contenders {
		if l.Name == name {
			return i
		}
	}
	return -1
}
