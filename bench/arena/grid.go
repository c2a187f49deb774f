package main

import (
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/quotient-go/quotient/bench/arena/sim"
)

// grid is all that is played: one cell for each run.
type grid struct {
	config
	cells []cell
	runs  atomic.Int64
}

// cell is one run and how it went.
type cell struct {
	scenario, contender int // indices of config's
	kind                sim.Kind
	fields              sim.Fields
	seed                uint64
	figures
}

// What is measured, in the order of the columns.
const (
	goodput = iota
	refused
	jain
	converged
	fell
	rose
	overshoot
	wait99
	score
	steady
)

// A measure is a column: its name, and how it is printed and judged.
type measure struct {
	name         string
	scale, round float64
	least        bool // a goal is the least that is wanted; else the most
}

var measures = [...]measure{{"goodput", 1, .001, true}, {"429 %", 100, .1, false}, {"Jain", 1, .01, true},
	{"convergence s", 1, .1, false}, {"fall s", 1, .1, false}, {"rise s", 1, .1, false}, {"overshoot", 1, .01, false},
	{"p99 wait s", 1, .01, false}, {"score", 1, .001, true}, {"steady 429 %", 100, .01, false}}

func (f figures) show(i int) string { return digits(f.of[i]*measures[i].scale, measures[i].round) }

// figures are those of one run, or means of several.
type figures struct {
	runs int
	of   [len(measures)]float64
}

func figuresOf(r sim.Result) figures {
	return figures{1, [...]float64{r.Goodput, r.Refused, r.Jain, r.Converged, r.Fell, r.Rose, r.Overshoot, r.Wait99,
		r.Score(), r.Steady}}
}

func (f figures) plus(g figures, w float64) figures {
	f.runs += g.runs
	for i, x := range g.of {
		f.of[i] += w * x
	}
	return f
}

func (c config) grid() *grid {
	g := &grid{config: c}
	for s := range c.scenarios {
		for _, kind := range c.scenarios[s].AllKinds() {
			for _, seed := range c.seeds {
				for l := range c.contenders {
					for fields := sim.NoFields; fields <= sim.AllFields; fields++ {
						g.cells = append(g.cells, cell{scenario: s, contender: l, kind: kind, fields: fields, seed: seed})
					}
				}
			}
		}
	}
	return g
}

// copied reports whether a cell is that with no fields again, because its contender does not read them.
func (g *grid) copied(c cell) bool { return g.contenders[c.contender].Deaf && c.fields > sim.NoFields }

// play plays all cells on as many goroutines as there are processors, and says how far it has come.
func (g *grid) play(progress io.Writer) {
	var next, done atomic.Int64
	var said sync.Mutex
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(g.cells); i = int(next.Add(1)) - 1 {
				if c := &g.cells[i]; !g.copied(*c) {
					c.figures = figuresOf(sim.Play(g.scenarios[c.scenario], c.kind, c.fields, g.contenders[c.contender], c.seed))
					g.runs.Add(1)
				}
				if n := int(done.Add(1)); n*10/len(g.cells) > (n-1)*10/len(g.cells) {
					said.Lock()
					fmt.Fprintf(progress, "arena: %d %%\n", n*10/len(g.cells)*10)
					said.Unlock()
				}
			}
		})
	}
	wg.Wait()
	for i, c := range g.cells {
		if g.copied(c) {
			g.cells[i].figures = g.cells[i-int(c.fields)].figures
		}
	}
}

// mean is the mean over the cells that fit; every cell weighs the same.
func (g *grid) mean(fits func(cell) bool) figures {
	var sum figures
	for _, c := range g.cells {
		if fits(c) {
			sum = sum.plus(c.figures, 1)
		}
	}
	return figures{}.plus(sum, 1/float64(max(1, sum.runs)))
}

// meanOfFamilies is the mean over scenarios, each of which weighs the same, variants such as S9a and S9b as one.
func (g *grid) meanOfFamilies(fits func(cell) bool) figures {
	var order []string
	sums := map[string]figures{}
	for _, c := range g.cells {
		if fits(c) {
			f := family(g.scenarios[c.scenario].Name)
			if sums[f].runs == 0 {
				order = append(order, f)
			}
			sums[f] = sums[f].plus(c.figures, 1)
		}
	}
	var m figures
	for _, f := range order {
		m = m.plus(sums[f], 1/float64(sums[f].runs*len(order)))
	}
	return m
}

func (g *grid) ours(c cell) bool { return g.contenders[c.contender].Name == ours }

// given tells the scenarios that have goals from our own.
func (g *grid) given(c cell) bool { return g.scenarios[c.scenario].Name[0] != 'O' }

// calm returns the runs from which the steady share of 429s with fields is taken: those without meaningless
// 429s.
func (g *grid) calm(c cell) bool {
	return c.fields == sim.AllFields && g.scenarios[c.scenario].Noise == 0
}
