package contenders

import (
	"testing"
	"time"

	"github.com/quotient-go/quotient/bench/arena/sim"
	"github.com/quotient-go/quotient/policy"
)

// One client of an API as GitHub's: 5000 an hour, and 20 a second, of which only the hour's quota is
// reported. It always has more to ask, for 65 minutes, so that the quota is renewed once.
func TestSpend(t *testing.T) {
	const limit = 20.0
	s := sim.Scenario{Name: "hour", Limit: limit, Replicas: 1, Length: 65 * time.Minute}
	s.Most = func(int) float64 { return 1.5 * limit }
	s.Demand = func(int, time.Duration) float64 { return 1.5 * limit }
	type bounds struct{ least, most int }
	for _, c := range []struct {
		name                       string
		spend                      policy.Spend
		begins, hour, ends         bounds // served in the first 5 minutes, in 59 minutes, in the last 3
		refusals, refusalsInMinute bounds
	}{
		{"fast", policy.SpendFast, bounds{4500, 5000}, bounds{5000, 5000}, bounds{2400, 3700}, bounds{0, 150},
			bounds{0, 40}},
		{"evenly", policy.SpendEvenly, bounds{350, 650}, bounds{4750, 5000}, bounds{200, 300}, bounds{0, 10},
			bounds{0, 10}},
	} {
		for seed := range uint64(5) {
			ctrl := the(policy.Tracking{Spend: c.spend})
			r := sim.Play(s, sim.GitHub, sim.AllFields, sim.Contender{Policy: ctrl}, seed, 0)
			worst := 0
			for from := range 64 {
				worst = max(worst, count(r.Refusals, time.Duration(from)*time.Minute,
					time.Duration(from+1)*time.Minute))
			}
			for _, x := range []struct {
				what string
				got  int
				want bounds
			}{
				{"served in 5 minutes", count(r.Served, 0, 5*time.Minute), c.begins},
				{"served in 59 minutes", count(r.Served, 0, 59*time.Minute), c.hour},
				{"served in the last 3", count(r.Served, 62*time.Minute, s.Length), c.ends},
				{"refused", count(r.Refusals, 0, s.Length), c.refusals},
				{"refused in the worst minute", worst, c.refusalsInMinute},
			} {
				t.Logf("%s, seed %d: %d %s", c.name, seed, x.got, x.what)
				if x.got < x.want.least || x.got > x.want.most {
					t.Errorf("%s, seed %d: %d %s, want %d to %d", c.name, seed, x.got, x.what, x.want.least,
						x.want.most)
				}
			}
		}
	}
}

// count is a sum over seconds from one instant to another.
func count(bySecond []int, from, to time.Duration) (n int) {
	for _, x := range bySecond[from/time.Second : to/time.Second] {
		n += x
	}
	return n
}
