package metrics_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quotient-go/quotient/metrics"
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

func fileOf(s configState) prometheus.Collector {
	return metrics.File(func() metrics.FileState { return metrics.FileState(s) })
}

func TestFile(t *testing.T) {
	loaded := time.Unix(1e9, 5e8)
	for name, tt := range map[string]struct {
		state configState
		want  string // successful, loaded, applied, failed, differs
	}{
		"never loaded": {configState{}, "1 0 0 0 0"},
		"well":         {configState{Path: "/a", Loaded: loaded, Reloads: 3}, "1 1.0000000005e+09 3 0 0"},
		"broken": {configState{Loaded: loaded, Failures: 2, Error: "line 3", ErrorAt: loaded.Add(time.Second)},
			"0 1.0000000005e+09 0 2 0"},
		"broken at once": {configState{Loaded: loaded, Failures: 1, Error: "line 3", ErrorAt: loaded},
			"0 1.0000000005e+09 0 1 0"},
		"mended": {configState{Loaded: loaded, Reloads: 1, Failures: 1, Error: "line 3",
			ErrorAt: loaded.Add(-time.Second)}, "1 1.0000000005e+09 1 1 0"},
		"by hand": {configState{Loaded: loaded,
			Differs: []string{"api: limit", "jobs: dry run, override a: b", "api: plan paid"}},
			"1 1.0000000005e+09 0 0 2"},
	} {
		got := scrape(t, fileOf(tt.state))
		want := strings.Fields(tt.want)
		for i, series := range []string{"last_reload_successful", "last_load_timestamp_seconds",
			`reloads_total{outcome="applied"}`, `reloads_total{outcome="failed"}`, "differs"} {
			want[i] = "quotient_config_" + series + " " + want[i]
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n%q\nwant\n%q", name, got, want)
		}
	}
}
