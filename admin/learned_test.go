package admin

import (
	"testing"

	"github.com/quotient-go/quotient"
)

// A key of a policy that learns comes with its paces and how much of each is used; another key without.
func TestKeysHaveTheirPace(t *testing.T) {
	rate := quotient.RuleState{Name: "second", Limit: 10, Share: 5, Window: 1e9, Burst: 5, Left: 4}
	keys := newKeys("api", []quotient.KeyState{
		{Key: "plain", Rules: []quotient.RuleState{rate}},
		{Key: "learns", Rules: []quotient.RuleState{
			rate,
			{Name: "adaptive", Pace: 40, Share: 50, Limit: 100, Burst: 4, Left: 1},
			{Name: "adaptive", Unit: "in-flight", Pace: 2.5, Share: 3, Limit: 9, Burst: 3, Left: -1},
			{Name: "adaptive", Unit: "tokens", Pace: 0.5, Burst: 1, Left: 2},
		}},
	}).Keys
	if keys[0].Learned != nil || keys[0].Rate != 0 {
		t.Errorf("a key without a policy has learned %+v", keys[0])
	}
	if keys[1].Rate != 40 || len(keys[1].Learned) != 3 {
		t.Fatalf("%+v", keys[1])
	}
	for i, want := range []Learned{
		{Unit: "", Pace: 40, Used: 0.75, Share: 50, Ceiling: 100},
		{Unit: "in-flight", Pace: 2.5, Used: 1, Share: 3, Ceiling: 9},
		{Unit: "tokens", Pace: 0.5, Used: 0},
	} {
		if got := keys[1].Learned[i]; got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}
