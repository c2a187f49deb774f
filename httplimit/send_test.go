package httplimit

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/policy"
)

// rates is a limit of these rates.
func rates(r ...quotient.Rate) quotient.Limit { return quotient.Limit{Rates: r} }

// fieldsOf is what an answer says in the fields of a set, one after the other.
func fieldsOf(h http.Header) string {
	var out []string
	for _, name := range []string{"RateLimit-Policy", "RateLimit", "X-RateLimit-Limit",
		"X-RateLimit-Remaining", "X-RateLimit-Reset"} {
		for _, value := range h.Values(name) {
			out = append(out, name+": "+value)
		}
	}
	return strings.Join(out, "\n")
}

func TestFields(t *testing.T) {
	minute := quotient.Rate{Name: "minute", Events: 100, Per: time.Minute, Burst: 50}
	hour := quotient.Rate{Name: "hour", Events: 1000, Per: time.Hour, Burst: 1000}
	tokens := quotient.Rate{Name: "minute", Unit: "tokens", Events: 500, Per: time.Minute, Burst: 500}
	aligned := quotient.Rate{Name: "a", Events: 10, Per: 90 * time.Second, Aligned: true}
	tests := []struct {
		name     string
		limit    quotient.Limit
		draft, x string
	}{
		{"nothing", quotient.Limit{}, "", ""},
		{"denied", quotient.Limit{Deny: true}, "", ""},
		{"a large burst", rates(quotient.Rate{Name: "minute", Events: 100, Per: time.Minute, Burst: 250}),
			`RateLimit-Policy: "minute";q=250;w=150` + "\n" + `RateLimit: "minute";r=249;t=1`,
			"X-RateLimit-Limit: 250\nX-RateLimit-Remaining: 249\nX-RateLimit-Reset: 1"},
		{"rate", rates(minute), `RateLimit-Policy: "minute";q=100;w=60` + "\n" +
			`RateLimit: "minute";r=49;t=1`,
			"X-RateLimit-Limit: 100\nX-RateLimit-Remaining: 49\nX-RateLimit-Reset: 1"},
		{"rates", rates(hour, minute), `RateLimit-Policy: "hour";q=1000;w=3600, "minute";q=100;w=60` + "\n" +
			`RateLimit: "hour";r=999;t=4, "minute";r=49;t=1`,
			"X-RateLimit-Limit: 100\nX-RateLimit-Remaining: 49\nX-RateLimit-Reset: 1"},
		{"slots", quotient.Limit{InFlight: 10},
			`RateLimit-Policy: "in-flight";q=10;qu="concurrent-requests"` + "\n" +
				`RateLimit: "in-flight";r=9`, ""},
		{"rate and slots", quotient.Limit{Rates: []quotient.Rate{minute}, InFlight: 10},
			`RateLimit-Policy: "minute";q=100;w=60, "in-flight";q=10;qu="concurrent-requests"` + "\n" +
				`RateLimit: "minute";r=49;t=1, "in-flight";r=9`,
			"X-RateLimit-Limit: 100\nX-RateLimit-Remaining: 49\nX-RateLimit-Reset: 1"},
		{"one name, two units", rates(minute, tokens),
			`RateLimit-Policy: "minute";q=100;w=60, "minute/tokens";q=500;w=60;qu="tokens"` + "\n" +
				`RateLimit: "minute";r=49;t=1, "minute/tokens";r=500;t=0`,
			"X-RateLimit-Limit: 100\nX-RateLimit-Remaining: 49\nX-RateLimit-Reset: 1"},
		{"tokens alone", rates(tokens), `RateLimit-Policy: "minute";q=500;w=60;qu="tokens"` + "\n" +
			`RateLimit: "minute";r=500;t=0`, ""},
		{"no name", rates(quotient.Rate{Events: 2, Per: time.Second}),
			`RateLimit-Policy: "rate 1";q=2;w=1` + "\n" + `RateLimit: "rate 1";r=1;t=1`,
			"X-RateLimit-Limit: 2\nX-RateLimit-Remaining: 1\nX-RateLimit-Reset: 1"},
		// The bubble starts at midnight, a full hour: the window of 90 s is 90 s old at its end.
		{"aligned", rates(aligned), `RateLimit-Policy: "a";q=10;w=90` + "\n" + `RateLimit: "a";r=9;t=90`,
			"X-RateLimit-Limit: 10\nX-RateLimit-Remaining: 9\nX-RateLimit-Reset: 90"},
		{"quotes", rates(quotient.Rate{Name: `a"\é%`, Events: 2, Per: time.Second}),
			`RateLimit-Policy: "a\"\\%C3%A9%25";q=2;w=1` + "\n" + `RateLimit: "a\"\\%C3%A9%25";r=1;t=1`,
			"X-RateLimit-Limit: 2\nX-RateLimit-Remaining: 1\nX-RateLimit-Reset: 1"},
		{"a long name",
			rates(quotient.Rate{Name: strings.Repeat("x", maxName+1), Events: 2, Per: time.Second}, minute),
			`RateLimit-Policy: "minute";q=100;w=60` + "\n" + `RateLimit: "minute";r=49;t=1`,
			"X-RateLimit-Limit: 2\nX-RateLimit-Remaining: 1\nX-RateLimit-Reset: 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for set, want := range map[FieldSet]string{
				FieldsOff:        "",
				FieldsDraft11:    tt.draft,
				FieldsXRateLimit: tt.x,
			} {
				synctest.Test(t, func(t *testing.T) {
					got := "not served"
					h := Middleware(limiter(t, tt.limit), Path(),
						SendFields(set))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
						got = fieldsOf(w.Header())
					}))
					w := ask(h, get(t, "/"))
					if w.Code == 200 && got != want || fieldsOf(w.Header()) != want {
						t.Errorf("set %d: the handler sees\n%s\nand the client\n%s\nwant\n%s", set, got,
							fieldsOf(w.Header()), want)
					}
				})
			}
		})
	}
}

