package admin

import (
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
)

// TestTagsAreNotReused: a limiter that takes the name and the memory of one that was removed has other tags,
// and the removed ones are forgotten.
func TestTagsAreNotReused(t *testing.T) {
	var reg quotient.Registry
	h, err := New(&reg)
	must(t, err)
	const rounds = 50
	tags := make(map[string]int)
	places := make(map[string]bool)
	for i := range rounds {
		l := newLimiter(t)
		must(t, reg.Add("api", l))
		tag := decode[State](t, get("/state").send(t, h)).Limiters["api"].ETag
		if first, again := tags[tag]; again {
			rec := putting("/dry-run", `{"dry_run":true}`).with("If-Match", tag).send(t, h)
			t.Fatalf("limiter %d has the tag %s of limiter %d: %d", i, tag, first, rec.Code)
		}
		tags[tag] = i
		places[fmt.Sprintf("%p", l)] = true
		reg.Remove("api")
		runtime.GC()
	}
	tested.Not(t, len(places) == rounds, "no limiter was ever made where another one had been: nothing was tested")
	if n := len(h.api.seen.of); n > rounds/2 {
		t.Errorf("%d of %d limiters are remembered", n, rounds)
	}
}

// TestStatesDoNotCostAllOverrides: as long as nothing is changed, a state costs what it shows and not what
// there is; a change shows at once.
func TestStatesDoNotCostAllOverrides(t *testing.T) {
	l := newLimiter(t, quotient.MaxKeys(100_000))
	limit := quotient.Rates(quotient.PerSecond(5))
	for i := range 20_000 {
		must(t, l.Override(fmt.Sprintf("customer-%05d", i), &limit, 0))
	}
	h := quiet(t, l).(*Handler)
	limiters := map[string]*quotient.Limiter{"api": l}
	allocs := leastAllocs(func() { h.api.newState(limiters) })
	tested.Not(t, allocs > 500, "%v allocations with 20,000 overrides", allocs)
	allocs = leastAllocs(func() { override{key: "customer-00007"}.show(l) })
	tested.Not(t, allocs > 500, "the old value of one override, for the log: %v allocations", allocs)
	limit.Rates[0].Events = 6
	must(t, l.Override("a", &limit, 0))
	s := h.api.newState(limiters).Limiters["api"]
	if s.OverrideCount != 20_001 || len(s.Overrides) != mostOverrides || s.Overrides[0].Key != "a" ||
		s.Overrides[0].Limit.Rates[0].Events != 6 || s.Overrides[999].Key != "customer-00998" {
		t.Errorf("%d overrides, %d shown, the first %+v", s.OverrideCount, len(s.Overrides), s.Overrides[0])
	}
	must(t, l.Override("a", nil, 0))
	if s := h.api.newState(limiters).Limiters["api"]; s.OverrideCount != 20_000 ||
		s.Overrides[0].Key != "customer-00000" {
		t.Errorf("%d overrides, the first %+v", s.OverrideCount, s.Overrides[0])
	}
}

// leastAllocs returns how many allocations f needs, the least of ten counts: what else the process has running
// allocates beside it now and then.
func leastAllocs(f func()) float64 {
	least := math.Inf(1)
	for range 10 {
		least = min(least, testing.AllocsPerRun(1, f))
	}
	return least
}
