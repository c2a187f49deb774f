package cookbook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/httplimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake runs a test in fake time.
func fake(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// made is what a recipe made.
func made[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// limiterOf is the limiter of a rate without a name.
func limiterOf(t *testing.T, limit quotient.Limit, opts ...quotient.Option) *quotient.Limiter {
	t.Helper()
	return made[*quotient.Limiter](t)(quotient.New(limit, opts...))
}

// atOnce is how many events a key gets before it has to wait.
func atOnce(l *quotient.Limiter, key string) (n int) {
	for n < 11_000 && l.Allow(key) {
		n++
	}
	return n
}

// during is how many events a key gets in a time in which it asks every ten milliseconds.
func during(l *quotient.Limiter, d time.Duration) (n int) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		n += atOnce(l, "k")
	}
	return n
}

func between(t *testing.T, what string, got, least, most int) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%s: %d, want %d to %d", what, got, least, most)
	}
}

func TestLimits(t *testing.T) {
	fake(t, "two at once", func(t *testing.T) {
		l := made[*quotient.Limiter](t)(twoAtOnce())
		between(t, "at once", atOnce(l, "k"), 10, 10)
		between(t, "in three minutes", during(l, 3*time.Minute), 1000-10, 1000-10+50)
	})
	fake(t, "one every three seconds", func(t *testing.T) {
		l := made[*quotient.Limiter](t)(oneEveryThreeSeconds())
		time.Sleep(time.Minute) // nothing is saved up
		between(t, "in half a minute", during(l, 30*time.Second), 10, 10)
	})
	fake(t, "from the full minute", func(t *testing.T) {
		l := made[*quotient.Limiter](t)(fromTheFullMinute()) // the bubble begins at midnight
		time.Sleep(59 * time.Second)
		between(t, "before the full minute", atOnce(l, "k"), 100, 100)
		time.Sleep(2 * time.Second)
		between(t, "after it", atOnce(l, "k"), 100, 100)
		between(t, "until the next", during(l, 58*time.Second), 0, 0)
	})
	fake(t, "from midnight", func(t *testing.T) {
		l := made[*quotient.Limiter](t)(fromMidnight())
		between(t, "at 16:00 in Los Angeles", atOnce(l, "k"), 1000, 1000)
		between(t, "until its midnight", during(l, 8*time.Hour-time.Second), 0, 0)
		time.Sleep(2 * time.Second)
		between(t, "after it", atOnce(l, "k"), 1000, 1000)
	})
	fake(t, "in flight", func(t *testing.T) {
		l := made[*quotient.Limiter](t)(twentyInFlight())
		for range 20 {
			made[quotient.Permit](t)(l.Acquire(t.Context(), "k"))
		}
		if d := l.Check("k"); d.OK || d.Reason != quotient.ReasonInFlight {
			t.Errorf("the 21st: %+v", d)
		}
		time.Sleep(time.Minute)
		if d := l.Check("k"); !d.OK {
			t.Errorf("after a minute: %+v", d)
		}
	})
	fake(t, "gradually", func(t *testing.T) {
		l := made[*quotient.Limiter](t)(openGradually())
		between(t, "in the first second", during(l, time.Second), 8, 20)
		during(l, 60*time.Second)
		between(t, "in the 62nd", during(l, time.Second), 90, 110)
	})
}

// The estimate is 25 tokens, and 33 are used: they are gone from the 10,000.
func TestTokens(t *testing.T) {
	fake(t, "tokens", func(t *testing.T) {
		l := made[*quotient.Limiter](t)(tokens())
		if err := ask(t.Context(), l, strings.Repeat("x", 100)); err != nil {
			t.Fatal(err)
		}
		if left := l.Explain("model-a").Rules[1].Left; left != 10_000-33 {
			t.Errorf("%v tokens are left", left)
		}
	})
}

// A caller whose turn comes after more than two seconds, and the 51st of a key, are refused at once.
func TestBoundedWaits(t *testing.T) {
	fake(t, "waits", func(t *testing.T) {
		l := made[*quotient.Limiter](t)(boundedWaits())
		atOnce(l, "k")
		begin := time.Now()
		_, err := l.Acquire(t.Context(), "k", quotient.Weight(100))
		if err != nil || time.Since(begin) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var admitted atomic.Int64
		for range 3 {
			go func() {
				if _, err := l.Acquire(ctx, "k", quotient.Weight(90)); err == nil {
					admitted.Add(1)
				}
			}()
			synctest.Wait()
		}
		time.Sleep(10 * time.Second)
		between(t, "turns of .9, 1.8 and 2.7 s", int(admitted.Load()), 2, 2)
		atOnce(l, "k")
		refused := func() (n int) {
			done := make(chan error)
			for range 60 {
				go func() { _, err := l.Acquire(ctx, "k"); done <- err }()
			}
			for range 60 {
				var limited *quotient.LimitedError
				if err := <-done; errors.As(err, &limited) && limited.Reason == quotient.ReasonQueue {
					n++
				}
			}
			return n
		}
		between(t, "refused of 60", refused(), 10, 10)
	})
}

