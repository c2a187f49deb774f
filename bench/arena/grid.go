package main

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/quotient-go/quotient/bench/arena/sim"
	"github.com/quotient-go/quotient/bench/rig"
)

// grid is all that is played: one cell for each run.
type grid struct {
	config
	cells []cell
	runs  int
}

// cell is one run and how it went.
type cell struct {
	scenario  *sim.Scenario
	contender *sim.Contender
	kind      sim.Kind
	fields    sim.Fields
	seed      uint64
	of        figures
}

type figures [sim.Figures]float64

// A measure is a column: its name, and how it is printed and judged.
type measure struct {
	name   string
	scale  float64
	digits int
	least  bool // a goal is the least that is wanted; else the most
}

var measures = [sim.Figures]measure{{"goodput", 1, 3, true}, {"429 %", 100, 1, false}, {"Jain", 1, 2, true},
	{"convergence s", 1, 1, false}, {"fall s", 1, 1, false}, {"overshoot", 1, 2, false},
	{"p99 wait s", 1, 2, false}, {"score", 1, 3, true}, {"in pauses", 1, 2, false}, {"steady 429 %", 100, 2, false}}

func (m measure) show(v float64) string { return strconv.FormatFloat(v*m.scale, 'f', m.digits, 64) }

// judge compares the printed values, so that .9796 meets .98 without surprise.
func (m measure) judge(name string, value, goal float64) rig.Verdict {
	v := rig.Verdict{Name: name, Bound: "<= " + m.show(goal), Seen: m.show(value)}
	printed, err := strconv.ParseFloat(v.Seen, 64)
	v.OK = err == nil && printed <= goal*m.scale+1e-9
	if m.least {
		v.Bound, v.OK = ">= "+m.show(goal), err == nil && printed >= goal*m.scale-1e-9
	}
	return v
}

const levels = int(sim.AllFields) + 1 // of feedback

func (c config) grid() *grid {
	g := &grid{config: c}
	for s := range c.scenarios {
		for _, kind := range c.scenarios[s].Kinds {
			for _, seed := range c.seeds {
				for l := range c.contenders {
					for fields := range sim.Fields(levels) {
						played := cell{&c.scenarios[s], &c.contenders[l], kind, fields, seed, figures{}}
						g.cells = append(g.cells, played)
					}
				}
			}
		}
	}
	return g
}

// play plays all cells on as many goroutines as there are processors, and says how far it has come. A contender
// that does not read the fields is played once for all levels.
func (g *grid) play(progress io.Writer) {
	var work errgroup.Group
	work.SetLimit(runtime.GOMAXPROCS(0))
	said := 0
	for i := 0; i < len(g.cells); i += levels {
		same := g.cells[i : i+levels]
		played := levels
		if same[0].contender.Deaf {
			played = 1
		}
		g.runs += played
		work.Go(func() error {
			for k := range same {
				if c := &same[k]; k < played {
					c.of = sim.Play(*c.scenario, c.kind, c.fields, *c.contender, c.seed).Of
				} else {
					c.of = same[0].of
				}
			}
			return nil
		})
		if tenth := i * 10 / len(g.cells); tenth > said {
			said = tenth
			fmt.Fprintf(progress, "arena: %d %%\n", said*10)
		}
	}
	_ = work.Wait() // none fails
}

// mean is the mean of a figure over the cells that fit. Each family of scenarios weighs the same, S9a and S9b
// together as one; in the steady share of 429s each run does. No cell fits: NaN.
func (g *grid) mean(figure int, fits func(cell) bool) float64 {
	var families [][]float64
	last := ""
	for _, c := range g.cells {
		if !fits(c) {
			continue
		}
		if f := family(c.scenario.Name); families == nil || f != last && figure != sim.Steady {
			families, last = append(families, nil), f
		}
		end := &families[len(families)-1]
		*end = append(*end, c.of[figure])
	}
	if families == nil {
		return math.NaN()
	}
	mean := 0.0
	for _, f := range families {
		sum := 0.0
		for _, x := range f {
			sum += x
		}
		mean += sum * (1 / float64(len(f)*len(families)))
	}
	return mean
}

func (c cell) ours() bool { return c.contender.Name == ours }

// given scenarios have goals, own ones break controllers.
func (c cell) given() bool { return c.scenario.Goals != nil }
func (c cell) own() bool   { return c.scenario.Name[0] == 'O' }

// told are given ones with all fields, calm ones have no meaningless 429s, too.
func (c cell) told() bool { return c.given() && c.fields == sim.AllFields }
func (c cell) calm() bool { return c.told() && c.scenario.Noise == nil }