// Limits are sent as those of the fleet, and what is left as this replica's.
func TestFieldsOfAShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, quotient.Limit{Rates: []quotient.Rate{{Name: "minute", Events: 100, Per: time.Minute,
			Burst: 100}}, InFlight: 8},
			quotient.Replicas(4))
		w := ask(Middleware(l, Path(), SendFields(FieldsDraft11))(ok), get(t, "/"))
		want := `RateLimit-Policy: "minute";q=100;w=60, "in-flight";q=8;qu="concurrent-requests"` + "\n" +
			`RateLimit: "minute";r=24;t=3, "in-flight";r=1`
		if got := fieldsOf(w.Header()); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

// A refusal carries the fields too, after a wait with an unread body as well.
func TestFieldsOfRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, rates(quotient.Rate{Name: "minute", Events: 1, Per: time.Minute, Burst: 1}),
			quotient.MaxWait(time.Second))
		want := `RateLimit-Policy: "minute";q=1;w=60` + "\n" + `RateLimit: "minute";r=0;t=60`
		l.TryAcquire("/")
		for _, opts := range [][]Option{nil, {Wait(time.Hour)}, {Wait(Forever)}} {
			h := Middleware(l, Path(), append(opts, SendFields(FieldsDraft11))...)(ok)
			for _, r := range []*http.Request{get(t, "/"), post(t, newBody("text"))} {
				if w := ask(h, r); w.Code != 429 || fieldsOf(w.Header()) != want {
					t.Errorf("%s: status %d, fields\n%s\nwant 429 and\n%s", r.Method, w.Code,
						fieldsOf(w.Header()), want)
				}
			}
		}
	})
}

// A new limit is sent with the next answer.
func TestFieldsFollowTheLimit(t *testing.T) {
	l := limiter(t, rates(quotient.PerMinute(100)))
	h := Middleware(l, Path(), SendFields(FieldsDraft11))(ok)
	for _, events := range []float64{100, 200, 100} {
		if err := l.SetLimit(rates(quotient.PerMinute(events))); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf(`"minute";q=%v;w=60`, events)
		if got := ask(h, get(t, "/")).Header().Get("RateLimit-Policy"); got != want {
			t.Errorf("RateLimit-Policy %s, want %s", got, want)
		}
	}
}

