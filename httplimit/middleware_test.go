package httplimit

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
	"github.com/quotient-go/quotient/policy"
)

// Whatever panics, nothing stays taken, and nothing is given back twice.
func TestPanicReleasesOnce(t *testing.T) {
	boom := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") })
	abort := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	bad := func(*http.Request) string { panic("boom") }
	three := func(opts ...quotient.Option) func() *quotient.Limiter {
		return func() *quotient.Limiter { return limiter(t, slots(3), opts...) }
	}
	quiet, touched := three(), three(quotient.Policy(touchy{}))
	hooked := three(quotient.OnAdmit(func(string, time.Duration, time.Duration) { panic("boom") }))
	for name, tt := range map[string]struct {
		own, other func() *quotient.Limiter
		key        KeyFunc // of the other
		handler    http.Handler
		want       any
	}{
		"handler":          {quiet, quiet, Path(), boom, "boom"},
		"aborting handler": {quiet, quiet, Path(), abort, http.ErrAbortHandler},
		"other key":        {quiet, quiet, bad, ok, "boom"},
		"own controller":   {touched, quiet, Path(), ok, "touchy"},
		"other controller": {quiet, touched, Path(), ok, "touchy"},
		"own hook":         {hooked, quiet, Path(), ok, "boom"},
		"other hook":       {quiet, hooked, Path(), ok, "boom"},
	} {
		t.Run(name, func(t *testing.T) {
			own, other := tt.own(), tt.other()
			handlers := []http.Handler{Middleware(own, Path(), Also(other, tt.key))(tt.handler)}
			if !strings.HasPrefix(name, "other") {
				handlers = append(handlers, Middleware(own, Path())(tt.handler))
			}
			for _, h := range handlers {
				for range 9 { // more than there are slots
					tested.Want(t, "the panic", panicOf(func() { ask(h, get(t, "/")) }), tt.want)
				}
				idle(t, own)
				idle(t, other)
			}
		})
	}
	l, heard := learning(t)
	for status, want := range map[int]policy.Outcome{0: policy.Failed, 429: policy.Throttled} {
		panicOf(func() {
			ask(handle(l, func(w http.ResponseWriter, _ *http.Request) {
				if status > 0 {
					w.WriteHeader(status)
				}
				panic("boom")
			}), get(t, "/"))
		})
		heard.learned(t, gives(want, 0))
		idle(t, l)
	}
}

// A handler that TimeoutHandler has given up holds its slot until it is done.
func TestTimeoutHandlerAroundMiddleware(t *testing.T) {
	for name, opts := range map[string][]Option{"at once": nil, "waits": {Wait(Forever)}} {
		bubble(t, name, func(t *testing.T) {
			l, running, most := limiter(t, oneSlot), 0, 0
			slow := handle(l, func(http.ResponseWriter, *http.Request) {
				running++
				most = max(most, running)
				time.Sleep(10 * time.Second) // whatever its context says
				running--
			}, opts...)
			h := http.TimeoutHandler(slow, time.Second, "")
			for i := range 3 {
				want := http.StatusServiceUnavailable
				if i > 0 && opts == nil {
					want = http.StatusTooManyRequests
				}
				tested.Want(t, fmt.Sprintf("request %d", i), ask(h, get(t, "/")).Code, want)
				inFlight(t, l, 1)
			}
			time.Sleep(time.Minute)
			if idle(t, l); most != 1 || running != 0 {
				t.Errorf("at most %d at once, and %d still; want 1 and 0", most, running)
			}
		})
	}
}

// A policy learns from a handler's answer, from the quotas in it too, but not from an error that NoAnswer marks as
// the handler's own.
func TestHandlersAnswerIsFeedback(t *testing.T) {
	var garbage atomic.Uint64
	l, heard := learning(t)
	say := func(statuses ...int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for _, status := range statuses {
				w.WriteHeader(status)
			}
		}
	}
	with := func(status int, pairs ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			maps.Copy(w.Header(), fields(pairs...))
			w.WriteHeader(status)
		}
	}
	quoted := func(status int) http.HandlerFunc {
		return with(status, "RateLimit-Policy", `"m";q=60;w=60`, "RateLimit", `"m";r=0;t=30`,
			"X-RateLimit-Remaining", "none")
	}
	own := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { NoAnswer(w); with(status, "Retry-After", "60")(w, r) }
	}
	success, throttled, quota := gives(policy.Success, 0), gives(policy.Throttled, 0),
		policy.Quota{Limit: 60, Reset: 30 * time.Second}
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		want    policy.Feedback
	}{
		"nothing":                 {say(), success},
		"body":                    {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") }, success},
		"429":                     {say(429), throttled},
		"429 with a time":         {with(429, "Retry-After", "7"), gives(policy.Throttled, 7*time.Second)},
		"503 with a time":         {with(503, "Retry-After", "1.5"), gives(policy.Unavailable, 1500*time.Millisecond)},
		"1xx first":               {say(103, 429), throttled},
		"the first status counts": {say(200, 429), success},
		"flush first": {func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			w.WriteHeader(429)
		}, success},
		"101":        {say(101), success},
		"200, quota": {quoted(200), gives(policy.Success, 0, quota)},
		"429, quota": {quoted(429), gives(policy.Throttled, 30*time.Second, quota)},
		"503, quota": {quoted(503), gives(policy.Unavailable, 0, quota)},
		"200, own":   {own(200), gives(policy.Failed, 0)}, "429, own": {own(429), gives(policy.Failed, 0)},
		"502, own": {own(502), gives(policy.Failed, 0)}, "503, own": {own(503), gives(policy.Failed, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			ask(handle(l, tt.handler, CountGarbage(&garbage)), get(t, "/"))
			heard.learned(t, tt.want)
			idle(t, l)
		})
	}
	if n := garbage.Load(); n != 3 { // one in each answer with a quota
		t.Errorf("garbage %d, want 3", n)
	}
	NoAnswer(httptest.NewRecorder()) // no Middleware is there
}

