package rig

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// A Table is rows below a header.
type Table struct {
	Header []string
	Rows   [][]string
}

// Add adds a row.
func (t *Table) Add(cells ...any) {
	var row []string
	for _, c := range cells {
		row = append(row, fmt.Sprint(c))
	}
	t.Rows = append(t.Rows, row)
}

// String is the table as Markdown, with columns of one width; nothing where there are no rows.
func (t Table) String() string {
	if len(t.Rows) == 0 {
		return ""
	}
	var out strings.Builder
	out.WriteString("\n")
	aligned := tabwriter.NewWriter(&out, 0, 0, 1, ' ', 0)
	rule := strings.Repeat("---,", len(t.Header))
	for _, row := range append([][]string{t.Header, strings.Split(rule, ",")[:len(t.Header)]}, t.Rows...) {
		fmt.Fprintf(aligned, "| %s\t|\n", strings.Join(row, "\t| "))
	}
	_ = aligned.Flush() // a strings.Builder takes all
	return out.String()
}

// A Verdict is whether something is as it must be.
type Verdict struct {
	Name, Bound, Seen string
	OK                bool
}

// AtMost is the verdict that a figure is above 0 and not above a bound: what was not measured is 0.
func AtMost(name string, seen, bound float64, unit string) Verdict {
	return Verdict{name, "at most " + Number(bound) + unit, Number(seen) + unit, seen > 0 && seen <= bound}
}

// AtLeast is the verdict that a figure is not below a bound.
func AtLeast(name string, seen, bound float64, unit string) Verdict {
	return Verdict{name, "at least " + Number(bound) + unit, Number(seen) + unit, seen >= bound}
}

// Exactly is the verdict that a count is what it must be.
func Exactly(name string, seen, bound int) Verdict {
	return Verdict{name, strconv.Itoa(bound), strconv.Itoa(seen), seen == bound}
}

// A Section is one part of a report: a table, and what it was judged by.
type Section struct {
	Title, Note string
	Table
	Verdicts []Verdict
}

// Missed is how many verdicts are bad. A section without any misses one.
func (s Section) Missed() (n int) {
	for _, v := range s.Verdicts {
		if !v.OK {
			n++
		}
	}
	return cmp.Or(n, max(0, 1-len(s.Verdicts)))
}

// String is the section as Markdown.
func (s Section) String() string {
	goals := Table{Header: []string{"goal", "bound", "seen", "verdict"}}
	for _, v := range s.Verdicts {
		goals.Add(v.Name, v.Bound, v.Seen, map[bool]string{true: "met", false: "**MISSED**"}[v.OK])
	}
	return fmt.Sprintf("\n## %s\n\n%s\n%s%s", s.Title, strings.TrimSpace(s.Note), s.Table, goals)
}

// Quantile of values; the zero value when there are none.
func Quantile[T cmp.Ordered](values []T, q float64) (at T) {
	if len(values) == 0 {
		return at
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// A Spread is the median of values, with the least and the greatest.
type Spread struct{ Least, Median, Most float64 }

// SpreadOf is that of values.
func SpreadOf(vs []float64) Spread {
	return Spread{Quantile(vs, 0), Quantile(vs, .5), Quantile(vs, 1)}
}

// Ratio is the spread of a over b, each round for itself.
func Ratio(a, b []float64) Spread { return Rounds(a, b, func(a, b float64) float64 { return a / b }) }

// Rounds is the spread of what a function makes of a and b in one round.
func Rounds(a, b []float64, compare func(a, b float64) float64) Spread {
	var vs []float64
	for i := range min(len(a), len(b)) {
		vs = append(vs, compare(a[i], b[i]))
	}
	return SpreadOf(vs)
}

// String is the median, and the range in brackets.
func (s Spread) String() string {
	return fmt.Sprintf("%s (%s to %s)", Number(s.Median), Number(s.Least), Number(s.Most))
}

// Micros is a time in µs.
func Micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// Number prints with as many digits as are worth reading.
func Number(v float64) string {
	if v >= 1000 || v == float64(int64(v)) {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// A Part of a program is one figure, or several that belong together.
type Part struct {
	Name string
	Run  func(context.Context) (Section, error)
}

// A Program measures its parts and prints a report.
type Program struct {
	Title, Note string
	Parts       []Part
}

// Main is the whole program: flags must be those of its parts, and -only is added. It returns the exit
// status: 0 all goals are met, 1 some are missed, 2 it could not measure.
func (p Program) Main(flags *flag.FlagSet, args []string, stdout, stderr io.Writer) int {
	flags.SetOutput(stderr)
	flags.Func("only", "`parts`, with commas: all but these are left out", p.choose)
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "unexpected argument %q\n", flags.Arg(0))
		return 2
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	missed, err := p.measure(ctx, stdout, stderr)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	return min(missed, 1)
}

// choose leaves the parts that are named.
func (p *Program) choose(only string) error {
	all := p.Parts
	p.Parts = nil
	for name := range strings.SplitSeq(only, ",") {
		at := slices.IndexFunc(all, func(part Part) bool { return part.Name == name })
		if at < 0 {
			return fmt.Errorf("no part is called %q", name)
		}
		p.Parts = append(p.Parts, all[at])
	}
	return nil
}

// measure runs the parts. One that fails does not stop the others.
func (p Program) measure(ctx context.Context, stdout, stderr io.Writer) (missed int, _ error) {
	fmt.Fprintf(stdout, "# %s\n\n%s\n%s %s/%s, %d processors, which all processes share.\n", p.Title,
		strings.TrimSpace(p.Note), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	var errs []error
	for _, part := range p.Parts {
		if ctx.Err() != nil {
			break
		}
		began := time.Now()
		s, err := part.Run(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", part.Name, err))
			continue
		}
		took := time.Since(began).Round(time.Second)
		fmt.Fprintf(stderr, "%s: %v, %d goals missed\n", part.Name, took, s.Missed())
		fmt.Fprint(stdout, s)
		missed += s.Missed()
	}
	fmt.Fprintf(stdout, "\n%d goals missed.\n", missed)
	return missed, errors.Join(append(errs, ctx.Err())...)
}

// Ranged defines a flag whose value, which is its default too, must be in a range.
func Ranged[T int | time.Duration](flags *flag.FlagSet, to *T, name string, least, most T, usage string) {
	usage = fmt.Sprintf("%s, %v to %v (default %v)", usage, least, most, *to)
	flags.Func(name, usage, func(s string) (err error) {
		var v T
		switch p := any(&v).(type) {
		case *int:
			*p, err = strconv.Atoi(s)
		case *time.Duration:
			*p, err = time.ParseDuration(s)
		}
		if err == nil && (v < least || v > most) {
			err = fmt.Errorf("it is not between %v and %v", least, most)
		}
		*to = v
		return err
	})
}
