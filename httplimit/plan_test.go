package httplimit

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
)

// minutely is a limit of so many requests a minute.
func minutely(n float64) quotient.Limit {
	return rates(quotient.Rate{Name: "minute", Events: n, Per: time.Minute, Burst: int(n)})
}

// planned returns a limiter with two plans beside its own limit.
func planned(t testing.TB) *quotient.Limiter {
	return limiter(t, minutely(2),
		quotient.Plans(map[string]quotient.Limit{"free": minutely(3), "paid": minutely(5)}))
}

// query is what a request says of itself, for tests in which a client chooses.
func query(name string) func(*http.Request) string {
	return func(r *http.Request) string { return r.URL.Query().Get(name) }
}

// A request comes under the limit of its plan, with and without fields, at once and waiting, with and without
// a body. One of an unknown plan comes under the limiter's own limit, and is counted.
func TestPlanBy(t *testing.T) {
	for _, tt := range []struct {
		plan, fields string
		served       int
		unknown      bool
	}{
		{"", `RateLimit-Policy: "minute";q=2;w=60` + "\n" + `RateLimit: "minute";r=1;t=30`, 2, false},
		{"free", `RateLimit-Policy: "minute";q=3;w=60` + "\n" + `RateLimit: "minute";r=2;t=20`, 3, false},
		{"paid", `RateLimit-Policy: "minute";q=5;w=60` + "\n" + `RateLimit: "minute";r=4;t=12`, 5, false},
		{"gold", `RateLimit-Policy: "minute";q=2;w=60` + "\n" + `RateLimit: "minute";r=1;t=30`, 2, true},
	} {
		for _, fields := range []bool{false, true} {
			for _, wait := range []bool{false, true} {
				for _, unread := range []bool{false, true} {
					opts := []Option{PlanBy(func(*http.Request) string { return "none" }),
						PlanBy(query("plan"))}
					if fields {
						opts = append(opts, SendFields(FieldsDraft11))
					}
					if wait {
						opts = append(opts, Wait(time.Second)) // in which none has its turn
					}
					synctest.Test(t, func(t *testing.T) {
						checkPlan(t, opts, tt.plan, unread, tt.served, tt.unknown,
							map[bool]string{true: tt.fields}[fields])
					})
				}
			}
		}
	}
}

func checkPlan(t *testing.T, opts []Option, plan string, unread bool, served int, unknown bool,
	fields string) {
	l := planned(t)
	h := Middleware(l, Path(), opts...)(ok)
	for i := range served + 2 {
		r := get(t, "/?plan="+plan)
		if unread {
			r.Method, r.Body, r.ContentLength = "POST", newBody("text"), -1
		}
		w := ask(h, r)
		if w.Code == 204 != (i < served) || w.Code != 204 && w.Code != 429 {
			t.Errorf("%q: status %d for request %d, want %d to be served", plan, w.Code, i+1, served)
		}
		if got := fieldsOf(w.Header()); i == 0 && got != fields {
			t.Errorf("%q: fields\n%s\nwant\n%s", plan, got, fields)
		}
		if body := w.Body.String(); w.Code == 429 &&
			!strings.Contains(body, `"violated-policies":["minute"]`) {
			t.Errorf("%q: %s", plan, body)
		}
	}
	if asks := l.Stats().Refused[quotient.ReasonBadRequest]; unknown != (asks >= uint64(served)) {
		t.Errorf("%q: %d asks of no known plan", plan, asks)
	}
	idle(t, l)
}

// A plan that changes counts at once, one that is taken off is the limiter's own limit, and a limit of the
// key's own goes before any.
func TestPlansThatChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := planned(t)
		h := Middleware(l, Path(), PlanBy(query("plan")), SendFields(FieldsDraft11))(ok)
		says := func(target string, status int, fields string) {
			t.Helper()
			w := ask(h, get(t, target))
			got := w.Header().Get("RateLimit-Policy") + " " + w.Header().Get("RateLimit")
			if w.Code != status || got != fields {
				t.Errorf("%s: %d %s, want %d %s", target, w.Code, got, status, fields)
			}
		}
		set := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		says("/a?plan=paid", 204, `"minute";q=5;w=60 "minute";r=4;t=12`)
		says("/a?plan=free", 204, `"minute";q=3;w=60 "minute";r=2;t=20`) // what it has used counts in paid
		says("/a?plan=paid", 204, `"minute";q=5;w=60 "minute";r=2;t=36`)
		more, own := minutely(10), minutely(30)
		set(l.SetPlan("paid", &more))
		time.Sleep(time.Hour)
		says("/b?plan=paid", 204, `"minute";q=10;w=60 "minute";r=9;t=6`)
		set(l.SetPlan("paid", nil))
		time.Sleep(time.Hour)
		says("/c?plan=paid", 204, `"minute";q=2;w=60 "minute";r=1;t=30`)
		set(l.Override("/d", &own))
		time.Sleep(time.Hour)
		says("/d?plan=free", 204, `"minute";q=30;w=60 "minute";r=29;t=2`)
		says("/d?plan=gold", 204, `"minute";q=30;w=60 "minute";r=28;t=4`)
	})
}

func TestPlansDoNotAllocate(t *testing.T) {
	l := limiter(t, plenty, quotient.Plans(map[string]quotient.Limit{"paid": plenty}))
	for _, plan := range []string{"", "paid"} {
		h := Middleware(l, Path(), PlanBy(func(*http.Request) string { return plan }))(nothing)
		r := get(t, "/items/42")
		if n := testing.AllocsPerRun(1000, func() { h.ServeHTTP(noWriter{}, r) }); n != 0 {
			t.Errorf("%q: %v allocations a request, want 0", plan, n)
		}
	}
	idle(t, l)
}