func request(h http.Handler, method, key string, form string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, "/", strings.NewReader(form))
	r.Header.Set("X-API-Key", key)
	if form != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	h.ServeHTTP(w, r)
	return w
}

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, "hello")
})

// Each key gets this replica's quarter of the burst of ten, and one key's refusals are not another's.
// Requests without a key share one limit.
func TestEachKey(t *testing.T) {
	fake(t, "keys", func(t *testing.T) {
		h := made[http.Handler](t)(limitEachKey(hello))
		for _, key := range []string{"a", "b", ""} {
			for n, want := range []int{200, 200, 429} {
				if got := request(h, http.MethodGet, key, "").Code; got != want {
					t.Errorf("request %d of %s: %d, want %d", n+1, key, got, want)
				}
			}
		}
	})
}

// Each key has the limit of its plan, and keeps what it has used when it changes that. A plan's limit changes
// for all.
func TestTwoPlans(t *testing.T) {
	fake(t, "plans", func(t *testing.T) {
		l := made[*quotient.Limiter](t)(twoPlans())
		got := func(customer, plan string) (n int) {
			for {
				permit, d := forCustomer(l, customer, plan)
				if !d.OK {
					return n
				}
				n++
				permit.Release()
			}
		}
		between(t, "without a plan", got("someone", ""), 10, 10)
		between(t, "free", got("ann", "free"), 60, 60)
		between(t, "paid", got("bob", "paid"), 6000, 6000)
		between(t, "upgraded", got("ann", "paid"), 5940, 5940)
		between(t, "back", got("ann", "free"), 0, 0)
		time.Sleep(time.Minute)
		for range 200 {
			if _, d := forCustomer(l, "bob", "paid"); !d.OK {
				t.Fatalf("a slot: %+v", d)
			}
		}
		if _, d := forCustomer(l, "bob", "paid"); d.Reason != quotient.ReasonInFlight {
			t.Errorf("the 201st in flight: %+v", d)
		}
		if err := halveFree(l); err != nil {
			t.Fatal(err)
		}
		between(t, "halved", got("new", "free"), 30, 30)
		between(t, "halved for those that are known", got("ann", "free"), 30, 30)
		if _, d := forCustomer(l, "ann", "gold"); d.OK || d.Reason != quotient.ReasonBadRequest {
			t.Errorf("a plan that there is none of: %+v", d)
		}
	})
}

func TestTellClients(t *testing.T) {
	fake(t, "fields", func(t *testing.T) {
		calls := quotient.Rate{Name: "calls", Events: 10, Per: time.Second, Burst: 10}
		h := tellClients(limiterOf(t, quotient.Rates(calls)), hello)
		fields := request(h, http.MethodGet, "a", "").Header()
		if got := fields.Get("RateLimit"); !strings.Contains(got, `"calls";r=9`) {
			t.Errorf("RateLimit: %s", got)
		}
		if got := fields.Get("RateLimit-Policy"); !strings.Contains(got, `"calls";q=10`) {
			t.Errorf("RateLimit-Policy: %s", got)
		}
	})
}

// A tenant that pays gets its plan's rate, and a busy route costs no tenant anything.
func TestTenantsAndRoutes(t *testing.T) {
	fake(t, "tenants", func(t *testing.T) {
		tenants, routes, err := tenantLimits()
		if err != nil {
			t.Fatal(err)
		}
		mux := http.NewServeMux()
		mux.Handle("/reports", hello)
		h := tenantsAndRoutes(tenants, routes, mux)
		served := func(tenant, plan string) (n int) {
			for range 200 {
				r := httptest.NewRequest(http.MethodGet, "/reports", nil)
				r.Header.Set("X-Tenant", tenant)
				r.Header.Set("X-Plan", plan)
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, r); w.Code == http.StatusOK {
					n++
				}
			}
			return n
		}
		var held quotient.Permits
		for range 20 {
			p, d := routes.TryAcquire(httplimit.Pattern(mux)(httptest.NewRequest(http.MethodGet,
				"/reports", nil)))
			if !d.OK {
				t.Fatal(d)
			}
			held = append(held, p)
		}
		between(t, "while the route is busy", served("a", ""), 0, 0)
		held.Release()
		between(t, "own limit", served("a", ""), 10, 10)
		between(t, "paid", served("b", "paid"), 100, 100)
		between(t, "unknown plan", served("c", "gold"), 10, 10)
	})
}