func TestAround(t *testing.T) {
	l := limiter(t, hourly)
	serve, served := Around(l), 0
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ })
	for i, want := range []int{200, 429} {
		w := httptest.NewRecorder()
		if serve(w, get(t, "/"), long, next); w.Code != want || served != 1 {
			t.Errorf("request %d: status %d, served %d; want %d, 1", i, w.Code, served, want)
		}
	}
}

func TestMistakesPanicAtOnce(t *testing.T) {
	l, none := limiter(t, priced), context.Context(nil)
	one := func(*http.Request) int { return 1 }
	for want, mistake := range map[string]func(){
		"Middleware: the limiter is nil": func() { Middleware(nil, Path()) },
		"Middleware: the key function":   func() { Middleware(l, nil) },
		"Middleware: the handler is nil": func() { Middleware(l, Path())(nil) },
		"Around: the limiter is nil":     func() { Around(nil) },
		"Middleware: Wait and Also":      func() { Middleware(l, Path(), Wait(time.Second), Also(l, Path())) },
		"Around: Wait and Also":          func() { Around(l, Also(l, Path()), Wait(Forever)) },
		"Also: the limiter is nil":       func() { Also(nil, Path()) },
		"Also: the key function is nil":  func() { Also(l, nil) },
		"StreamLifetime is 0s":           func() { StreamLifetime(0) },
		"UnreadBodyWait is -1s":          func() { UnreadBodyWait(-time.Second) },
		"Wait is 0s":                     func() { Wait(0) },
		"Wait is -1ns":                   func() { Wait(-1) },
		"SendFields: 3 is not":           func() { SendFields(FieldsXRateLimit + 1) },
		"CountGarbage: ":                 func() { CountGarbage(nil) },
		"OnRefuse: ":                     func() { OnRefuse(nil) },
		"OnWaited: ":                     func() { OnWaited(nil) },
		"Drain: ":                        func() { Drain(none) },
		"PriorityBy: ":                   func() { PriorityBy(nil) },
		"PlanBy: ":                       func() { PlanBy(nil) },
		"WeightBy: ":                     func() { WeightBy(nil) },
		`CostBy("tokens"): the function`: func() { CostBy("tokens", nil) },
		"CostBy: the unit is empty":      func() { CostBy("", one) },
		`Header: "" is not the name`:     func() { Header("") },
		`Header: "é" is not the name`:    func() { Header("é") },
		"Header: net/http does not":      func() { Header("host") },
		`Header("Authorization"): keys`:  func() { Header("authorization") },
		`Header("X-Api-Key"): keys are`:  func() { Header("X-API-Key") },
		"Credential: net/http does not":  func() { Credential("Transfer-Encoding") },
		"Credential: a client can add":   func() { Credential("cookie") },
		`CostBy("rows"): `:               func() { Middleware(l, Path(), CostBy("rows", one)) },
	} {
		if said := fmt.Sprint(panicOf(mistake)); !strings.Contains(said, "httplimit: "+want) {
			t.Errorf("panic %q, want one that says %q", said, want)
		}
	}
	later := quotient.Rates(quotient.Rate{Unit: "rows", Events: 1, Per: time.Second})
	tested.Must(t, l.Override("k", &later, 0))
	Middleware(l, Path(), CostBy("rows", one))
}

func TestMiddlewareDoesNotAllocate(t *testing.T) {
	tokens := quotient.Rate{Unit: "tokens", Events: 1e12, Per: 1e9, Burst: 1 << 30}
	limit := quotient.Limit{Rates: append([]quotient.Rate{tokens}, plenty.Rates...), InFlight: 1 << 20}
	two := func(*http.Request) int { return 2 }
	paid := func(*http.Request) string { return "paid" }
	other := limiter(t, plenty)
	for name, tt := range map[string]struct {
		most float64
		key  KeyFunc
		opts []Option
	}{
		"path": {0, Path(), nil}, "address": {0, ClientAddr(), nil}, "header": {0, Header("X-Tenant"), nil},
		"host": {0, Host(), nil}, "constant": {0, Constant("k"), nil},
		"Wait": {0, Path(), []Option{Wait(time.Minute)}}, "Forever": {0, ClientAddr(), []Option{Wait(Forever)}},
		"Drain": {0, Path(), []Option{Wait(Forever), Drain(t.Context())}},
		"Also":  {0, Path(), []Option{Also(other, Constant("o"))}}, "PlanBy": {0, Path(), []Option{PlanBy(paid)}},
		"WeightBy":   {0, Path(), []Option{WeightBy(two)}},
		"CostBy":     {3, Path(), []Option{CostBy("tokens", two)}}, // the permit, its context, the request
		"Refundable": {3, Path(), []Option{Refundable()}},
	} {
		l := limiter(t, limit, quotient.Plans(map[string]quotient.Limit{"paid": limit}))
		h := handle(l, nothing, tt.opts...)
		for _, r := range []*http.Request{get(t, "/items/42"), get(t, "/straße"), post(t, newBody("text"))} {
			r.RemoteAddr = "203.0.113.7:5678"
			if n := testing.AllocsPerRun(1000, func() { h.ServeHTTP(noWriter{}, r) }); n > tt.most {
				t.Errorf("%s, %s: %v allocations a request, want %v", name, r.Method, n, tt.most)
			}
		}
		idle(t, l)
	}
	idle(t, other)
}
