package httplimit

import (
	"bufio"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dunglas/httpsfv"
	"pgregory.net/rapid"

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
				if want := `"second";r=0;t=` +
					w.Header().Get("Retry-After"); w.Header().Get("RateLimit") != want {
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
func TestXRateLimitTellsTheFewestRequests(t *testing.T) {
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

// Neither of two Middlewares learns from what the other one says, and both learn from the handler.
func TestMiddlewaresDoNotLearnFromEachOther(t *testing.T) {
	many := rates(quotient.PerMinute(6e7))
	foreign := policy.Quota{Limit: 100, Remaining: 50, Reset: 30 * time.Second}
	for _, set := range []FieldSet{FieldsDraft11, FieldsXRateLimit} {
		for _, hijackable := range []bool{false, true} {
			outer, inner := &sink{}, &sink{}
			handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/says" {
					w.Header().Add("RateLimit-Policy", `"p";q=100;w=60`)
					w.Header().Add("RateLimit", `"p";r=50;t=30`)
				}
			})
			h := Middleware(limiter(t, many, quotient.Policy(inner)), Path(), SendFields(set))(handler)
			h = Middleware(limiter(t, many, quotient.Policy(outer)), Path(), SendFields(set))(h)
			for _, path := range []string{"/silent", "/says"} {
				w := http.ResponseWriter(httptest.NewRecorder())
				if hijackable {
					w = onlyUnwrap{conn{w}}
				}
				h.ServeHTTP(w, get(t, path))
				if n := len(w.Header()["Ratelimit"]); set == FieldsDraft11 && path == "/silent" && n != 2 {
					t.Errorf("%d lines reach the client, want 2", n)
				}
			}
			if want := []policy.Quota{{}, foreign}; !slices.Equal(outer.heard, want) ||
				!slices.Equal(inner.heard, want) {
				t.Errorf("set %d: the outer policy got %+v, the inner one %+v; want %+v", set, outer.heard,
					inner.heard, want)
			}
		}
	}
}

// conn is a writer with a connection that is never taken.
type conn struct{ http.ResponseWriter }

func (conn) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, http.ErrNotSupported }

// A refusal by a Middleware behind is no answer of the handler.
func TestRefusalBehindIsNoFeedback(t *testing.T) {
	l, heard := learning(t)
	inner := Middleware(limiter(t, quotient.Limit{Deny: true}), Path(), SendFields(FieldsDraft11))(ok)
	ask(Middleware(l, Path())(inner), get(t, "/"))
	heard.learned(t, policy.Feedback{Outcome: policy.Failed})
}

// sink is a controller that keeps the quotas of answers.
type sink struct{ heard []policy.Quota }

func (s *sink) New(uint64) policy.Controller { return s }

func (s *sink) Next(sample policy.Sample, b policy.Bounds) policy.Pace {
	if sample.Outcome != policy.Unknown {
		s.heard = append(s.heard, sample.Quota)
	}
	return policy.Pace{Rate: b.Ceiling}
}

// A policy does not learn from the fields that Middleware has set, and does from the handler's own.
func TestFieldsAreNoFeedback(t *testing.T) {
	foreign := policy.Quota{Limit: 100, Remaining: 50, Reset: 30 * time.Second}
	tests := []struct {
		name   string
		set    FieldSet
		handle func(http.Header)
		want   policy.Quota
		lines  int // of RateLimit or X-RateLimit-Limit
	}{
		{"draft, nothing more", FieldsDraft11, func(http.Header) {}, policy.Quota{}, 1},
		{"x, nothing more", FieldsXRateLimit, func(http.Header) {}, policy.Quota{}, 1},
		{"draft, replaced", FieldsDraft11, func(h http.Header) {
			h.Set("RateLimit-Policy", `"p";q=100;w=60`)
			h.Set("RateLimit", `"p";r=50;t=30`)
		}, foreign, 1},
		{"draft, added to", FieldsDraft11, func(h http.Header) {
			h.Add("RateLimit-Policy", `"p";q=100;w=60`)
			h.Add("RateLimit", `"p";r=50;t=30`)
		}, foreign, 2},
		{"x, added to", FieldsXRateLimit, func(h http.Header) {
			for name, value := range map[string]string{"Limit": "100", "Remaining": "50", "Reset": "30"} {
				h.Add("X-RateLimit-"+name, value)
			}
		}, foreign, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &sink{}
			limit := quotient.Rates(quotient.PerMinute(6e7))
			l := limiter(t, limit, quotient.Policy(s))
			w := ask(Middleware(l, Path(),
				SendFields(tt.set))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				tt.handle(w.Header())
			})), get(t, "/"))
			if n := max(len(w.Header().Values("RateLimit")),
				len(w.Header().Values("X-RateLimit-Limit"))); n != tt.lines {
				t.Errorf("%d lines are left, want %d", n, tt.lines)
			}
			if !slices.Equal(s.heard, []policy.Quota{tt.want}) {
				t.Errorf("the policy got %+v, want %+v", s.heard, tt.want)
			}
		})
	}
}

