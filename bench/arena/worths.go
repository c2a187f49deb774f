package main

import (
	"bytes"
	"fmt"
	"io"
)

const worthsPreface = `# What each rule is worth in families of scenarios

policy.Tracking with all its rules, and without one of them at a time: %d cells of each family, seeds %s. Figures are
mean scores; of incidents, and of steady wrong hints, the part of the goals that hold. Worth is the mean of the columns with
all rules less the mean without this one.

`

// columns are what a controller is judged by in families.
var columns = []struct {
	name string
	of   func(drawn) (sum, n float64)
}{
	{"lies", scoreIn("lies")},
	{"hints", scoreIn("hints")},
	{"drift", scoreIn("drift")},
	{"equal hints", heldIn("hints")},
	{"incidents", heldIn("incidents")},
}

func scoreIn(family string) func(drawn) (sum, n float64) {
	return func(d drawn) (sum, n float64) {
		if d.Family == family {
			return d.score, 1
		}
		return 0, 0
	}
}

func heldIn(family string) func(drawn) (sum, n float64) {
	return func(d drawn) (sum, n float64) {
		for i, w := range d.Wants {
			if d.Family == family {
				n++
				if w.Holds(d.values[i]) {
					sum++
				}
			}
		}
		return sum, n
	}
}

// worths plays all families without each rule, and prints what each is worth.
func (c config) worths(w io.Writer) error {
	cells := c.drawCells()
	var b bytes.Buffer
	fmt.Fprintf(&b, worthsPreface, c.draws, seedList(c.seeds))
	t := table{header: []string{"without"}}
	for _, col := range columns {
		t.header = append(t.header, col.name)
	}
	t.header = append(t.header, "mean", "worth")
	best := 0.0
	for i, l := range c.contenders {
		row, mean := worthRow(playDrawn(cells, l))
		if i == 0 {
			best = mean
		}
		name := l.Name
		if i == 0 {
			name = "nothing"
		}
		t.add(append(append([]string{name}, row...), digits(mean, .0001), signed(best-mean))...)
	}
	t.print(&b)
	_, err := w.Write(b.Bytes())
	return err
}

func worthRow(list []drawn) (row []string, mean float64) {
	for _, col := range columns {
		sum, n := 0.0, 0.0
		for _, d := range list {
			s, k := col.of(d)
			sum, n = sum+s, n+k
		}
		x := sum / max(n, 1)
		row, mean = append(row, digits(x, .001)), mean+x/float64(len(columns))
	}
	return row, mean
}
