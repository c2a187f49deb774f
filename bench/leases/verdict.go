package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// section is one figure: a table and what it was judged by.
type section struct {
	title    string
	note     string
	header   []string
	rows     [][]string
	verdicts []verdict
}

// verdict is one goal.
type verdict struct {
	goal string
	is   string
	met  bool
}

func (v verdict) String() string {
	word := "met"
	if !v.met {
		word = "MISSED"
	}
	return fmt.Sprintf("- %s: %s **%s**", v.goal, v.is, word)
}

// print writes the section as markdown.
func (s section) print(w io.Writer) {
	fmt.Fprintf(w, "\n## %s\n\n%s\n\n", s.title, folded(s.note))
	if len(s.rows) > 0 {
		fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(s.header, " | "),
			strings.Repeat(" --- |", len(s.header)))
		for _, row := range s.rows {
			fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
		}
		fmt.Fprintln(w)
	}
	for _, v := range s.verdicts {
		fmt.Fprintln(w, v)
	}
}

// folded is a text in lines of at most 110 bytes, where its words allow that.
func folded(text string) string {
	var out strings.Builder
	line := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case line+1+len(word) > 110:
			out.WriteString("\n")
			line = 0
		default:
			out.WriteString(" ")
			line++
		}
		out.WriteString(word)
		line += len(word)
	}
	return out.String()
}

// missed is how many goals were missed. A figure without a goal misses one.
func (s section) missed() (n int) {
	for _, v := range s.verdicts {
		if !v.met {
			n++
		}
	}
	if len(s.verdicts) == 0 {
		n++
	}
	return n
}

// atMost is the goal that a figure is above 0 and not above a bound: what was not measured is 0.
func atMost(what string, is, most float64, unit string) verdict {
	return verdict{fmt.Sprintf("%s, at most %s%s", what, number(most), unit), number(is) + unit, is > 0 &&
		is <= most}
}

// exactly is the goal that a count is what it must be.
func exactly(what string, is, want int) verdict {
	return verdict{fmt.Sprintf("%s, %d", what, want), fmt.Sprint(is), is == want}
}

// number prints with as many digits as are worth reading.
func number(v float64) string {
	switch {
	case v == float64(int64(v)), v >= 1000:
		return fmt.Sprintf("%.0f", v)
	case v >= 100:
		return fmt.Sprintf("%.1f", v)
	case v >= 1:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.3f", v)
	}
}

func micros(d time.Duration) string { return number(float64(d) / float64(time.Microsecond)) }