// Transport understands what Middleware sends, from a host that it does not know.
func TestFieldsRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, set := range []FieldSet{FieldsDraft11, FieldsXRateLimit} {
			server := limiter(t,
				quotient.Limit{Rates: []quotient.Rate{{Name: "mi\"nute é", Events: 100, Per: time.Minute,
					Burst: 100}}, InFlight: 5})
			n := serve(t, Middleware(server, Path(), SendFields(set))(ok))
			l, heard := learning(t)
			tr := &Transport{Base: &http.Transport{DialContext: n.dial, DisableKeepAlives: true}, Limiter: l}
			for left := 99.0; left > 96; left-- {
				resp, err := tr.RoundTrip(request(t, "http://unknown.example/", nil))
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				want := policy.Feedback{Outcome: policy.Success}
				want.Quotas[0] = policy.Quota{Limit: 100, Remaining: left,
					Reset: time.Duration(math.Ceil((100-left)*.6)) * time.Second}
				heard.learned(t, want)
			}
			if tr.Garbage() != 0 {
				t.Errorf("set %d: garbage %d", set, tr.Garbage())
			}
		}
	})
}

// A rule in whole events and seconds is never above the rule itself.
func TestRulesInWhole(t *testing.T) {
	for _, tt := range []struct {
		limit           float64
		window          time.Duration
		events, seconds int64
	}{
		{100, time.Minute, 100, 60}, {1.9, time.Second, 1, 1}, {0.3, time.Second, 1, 4},
		{0.001, time.Hour, 1, 3_600_000},
		{10, 100 * time.Millisecond, 100, 1}, {0.05, 100 * time.Millisecond, 1, 2},
		{10, 1500 * time.Millisecond, 10, 2},
		{1e12, time.Second, 1e12, 1}, {1e12, 1e6 * time.Hour, 1e12, 3_600_000_000},
		{1e3, time.Nanosecond, 1e12 - 1, 1},
		{1e-300, math.MaxInt64, 1, maxAmount}, {8, 0, 8, 0}, {1 << 30, 0, 1 << 30, 0},
	} {
		events, seconds := inWhole(&quotient.RuleState{Limit: tt.limit, Window: tt.window})
		if events != tt.events || seconds != tt.seconds {
			t.Errorf("%v in %v: %d in %d s, want %d in %d s", tt.limit, tt.window, events, seconds, tt.events,
				tt.seconds)
		}
	}
	for n, want := range map[float64]int64{-1: 0, 0.9: 0, 1e15: maxAmount, math.Inf(1): maxAmount} {
		if got := whole(n); got != want {
			t.Errorf("%v is sent as %d, want %d", n, got, want)
		}
	}
	for d, want := range map[time.Duration]int64{-time.Hour: 0, 0: 0, 1: 1, time.Second: 1,
		time.Second + 1: 2, math.MaxInt64: 9223372037} {
		if got := secondsUp(d); got != want {
			t.Errorf("%v is sent as %d, want %d", d, got, want)
		}
	}
}

// Whatever the rules are called and hold, the fields are lists of Strings with Integers, no name stands
// twice, and the two fields belong together.
func TestFieldsAreStructured(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		quotas := make([]quotient.RuleState, rapid.IntRange(0, 17).Draw(t, "rules"))
		for i := range quotas {
			quotas[i] = quotient.RuleState{
				Name: rapid.OneOf(rapid.String(),
					rapid.SampledFrom([]string{"minute", "minute/tokens", "in-flight", `"\`, "é%\x00\xff",
						strings.Repeat("%", 50)})).Draw(t, "name"),
				Unit: rapid.SampledFrom([]string{"", "tokens", `"`, "ü", strings.Repeat("u", 100)}).Draw(t,
					"unit"),
				Limit:  rapid.Float64Range(1e-3, 1e12).Draw(t, "limit"),
				Window: time.Duration(rapid.Int64Min(0).Draw(t, "window")),
				Left:   rapid.Float64Range(0, math.MaxFloat64).Draw(t, "left"),
				Reset:  time.Duration(rapid.Int64Min(0).Draw(t, "reset")),
			}
		}
		s := &sender{set: FieldsDraft11}
		texts := s.textsOf(quotas)
		if texts.policy == "" {
			return
		}
		values := []string{texts.policy, texts.said(FieldsDraft11, texts.levels(nil, quotas)).text}
		if len(values[0]) > maxStructured-2 {
			t.Fatalf("RateLimit-Policy has %d bytes", len(values[0]))
		}
		policies, now := members(t, values[0], "q"), members(t, values[1], "r")
		if !slices.Equal(policies, now) {
			t.Fatalf("policies %q, members %q", policies, now)
		}
		if distinct := slices.Compact(slices.Sorted(slices.Values(policies))); len(distinct) !=
			len(policies) {
			t.Fatalf("a name stands twice in %q", policies)
		}
	})
}

