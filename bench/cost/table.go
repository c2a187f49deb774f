package main

import (
	"fmt"
	"io"
	"strings"
)

// table is one figure as a markdown table, with the goals that it was judged by.
type table struct {
	title    string
	note     string
	header   []string
	rows     [][]string
	verdicts []verdict
}

// verdict compares a measured value with the most that it may be.
type verdict struct {
	goal  string
	value float64
	most  float64
	unit  string
}

func (v verdict) met() bool { return v.value <= v.most }

func (v verdict) String() string {
	word := "met"
	if !v.met() {
		word = "MISSED"
	}
	return fmt.Sprintf("- %s: %s (goal %s) **%s**", v.goal, number(v.value)+v.unit, number(v.most)+v.unit, word)
}

// number prints with as many digits as are worth reading.
func number(v float64) string {
	switch {
	case v == float64(int64(v)), v >= 1000 || v <= -1000:
		return fmt.Sprintf("%.0f", v)
	case v >= 100 || v <= -100:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// print writes the table; columns are padded, so it can also be read as plain text.
func (t table) print(w io.Writer) {
	fmt.Fprintf(w, "\n### %s\n\n", t.title)
	if t.note != "" {
		fmt.Fprintf(w, "%s\n\n", t.note)
	}
	width := make([]int, len(t.header))
	for _, row := range append([][]string{t.header}, t.rows...) {
		for i, cell := range row {
			width[i] = max(width[i], len([]rune(cell)))
		}
	}
	printRow(w, width, t.header)
	rule := make([]string, len(width))
	for i := range rule {
		rule[i] = strings.Repeat("-", width[i])
	}
	printRow(w, width, rule)
	for _, row := range t.rows {
		printRow(w, width, row)
	}
	fmt.Fprintln(w)
	for _, v := range t.verdicts {
		fmt.Fprintln(w, v)
	}
}

func printRow(w io.Writer, width []int, cells []string) {
	for i, c := range cells {
		fmt.Fprintf(w, "| %s%s ", c, strings.Repeat(" ", width[i]-len([]rune(c))))
	}
	fmt.Fprintln(w, "|")
}

// goal bounds what one contender of a race may cost.
type goal struct {
	who     string
	against string // the contender it is compared with; "" for an absolute bound
	what    kind
	most    float64
}

// kind is what a goal looks at.
type kind int

const (
	times      kind = iota // time as a multiple of another contender's, in the same round
	nanos                  // nanoseconds an operation, less another contender's if one is named
	allocsEach             // allocations an operation, less another contender's if one is named
)

// judge measures the goal on the outcome of a race.
func (g goal) judge(all []series) verdict {
	who, ref := find(all, g.who), find(all, g.against)
	v := verdict{goal: g.who, most: g.most}
	switch g.what {
	case times:
		v.goal += " against " + g.against
		v.value, v.unit = who.ratio(ref), "x"
	case nanos:
		v.value, v.unit = difference(who, ref, ns), " ns"
	case allocsEach:
		v.value, v.unit = difference(who, ref, allocs), " allocs"
	}
	if g.what != times && g.against != "" {
		v.goal += " over " + g.against
	}
	return v
}

func difference(who, ref series, f func(sample) float64) float64 {
	if ref.name == "" {
		return round2(who.median(f))
	}
	return round2(who.over(ref, f))
}

// round2 rounds to hundredths: an allocation that one operation in a thousand makes is the runtime's.
func round2(v float64) float64 { return float64(int64(v*100+0.5)) / 100 }

// find returns the series with this name, or an empty one for no name.
func find(all []series, name string) series {
	for _, s := range all {
		if s.name == name {
			return s
		}
	}
	if name != "" {
		panic("no contender is called " + name)
	}
	return series{}
}

// raceTable shows the outcome of a race, each contender as a multiple of the named references.
func raceTable(title, note string, all []series, refs []string, goals []goal) table {
	t := table{title: title, note: note, header: []string{"contender", "ns/op", "allocs/op"}}
	for _, r := range refs {
		t.header = append(t.header, "x "+r)
	}
	for _, s := range all {
		row := []string{s.name, number(s.median(ns)), number(round2(s.median(allocs)))}
		for _, r := range refs {
			row = append(row, fmt.Sprintf("%.2f", s.ratio(find(all, r))))
		}
		t.rows = append(t.rows, row)
	}
	for _, g := range goals {
		t.verdicts = append(t.verdicts, g.judge(all))
	}
	return t
}
