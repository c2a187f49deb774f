package main

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/quotient-go/quotient/bench/arena/sim"
)

const familiesPreface = `# Families of scenarios

Cells drawn at random: %d of each family, with the seeds %s. Controllers are tuned on the seeds 1 to 4; the others are reported.
*Beside* is the score of the same cell with nothing reported, or without a hint. *Kept* is the mean score
by the mean beside it. A goal *holds* in a part of the cells.

`

// drawn is a cell as one contender has played it.
type drawn struct {
	*sim.Cell
	score, beside float64
	values        []float64 // of the cell's wants
}

// families plays cells of all families, by each contender, and prints how it went.
func (c config) families(w io.Writer) error {
	cells := c.drawCells()
	var b bytes.Buffer
	fmt.Fprintf(&b, familiesPreface, c.draws, seedList(c.seeds))
	for _, l := range c.contenders {
		list := playDrawn(cells, l)
		fmt.Fprintf(&b, "## %s\n\n", l.Name)
		scores(&b, list)
		goalsOf(&b, list)
		if c.worst > 0 {
			worstOf(&b, list, c.worst)
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// drawCells draws the cells of the families that are wanted, with each seed.
func (c config) drawCells() (cells []sim.Cell) {
	for _, seed := range c.seeds {
		cells = append(cells, sim.Families(c.draws, seed)...)
	}
	return slices.DeleteFunc(cells, func(x sim.Cell) bool { return len(c.only) > 0 && !slices.Contains(c.only, x.Family) })
}

// playDrawn plays each cell, and the one beside it.
func playDrawn(cells []sim.Cell, l sim.Contender) []drawn {
	list := make([]drawn, len(cells))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(cells); i = int(next.Add(1)) - 1 {
				list[i] = playCell(&cells[i], l)
			}
		})
	}
	wg.Wait()
	return list
}

func playCell(c *sim.Cell, l sim.Contender) drawn {
	play := func(c *sim.Cell) sim.Result { return sim.Play(c.Scenario, c.Kind, c.Fields, l, c.Seed, 0) }
	r := play(c)
	d := drawn{Cell: c, score: r.Score()}
	if c.Beside != nil {
		d.beside = play(c.Beside).Score()
	}
	for _, w := range c.Wants {
		d.values = append(d.values, w.Value(r))
	}
	return d
}

// kin groups cells by family and kin, in the order in which they come; each family as a whole comes last.
func kin(list []drawn) (names []string, groups map[string][]drawn) {
	groups = map[string][]drawn{}
	add := func(name string, d drawn) {
		if groups[name] == nil {
			names = append(names, name)
		}
		groups[name] = append(groups[name], d)
	}
	for _, d := range list {
		add(d.Family+": "+d.Kin, d)
	}
	for _, d := range list {
		add(d.Family+", all", d)
	}
	return names, groups
}

func scores(b *bytes.Buffer, list []drawn) {
	t := table{header: []string{"", "cells", "score", "beside", "kept", "p10", "worst"}}
	names, groups := kin(list)
	for _, name := range names {
		var all []float64
		beside := 0.0
		for _, d := range groups[name] {
			all, beside = append(all, d.score), beside+d.beside
		}
		slices.Sort(all)
		n := len(all)
		mean := 0.0
		for _, x := range all {
			mean += x / float64(n)
		}
		row := []string{name, fmt.Sprint(n), digits(mean, .001), "-", "-", digits(all[n/10], .001), digits(all[0], .001)}
		if beside /= float64(n); beside > 0 {
			row[3], row[4] = digits(beside, .001), digits(mean/beside, .001)
		}
		t.add(row...)
	}
	t.print(b)
	fmt.Fprintln(b)
}

// goalsOf shows how often each goal is reached.
func goalsOf(b *bytes.Buffer, list []drawn) {
	t := table{header: []string{"goal", "", "cells", "mean", "worst", "holds, %"}}
	names, groups := kin(list)
	for _, name := range names {
		wants := map[string][]float64{}
		var order []sim.Want
		for _, d := range groups[name] {
			for i, w := range d.Wants {
				if wants[w.What] == nil {
					order = append(order, w)
				}
				wants[w.What] = append(wants[w.What], d.values[i])
			}
		}
		for _, w := range order {
			t.add(goalRow(name, w, wants[w.What])...)
		}
	}
	if len(t.rows) > 0 {
		t.print(b)
		fmt.Fprintln(b)
	}
}

func goalRow(name string, w sim.Want, values []float64) []string {
	sum, held, worst, sign := 0.0, 0, slices.Min(values), ">="
	if w.Most {
		worst, sign = slices.Max(values), "<="
	}
	for _, x := range values {
		sum += x
		if w.Holds(x) {
			held++
		}
	}
	n := float64(len(values))
	return []string{name, fmt.Sprint(w.What, " ", sign, " ", w.Goal), fmt.Sprint(len(values)), digits(sum/n, .001), digits(worst, .001),
		digits(100*float64(held)/n, 1)}
}

// worstOf shows the cells with the lowest scores.
func worstOf(b *bytes.Buffer, list []drawn, n int) {
	slices.SortFunc(list, func(a, b drawn) int { return int(1e6 * (a.score - b.score)) })
	t := table{header: []string{"kin", "upstream", "fields", "limit", "replicas", "hint", "score", "beside", "wants"}}
	for _, d := range list[:min(n, len(list))] {
		hint := 0.0
		if len(d.Scenario.Hints) > 0 {
			hint = d.Scenario.Hints[0].Value
		}
		t.add(d.Kin, d.Kind.String(), d.Fields.String(), digits(d.Scenario.Limit, 1), fmt.Sprint(d.Scenario.Replicas), digits(hint, .01),
			digits(d.score, .001), digits(d.beside, .001), fmt.Sprintf("%.3f", d.values))
	}
	t.print(b)
}
