package httplimit

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
	"github.com/quotient-go/quotient/policy"
)

// A request takes of a tenant's rate and of a route's slots, or of neither, and the refusal is that of the
// limiter that refuses.
func TestAlso(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tenants, routes, hourly := limiter(t, minutely(3)), limiter(t, slots(1)),
			limiter(t, rates(quotient.Rate{Name: "hour", Events: 2, Per: time.Hour, Burst: 2}))
		mw := Middleware(tenants, query("tenant"), Also(routes, Path()), Also(hourly, query("user")))
		h := mw(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			inFlight(t, routes, 1)
			tested.Want(t, "what is left of the slots", leftOf(routes, "/"), 0)
			checkRefusal(t, ask(mw(ok), get(t, "/?tenant=c&user=x")), 429, "1", []string{"in-flight"})
			ok(w, r)
		}))
		for _, tt := range []struct{ target, retryAfter, rule string }{
			{"/?tenant=a&user=x", "", ""},
			{"/?tenant=a&user=x", "", ""},
			{"/?tenant=a&user=x", "1800", "hour"},
			{"/?tenant=a&user=y", "", ""}, // nothing was lost by the refusals
			{"/?tenant=a&user=z", "20", "minute"},
			{"/?tenant=b&user=z", "", ""},
		} {
			w := ask(h, get(t, tt.target))
			if tt.rule != "" {
				checkRefusal(t, w, 429, tt.retryAfter, []string{tt.rule})
			} else if w.Code != 204 {
				t.Errorf("%s: status %d, want 204", tt.target, w.Code)
			}
			idle(t, routes)
		}
		if a, x, y := leftOf(tenants, "a"), leftOf(hourly, "x"), leftOf(hourly, "y"); a != 0 || x != 0 || y != 1 {
			t.Errorf("%v, %v, %v are left, want 0, 0, 1", a, x, y)
		}
		// four within handlers, and one of the hour
		if s := tenants.Stats(); s.Admitted != 4 || s.Cancelled != 5 {
			t.Errorf("%d admitted, %d cancelled; want 4, 5", s.Admitted, s.Cancelled)
		}
	})
}

// The fields hold the rules of all limiters, and agree with the refusal of any, also of rules that share
// their name with another limiter's.
func TestFieldsOfSeveralLimiters(t *testing.T) {
	const policies = `"minute";q=9;w=60, "minute/calls";q=60;w=60;qu="calls", "hour";q=2;w=3600, ` +
		`"minute/";q=2;w=60, "in-flight";q=9;qu="concurrent-requests"`
	for _, set := range []FieldSet{FieldsDraft11, FieldsXRateLimit} {
		synctest.Test(t, func(t *testing.T) {
			calls := quotient.Rate{Name: "minute", Unit: "calls", Events: 60, Per: time.Minute, Burst: 60}
			first, second := limiter(t, minutely(9)),
				limiter(t, rates(calls, quotient.Rate{Name: "hour", Events: 2, Per: time.Hour, Burst: 2}))
			third, fourth := limiter(t, quotient.Limit{Rates: minutely(2).Rates, InFlight: 9}),
				limiter(t, minutely(4))
			h := Middleware(first, Constant("k"), SendFields(set), Also(second, query("a")),
				Also(third, query("b")), Also(fourth, Constant("k")))(ok)
			for _, tt := range []struct {
				user                          string
				status                        int
				minute, hour, other, slots, x string // of the first, the second and the third
			}{
				{"a=1&b=1", 204, "r=8;t=7", "r=1;t=1800", "r=1;t=30", "r=8", "2 1 1800"},
				{"a=1&b=2", 204, "r=7;t=14", "r=0;t=3600", "r=1;t=30", "r=8", "2 0 3600"},
				{"a=1&b=3", 429, "r=7;t=14", "r=0;t=1800", "r=2;t=0", "r=9", "2 0 1800"},
				{"a=2&b=1", 204, "r=6;t=20", "r=1;t=1800", "r=0;t=60", "r=8", "2 0 60"},
				{"a=3&b=1", 429, "r=6;t=20", "r=2;t=0", "r=0;t=30", "r=9", "2 0 30"},
				{"a=2&b=5", 204, "r=5;t=27", "r=0;t=3600", "r=1;t=30", "r=8", "2 0 3600"},
				// The fourth limiter's minute is one too many for the draft. So nothing is left of any rate
				// of requests.
				{"a=4&b=6", 429, "r=0;t=15", "r=0;t=15", "r=0;t=15", "r=9", "4 0 15"},
				{"a=5&b=7", 429, "r=0;t=7", "r=2;t=0", "r=2;t=0", "r=9", "9 0 7"}, // by the first
			} {
				if tt.user == "a=5&b=7" {
					first.TryAcquireUpTo("k", 9)
				}
				const current = `"minute";%s, "minute/calls";r=60;t=0, "hour";%s, "minute/";%s, "in-flight";%s`
				want := draft(policies, fmt.Sprintf(current, tt.minute, tt.hour, tt.other, tt.slots))
				if set == FieldsXRateLimit {
					want = xRate(tt.x)
				}
				says(t, ask(h, get(t, "/?"+tt.user)), tt.status, want)
			}
		})
	}
}

