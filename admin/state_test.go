package admin

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/inside"
)

func TestStateHasStableNames(t *testing.T) {
	full := quotient.Stats{
		PlanStats: quotient.PlanStats{
			Limit: quotient.Limit{
				Rates: []quotient.Rate{{Name: "minute", Unit: "tokens", Events: 90, Per: time.Minute, Burst: 9,
					Kind: quotient.CountedWindow, NoTurns: true, Zone: "Europe/Berlin"}},
				InFlight: 8,
			},
			Rules: []quotient.RuleState{{Burst: 3,
				Rule: quotient.Rule{Name: "minute", Unit: "tokens", Limit: 90, Share: 30, Window: time.Minute}}},
			Admitted: 18, Refused: 19,
		},
		Plans: map[string]quotient.PlanStats{"free": {
			Limit: quotient.Limit{InFlight: 18},
			Rules: []quotient.RuleState{{Rule: quotient.Rule{Name: "in-flight", Limit: 18, Share: 6}, Left: 6},
				{Rule: quotient.Rule{Name: "adaptive"}, Pace: 4}},
			Admitted: 20, Refused: 21,
		}},
		Pool: quotient.PoolStats{
			Pool:   quotient.Pool{Replicas: 3, Ordinal: 2, Fixed: true},
			Source: "file", Age: 1500 * time.Millisecond, Reports: 4, Errors: 5, Rejected: 6,
			LastError: "no such file", Until: time.Unix(1e9, 0).UTC(),
		},
		Keys: 1, MaxKeys: 2, Waiting: 3, InFlight: 4, Admitted: 5,
		Refused: map[quotient.Reason]uint64{quotient.ReasonRate: 6},
		Waited:  7, Cancelled: 8, Evicted: 9, Overflowed: 10, DoubleReleases: 11, Reclaimed: 12,
		Throttled: 13,
		Version:   14, DryRunAdmitted: map[quotient.Reason]uint64{quotient.ReasonRate: 15},
		Expired: 16, Overrides: 17,
		Fleet: quotient.FleetStats{Replicas: 4, Admitted: 9, Refused: 8, Waiting: 7, InFlight: 6,
			Age: 300 * time.Millisecond},
	}
	*moreOf(&full) = inside.More{DryRun: true, Learns: true, Demand: inside.Demand{
		Keys: 5, Named: 4, Lent: 3, Age: 400 * time.Millisecond, MaxAge: 2 * time.Second, Sent: 6, Received: 7}}
	const want = `{"limit":{"rates":[{"name":"minute","unit":"tokens","events":90,"per_seconds":60,"burst":9,"kind":"counted-window","aligned":true,"counted":true,"no_turns":true,"zone":"Europe/Berlin"}],"in_flight":8,"denies":false},` +
		`"rules":[{"name":"minute","unit":"tokens","limit":1.5,"share":0.5,"burst":3,"events":90,"window_seconds":60}],` +
		`"plans":[{"name":"free","limit":{"rates":[],"in_flight":18,"denies":false},"rules":[{"name":"in-flight","unit":"","limit":18,"share":6,"burst":0,"events":0,"window_seconds":0}],"admitted":20,"refused_calls":21}],` +
		`"pool":{"replicas":3,"weight":1,"ordinal":2,"fixed":true,"source":"file","age_seconds":1.5,"reports":4,"errors":5,"rejected":6,"last_error":"no such file","until":"2001-09-09T01:46:40Z"},` +
		`"keys":1,"max_keys":2,"waiting":3,"in_flight":4,"admitted":5,"refused":{"REASON":6},"waited":7,"cancelled":8,"evicted":9,` +
		`"overflowed":10,"double_releases":11,"reclaimed":12,"throttled":13,"learns":true,` +
		`"etag":"","version":14,"dry_run":true,"dry_run_admitted":{"REASON":15},"expired":16,"override_count":17,"overrides":[],"own_admitted":18,"own_refused":19,` +
		`"demand":{"keys":5,"named":4,"lent":3,"age_seconds":0.4,"missing":false,"max_age_seconds":2,"fresh":true,"sent_bytes":6,"received_bytes":7},` +
		`"fleet":{"replicas":4,"admitted":9,"refused":8,"waiting":7,"in_flight":6,"age_seconds":0.3,"missing":false}}`
	got, err := json.Marshal(newLimiterState(full))
	must(t, err)
	if want := strings.ReplaceAll(want, "REASON", quotient.ReasonRate.String()); string(got) != want {
		t.Errorf("state is\n%s\nwant\n%s", got, want)
	}
}
