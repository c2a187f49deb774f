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

var leaseStart = time.Unix(1e9, 0)

// leaseTable is a Table with a history of 16 s. One peer holds 2 of A since the grace time ended, and one
// held 1 for 10 s. One waits for 2 since the tenth second. B is not used.
func leaseTable(t testing.TB) *lease.Table {
	t.Helper()
	c := lease.Config{Semaphores: map[string]lease.Semaphore{"A": {Max: 3}, "B": {Max: 1}},
		Grace: 5 * time.Second}
	table := must(lease.NewTable(c, lease.Tokens{Next: 1, End: 100}, leaseStart))
	at := func(seconds int) time.Time { return leaseStart.Add(time.Duration(seconds) * time.Second) }
	for id := range uint64(3) {
		if err := table.AddPeer(id, time.Hour, at(0)); err != nil {
			t.Fatal(err)
		}
	}
	must(table.Acquire(0, "A", 2, at(3)))
	table.Advance(at(5)) // the grace time ends
	must(table.Acquire(1, "A", 1, at(6)))
	must(table.Acquire(2, "A", 2, at(10)))
	if err := table.Release(1, "A", at(16)); err != nil {
		t.Fatal(err)
	}
	return table
}

// leasesOf shows a table as a server would that leads.
func leasesOf(table *lease.Table) prometheus.Collector {
	return metrics.NewLeases(func() lease.Stats {
		now := leaseStart.Add(30 * time.Second)
		return lease.Stats{Leads: true, Peers: len(table.Peers(now)), Missing: 7,
			Semaphores: table.Stats(now)}
	})
}

// TestLeases compares a whole scrape after a known history, but for semaphore B, which is not used.
func TestLeases(t *testing.T) {
	got := slices.DeleteFunc(scrape(t, leasesOf(leaseTable(t))), func(s string) bool {
		return strings.Contains(s, `semaphore="B"`)
	})
	slices.Sort(got)
	want := strings.Split(strings.TrimSpace(leaseFigures), "\n")
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Two were granted: one at the end of the grace time after 2 s, one at once. One was held for 10 s.
const leaseFigures = `
quotient_lease_beyond_total{semaphore="A"} 0
quotient_lease_broken_total{semaphore="A"} 0
quotient_lease_expired_total{semaphore="A"} 0
quotient_lease_grace_seconds 0
quotient_lease_granted_total{semaphore="A"} 2
quotient_lease_hold_seconds_bucket{semaphore="A",le="+Inf"} 1
quotient_lease_hold_seconds_bucket{semaphore="A",le="0.001"} 0
quotient_lease_hold_seconds_bucket{semaphore="A",le="0.01"} 0
quotient_lease_hold_seconds_bucket{semaphore="A",le="0.1"} 0
quotient_lease_hold_seconds_bucket{semaphore="A",le="1"} 0
quotient_lease_hold_seconds_bucket{semaphore="A",le="10"} 1
quotient_lease_hold_seconds_bucket{semaphore="A",le="3600"} 1
quotient_lease_hold_seconds_bucket{semaphore="A",le="60"} 1
quotient_lease_hold_seconds_bucket{semaphore="A",le="600"} 1
quotient_lease_hold_seconds_count{semaphore="A"} 1
quotient_lease_hold_seconds_sum{semaphore="A"} 10
quotient_lease_leads 1
quotient_lease_peers 3
quotient_lease_released_total{semaphore="A"} 1
quotient_lease_restored_total{semaphore="A"} 0
quotient_lease_wait_seconds_bucket{semaphore="A",le="+Inf"} 2
quotient_lease_wait_seconds_bucket{semaphore="A",le="0.001"} 1
quotient_lease_wait_seconds_bucket{semaphore="A",le="0.01"} 1
quotient_lease_wait_seconds_bucket{semaphore="A",le="0.1"} 1
quotient_lease_wait_seconds_bucket{semaphore="A",le="1"} 1
quotient_lease_wait_seconds_bucket{semaphore="A",le="10"} 2
quotient_lease_wait_seconds_bucket{semaphore="A",le="3600"} 2
quotient_lease_wait_seconds_bucket{semaphore="A",le="60"} 2
quotient_lease_wait_seconds_bucket{semaphore="A",le="600"} 2
quotient_lease_wait_seconds_count{semaphore="A"} 2
quotient_lease_wait_seconds_sum{semaphore="A"} 2
throttle_acquired{semaphore="A"} 2
throttle_longest_pending_sec{semaphore="A"} 20
throttle_max{semaphore="A"} 3
throttle_num_404 7
throttle_pending{semaphore="A"} 2
`

// TestLeaseTotals: each of the totals is the one that it is called.
func TestLeaseTotals(t *testing.T) {
	totals := lease.Totals{Granted: 1, Released: 2, Expired: 3, Broken: 4, Restored: 5, Beyond: 6}
	got := scrape(t, metrics.NewLeases(func() lease.Stats {
		return lease.Stats{Grace: 1500 * time.Millisecond,
			Semaphores: []lease.SemaphoreStats{{Name: "A", Totals: totals}}}
	}))
	for i, name := range []string{"granted", "released", "expired", "broken", "restored", "beyond"} {
		want := fmt.Sprintf(`quotient_lease_%s_total{semaphore="A"} %d`, name, i+1)
		if !slices.Contains(got, want) {
			t.Errorf("no %s in %q", want, got)
		}
	}
	if !slices.Contains(got, "quotient_lease_grace_seconds 1.5") ||
		!slices.Contains(got, "quotient_lease_leads 0") {
		t.Errorf("got %q", got)
	}
}

// TestLeaseSeries: there are so many series as the page says, on a stand-by those of the service alone.
func TestLeaseSeries(t *testing.T) {
	of := func(names ...string) int {
		return len(scrape(t, metrics.NewLeases(func() (st lease.Stats) {
			for _, name := range names {
				st.Semaphores = append(st.Semaphores, lease.SemaphoreStats{Name: name})
			}
			return st
		})))
	}
	none, one := of(), of("A")
	page := strings.Join(strings.Fields(text("../docs/metrics.md")), " ")
	if want := fmt.Sprintf("A semaphore has %d series, 22 of them its histograms, and the service %d.",
		one-none, none); !strings.Contains(page, want) {
		t.Errorf("the page does not say: %s", want)
	}
	awkward := []string{"<b>", "\x00", "a\nb", "a\"b\\", "\u202e", "\xff", "\xfe", "\ufffd",
		strings.Repeat("n", 1024)}
	if got, want := of(awkward...), none+len(awkward)*(one-none); got != want {
		t.Errorf("%d series of awkward names, want %d", got, want)
	}
}