// However many limits there are, few texts are kept, and all are right.
func TestFieldsOfManyLimits(t *testing.T) {
	s := &sender{set: FieldsDraft11}
	for range 2 {
		for i := range 10 * maxRuleTexts {
			texts := s.textsOf([]quotient.RuleState{{Name: "minute", Limit: float64(i), Window: time.Minute}})
			if want := fmt.Sprintf(`"minute";q=%d;w=60`, max(i, 1)); i > 0 && texts.policy != want {
				t.Fatalf("policy %s, want %s", texts.policy, want)
			}
		}
	}
	if n := len(s.texts); n != maxRuleTexts {
		t.Errorf("%d texts are kept, want %d", n, maxRuleTexts)
	}
	for i := range maxRuleTexts { // as many as are kept are made once
		quotas := []quotient.RuleState{{Name: "minute", Limit: 1e6 + float64(i), Window: time.Minute}}
		if first, second := s.textsOf(quotas), s.textsOf(quotas); first != second {
			t.Fatalf("the texts of limit %d are made twice", i)
		}
	}
	few := &sender{set: FieldsDraft11}
	made := map[*ruleTexts]bool{}
	for i := range 3 * maxRuleTexts {
		made[few.textsOf([]quotient.RuleState{{Name: "minute", Limit: float64(i % maxRuleTexts),
			Window: time.Minute}})] = true
	}
	if len(made) != maxRuleTexts {
		t.Errorf("%d texts are made for %d limits in turn", len(made), maxRuleTexts)
	}
	quotas := []quotient.RuleState{{Name: "minute", Limit: 1, Window: time.Minute}}
	if first, second := s.textsOf(quotas), s.textsOf(quotas); first != second {
		t.Error("the texts of one limit are made twice")
	}
	thrice := append(append(quotas, quotas...), quotas...)
	if got := s.textsOf(thrice).policy; got != `"minute";q=1;w=60, "minute/";q=1;w=60` {
		t.Errorf("a rule that stands three times is sent as %s", got)
	}
}

// A handler's changes to the fields of its answer stay with that answer.
func TestFieldsOfOneAnswerAreItsOwn(t *testing.T) {
	for _, set := range []FieldSet{FieldsDraft11, FieldsXRateLimit} {
		l := limiter(t, rates(quotient.PerMinute(100)))
		first := ""
		h := Middleware(l, Constant("k"),
			SendFields(set))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if got := fieldsOf(w.Header()); first == "" {
				first = got
			} else if strings.Contains(got, "spoiled") {
				t.Errorf("set %d: the next answer says\n%s", set, got)
			}
			for name, lines := range w.Header() {
				lines[0] = "spoiled"
				w.Header()[name] = append(lines, "spoiled")
			}
		}))
		ask(h, get(t, "/"))
		ask(h, get(t, "/"))
		if first == "" {
			t.Error("no fields")
		}
	}
}

// A refusal's fields say that nothing is left, at least until Retry-After, whatever the reason.
func TestFieldsAgreeWithTheRefusal(t *testing.T) {
	second := quotient.Rate{Name: "second", Events: 100, Per: time.Second}
	tests := []struct {
		name  string
		limit quotient.Limit
		opts  []quotient.Option
		asks  int // before the refusal, by the limiter itself
		draft string
		x     string
	}{
		{"a turn to come", rates(quotient.Every(time.Minute)),
			[]quotient.Option{quotient.StartPool(quotient.Pool{Replicas: 4, Ordinal: 3})}, 0,
			`RateLimit-Policy: "interval";q=1;w=60` + "\n" + `RateLimit: "interval";r=0;t=120`,
			"X-RateLimit-Limit: 1\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 120"},
		{"used up", rates(quotient.Rate{Name: "s", Events: 1, Per: time.Second, Burst: 2}), nil, 2,
			`RateLimit-Policy: "s";q=2;w=2` + "\n" + `RateLimit: "s";r=0;t=1`,
			"X-RateLimit-Limit: 2\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1"},
		{"one of two used up", rates(quotient.Every(time.Second), quotient.PerHour(3600)), nil, 1,
			`RateLimit-Policy: "interval";q=1;w=1, "hour";q=3600;w=3600` + "\n" +
				`RateLimit: "interval";r=0;t=1, "hour";r=`,
			"X-RateLimit-Limit: 1\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1"},
		{"no slot here", quotient.Limit{Rates: []quotient.Rate{second}, InFlight: 2},
			[]quotient.Option{quotient.Replicas(4)}, 0,
			`RateLimit-Policy: "second";q=100;w=1, "in-flight";q=2;qu="concurrent-requests"` + "\n" +
				`RateLimit: "second";r=25;t=0, "in-flight";r=0`,
			"X-RateLimit-Limit: 100\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1"},
		{"no word on the pool", rates(second),
			[]quotient.Option{quotient.AwaitPool(), quotient.HintMaxAge(time.Minute), quotient.Replicas(4)},
			0, "", ""},
	}
	for _, tt := range tests {
		for set, want := range map[FieldSet]string{FieldsDraft11: tt.draft, FieldsXRateLimit: tt.x} {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, tt.limit, tt.opts...)
				for range tt.asks {
					l.Allow("/")
				}
				w := ask(Middleware(l, Path(), SendFields(set))(ok), get(t, "/"))
				if got := fieldsOf(w.Header()); w.Code < 429 || !strings.HasPrefix(got, want) ||
					want == "" && got != "" {
					t.Errorf("%s: status %d,\n%s\nwant\n%s", tt.name, w.Code, got, want)
				}
			})
		}
	}
}

