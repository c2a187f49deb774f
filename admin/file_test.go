package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/quotient-go/quotient/internal/tested"
)

// configState is what package config knows of a file: the fields, types and order of its State.
type configState struct {
	Path              string
	Loaded            time.Time
	Reloads, Failures uint64
	Error             string
	ErrorAt           time.Time
	Differs           []string
}

func brokenFile() FileState {
	return FileState(configState{
		Path: "/etc/quotient.toml", Loaded: time.Unix(1e9, 0).UTC(), Reloads: 3, Failures: 2,
		Error:   "quotient.toml:3:7: limiters.api.rate: unknown field (did you mean rates?)",
		ErrorAt: time.Unix(1e9+60, 0).UTC(),
		Differs: []string{"api: limit, override /x"},
	})
}

// TestFileAndTablesHaveStableNames: like those of the limiters' state, the names are a promise.
func TestFileAndTablesHaveStableNames(t *testing.T) {
	const want = `{"path":"/etc/quotient.toml","loaded":"2001-09-09T01:46:40Z","reloads":3,"failures":2,` +
		`"error":"quotient.toml:3:7: limiters.api.rate: unknown field (did you mean rates?)","error_at":"2001-09-09T01:47:40Z",` +
		`"differs":["api: limit, override /x"]}` +
		`[{"title":"Upstreams","columns":["URL","State"],"rows":[["http://a","well"]],"more":4},` +
		`{"title":"T","columns":[],"rows":[]}]`
	h := quiet(t, newLimiter(t), File(brokenFile), Tables(func() []Table {
		return []Table{{Title: "Upstreams", Columns: []string{"URL", "State"},
			Rows: [][]string{{"http://a", "well"}}, More: 4}}
	}), Tables(func() []Table { return nil }), Tables(func() []Table { return []Table{{Title: "T"}} }))
	rec := get("/state").send(t, h)
	var s struct{ File, Tables json.RawMessage }
	must(t, json.Unmarshal(rec.Body.Bytes(), &s))
	var got strings.Builder
	for _, part := range []json.RawMessage{s.File, s.Tables} {
		text, err := json.Marshal(part) // on one line
		must(t, err)
		got.Write(text)
	}
	tested.Want(t, "file and tables", got.String(), want)
}

// TestFileIsOfTheWholeState: the state of all limiters has the file and the tables, that of one does not, nor
// does one without the options. The whole state is never called unchanged by the tag of a limiter.
func TestFileIsOfTheWholeState(t *testing.T) {
	l := newLimiter(t)
	table := func() []Table { return []Table{{Title: "T"}} }
	for name, tt := range map[string]struct {
		opts                []Option
		path                string
		file, table, tagged bool
	}{
		"both":       {[]Option{File(brokenFile), Tables(table)}, "/state", true, true, false},
		"the file":   {[]Option{File(brokenFile)}, "/state", true, false, false},
		"the tables": {[]Option{Tables(table)}, "/state", false, true, false},
		"neither":    {nil, "/state", false, false, true},
		"of one limiter": {[]Option{File(brokenFile), Tables(table)}, "/state?limiter=api", false,
			false, true},
	} {
		h := quiet(t, l, tt.opts...)
		rec := get(tt.path).send(t, h)
		tag := rec.Header().Get("ETag")
		s := decode[map[string]json.RawMessage](t, rec)
		_, file := s["file"]
		_, tables := s["tables"]
		if file != tt.file || tables != tt.table {
			t.Errorf("%s: file %v, tables %v", name, file, tables)
		}
		if code := get(tt.path).with("If-None-Match", tag).send(t, h).Code; (code == http.StatusNotModified) != tt.tagged {
			t.Errorf("%s: %d for the tag %s", name, code, tag)
		}
	}
}

// TestFileIsBounded: whatever the program says of its file, an answer stays small.
func TestFileIsBounded(t *testing.T) {
	differs := make([]string, 5000)
	for i := range differs {
		differs[i] = fmt.Sprintf("limiter-%d: %s", i, strings.Repeat("ä", 5000))
	}
	long := strings.Repeat("x", 1<<20)
	h := quiet(t, newLimiter(t), File(func() FileState {
		return FileState{Path: long, Error: long, Differs: differs}
	}))
	f := decode[State](t, get("/state").send(t, h)).File
	if len(f.Path) > longestText+3 || len(f.Error) > longestText+3 || len(f.Differs) != mostDiffers {
		t.Errorf("a path of %d bytes, an error of %d, %d lines", len(f.Path), len(f.Error), len(f.Differs))
	}
	for _, line := range f.Differs {
		if len(line) > longestLine+3 || !utf8.ValidString(line) || !strings.HasSuffix(line, "…") {
			t.Fatalf("a line of %d bytes that ends in %q", len(line), line[len(line)-4:])
		}
	}
	tested.Not(t, len(differs[0]) < longestText*2, "the program's own lines were changed")
	if none := decode[State](t, get("/state").send(t, quiet(t, newLimiter(t), File(func() FileState {
		return FileState{}
	})))); none.File.Differs == nil {
		t.Error("null where a list belongs")
	}
}

func TestTablesAreBounded(t *testing.T) {
	long := strings.Repeat("x", 5000)
	wide := slices.Repeat([]string{"c"}, 100)
	rows := func(n int, row ...string) [][]string { return slices.Repeat([][]string{row}, n) }
	a, abc := []string{"a"}, []string{"a", "b", "c"}
	big := Table{Title: long, Columns: []string{long}, Rows: rows(1000, long)}
	for name, tt := range map[string]struct {
		tables []Table
		want   string // tables; columns, rows and more of the first; rows and more of the last
	}{
		"many":              {slices.Repeat([]Table{{Columns: a, Rows: rows(1, "1")}}, 20), "16: 1 1 0, 1 0"},
		"long":              {[]Table{{Columns: a, Rows: rows(1500, "1"), More: 5}}, "1: 1 1000 505, 1000 505"},
		"wide":              {[]Table{{Columns: wide, Rows: rows(1, wide...)}}, "1: 16 1 0, 1 0"},
		"short rows":        {[]Table{{Columns: abc, Rows: rows(2, "1")}}, "1: 3 2 0, 2 0"},
		"rows too long":     {[]Table{{Columns: a, Rows: rows(2, "1", "2", "3")}}, "1: 1 2 0, 2 0"},
		"no columns":        {[]Table{{Rows: rows(2, "1")}}, "1: 0 2 0, 2 0"},
		"too much in all":   {slices.Repeat([]Table{big}, 3), "3: 1 1000 0, 0 1000"},
		"less than nothing": {[]Table{{Columns: a, More: -3}}, "1: 1 0 0, 0 0"},
	} {
		rec := get("/state").send(t, quiet(t, newLimiter(t), Tables(func() []Table { return tt.tables })))
		size := rec.Body.Len()
		got := decode[State](t, rec).Tables
		first, last := got[0], got[len(got)-1]
		said := fmt.Sprintf("%d: %d %d %d, %d %d", len(got), len(first.Columns), len(first.Rows), first.More,
			len(last.Rows), last.More)
		if said != tt.want || size > 2<<20 {
			t.Errorf("%s: %s in %d bytes, want %s", name, said, size, tt.want)
		}
		for _, row := range first.Rows {
			tooLong := func(cell string) bool { return len(cell) > longestCell+3 }
			if len(row) != len(first.Columns) || slices.ContainsFunc(row, tooLong) {
				t.Fatalf("%s: a row of %d cells: %q", name, len(row), row)
			}
		}
	}
}
