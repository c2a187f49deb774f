package metrics_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/carried"
	"github.com/quotient-go/quotient/metrics"
)

// TestDemand compares all of demand and fleet: while a replica borrows, when a report is missing, and when
// nothing is carried any more.
func TestDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(quotient.New(perSecond("second", 400), quotient.Replicas(4),
			quotient.Demand(10, time.Second)))
		expect := func(when, want string) {
			t.Helper()
			got := slices.DeleteFunc(scrape(t, must(metrics.Of("api", l))), func(s string) bool {
				return !strings.HasPrefix(s, "quotient_demand") && !strings.HasPrefix(s, "quotient_fleet")
			})
			if got := strings.Join(got, "\n"); got != strings.TrimSpace(want) {
				t.Errorf("%s, got\n%s\nwant\n%s", when, got, want)
			}
		}
		expect("before anything is carried", "")
		src := &carried.Source{Replicas: 4, Every: 100 * time.Millisecond, Age: 250 * time.Millisecond,
			Others: quotient.Terms{3, 1000, 7, 5, 9}}
		stop := follow(t, l, src)
		for range 2000 {
			l.Allow("k")
			time.Sleep(time.Millisecond)
		}
		time.Sleep(50 * time.Millisecond) // the age of the reports has grown by that
		fleet := l.Stats().Fleet
		if sum := fleet.Admitted + fleet.Refused; sum != 1000+7+2000 {
			t.Errorf("%d requests are counted over the fleet", sum)
		}
		expect("while it borrows", fmt.Sprintf(borrows, fleet.Admitted, fleet.Refused))
		page, more := text("../docs/metrics.md"), strings.Count(borrows, "limiter=")
		if want := fmt.Sprintf("a limiter has %d series more", more); !strings.Contains(page, want) {
			t.Errorf("the page does not say: %s", want)
		}
		src.Silence()
		time.Sleep(100 * time.Millisecond)
		expect("without reports", silent)
		stop()
		expect("when nothing is carried any more", "")
	})
}

const borrows = `
quotient_demand_age_seconds{limiter="api"} 0.3
quotient_demand_bytes_total{direction="received",limiter="api"} 6000
quotient_demand_bytes_total{direction="sent",limiter="api"} 2000
quotient_demand_fresh{limiter="api"} 1
quotient_demand_keys{limiter="api"} 1
quotient_demand_lent_keys{limiter="api"} 1
quotient_demand_named_keys{limiter="api"} 1
quotient_fleet_admitted{limiter="api"} %d
quotient_fleet_in_flight{limiter="api"} 9
quotient_fleet_refused{limiter="api"} %d
quotient_fleet_replicas{limiter="api"} 4
quotient_fleet_waiting{limiter="api"} 5
`

const silent = `
quotient_demand_bytes_total{direction="received",limiter="api"} 6300
quotient_demand_bytes_total{direction="sent",limiter="api"} 2100
quotient_demand_fresh{limiter="api"} 0
quotient_demand_keys{limiter="api"} 1
quotient_demand_lent_keys{limiter="api"} 0
quotient_demand_named_keys{limiter="api"} 1
quotient_fleet_replicas{limiter="api"} 4
`
