package httplimit

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
)

// number is what a query says, for tests in which a client chooses.
func number(name string) func(*http.Request) int {
	return func(r *http.Request) int { n, _ := strconv.Atoi(r.URL.Query().Get(name)); return n }
}

// priced is a limit of requests, of two other units and of slots.
var priced = quotient.Limit{InFlight: 8, Rates: []quotient.Rate{
	{Name: "minute", Events: 20, Per: time.Minute, Burst: 20},
	{Name: "minute", Unit: "tokens", Events: 100, Per: time.Minute, Burst: 100},
	{Name: "hour", Unit: "bytes", Events: 1000, Per: time.Hour, Burst: 1000},
}}

// left is what is left of each rule of a key.
func left(l *quotient.Limiter, key string) (out [4]float64) {
	for i, r := range l.AppendState(nil, key) {
		out[i] = r.Left
	}
	return out
}

func TestWeightsAndCosts(t *testing.T) {
	all := [4]float64{20, 100, 1000, 8}
	for _, tt := range []struct {
		query    string
		status   int
		during   [4]float64 // what the handler sees is left
		violated string
	}{
		{"", 204, [4]float64{19, 100, 1000, 7}, ""},
		{"weight=5&tokens=60&bytes=7", 204, [4]float64{15, 40, 993, 3}, ""},
		{"weight=8&tokens=100&bytes=1000", 204, [4]float64{12, 0, 0, 0}, ""},
		{"weight=-3&tokens=-60", 204, [4]float64{19, 100, 1000, 7}, ""},
		{"weight=9", 413, all, "in-flight"},
		{"tokens=101", 413, all, "minute"},
		{"weight=9000000000000000000", 413, all, "in-flight"},
		{"bytes=9000000000000000000", 413, all, "hour"},
	} {
		for _, wait := range [][]Option{nil, {Wait(Forever)}} {
			for _, unread := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					l, during := limiter(t, priced), all
					h := Middleware(l, Path(),
						append(wait, WeightBy(number("weight")), CostBy("tokens", number("tokens")),
							CostBy("bytes", func(*http.Request) int { return 5 }),
							CostBy("bytes", number("bytes")))...)(
						http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							during = left(l, "/")
							ok(w, r)
						}))
					r := get(t, "/?"+tt.query)
					if unread {
						r.Method, r.Body, r.ContentLength = "POST", newBody("text"), -1
					}
					w := ask(h, r)
					if w.Code != tt.status || during != tt.during {
						t.Errorf("%s: status %d and %v left, want %d and %v", tt.query, w.Code, during,
							tt.status, tt.during)
					}
					if tt.violated != "" {
						checkRefusal(t, w, 413, "", []string{tt.violated})
					}
					if after := left(l, "/"); after[3] != 8 {
						t.Errorf("%v slots are left", after[3])
					}
					idle(t, l)
				})
			}
		}
	}
}

// The fields say which unit refuses, of two rules that share a name too.
func TestFieldsOfCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, priced)
		h := Middleware(l, Path(), SendFields(FieldsDraft11), CostBy("tokens", number("tokens")))(ok)
		const policies = `RateLimit-Policy: "minute";q=20;w=60, "minute/tokens";q=100;w=60;qu="tokens", "hour";q=1000;w=3600;qu="bytes", ` +
			`"in-flight";q=8;qu="concurrent-requests"` + "\nRateLimit: "
		for _, tt := range []struct {
			tokens string
			status int
			want   string
		}{
			{"70", 204, `"minute";r=19;t=3, "minute/tokens";r=30;t=42, "hour";r=1000;t=0, "in-flight";r=7`},
			{"40", 429, `"minute";r=19;t=3, "minute/tokens";r=0;t=6, "hour";r=1000;t=0, "in-flight";r=8`},
			{"101", 413, `"minute";r=19;t=3, "minute/tokens";r=30;t=42, "hour";r=1000;t=0, "in-flight";r=8`},
		} {
			w := ask(h, get(t, "/?tokens="+tt.tokens))
			if got := fieldsOf(w.Header()); w.Code != tt.status || got != policies+tt.want {
				t.Errorf("%s tokens: status %d,\n%s\nwant %d,\n%s", tt.tokens, w.Code, got, tt.status,
					policies+tt.want)
			}
		}
	})
}

// A handler that knows the real cost of a request corrects the permit, also through wrapped writers.
func TestPermitFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, upgrade := range map[string]string{"plain": "", "upgrade": "x"} {
			l := limiter(t, priced)
			h := Middleware(l, Path(), CostBy("tokens",
				number("tokens")))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				p, ok := PermitFrom(r.Context())
				if !ok {
					t.Error("no permit")
				}
				if err := p.Correct("tokens", 15); err != nil {
					t.Error(err)
				}
			}))
			r := get(t, "/?tokens=60")
			if upgrade != "" {
				r.Header.Set("Upgrade", upgrade)
			}
			ask(h, r)
			if got := left(l, "/"); got[1] != 85 {
				t.Errorf("%s: %v tokens are left, want 85", name, got[1])
			}
			idle(t, l)
		}
		h := Middleware(limiter(t, priced),
			Path())(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if _, ok := PermitFrom(r.Context()); ok {
				t.Error("a permit without CostBy")
			}
		}))
		ask(h, get(t, "/"))
		if _, ok := PermitFrom(context.Background()); ok {
			t.Error("a permit without a request")
		}
	})
}

// A unit that nothing counts is a mistake of the program, and said at start.
func TestOptionsPanicForWhatCannotBeMeant(t *testing.T) {
	one := func(*http.Request) int { return 1 }
	var none context.Context
	l := limiter(t, priced)
	for want, f := range map[string]func(){
		"OnRefuse": func() { OnRefuse(nil) }, "PlanBy": func() { PlanBy(nil) },
		"WeightBy": func() { WeightBy(nil) }, "Drain": func() { Drain(none) },
		`CostBy("tokens")`: func() { CostBy("tokens", nil) }, "the unit is empty": func() { CostBy("", one) },
		`CostBy("rows")`: func() { Middleware(l, Path(), CostBy("rows", one)) },
	} {
		func() {
			defer func() {
				if said, _ := recover().(string); !strings.Contains(said, want) {
					t.Errorf("panic %q, want one that says %q", said, want)
				}
			}()
			f()
		}()
	}
	later := quotient.Rates(quotient.Rate{Unit: "rows", Events: 1, Per: time.Second})
	if err := l.Override("k", &later); err != nil {
		t.Fatal(err)
	}
	Middleware(l, Path(), CostBy("rows", one))
}

func TestWeightsDoNotAllocate(t *testing.T) {
	limit := quotient.Limit{
		Rates: append([]quotient.Rate{{Unit: "tokens", Events: 1e12, Per: 1e9, Burst: 1 << 30}},
			plenty.Rates...), InFlight: 1 << 20}
	two := func(*http.Request) int { return 2 }
	h := Middleware(limiter(t, limit), Path(), WeightBy(two))(nothing)
	priced := Middleware(limiter(t, limit), Path(), WeightBy(two), CostBy("tokens", two))(nothing)
	r := get(t, "/")
	if n := testing.AllocsPerRun(1000, func() { h.ServeHTTP(noWriter{}, r) }); n != 0 {
		t.Errorf("%v allocations a request, want 0", n)
	}
	// the permit, its context, the request
	if n := testing.AllocsPerRun(1000, func() { priced.ServeHTTP(noWriter{}, r) }); n > 3 {
		t.Errorf("%v allocations a request with a cost, want at most 3", n)
	}
}
