package metrics_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quotient-go/quotient/lease"
	"github.com/quotient-go/quotient/metrics"
)

// leases are figures of a service that leads, each of them another, and of a semaphore that is not used.
var leases = lease.Stats{Leads: true, Peers: 8, Missing: 7, Grace: 1500 * time.Millisecond,
	Semaphores: []lease.SemaphoreStats{
		{Name: "A", Semaphore: lease.Semaphore{Max: 9}, Acquired: 10, Pending: 11, LongestPending: 20 * time.Second,
			Totals: lease.Totals{Granted: 1, Released: 2, Expired: 3, Broken: 4, Restored: 5, Beyond: 6,
				Hold: lease.Histogram{Buckets: [8]uint64{4: 1}, Count: 2, Sum: 7210},
				Wait: lease.Histogram{Buckets: [8]uint64{0: 1, 4: 2}, Count: 3, Sum: 4}}},
		{Name: "B"},
	}}

// leasesOf shows figures as those of a server.
func leasesOf(st lease.Stats) prometheus.Collector {
	return metrics.NewLeases(func() lease.Stats { return st })
}

// TestLeases compares a whole scrape, but for the semaphore that is not used.
func TestLeases(t *testing.T) {
	got := slices.DeleteFunc(scrape(t, leasesOf(leases)), func(s string) bool {
		return strings.Contains(s, `semaphore="B"`)
	})
	want := strings.Split(strings.TrimSpace(leaseFigures), "\n")
	waits, holds := strings.Fields("1 1 1 1 3 3 3 3 3"), strings.Fields("0 0 0 0 1 1 1 1 2")
	for i, bound := range strings.Fields("0.001 0.01 0.1 1 10 60 600 3600 +Inf") {
		want = append(want, fmt.Sprintf(`quotient_lease_wait_seconds_bucket{semaphore="A",le=%q} %s`, bound, waits[i]),
			fmt.Sprintf(`quotient_lease_hold_seconds_bucket{semaphore="A",le=%q} %s`, bound, holds[i]))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

const leaseFigures = `
quotient_lease_beyond_total{semaphore="A"} 6
quotient_lease_broken_total{semaphore="A"} 4
quotient_lease_expired_total{semaphore="A"} 3
quotient_lease_grace_seconds 1.5
quotient_lease_granted_total{semaphore="A"} 1
quotient_lease_hold_seconds_count{semaphore="A"} 2
quotient_lease_hold_seconds_sum{semaphore="A"} 7210
quotient_lease_leads 1
quotient_lease_peers 8
quotient_lease_released_total{semaphore="A"} 2
quotient_lease_restored_total{semaphore="A"} 5
quotient_lease_wait_seconds_count{semaphore="A"} 3
quotient_lease_wait_seconds_sum{semaphore="A"} 4
throttle_acquired{semaphore="A"} 10
throttle_longest_pending_sec{semaphore="A"} 20
throttle_max{semaphore="A"} 9
throttle_num_404 7
throttle_pending{semaphore="A"} 11
`

// TestLeaseSeries: there are so many series as the page says, on a stand-by those of the service alone.
func TestLeaseSeries(t *testing.T) {
	of := func(names ...string) int {
		var st lease.Stats
		for _, name := range names {
			st.Semaphores = append(st.Semaphores, lease.SemaphoreStats{Name: name})
		}
		return len(scrape(t, leasesOf(st)))
	}
	none, one := of(), of("A")
	onPage(t, "A semaphore has %d, 22 of them for its histograms, and the lease service itself has %d.", one-none, none)
	awkward := []string{"<b>", "\x00", "a\nb", "a\"b\\", "\u202e", "\xff", "\xfe", "\ufffd",
		strings.Repeat("n", 1024)}
	if got, want := of(awkward...), none+len(awkward)*(one-none); got != want {
		t.Errorf("%d series of awkward names, want %d", got, want)
	}
}

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
