package httplimit

import (
	"bufio"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/policy"
)

// slots is a limit of so many requests in flight.
func slots(n int) quotient.Limit { return quotient.Limit{InFlight: n} }

// leftOf is how much is left of the first rule of a key.
func leftOf(l *quotient.Limiter, key string) float64 { return l.AppendState(nil, key)[0].Left }

// A request takes of a tenant's rate and of a route's slots, or of neither, and the refusal is that of the
// limiter that refuses.
func TestAlso(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tenants, routes, hourly := limiter(t, minutely(3)), limiter(t, slots(1)),
			limiter(t, rates(quotient.Rate{Name: "hour", Events: 2, Per: time.Hour, Burst: 2}))
		mw := Middleware(tenants, query("tenant"), Also(routes, Path()), Also(hourly, query("user")))
		h := mw(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			inFlight(t, routes, 1)
			if leftOf(routes, "/") != 0 {
				t.Error("no slot is taken")
			}
			busy := ask(mw(ok), get(t, "/?tenant=c&user=x"))
			checkRefusal(t, busy, 429, "1", []string{"in-flight"})
			ok(w, r)
		}))
		for i, tt := range []struct {
			target     string
			status     int
			retryAfter string
			rule       string
		}{
			{"/?tenant=a&user=x", 204, "", ""},
			{"/?tenant=a&user=x", 204, "", ""},
			{"/?tenant=a&user=x", 429, "1800", "hour"},
			{"/?tenant=a&user=y", 204, "", ""}, // nothing was lost by the refusals
			{"/?tenant=a&user=z", 429, "20", "minute"},
			{"/?tenant=b&user=z", 204, "", ""},
		} {
			if tt.rule == "hour" {
				w := ask(mw(ok), get(t, tt.target))
				checkRefusal(t, w, tt.status, tt.retryAfter, []string{tt.rule})
				continue
			}
			w := ask(h, get(t, tt.target))
			if w.Code != tt.status {
				t.Errorf("request %d: status %d, want %d", i, w.Code, tt.status)
			}
			if tt.rule != "" {
				checkRefusal(t, w, tt.status, tt.retryAfter, []string{tt.rule})
			}
			idle(t, routes)
		}
		if a, x, y := leftOf(tenants, "a"), leftOf(hourly, "x"), leftOf(hourly, "y"); a != 0 ||
			x != 0 || y != 1 {
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
	type row struct {
		user     string
		status   int
		draft, x string
	}
	for _, set := range []FieldSet{FieldsDraft11, FieldsXRateLimit} {
		synctest.Test(t, func(t *testing.T) {
			calls := quotient.Rate{Name: "minute", Unit: "calls", Events: 60, Per: time.Minute, Burst: 60}
			first, second := limiter(t, minutely(9)),
				limiter(t, rates(calls, quotient.Rate{Name: "hour", Events: 2, Per: time.Hour, Burst: 2}))
			third, fourth := limiter(t, quotient.Limit{Rates: minutely(2).Rates, InFlight: 9}),
				limiter(t, minutely(4))
			h := Middleware(first, Constant("k"), SendFields(set), Also(second, query("a")),
				Also(third, query("b")), Also(fourth, Constant("k")))(ok)
			for _, tt := range []row{
				{"a=1&b=1", 204, `"minute";r=8;t=7, "minute/calls";r=60;t=0, "hour";r=1;t=1800, "minute/";r=1;t=30, "in-flight";r=8`, "2 1 1800"},
				{"a=1&b=2", 204, `"minute";r=7;t=14, "minute/calls";r=60;t=0, "hour";r=0;t=3600, "minute/";r=1;t=30, "in-flight";r=8`, "2 0 3600"},
				{"a=1&b=3", 429, `"minute";r=7;t=14, "minute/calls";r=60;t=0, "hour";r=0;t=1800, "minute/";r=2;t=0, "in-flight";r=9`, "2 0 1800"},
				{"a=2&b=1", 204, `"minute";r=6;t=20, "minute/calls";r=60;t=0, "hour";r=1;t=1800, "minute/";r=0;t=60, "in-flight";r=8`, "2 0 60"},
				{"a=3&b=1", 429, `"minute";r=6;t=20, "minute/calls";r=60;t=0, "hour";r=2;t=0, "minute/";r=0;t=30, "in-flight";r=9`, "2 0 30"},
				{"a=2&b=5", 204, `"minute";r=5;t=27, "minute/calls";r=60;t=0, "hour";r=0;t=3600, "minute/";r=1;t=30, "in-flight";r=8`, "2 0 3600"},
				// The fourth limiter's minute is one too many for the draft. So nothing is left of any rate
				// of requests.
				{"a=4&b=6", 429, `"minute";r=0;t=15, "minute/calls";r=60;t=0, "hour";r=0;t=15, "minute/";r=0;t=15, "in-flight";r=9`, "4 0 15"},
			} {
				w := ask(h, get(t, "/?"+tt.user))
				got, want := w.Header().Get("RateLimit"), tt.draft
				if set == FieldsXRateLimit {
					got = strings.Join([]string{w.Header().Get("X-RateLimit-Limit"),
						w.Header().Get("X-RateLimit-Remaining"), w.Header().Get("X-RateLimit-Reset")}, " ")
					want = tt.x
				}
				if w.Code != tt.status || got != want {
					t.Errorf("%s: status %d, %s\nwant %d, %s", tt.user, w.Code, got, tt.status, want)
				}
			}
			if got := ask(h, get(t, "/")).Header().Get("RateLimit-Policy"); set == FieldsDraft11 &&
				got != `"minute";q=9;w=60, "minute/calls";q=60;w=60;qu="calls", "hour";q=2;w=3600, "minute/";q=2;w=60, "in-flight";q=9;qu="concurrent-requests"` {
				t.Error(got)
			}
		})
	}
}

