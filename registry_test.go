package quotient

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestRegistry(t *testing.T) {
	var r Registry
	limit := rated(perSecond(10, 10))
	a, err := r.Limiter("api", limit)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := r.Limiter("api", rated(perSecond(10, 10)), MaxKeys(7)); err != nil || b != a {
		t.Errorf("the same rule is %p and %p: %v", a, b, err)
	}
	setLimit(t, a, rated(perSecond(20, 20)))
	if b, err := r.Limiter("api", limit); err != nil || b != a {
		t.Errorf("after SetLimit the same rule is %p and %p: %v", a, b, err)
	}
	_, err = r.Limiter("api", rated(perSecond(11, 10)))
	says(t, err, `"api"`, "another limit", "10 per 1s", "11 per 1s")
	_, err = r.Limiter("new", Limit{InFlight: -1})
	says(t, err, "InFlight")
	if err := r.Add("web.1_x-y", limiterOf(t, limit)); err != nil {
		t.Error(err)
	}
	says(t, r.Add("api", a), `"api"`, "taken")
	says(t, r.Add("nil", nil), `"nil"`, "nil")
	names := ""
	for name := range r.All() {
		names += name + " "
	}
	if names != "api web.1_x-y " {
		t.Error(names)
	}
	if l, ok := r.Get("api"); !ok || l != a {
		t.Error(l, ok)
	}
	r.Remove("api")
	r.Remove("api")
	if l, ok := r.Get("api"); ok || l != nil {
		t.Error(l, ok)
	}
	for range r.All() {
		break
	}
}

func TestRegistryNames(t *testing.T) {
	var r Registry
	for _, name := range []string{"", "API", "a b", "ü", strings.Repeat("a", 65), "a/b", "a\n", "a\"b"} {
		_, err := r.Limiter(name, Limit{})
		says(t, err, "name", "a-z")
	}
	for i := range maxLimiters {
		if _, err := r.Limiter(fmt.Sprint(i), Limit{}, few); err != nil {
			t.Fatal(err)
		}
	}
	_, err := r.Limiter("more", Limit{}, few)
	says(t, err, `"more"`, "1000")
}

// The same rule asked for in many places at once is one limiter.
func TestRegistryAtOnce(t *testing.T) {
	var r Registry
	var wg sync.WaitGroup
	seen := make([]*Limiter, 50)
	for i := range seen {
		wg.Go(func() {
			seen[i], _ = r.Limiter("one", rated(perSecond(10, 10)), few)
			for range r.All() {
			}
		})
	}
	wg.Wait()
	for _, l := range seen {
		if l != seen[0] || l == nil {
			t.Fatal("two limiters for one rule")
		}
	}
}

// On an error no limiter.
func TestRegistryReturnsNoLimiterWithAnError(t *testing.T) {
	var r Registry
	if l, err := r.Limiter("Bad Name", Limit{InFlight: 1}); err == nil || l != nil {
		t.Errorf("%v, %v", l != nil, err)
	}
}

// Ready names a limiter that waits for its pool, and is nil when none does.
func TestRegistryReady(t *testing.T) {
	var r Registry
	must(t, r.Ready())
	if _, err := r.Limiter("knows", rated(PerSecond(1))); err != nil {
		t.Fatal(err)
	}
	must(t, r.Ready())
	l, err := r.Limiter("waits", rated(PerSecond(1)), AwaitPool(), HintMaxAge(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Ready(); err == nil || !strings.Contains(err.Error(), `"waits"`) {
		t.Errorf("before the pool is known: %v", err)
	}
	must(t, l.SetPool(Pool{Replicas: 2}, 0))
	must(t, r.Ready())
	plans := Plans(map[string]Limit{"free": rated(PerSecond(1))})
	none := Plans(nil)
	for name, c := range map[string]struct {
		limit Limit
		plans Option
	}{
		"plans-alone":         {Limit{}, plans},
		"denies-the-others":   {Limit{Deny: true}, plans},
		"lets-some-keys-pass": {Limit{Deny: true}, none},
	} {
		l, err := r.Limiter(name, c.limit, c.plans, AwaitPool(), HintMaxAge(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Ready(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s, with a plan that waits: %v", name, err)
		}
		must(t, l.SetPool(Pool{Replicas: 2}, 0))
		must(t, r.Ready())
	}
	for name, l := range map[string]*Limiter{
		"without a rule": limiterOf(t, Limit{}, AwaitPool(), HintMaxAge(time.Hour)),
		"a dry run":      limiterOf(t, rated(PerSecond(1)), AwaitPool(), HintMaxAge(time.Hour)),
		"without slots":  limiterOf(t, Limit{InFlight: 2}, Replicas(3)),
	} {
		l.SetDryRun(name == "a dry run")
		must(t, r.Add(strings.ReplaceAll(name, " ", "-"), l))
		must(t, r.Ready())
	}
}