// Those that pay go first where both wait, and work in the background last.
func TestPriorities(t *testing.T) {
	fake(t, "priorities", func(t *testing.T) {
		l := limiterOf(t, quotient.Rates(quotient.Every(time.Second)))
		served := make(chan string, 4)
		h := payingFirst(l, func(r *http.Request) bool { return r.Header.Get("X-API-Key") == "pays" },
			http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				served <- r.Header.Get("X-API-Key")
			}))
		l.Allow("api")
		for _, caller := range []func(){
			func() { request(h, http.MethodGet, "free", "") },
			func() { request(h, http.MethodGet, "pays", "") },
		} {
			go caller()
			synctest.Wait()
		}
		if first, second := <-served, <-served; first != "pays" || second != "free" {
			t.Errorf("served: %s, %s", first, second)
		}
		l.Allow("model-a")
		for name, acquire := range map[string]func() (quotient.Permit, error){
			"low":    func() (quotient.Permit, error) { return inTheBackground(t.Context(), l) },
			"normal": func() (quotient.Permit, error) { return l.Acquire(t.Context(), "model-a") },
		} {
			go func() {
				if _, err := acquire(); err == nil {
					served <- name
				}
			}()
		}
		synctest.Wait()
		if first, second := <-served, <-served; first != "normal" || second != "low" {
			t.Errorf("served: %s, %s", first, second)
		}
	})
}

// Five attempts for one account, however it is spelled, then one a minute. Each address has 20 for all
// accounts.
func TestLogin(t *testing.T) {
	fake(t, "login", func(t *testing.T) {
		addresses, accounts, err := loginLimits()
		if err != nil {
			t.Fatal(err)
		}
		attempts := 0
		h := guard(addresses, accounts, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if attempts++; r.PostFormValue("account") == "" {
				t.Error("the login gets a form without an account")
			}
		}))
		for n, form := range []string{"account=ann", "account=Ann", "account=+ann", "account=ANN",
			"account=ann"} {
			if got := request(h, http.MethodPost, "", form).Code; got != 200 {
				t.Errorf("attempt %d: %d", n+1, got)
			}
		}
		if w := request(h, http.MethodPost, "", "account=ann"); w.Code != 429 ||
			w.Header().Get("Retry-After") != "60" {
			t.Errorf("attempt 6: %d, %v", w.Code, w.Header())
		}
		for n := range 100 { // one address, many accounts
			request(h, http.MethodPost, "", fmt.Sprint("account=", n))
		}
		between(t, "attempts of one address", attempts, 20, 20)
		time.Sleep(time.Minute)
		if got := request(h, http.MethodPost, "", "account=ann").Code; got != 200 {
			t.Errorf("a minute later: %d", got)
		}
		if got := request(h, http.MethodPost, "", "account="+strings.Repeat("a", 5000)).Code; got != 400 {
			t.Errorf("a form that is too long: %d", got)
		}
	})
}

func TestOperate(t *testing.T) {
	fake(t, "change", func(t *testing.T) {
		l := limiterOf(t, quotient.Rates(quotient.PerSecond(100)))
		if err := change(l, 10); err != nil {
			t.Fatal(err)
		}
		atOnce(l, "k")
		time.Sleep(time.Second)
		between(t, "a second later", atOnce(l, "k"), 10, 10)
	})
	fake(t, "customers", func(t *testing.T) {
		l := limiterOf(t, quotient.Rates(quotient.PerSecond(10)))
		if err := customers(l); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		for key, want := range map[string]int{"big.example": 500, "abuser.example": 0, "other.example": 10} {
			between(t, key, atOnce(l, key), want, want)
		}
	})
	fake(t, "dry run", func(t *testing.T) {
		l := made[*quotient.Limiter](t)(dryRun(quotient.Rates(quotient.PerSecond(10))))
		between(t, "admitted", atOnce(l, "k"), 11_000, 11_000)
		if got := l.Stats().DryRunAdmitted[quotient.ReasonRate]; got != 10_990 {
			t.Errorf("%d would have been stopped", got)
		}
		time.Sleep(time.Second) // the goroutine of the log has ended
	})
	fake(t, "why", func(t *testing.T) {
		l := limiterOf(t, quotient.Rates(quotient.PerSecond(10)))
		atOnce(l, "busy")
		var text bytes.Buffer
		why(&text, l, "busy")
		for _, want := range []string{"busy: 0 wait, 100 % used", l.Explain("busy").String()} {
			if !strings.Contains(text.String(), want) {
				t.Errorf("%q is not in:\n%s", want, text.String())
			}
		}
	})
}
