package admin

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
)

// slots are limits of so many slots, by plan.
func slots(plans map[string]int) quotient.Option {
	limits := make(map[string]quotient.Limit)
	for name, n := range plans {
		limits[name] = quotient.Limit{InFlight: n}
	}
	return quotient.Plans(limits)
}

// plansOf are the slots of a limiter's plans.
func plansOf(s LimiterState) string {
	var all []string
	for _, p := range s.Plans {
		all = append(all, fmt.Sprint(p.Name, " ", p.Limit.InFlight))
	}
	return strings.Join(all, ", ")
}

// TestPlan: a client that has seen a plan as it is sets, changes and takes it off, and the state lists those
// that there are.
func TestPlan(t *testing.T) {
	api := newLimiter(t, slots(map[string]int{"free": 2}), quotient.Replicas(2))
	c := speaking(t, quiet(t, api))
	seen, err := c.Limiter(t.Context(), "api")
	if err != nil || plansOf(seen) != "free 2" || len(seen.Plans[0].Rules) != 1 ||
		seen.Plans[0].Rules[0].Share != 1 {
		t.Fatalf("%+v, %v", seen, err)
	}
	deny := quotient.Limit{Deny: true}
	for _, step := range []struct {
		name  string
		limit *quotient.Limit
		want  string
	}{
		{"paid", &quotient.Limit{InFlight: 5}, "free 2, paid 5"},
		{"free", &quotient.Limit{InFlight: 3}, "free 3, paid 5"},
		{"paid", nil, "free 3"}, {"free", &deny, "free 0"}, {"free", nil, ""},
	} {
		now, err := c.SetPlan(t.Context(), "api", step.name, step.limit, IfMatch(seen.ETag))
		if err != nil || plansOf(now) != step.want || now.Version != seen.Version+1 || now.ETag == seen.ETag {
			t.Fatalf("%s %v: %s of version %d, %v", step.name, step.limit, plansOf(now), now.Version, err)
		}
		if len(now.Plans) > 0 && now.Plans[0].Limit.Denies != (step.limit == &deny) {
			t.Errorf("%+v", now.Plans[0])
		}
		_, err = c.SetPlan(t.Context(), "api", "late", &deny, IfMatch(seen.ETag))
		tested.Is(t, "by what was seen before", err, ErrConflict)
		seen = now
	}
	if now, err := c.SetPlan(t.Context(), "", "none", nil); err != nil || now.Version != seen.Version {
		t.Errorf("a plan that there is none of, taken off: %+v, %v", now, err)
	}
}

// TestPlanOfAKey: the hottest keys say which plan they are in, and a key is explained in any.
func TestPlanOfAKey(t *testing.T) {
	api := newLimiter(t, slots(map[string]int{"free": 2, "paid": 9}))
	c := speaking(t, quiet(t, api))
	api.TryAcquire("K", quotient.Plan("paid"))
	api.TryAcquire("other")
	api.TryAcquire("own", quotient.Plan("paid"))
	if _, err := c.Override(t.Context(), "api", "own", &quotient.Limit{InFlight: 7}, 0); err != nil {
		t.Fatal(err)
	}
	api.TryAcquire("other", quotient.Weight(1<<30))
	api.TryAcquire("K", quotient.Weight(10), quotient.Plan("paid"))
	api.TryAcquire("K", quotient.Weight(10), quotient.Plan("paid"))
	hot, err := c.Keys(t.Context(), "", 10, ByRefused())
	if err != nil || len(hot.Keys) != 3 || hot.Keys[0].Key != "K" || hot.Keys[0].RefusedLastMinute != 2 {
		t.Fatalf("%+v, %v", hot, err)
	}
	if e, err := c.Explain(t.Context(), "", "K"); err != nil || e.RefusedLastMinute != 2 || e.AdmittedLastMinute != 0 ||
		!strings.Contains(e.Text, "2 were refused in the last minute") {
		t.Errorf("%+v, %v", e, err)
	}
	s, err := c.Limiter(t.Context(), "api")
	if err != nil || s.OwnAdmitted+s.OwnRefused != 2 || s.Plans[1].Admitted != 2 || s.Plans[1].RefusedCalls != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	for _, use := range hot.Keys {
		tested.Want(t, fmt.Sprintf("the plan of %s", use.Key), use.Plan, map[string]string{"K": "paid"}[use.Key])
	}
	for _, tt := range []struct {
		key   string
		opts  []ExplainOption
		plan  string
		slots int
	}{
		{"K", nil, "paid", 9}, {"K", []ExplainOption{InPlan("free")}, "free", 2},
		{"K", []ExplainOption{InPlan("")}, "", 0}, {"other", nil, "", 0},
		{"never seen", []ExplainOption{InPlan("free")}, "free", 2},
		{"own", []ExplainOption{InPlan("free")}, "", 7},
		{"\x80", []ExplainOption{InPlan("paid")}, "paid", 9},
	} {
		e, err := c.Explain(t.Context(), "", tt.key, tt.opts...)
		if err != nil || e.Plan != tt.plan || e.Limit.InFlight != tt.slots || e.Key != tt.key {
			t.Errorf("%q: %+v, want plan %q of %d slots, %v", tt.key, e, tt.plan, tt.slots, err)
		}
		if said := strings.Contains(e.Text, "(plan "+tt.plan+")"); said != (tt.plan != "") {
			t.Errorf("%q in %q: %s", tt.key, tt.plan, e.Text)
		}
	}
	var bad *Problem
	_, err = c.Explain(t.Context(), "", "K", InPlan("gold"))
	if !errors.As(err, &bad) || bad.Status != 400 || bad.Field != "plan" || bad.Value != "gold" ||
		!strings.HasSuffix(bad.Range, ", free, paid") {
		t.Errorf("a plan that there is none of: %+v", err)
	}
	tested.Want(t, "keys after they were explained", len(slices.Collect(api.Keys())), 3)
}

// TestPlanNames: what the handler takes for a name, and nothing else, a limiter takes too.
func TestPlanNames(t *testing.T) {
	names := []string{
		"", "paid", "Paid", "0.a_b-c", " a", "a ", "a\n", "ä", "a/b", strings.Repeat("p", 64),
		strings.Repeat("p", 65), "\x80",
	}
	for c := range byte(128) {
		names = append(names, string(c))
	}
	api := newLimiter(t)
	for _, name := range names {
		tested.Want(t, fmt.Sprintf("%q: a plan's name", name), api.SetPlan(name, nil) == nil, planName.MatchString(name))
	}
}
