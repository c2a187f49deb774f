package main

import (
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/quotient-go/quotient/bench/arena/sim"
)

// grid is all that is played: one cell for each run.
type grid struct {
	config
	cells []cell
}

// cell is one run and how it went.
type cell struct {
	scenario, contender int // indices of config's
	kind                sim.Kind
	fields              sim.Fields
	seed                uint64
	twice               bool // to see whether the same seed gives the same run
	like                int  // the cell with no fields, which a deaf contender plays once for all levels; -1: itself
	figures
}

// figures are what a table shows: those of one run, or means of several.
type figures struct {
	runs                                                                                  int
	goodput, refused, steady, jain, converged, fell, rose, overshoot, wait99, score, late float64
}

func figuresOf(r sim.Result) figures {
	return figures{1, r.Goodput, r.Refused, r.Steady, r.Jain, r.Converged, r.Fell, r.Rose, r.Overshoot, r.Wait99, r.Score(), r.Late}
}

// plus adds figures with a weight.
func (f figures) plus(g figures, w float64) figures {
	return figures{
		f.runs + g.runs, f.goodput + w*g.goodput, f.refused + w*g.refused, f.steady + w*g.steady, f.jain + w*g.jain,
		f.converged + w*g.converged, f.fell + w*g.fell, f.rose + w*g.rose, f.overshoot + w*g.overshoot, f.wait99 + w*g.wait99,
		f.score + w*g.score, f.late + w*g.late,
	}
}

func (c config) grid() grid {
	g := grid{config: c}
	for s := range c.scenarios {
		for i, kind := range c.scenarios[s].AllKinds() {
			for j, seed := range c.seeds {
				for l := range c.contenders {
					g.add(cell{scenario: s, contender: l, kind: kind, seed: seed, twice: i == 0 && j == 0})
				}
			}
		}
	}
	return g
}

// add adds a cell at each level of fields. The last is the one to play twice, if it is played at all.
func (g *grid) add(c cell) {
	deaf, twice := g.contenders[c.contender].Deaf, c.twice
	first := len(g.cells)
	for c.fields = sim.NoFields; c.fields <= sim.AllFields; c.fields++ {
		c.like = -1
		if deaf && c.fields > sim.NoFields {
			c.like = first
		}
		c.twice = twice && (deaf && c.fields == sim.NoFields || !deaf && c.fields == sim.AllFields)
		g.cells = append(g.cells, c)
	}
}

// played is how many runs the cells stand for.
func (g grid) played() (n int) {
	for _, c := range g.cells {
		if c.like < 0 {
			n++
		}
	}
	return n
}

// play plays all cells on as many goroutines as there are processors, and returns when all have ended.
func (g grid) play(p *progress) (grid, error) {
	var next, done atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, runtime.GOMAXPROCS(0))
	for w := range errs {
		wg.Go(func() {
			for errs[w] == nil {
				i := int(next.Add(1)) - 1
				if i >= len(g.cells) {
					return
				}
				errs[w] = g.playOne(&g.cells[i])
				p.show(int(done.Add(1)), len(g.cells))
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return g, err
		}
	}
	for i, c := range g.cells {
		if c.like >= 0 {
			g.cells[i].figures = g.cells[c.like].figures
		}
	}
	return g, nil
}

func (g grid) playOne(c *cell) error {
	if c.like >= 0 {
		return nil
	}
	s, l := g.scenarios[c.scenario], g.contenders[c.contender]
	res := sim.Play(s, c.kind, c.fields, l, c.seed, 0)
	c.figures = figuresOf(res)
	if c.twice && !reflect.DeepEqual(res, sim.Play(s, c.kind, c.fields, l, c.seed, 0)) {
		return fmt.Errorf("%s by %s against %s with %s: seed %d gave two different runs", s.Name, l.Name, c.kind, c.fields, c.seed)
	}
	return nil
}

// mean is the mean over the cells that fit; every cell weighs the same.
func (g grid) mean(fits func(cell) bool) figures {
	var sum figures
	for _, c := range g.cells {
		if fits(c) {
			sum = sum.plus(c.figures, 1)
		}
	}
	m := figures{}.plus(sum, 1/float64(max(1, sum.runs)))
	return m
}

// meanOfFamilies is the mean over families of scenarios, each of which weighs the same.
func (g grid) meanOfFamilies(fits func(cell) bool) figures {
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