// Plans, weights, costs and classes are those of the Middleware's own limiter.
func TestAlsoBesideOtherOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := rates(quotient.Rate{Name: "minute", Events: 5, Per: time.Minute, Burst: 5},
			quotient.Rate{Unit: "rows", Events: 100, Per: time.Minute, Burst: 100})
		own := limiter(t, minutely(2), quotient.Plans(map[string]quotient.Limit{"paid": limit}))
		others := limiter(t, minutely(9))
		h := Middleware(own, Constant("k"), Also(others, Constant("o")), PlanBy(query("plan")),
			WeightBy(number("weight")),
			CostBy("rows", number("rows")),
			PriorityBy(func(*http.Request) quotient.Priority { return quotient.PriorityHigh }))(
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
			if w := ask(h, get(t, "/?"+tt.query)); w.Code != tt.status {
				t.Errorf("%s: status %d, want %d", tt.query, w.Code, tt.status)
			}
		}
		if left := leftOf(others, "o"); left != 7 {
			t.Errorf("%v are left, want 7: one was for each of the last two requests", left)
		}
		idle(t, own)
		idle(t, others)
	})
}

// Feedback goes to the policies of all limiters, whichever of them learns.
func TestAlsoLearns(t *testing.T) {
	for _, ownLearns := range []bool{false, true} {
		front, heard := learning(t)
		behind, heardToo := learning(t)
		own := limiter(t, slots(1))
		want := []policy.Feedback{{Outcome: policy.Throttled, RetryAfter: 7 * time.Second}}
		busy := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
		})
		if ownLearns {
			own = front
			ask(Middleware(front, Path(), Also(behind, Path()))(busy), get(t, "/"))
		} else {
			ask(Middleware(own, Path(), Also(front, Path()), Also(behind, Path()))(busy), get(t, "/"))
		}
		heard.learned(t, want...)
		heardToo.learned(t, want...)
		for _, l := range []*quotient.Limiter{own, front, behind} {
			idle(t, l)
		}
	}
}

// Whatever panics, nothing stays taken, and nothing is given back twice.
func TestAlsoWhenSomethingPanics(t *testing.T) {
	boom := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") })
	bad := func(*http.Request) string { panic("boom") }
	touched := func() *quotient.Limiter { return limiter(t, slots(3), quotient.Policy(touchy{})) }
	hooked := func() *quotient.Limiter {
		return limiter(t, slots(3),
			quotient.OnAdmit(func(string, time.Duration, time.Duration) { panic("boom") }))
	}
	quiet := func() *quotient.Limiter { return limiter(t, slots(3)) }
	for name, tt := range map[string]struct {
		own, other func() *quotient.Limiter
		key        KeyFunc
		handler    http.Handler
		want       any
	}{
		"handler": {quiet, quiet, Path(), boom, "boom"}, "key": {quiet, quiet, bad, ok, "boom"},
		"own controller":   {touched, quiet, Path(), ok, "touchy"},
		"other controller": {quiet, touched, Path(), ok, "touchy"},
		"own hook":         {hooked, quiet, Path(), ok, "boom"},
		"other hook":       {quiet, hooked, Path(), ok, "boom"},
	} {
		t.Run(name, func(t *testing.T) {
			own, other := tt.own(), tt.other()
			h := Middleware(own, Path(), Also(other, tt.key))(tt.handler)
			for range 9 { // more than there are slots
				if got := panicOf(func() { ask(h, get(t, "/")) }); got != tt.want {
					t.Fatalf("panic with %v, want %v", got, tt.want)
				}
			}
			idle(t, own)
			idle(t, other)
		})
	}
}