// While an upstream's Retry-After holds all requests back, nothing is left although the rate is not used up.
func TestFieldsOfAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, served := limiter(t, rates(quotient.PerSecond(100)), quotient.Policy(policy.Tracking{}),
			quotient.BeyondShare()), 0
		h := Middleware(l, Path(),
			SendFields(FieldsDraft11))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			served++
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(http.StatusTooManyRequests)
		}))
		for asked := 1; asked <= 20; asked++ {
			w := ask(h, get(t, "/"))
			if served < asked {
				want := `"second";r=0;t=` + w.Header().Get("Retry-After")
				if w.Header().Get("RateLimit") != want {
					t.Errorf("RateLimit %s, want %s", w.Header().Get("RateLimit"), want)
				}
				return
			}
			time.Sleep(2 * time.Second)
		}
		t.Error("twenty refusals of the handler, and no pause")
	})
}

// A rule that has the smaller part left may still be the one that lasts longer.
func TestXRateLimitSendsTheFewestRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, rates(quotient.PerMinute(6000),
			quotient.Rate{Name: "hour", Events: 1000, Per: time.Hour, Aligned: true}))
		h := Middleware(l, Path(), SendFields(FieldsXRateLimit))(ok)
		for range 979 {
			ask(h, get(t, "/"))
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		if got := ask(h, get(t, "/")).Header().Get("X-RateLimit-Remaining"); got != "20" {
			t.Errorf("%s left, want 20", got)
		}
		served := 0
		for ask(h, get(t, "/")).Code != http.StatusTooManyRequests {
			served++
		}
		if served != 20 {
			t.Errorf("%d are served then, want 20", served)
		}
	})
}

// Two Middlewares both send their limits, and X-RateLimit-* is the one with fewer requests left.
func TestFieldsOfTwoMiddlewares(t *testing.T) {
	few := rates(quotient.Rate{Name: "few", Events: 10, Per: time.Minute, Burst: 10})
	many := rates(quotient.Rate{Name: "many", Events: 1000, Per: time.Second})
	const fewest = "X-RateLimit-Limit: 10\nX-RateLimit-Remaining: 9\nX-RateLimit-Reset: 6"
	for _, tt := range []struct {
		outer, inner quotient.Limit
		set          FieldSet
		want         string
	}{
		{few, many, FieldsDraft11, `RateLimit-Policy: "few";q=10;w=60` + "\n" +
			`RateLimit-Policy: "many";q=1000;w=1` + "\n" +
			`RateLimit: "few";r=9;t=6` + "\n" + `RateLimit: "many";r=999;t=1`},
		{few, many, FieldsXRateLimit, fewest},
		{many, few, FieldsXRateLimit, fewest},
		{few, few, FieldsXRateLimit, fewest},
	} {
		synctest.Test(t, func(t *testing.T) {
			inner := Middleware(limiter(t, tt.inner), Path(), SendFields(tt.set))(ok)
			w := ask(Middleware(limiter(t, tt.outer), Path(), SendFields(tt.set))(inner), get(t, "/"))
			if got := fieldsOf(w.Header()); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
	w := httptest.NewRecorder()
	w.Header().Set("X-RateLimit-Remaining", "few") // not of this package
	w.Header().Set("X-RateLimit-Reset", "1")
	Middleware(limiter(t, many), Path(), SendFields(FieldsXRateLimit))(ok).ServeHTTP(w, get(t, "/"))
	if got := w.Header().Get("X-RateLimit-Remaining"); got != "999" {
		t.Errorf("%s left, want 999", got)
	}
}
