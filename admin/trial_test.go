package admin

import (
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
)

func inUnit(unit string) quotient.Limit {
	return quotient.Rates(quotient.Rate{Unit: unit, Events: 5, Per: 1e9})
}

// trialStates make limiters that refuse some changes.
var trialStates = map[string]func(t *testing.T) *quotient.Limiter{
	"fresh": func(t *testing.T) *quotient.Limiter { return newLimiter(t) },
	"three units": func(t *testing.T) *quotient.Limiter {
		l := newLimiter(t)
		must(t, l.SetPlan("units", &quotient.Limit{Rates: slices.Concat(inUnit("a").Rates, inUnit("b").Rates,
			inUnit("c").Rates)}))
		return l
	},
	"64 plans": func(t *testing.T) *quotient.Limiter {
		l := newLimiter(t)
		for i := range 64 {
			must(t, l.SetPlan(fmt.Sprint("plan-", i), &quotient.Limit{Deny: true}))
		}
		return l
	},
	"all overrides": func(t *testing.T) *quotient.Limiter {
		l := newLimiter(t, quotient.MaxKeys(2))
		must(t, l.Override("k", &quotient.Limit{InFlight: 3}, 0))
		return l
	},
	"a shared gate": func(t *testing.T) *quotient.Limiter {
		l := newLimiter(t, quotient.MaxKeys(1))
		must(t, l.SetLimit(quotient.Limit{InFlight: 5}))
		hold(t, l, "busy")
		hold(t, l, "k")
		return l
	},
	"no room": func(t *testing.T) *quotient.Limiter {
		l := newLimiter(t, quotient.MaxKeys(2))
		for _, key := range []string{"a", "b", "c"} {
			must(t, l.Override(key, &quotient.Limit{InFlight: 3}, 0))
			hold(t, l, key)
			must(t, l.Override(key, nil, 0))
		}
		return l
	},
}

// hold keeps a key busy until the test ends.
func hold(t *testing.T, l *quotient.Limiter, key string) {
	t.Helper()
	p, d := l.TryAcquire(key)
	if !d.OK {
		t.Fatal(key, d)
	}
	t.Cleanup(p.Release)
}

const (
	oneUnit = `{"rates":[{"unit":"new","events":5,"per_seconds":1}]}`
	known   = `{"rates":[{"unit":"a","events":5,"per_seconds":1}],"in_flight":2}`
)

// trialRequests are changes, by path.
var trialRequests = map[string][]string{
	"/limit": {oneUnit, known, `{"deny":true}`, `{"rates":[{"events":-1,"per_seconds":1}]}`},
	"/plan": {
		`{"plan":"new","limit":` + oneUnit + `}`, `{"plan":"new","limit":` + known + `}`,
		`{"plan":"plan-1","limit":` + known + `}`,
		`{"plan":"plan-2","limit":` + oneUnit + `}`, `{"plan":"plan-2","limit":null}`,
		`{"plan":"new","limit":null}`, `{"plan":"?","limit":null}`,
	},
	"/override": {
		`{"key":"k","limit":` + oneUnit + `}`, `{"key":"k","limit":` + known + `}`,
		`{"key":"k","limit":{"deny":true}}`, `{"key":"k","limit":null}`,
		`{"key":"new","limit":` + known + `}`, `{"key":"new","limit":null}`, `{"key":"new"}`,
	},
	"/reset":   {`{"key":"k"}`, `{"key":"new"}`, `{}`},
	"/dry-run": {`{"dry_run":true}`, `{"dry_run":false}`, `{}`},
	"/replicas": {`{"replicas":4,"ordinal":2}`, `{"replicas":1}`, `{"replicas":0}`,
		`{"replicas":4,"ttl_seconds":9}`},
}

// wantRefused is how many of the changes each state refuses with 422.
var wantRefused = map[string]int{
	"fresh":         0,
	"three units":   4,
	"64 plans":      2,
	"all overrides": 1,
	"a shared gate": 4,
	"no room":       4,
}

// TestTrialIsTheChange: with validate=1 each PUT has the status and the problem that it has without, on a
// limiter in the same state, and changes nothing.
func TestTrialIsTheChange(t *testing.T) {
	for name, state := range trialStates {
		refused := 0
		for path, bodies := range trialRequests {
			for _, body := range bodies {
				for _, tag := range []string{"", "right", `"wrong"`} {
					t.Run(fmt.Sprint(name, path, body, tag), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							status := tryAndChange(t, state(t), path, body, tag)
							if status == http.StatusUnprocessableEntity && tag == "" {
								refused++
							}
						})
					})
				}
			}
		}
		tested.Want(t, name+": refused changes", refused, wantRefused[name])
	}
}

// tryAndChange validates a change and then makes it, and returns the status of both.
func tryAndChange(t *testing.T, l *quotient.Limiter, path, body, tag string) int {
	t.Helper()
	var logged strings.Builder
	h := mount(t, l, Logger(slog.New(slog.NewTextHandler(&logged, nil))))
	if tag == "right" {
		tag = get("/state").send(t, h).Header().Get("ETag")
	}
	send := func(path string) (int, Problem) {
		req := putting(path, body).headed(http.Header{})
		if tag != "" {
			req.header.Set("If-Match", tag)
		}
		rec := req.send(t, h)
		if rec.Code == http.StatusOK {
			return rec.Code, Problem{}
		}
		return rec.Code, decode[Problem](t, rec)
	}
	type sight struct {
		stats     quotient.Stats
		overrides map[string]quotient.KeyLimit
		k         quotient.Explanation
	}
	look := func() sight { return sight{l.Stats(), l.Overrides(), l.Explain("k")} }
	before := look()
	status, bad := send(path + "?validate=1")
	if after := look(); !reflect.DeepEqual(after, before) {
		t.Errorf("validation changes\n%+v to\n%+v", before, after)
	}
	if odd, _ := send(path + "?validate=yes"); odd != http.StatusBadRequest || logged.Len() > 0 {
		t.Errorf("validate=yes: %d; logged %s", odd, &logged)
	}
	if changed, problem := send(path); changed != status || problem != bad {
		t.Errorf("validated: %d %+v\nchanged: %d %+v", status, bad, changed, problem)
	}
	return status
}

// TestTrialLearnsNoUnit: a unit that was only tried does not count as one of the three.
func TestTrialLearnsNoUnit(t *testing.T) {
	l := newLimiter(t)
	h := quiet(t, l)
	for i := range 4 {
		limit := fmt.Sprintf(`{"rates":[{"unit":"unit-%d","events":5,"per_seconds":1}]}`, i)
		for path, body := range map[string]string{
			"/limit":    limit,
			"/plan":     `{"plan":"p","limit":` + limit + `}`,
			"/override": `{"key":"k","limit":` + limit + `}`,
		} {
			rec := putting(path+"?validate=1", body).send(t, h)
			tested.Want(t, fmt.Sprintf("%s %s: %s", path, body, rec.Body), rec.Code, http.StatusOK)
		}
	}
}