// A connection that was taken over holds the permits of all limiters, until it is closed or its time is over.
// Feedback behind its end reaches no other request's permits.
func TestAlsoHoldsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, other := limiter(t, slots(2)), limiter(t, slots(2))
		conns := make(chan net.Conn, 3)
		closes := false
		n := serve(t, Middleware(own, Path(), Also(other, Path()),
			StreamLifetime(time.Minute))(http.HandlerFunc(
			func(w http.ResponseWriter, _ *http.Request) {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				if _, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n"); err != nil {
					t.Error(err)
				}
				if conns <- conn; closes {
					_ = conn.Close()
				}
			})))
		upgrade := func() net.Conn {
			c := n.send(t, "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
			if code := answer(t, c).StatusCode; code != 101 {
				t.Errorf("status %d", code)
			}
			synctest.Wait()
			return <-conns
		}
		conn := upgrade()
		inFlight(t, own, 1)
		inFlight(t, other, 1)
		_ = conn.Close()
		_ = conn.Close()
		idle(t, own)
		idle(t, other)
		closes = true
		upgrade() // it is closed before its handler returns
		idle(t, own)
		idle(t, other)
		closes = false
		conn = upgrade()
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
	done := make(chan struct{})
	for range 8 {
		go func() {
			defer func() { done <- struct{}{} }()
			for range 500 {
				r := get(t, "/?a="+string(rune('a'+rand.N(3)))+"&b="+string(rune('a'+rand.N(3))))
				if rand.N(4) == 0 {
					r.Header.Set("Upgrade", "x")
				}
				if code := ask(h, r).Code; code != 204 && code != 429 {
					t.Errorf("status %d", code)
				}
			}
		}()
	}
	for range 8 {
		receive(t, done, "end")
	}
	idle(t, own)
	idle(t, other)
	if a, b := own.Stats(), other.Stats(); a.Admitted != b.Admitted ||
		a.Cancelled != b.Refused[quotient.ReasonInFlight] {
		t.Errorf("%+v\n%+v", a, b)
	}
}

func TestAlsoPanicsForWhatCannotBeMeant(t *testing.T) {
	l := limiter(t, slots(1))
	for want, f := range map[string]func(){
		"limiter is nil": func() { Also(nil, Path()) }, "key function is nil": func() { Also(l, nil) },
		"Middleware: Wait and Also exclude each other": func() {
			Middleware(l, Path(), Wait(time.Second), Also(l, Path()))
		},
		"Around: Wait and Also exclude each other": func() { Around(l, Also(l, Path()), Wait(Forever)) },
	} {
		if said, _ := panicOf(f).(string); !strings.Contains(said, want) {
			t.Errorf("panic %q, want one that says %q", said, want)
		}
	}
}

func TestAlsoDoesNotAllocate(t *testing.T) {
	own, other := limiter(t, plenty), limiter(t, plenty)
	h := Middleware(own, Path(), Also(other, Constant("o")))(nothing)
	r := get(t, "/items/42")
	if n := testing.AllocsPerRun(1000, func() { h.ServeHTTP(noWriter{}, r) }); n != 0 {
		t.Errorf("%v allocations a request, want 0", n)
	}
	idle(t, own)
	idle(t, other)
}

// hijackable is a writer whose connection can be taken over.
type hijackable struct {
	noWriter
	conn net.Conn
}

func (w hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.conn, nil, nil }

// A late report about the answer of a closed connection concerns no request that came since.
func TestAlsoKeepsPermitsApart(t *testing.T) {
	own, heard := learning(t)
	other, heardToo := learning(t)
	began, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var h http.Handler
	h = Middleware(own, Path(),
		Also(other, Path()))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	}))
	upgrade := get(t, "/")
	upgrade.Header.Set("Upgrade", "x")
	here, there := net.Pipe()
	defer func() { _ = there.Close() }()
	h.ServeHTTP(hijackable{noWriter{http.Header{}}, here}, upgrade)
	close(end)
	receive(t, ended, "end")
	heard.learned(t, policy.Feedback{Outcome: policy.Unavailable})
	heardToo.learned(t, policy.Feedback{Outcome: policy.Unavailable})
	idle(t, own)
	idle(t, other)
}
