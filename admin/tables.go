package admin

import "time"

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
		h.mustBe(current != nil, "Tables: current: nil")
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

// FileState is the state of the file that configures the limits. The State of package config converts to it:
//
//	admin.File(func() admin.FileState { return admin.FileState(c.State()) })
//
// While the file has an error, ErrorAt is not before Loaded. Error stays until a load succeeds.
type FileState struct {
	Path     string    `json:"path"`
	Loaded   time.Time `json:"loaded"`            // when the configuration in force was read
	Reloads  uint64    `json:"reloads"`           // that were applied
	Failures uint64    `json:"failures"`          // reloads that changed nothing
	Error    string    `json:"error"`             // of the last failure
	ErrorAt  time.Time `json:"error_at,omitzero"` // when the last failure was
	Differs  []string  `json:"differs"`           // changes by operators, such as "api: limit, override /x"
}

// File shows the file that the limiters are configured by: in GET /state and GET /events as "file", and on
// the page. Each answer calls state, which must be safe for concurrent use and return at once. Texts are
// clipped to 4 KiB, and Differs to 1,000 lines of 512 bytes.
func File(state func() FileState) Option {
	return func(h *handler) {
		h.file = state
		h.mustBe(state != nil, "File: state: nil")
	}
}

const (
	longestText = 4096 // bytes of an error or a path
	longestLine = 512  // bytes of what differs at one limiter
	mostDiffers = 1000 // a registry has no more limiters
)

// fileState is the file's state as an answer carries it: nil without File.
func (h *handler) fileState() *FileState {
	if h.file == nil {
		return nil
	}
	s := h.file()
	differs := make([]string, min(len(s.Differs), mostDiffers))
	for i := range differs {
		differs[i] = shorten(s.Differs[i], longestLine)
	}
	s.Path, s.Error, s.Differs = shorten(s.Path, longestText), shorten(s.Error, longestText), differs
	return &s
}
