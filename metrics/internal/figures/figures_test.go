package figures

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/inside"
)

// counted has another number in each field.
var counted = quotient.Stats{
	Admitted: 1, Cancelled: 2, Waited: 3, InFlight: 4, Waiting: 5, Keys: 6, MaxKeys: 7, Evicted: 8, Overflowed: 9,
	Reclaimed: 10, DoubleReleases: 11, Expired: 12, Throttled: 13, Overrides: 14, Version: 15,
	Refused:        map[quotient.Reason]uint64{quotient.ReasonRate: 16},
	DryRunAdmitted: map[quotient.Reason]uint64{quotient.ReasonInFlight: 17},
	Pool: quotient.PoolStats{
		Pool: quotient.Pool{Replicas: 18, Weight: 19, Ordinal: 20}, Source: "set", Age: 21 * time.Second,
		Until: time.Unix(22, 0), Reports: 23, Errors: 24, Rejected: 25,
	},
	Fleet: quotient.FleetStats{Replicas: 32, Admitted: 33, Refused: 34, Waiting: 35, InFlight: 36, Age: time.Second},
}

var more = inside.More{DryRun: true, Demand: inside.Demand{
	Keys: 26, Named: 27, Lent: 28, Age: 29 * time.Second, MaxAge: time.Minute, Sent: 30, Received: 31}}

// TestFiguresAreTheirFields: each figure is of its own field of Stats.
func TestFiguresAreTheirFields(t *testing.T) {
	want := map[string]float64{
		"requests_total admitted none": 1, "requests_total cancelled none": 2, "requests_total refused rate": 16,
		"waits_total": 3, "dry_run_admitted_total in_flight": 17, "in_flight": 4, "waiting": 5, "denies ": 0,
		"replicas set": 18, "weight": 19, "ordinal": 20, "pool_age_seconds": 21, "pool_until_timestamp_seconds": 22,
		"pool_reports_total": 23, "pool_errors_total": 24, "pool_rejected_total": 25, "keys": 6, "max_keys": 7,
		"evictions_total": 8, "overflow_decisions_total": 9, "reclaimed_permits_total": 10,
		"double_releases_total": 11, "expired_turns_total": 12, "upstream_throttles_total": 13, "overrides": 14,
		"dry_run": 1, "config_changes_total": 15, "demand_keys": 26, "demand_named_keys": 27, "demand_lent_keys": 28,
		"demand_age_seconds": 29, "demand_fresh": 1, "demand_bytes_total sent": 30,
		"demand_bytes_total received": 31, "fleet_replicas": 32, "fleet_admitted": 33, "fleet_refused": 34,
		"fleet_waiting": 35, "fleet_in_flight": 36,
	}
	for _, f := range All {
		f.Read(&Reading{Stats: counted, More: more}, func(v float64, labels ...string) {
			id := strings.Join(append([]string{strings.TrimPrefix(f.Prometheus, "quotient_")}, labels...), " ")
			if v != want[id] || len(labels) != len(f.Labels) {
				t.Errorf("%s: %v, want %v", id, v, want[id])
			}
			delete(want, id)
		})
	}
	if len(want) > 0 {
		t.Errorf("no figure has %v", want)
	}
}

// TestRatesOfALimit: rates are a second's, and names that become one label are told apart, each cut at 64 bytes.
func TestRatesOfALimit(t *testing.T) {
	long := strings.Repeat("x", 63)
	rules := []quotient.RuleState{{Rule: quotient.Rule{Name: "in-flight", Limit: 6, Share: 3}}}
	for _, name := range []string{"\xff", "\uFFFD #4", "\xfe", long + "é"} {
		rules = append(rules, quotient.RuleState{
			Rule: quotient.Rule{Name: name, Limit: 120, Share: 60, Window: time.Minute}})
	}
	tokens := quotient.Rule{Name: "\xff", Unit: "tokens", Limit: 120, Share: 60, Window: time.Minute}
	rules = append(rules, quotient.RuleState{Rule: tokens})
	var got []string
	var r Reading
	r.Rules = rules
	sendRates(&r, func(v float64, labels ...string) {
		got = append(got, fmt.Sprint(v, labels[1:]))
	})
	var want []string
	for _, id := range []string{"\uFFFD requests", "\uFFFD #4 requests", "\uFFFD #4 #4 requests",
		long + "\uFFFD requests", "\uFFFD tokens"} {
		want = append(want, "2 ["+id+" global]", "1 ["+id+" share]")
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestWhatIsUnknownIsAbsent: without a report of the pool, and of other replicas, nothing is said of them.
func TestWhatIsUnknownIsAbsent(t *testing.T) {
	late := counted
	late.Fleet.Age = math.MaxInt64
	late.Pool.Reports = 0
	for _, r := range []*Reading{{}, {Stats: late, More: more}} {
		for _, f := range All {
			name := strings.TrimPrefix(f.Prometheus, "quotient_")
			aged := name == "pool_age_seconds" || name == "demand_age_seconds" ||
				strings.HasPrefix(name, "fleet_") && name != "fleet_replicas"
			carried := strings.HasPrefix(name, "demand_") || strings.HasPrefix(name, "fleet_")
			f.Read(r, func(float64, ...string) {
				if aged || carried && r.Demand.MaxAge == 0 {
					t.Errorf("%s is said", name)
				}
			})
		}
	}
}