// Plans, weights, costs and classes are those of the Middleware's own limiter.
func TestAlsoBesideOtherOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := rates(minutely(5).Rates[0], quotient.Rate{Unit: "rows", Events: 100, Per: time.Minute, Burst: 100})
		own := limiter(t, minutely(2), quotient.Plans(map[string]quotient.Limit{"paid": limit}))
		others := limiter(t, minutely(9))
		high := PriorityBy(func(*http.Request) quotient.Priority { return quotient.PriorityHigh })
		h := Middleware(own, Constant("k"), Also(others, Constant("o")), PlanBy(query("plan")), high,
			WeightBy(number("weight")), CostBy("rows", number("rows")))(http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				if p, told := PermitFrom(r.Context()); !told || p.Correct("rows", 1) != nil {
					t.Error("no permit")
				}
				ok(w, r)
			}))
		for _, tt := range []struct {
			query  string
			status int
		}{
			{"plan=paid&weight=4&rows=60", 204}, {"plan=paid&weight=2", 429}, {"plan=paid&rows=100", 429},
			{"plan=paid", 204}, {"plan=gold", 204}, {"", 204}, {"", 429},
		} {
			if tt.query == "plan=gold" {
				time.Sleep(time.Hour)
			}
			tested.Want(t, fmt.Sprintf("%s: status", tt.query), ask(h, get(t, "/?"+tt.query)).Code, tt.status)
		}
		tested.Want(t, "what is left", leftOf(others, "o"), 7)
		idle(t, own)
		idle(t, others)
	})
}

// Feedback goes to the policies of all limiters, whichever of them learns.
func TestAlsoLearns(t *testing.T) {
	busy := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusTooManyRequests)
	}
	front, heard := learning(t)
	behind, heardToo := learning(t)
	quiet := limiter(t, slots(1))
	ask(handle(front, busy, Also(quiet, Path()), Also(behind, Path())), get(t, "/"))
	ask(handle(quiet, busy, Also(front, Path()), Also(behind, Path())), get(t, "/"))
	want := gives(policy.Throttled, 7*time.Second)
	heard.learned(t, want, want)
	heardToo.learned(t, want, want)
	for _, l := range []*quotient.Limiter{quiet, front, behind} {
		idle(t, l)
	}
}

// A connection that was taken over holds the permits of all limiters, until it is closed or its time is over.
func TestAlsoHoldsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, other := limiter(t, slots(2)), limiter(t, slots(2))
		conns, closes := make(chan net.Conn, 3), false
		n := serve(t, handle(own, func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
			if conns <- conn; closes {
				_ = conn.Close()
			}
		}, Also(other, Path()), StreamLifetime(time.Minute)))
		taken := func(slots int) net.Conn {
			c := n.send(t, upgradeHead)
			tested.Want(t, "status", answer(t, c).StatusCode, 101)
			synctest.Wait()
			inFlight(t, own, slots)
			inFlight(t, other, slots)
			return <-conns
		}
		conn := taken(1)
		_ = conn.Close()
		_ = conn.Close()
		closes = true
		taken(0) // it is closed before its handler returns
		closes = false
		conn = taken(1)
		time.Sleep(time.Minute)
		inFlight(t, own, 0)
		inFlight(t, other, 0)
		_ = conn.Close()
	})
}

// Many requests at a time leave nothing behind, whichever limiter refuses them.
func TestAlsoFromManyGoroutines(t *testing.T) {
	own, other := limiter(t, slots(5)), limiter(t, slots(4))
	h := Middleware(own, query("a"), Also(other, query("b")), SendFields(FieldsDraft11))(ok)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 500 {
				r := get(t, fmt.Sprintf("/?a=%d&b=%d", rand.N(3), rand.N(3)))
				if rand.N(4) == 0 {
					r.Header.Set("Upgrade", "x")
				}
				if code := ask(h, r).Code; code != 204 && code != 429 {
					t.Errorf("status %d", code)
				}
			}
		})
	}
	all.Wait()
	idle(t, own)
	idle(t, other)
	a, b := own.Stats(), other.Stats()
	if a.Admitted != b.Admitted || a.Cancelled != b.Refused[quotient.ReasonInFlight] {
		t.Errorf("%+v\n%+v", a, b)
	}
}

// A late report about the answer of a closed connection concerns no request that came since.
func TestAlsoKeepsPermitsApart(t *testing.T) {
	own, heard := learning(t)
	other, heardToo := learning(t)
	began, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var h http.Handler
	h = handle(own, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			close(began)
			<-end
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = c.Close()
		go func() { ask(h, get(t, "/")); close(ended) }()
		receive(t, began, "second request")
	}, Also(other, Path()))
	here, there := net.Pipe()
	defer func() { _ = there.Close() }()
	h.ServeHTTP(&full{ResponseRecorder: httptest.NewRecorder(), conn: here}, upgrade(t))
	close(end)
	receive(t, ended, "end")
	heard.learned(t, gives(policy.Unavailable, 0))
	heardToo.learned(t, gives(policy.Unavailable, 0))
	idle(t, own)
	idle(t, other)
}
