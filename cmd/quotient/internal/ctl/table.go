package ctl

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/quotient-go/quotient/cmd/quotient/internal/cmdline"
	"github.com/quotient-go/quotient/internal/shown"
)

// sheet is a table with a row for each pod, whose name is in the first column.
type sheet struct {
	head []string // those that begin with "=" should be the same in all rows
	rows [][]string
}

const none = "-" // in a cell that has nothing, and that differs from nothing

const longestCell = 200 // bytes; --json has all of it

func (t *sheet) add(cells ...string) {
	for i, c := range cells {
		cells[i] = cmp.Or(shown.Line(c), none)
	}
	t.rows = append(t.rows, cells)
}

// cut is a cell as it is printed.
func cut(cell string) string {
	if len(cell) <= longestCell {
		return cell
	}
	return strings.ToValidUTF8(cell[:longestCell], "") + "…"
}

// values are what the rows have in a column, the most frequent first, with the names of those rows.
func (t *sheet) values(i int) (values []string, rows map[string][]string) {
	rows = make(map[string][]string)
	for _, row := range t.rows {
		if row[i] != none {
			rows[row[i]] = append(rows[row[i]], row[0])
		}
	}
	values = cmdline.SortedKeys(rows)
	slices.SortStableFunc(values, func(a, b string) int { return cmp.Compare(len(rows[b]), len(rows[a])) })
	return values, rows
}

// differs says, for each column that should be the same and is not, who has what.
func (t *sheet) differs() (lines []string) {
	const most = 5 // values
	for i, name := range t.head {
		name, same := strings.CutPrefix(name, "=")
		values, rows := t.values(i)
		if !same || len(values) < 2 {
			continue
		}
		var parts []string
		for _, v := range values[:min(most, len(values))] {
			parts = append(parts, cut(v)+" on "+few(rows[v]))
		}
		if more := len(values) - most; more > 0 {
			parts = append(parts, fmt.Sprintf("and %d more", more))
		}
		lines = append(lines, strings.ToLower(name)+": "+strings.Join(parts, "; "))
	}
	return lines
}

// few are some names, and how many more there are.
func few(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%d pods", len(names))
}

// print writes the table with aligned columns. What most rows do not have is marked with a star.
func (t *sheet) print(w io.Writer) error {
	aligned := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	var head []string
	marked := make([][]string, len(t.rows))
	for r, row := range t.rows {
		for _, c := range row {
			marked[r] = append(marked[r], cut(c))
		}
	}
	for i, name := range t.head {
		name, same := strings.CutPrefix(name, "=")
		if head = append(head, name); same {
			t.mark(i, marked)
		}
	}
	for _, row := range append([][]string{head}, marked...) {
		fmt.Fprintln(aligned, strings.Join(row, "\t"))
	}
	return aligned.Flush()
}

func (t *sheet) mark(i int, marked [][]string) {
	values, _ := t.values(i)
	for r, row := range t.rows {
		if row[i] != none && row[i] != values[0] {
			marked[r][i] += " *"
		}
	}
}

// printAll writes the table, and below it what differs between the pods.
func (t *sheet) printAll(w io.Writer) error {
	if err := t.print(w); err != nil {
		return err
	}
	for _, line := range t.differs() {
		if _, err := fmt.Fprintln(w, "* differs: "+line); err != nil {
			return err
		}
	}
	return nil
}
