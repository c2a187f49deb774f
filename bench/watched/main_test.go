package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBadFlagsAreNamed(t *testing.T) {
	for args, want := range map[string]string{
		"-duration 9s": "-duration: 9s", "-duration 3h": "-duration: 3h", "-keys 9999": "-keys: 9999",
		"-keys 1000001": "-keys: 1000001",
		"more":          `unexpected argument "more"`, "-nothing": "not defined: -nothing",
	} {
		var out, errs bytes.Buffer
		if code := command(strings.Fields(args), &out, &errs); code != 2 ||
			!strings.Contains(errs.String(), want) || out.Len() > 0 {
			t.Errorf("%s: %d %q", args, code, errs.String())
		}
	}
}

// quiet is a record of 100 seconds in which nothing grows.
func quiet() *record {
	r := &record{config: config{duration: 100 * time.Second, keys: 10, scrape: time.Second},
		first: map[string]bool{"a": true, "b": true}, distinct: 10, keys: 10, events: 100, tables: 1}
	for i := range 100 {
		at := time.Duration(i) * time.Second
		r.heap = append(r.heap, look{at, 100e6})
		r.goroutines = append(r.goroutines, look{at, 12})
		r.series = append(r.series, look{at, 2})
		r.succeeded++
	}
	return r
}

// TestVerdict checks that each goal can be missed, and that none is on a quiet record.
func TestVerdict(t *testing.T) {
	r := quiet()
	for i := range r.goroutines {
		r.goroutines[i].v += float64(i / 40) // no leak: 2 more in the last fifth
	}
	if !r.report(new(bytes.Buffer)) {
		t.Fatalf("missed: %v", r.verdicts())
	}
	for name, spoil := range map[string]func(*record){
		"the heap of the last fifth": func(r *record) {
			for i := range r.heap {
				r.heap[i].v += float64(i) * 2e5 // 12 MB from the second fifth to the last
			}
		},
		"no series but": func(r *record) { r.series[50].v = 3 },
		"no series":     func(r *record) { r.strange = 1 },
		"as many goroutines": func(r *record) {
			for i := range r.goroutines {
				r.goroutines[i].v += float64(i / 20) // 3 more in the last fifth than in the second
			}
		},
		"goroutines":        func(r *record) { r.goroutines[60].v = 40 },
		"keys were asked":   func(r *record) { r.distinct = 9 },
		"are remembered":    func(r *record) { r.keys = 9 },
		"none failed":       func(r *record) { r.failed = 1 },
		"at least 80 scra":  func(r *record) { r.succeeded = 79 },
		"at least 80 event": func(r *record) { r.events = 79 },
		"a table":           func(r *record) { r.tables = 0 },
		"heap":              func(r *record) { r.heap = nil },
		"heap of the last":  func(r *record) { r.heap = r.heap[:80] }, // no look was taken at the end
		"An error":          func(r *record) { r.err = errors.New("broken") },
	} {
		r := quiet()
		spoil(r)
		var out bytes.Buffer
		met := r.report(&out)
		missed := 0
		for line := range strings.Lines(out.String()) {
			if strings.Contains(line, name) &&
				(strings.Contains(line, "MISSED") || strings.Contains(line, "broken")) {
				missed++
			}
		}
		if met || missed != 1 {
			t.Errorf("%s: met %v, %d missed in\n%s", name, met, missed, out.String())
		}
	}
}

// TestFillingShowsAllSeries checks that the first scrape has the series of learned rates, however long it
// takes the workers to begin.
func TestFillingShowsAllSeries(t *testing.T) {
	w, err := newWorld(fewestKeys)
	if err != nil {
		t.Fatal(err)
	}
	w.fill()
	s, err := serve(w)
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	series, _, err := s.scrape(t.Context())
	if err != nil ||
		!slices.Contains(series,
			`quotient_adaptive_requests_per_second{limiter="upstream",over_keys="min"}`) {
		t.Error(err, series)
	}
}

// TestRun is a short run with few keys: too short to judge the heap, and otherwise whole.
func TestRun(t *testing.T) {
	r, err := run(context.Background(),
		config{duration: 2 * time.Second, keys: fewestKeys, scrape: 50 * time.Millisecond,
			sample: 100 * time.Millisecond})
	if err != nil || r.err != nil {
		t.Fatal(err, r)
	}
	if !r.constant() || r.distinct != fewestKeys || r.keys != fewestKeys || r.events == 0 || r.tables == 0 ||
		r.failed > 0 || r.succeeded < 5 || r.asks < 2*fewestKeys {
		var out bytes.Buffer
		r.report(&out)
		t.Error(out.String())
	}
	series := fmt.Sprint(r.first)
	if !strings.Contains(series, `quotient_adaptive_requests_per_second{limiter="upstream"`) ||
		!strings.Contains(series, `quotient_overhead_seconds_bucket{limiter="api"`) ||
		strings.Contains(series, "tenant-") {
		t.Error(series)
	}
}

// TestReportIsWritten checks that -out gets what stdout gets; a directory that is not there is an error.
func TestReportIsWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.md")
	var out, errs bytes.Buffer
	r := quiet()
	if code := write(r, file, &out, &errs); code != 0 {
		t.Fatal(code, errs.String())
	}
	if text, err := os.ReadFile(file); err != nil || !bytes.Equal(text, out.Bytes()) {
		t.Error(err)
	}
	if code := write(r, filepath.Join(file, "x"), &out, &errs); code != 1 || errs.Len() == 0 {
		t.Error(code, errs.String())
	}
	r.failed = 1
	if code := write(r, "", &out, &errs); code != 1 {
		t.Error("a missed goal exits with", code)
	}
}
