package admin

import "errors"

// A Table is something that the program shows to its operators beside the limiters, such as its upstreams.
// Cells are plain text.
type Table struct {
	Title   string     `json:"title"`
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`           // each with a cell for each column; the first cell names the row
	More    int        `json:"more,omitempty"` // rows that are left out here
}

// Tables shows tables: in GET /state and GET /events as "tables", and on the page. Each answer calls
// current, which must be safe for concurrent use and return at once; given several times, the tables of all
// stand in that order. The page shows at most 16 tables of 1,000 rows and 16 columns, 256 bytes of a text,
// and 256 KiB in all. Rows beyond are counted in More. A row that is too short for its columns is filled up.
func Tables(current func() []Table) Option {
	return func(h *handler) {
		h.tables = append(h.tables, current)
		if current == nil {
			h.errs = append(h.errs, errors.New("admin: Tables: current: nil"))
		}
	}
}

const (
	mostTables  = 16
	mostColumns = 16
	mostRows    = 1000
	longestCell = 256       // bytes of a cell, a column's name or a title
	mostCells   = 256 << 10 // bytes of all cells of all tables
)

// currentTables are the tables as an answer carries them, none of them the program's own memory.
func (h *handler) currentTables() (shown []Table) {
	left := mostCells
	for _, current := range h.tables {
		for _, t := range current() {
			if len(shown) == mostTables {
				return shown
			}
			shown = append(shown, t.bounded(&left))
		}
	}
	return shown
}

// bounded is a copy of t within the bounds, of which left bytes are to be had.
func (t Table) bounded(left *int) Table {
	columns := t.Columns[:min(len(t.Columns), mostColumns)]
	b := Table{Title: shorten(t.Title, longestCell), Columns: clipped(columns, len(columns)), Rows: [][]string{}, More: max(0, t.More)}
	for i, row := range t.Rows {
		cells := clipped(row, len(columns))
		size := len(cells)
		for _, cell := range cells {
			size += len(cell)
		}
		if i == mostRows || size > *left {
			b.More += len(t.Rows) - i
			return b
		}
		*left -= size
		b.Rows = append(b.Rows, cells)
	}
	return b
}

// clipped is exactly n of texts, each short enough; those that are not there are empty.
func clipped(texts []string, n int) []string {
	short := make([]string, n)
	for i := range min(n, len(texts)) {
		short[i] = shorten(texts[i], longestCell)
	}
	return short
}