// members are the names in a list of Strings that all have the Integer.
func members(t interface{ Fatalf(string, ...any) }, value, integer string) (names []string) {
	list, err := httpsfv.UnmarshalList([]string{value})
	if err != nil {
		t.Fatalf("%q: %v", value, err)
	}
	for _, m := range list {
		item := m.(httpsfv.Item)
		n, _ := item.Params.Get(integer)
		if _, is := n.(int64); !is {
			t.Fatalf("%q: %s is %v, no Integer", value, integer, n)
		}
		names = append(names, item.Value.(string))
	}
	return names
}

// FuzzQuoted checks that any name becomes one String, from which it can be read again.
func FuzzQuoted(f *testing.F) {
	for _, name := range []string{"", "minute", `a"b\c`, "é", "%41", "\x00\x7f\xff", "a\r\nb"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		item, err := httpsfv.UnmarshalItem([]string{quoted(name)})
		if err != nil {
			t.Fatalf("%q is written as %q: %v", name, quoted(name), err)
		}
		text, is := item.Value.(string)
		back, err := url.PathUnescape(text)
		if !is || err != nil || back != name {
			t.Fatalf("%q is read as %q: %v", name, back, err)
		}
	})
}

func TestPriorities(t *testing.T) {
	byHeader := func(r *http.Request) quotient.Priority {
		for p := quotient.PriorityLow; p <= quotient.PriorityCritical; p++ {
			if p.String() == r.Header.Get("Class") {
				return p
			}
		}
		return quotient.PriorityNormal
	}
	wild := func(*http.Request) quotient.Priority { return 100 }
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, oneSlot)
		var order []string
		record := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			order = append(order, r.Header.Get("Class"))
		})
		held, _ := l.TryAcquire("k")
		h := Middleware(l, Constant("k"), PriorityBy(byHeader), Wait(Forever))(record)
		base := recorder{record}
		tr := &Transport{Base: base, Limiter: l, Key: Constant("k"), Priority: byHeader}
		done := make(chan struct{})
		for _, class := range []string{"low", "normal", "high", "critical"} {
			r := get(t, "/")
			r.Header.Set("Class", class)
			go func() { h.ServeHTTP(httptest.NewRecorder(), r); done <- struct{}{} }()
			synctest.Wait()
			unread := post(t, newBody("text"))
			unread.Header.Set("Class", class)
			go func() { h.ServeHTTP(httptest.NewRecorder(), unread); done <- struct{}{} }()
			synctest.Wait()
			out := request(t, "http://h/", nil)
			out.Header.Set("Class", class)
			go func() { roundTrip(t, tr, out); done <- struct{}{} }()
			synctest.Wait()
		}
		held.Release()
		for range 12 {
			<-done
		}
		if got := strings.Join(order[:6], " "); got != "critical critical critical high high high" {
			t.Errorf("served in the order %s", got)
		}
		if w := ask(Middleware(l, Path(), PriorityBy(wild))(ok), get(t, "/")); w.Code != 204 {
			t.Errorf("status %d for a priority beyond the classes, want 204", w.Code)
		}
		idle(t, l)
	})
}

// recorder is a base that calls a handler.
type recorder struct{ h http.Handler }

func (r recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	r.h.ServeHTTP(w, req)
	return w.Result(), nil
}

func TestAround(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, rates(quotient.Every(time.Hour)))
		serve, served := Around(l), 0
		next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ })
		for i, want := range []int{200, 429} {
			w := httptest.NewRecorder()
			serve(w, get(t, "/"), long, next)
			if w.Code != want || served != 1 {
				t.Errorf("request %d: status %d, served %d; want %d, 1", i, w.Code, served, want)
			}
		}
		for state := range l.Keys() {
			key := state.Key
			if key != bound(long) {
				t.Errorf("key of %d bytes, want a hash", len(key))
			}
		}
	})
}
