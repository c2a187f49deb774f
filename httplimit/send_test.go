package httplimit

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dunglas/httpsfv"
	"pgregory.net/rapid"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
	"github.com/quotient-go/quotient/policy"
)

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

// draft is what fieldsOf returns of FieldsDraft11.
func draft(policies, current string) string {
	return "RateLimit-Policy: " + policies + "\nRateLimit: " + current
}

// xRate is what fieldsOf returns of FieldsXRateLimit: the limit, what is left, and the reset.
func xRate(numbers string) string {
	n := strings.Fields(numbers)
	return fmt.Sprintf("X-RateLimit-Limit: %s\nX-RateLimit-Remaining: %s\nX-RateLimit-Reset: %s", n[0], n[1], n[2])
}

// says fails unless an answer has a status and these fields.
func says(t *testing.T, w *httptest.ResponseRecorder, status int, want string) {
	t.Helper()
	if got := fieldsOf(w.Header()); w.Code != status || got != want {
		t.Errorf("status %d, fields\n%s\nwant %d and\n%s", w.Code, got, status, want)
	}
}

func TestFields(t *testing.T) {
	minute := quotient.Rate{Name: "minute", Events: 100, Per: time.Minute, Burst: 50}
	large := quotient.Rate{Name: "minute", Events: 100, Per: time.Minute, Burst: 250}
	hour := quotient.Rate{Name: "hour", Events: 1000, Per: time.Hour, Burst: 1000}
	tokens := quotient.Rate{Name: "minute", Unit: "tokens", Events: 500, Per: time.Minute, Burst: 500}
	aligned := quotient.Rate{Name: "a", Events: 10, Per: 90 * time.Second, Kind: quotient.Window}
	named := func(name string) quotient.Rate { return quotient.Rate{Name: name, Events: 2, Per: time.Second} }
	both := func(slots int, r ...quotient.Rate) quotient.Limit { return quotient.Limit{Rates: r, InFlight: slots} }
	const q100, r49, x49 = `"minute";q=100;w=60`, `"minute";r=49;t=1`, "100 49 1"
	const q10, r9 = `"in-flight";q=10;qu="concurrent-requests"`, `"in-flight";r=9`
	for name, tt := range map[string]struct {
		limit                quotient.Limit
		policies, current, x string
		replicas             int
	}{
		"nothing":       {},
		"denied":        {limit: quotient.Limit{Deny: true}},
		"a large burst": {both(0, large), `"minute";q=250;w=150`, `"minute";r=249;t=1`, "250 249 1", 1},
		"rate":          {both(0, minute), q100, r49, x49, 1},
		"rates": {both(0, hour, minute), `"hour";q=1000;w=3600, ` + q100, `"hour";r=999;t=4, ` + r49,
			x49, 1},
		"slots":            {both(10), q10, r9, "", 1},
		"rate and slots":   {both(10, minute), q100 + ", " + q10, r49 + ", " + r9, x49, 1},
		"of four replicas": {both(0, large), `"minute";q=250;w=150`, `"minute";r=61;t=3`, "250 61 3", 4},
		"one name, two units": {both(0, minute, tokens), q100 + `, "minute/tokens";q=500;w=60;qu="tokens"`,
			r49 + `, "minute/tokens";r=500;t=0`, x49, 1},
		"tokens alone": {both(0, tokens), `"minute";q=500;w=60;qu="tokens"`, `"minute";r=500;t=0`, "", 1},
		"no name":      {both(0, named("")), `"rate 1";q=2;w=1`, `"rate 1";r=1;t=1`, "2 1 1", 1},
		// The bubble starts at midnight, a full hour: the window of 90 s is 90 s old at its end.
		"aligned":     {both(0, aligned), `"a";q=10;w=90`, `"a";r=9;t=90`, "10 9 90", 1},
		"quotes":      {both(0, named(`a"\é%`)), `"a\"\\%C3%A9%25";q=2;w=1`, `"a\"\\%C3%A9%25";r=1;t=1`, "2 1 1", 1},
		"a long name": {both(0, named(strings.Repeat("x", maxName+1)), minute), q100, r49, "2 1 1", 1},
	} {
		want := map[FieldSet]string{FieldsOff: "", FieldsDraft11: "", FieldsXRateLimit: ""}
		if tt.policies != "" {
			want[FieldsDraft11] = draft(tt.policies, tt.current)
		}
		if tt.x != "" {
			want[FieldsXRateLimit] = xRate(tt.x)
		}
		for set, want := range want {
			synctest.Test(t, func(t *testing.T) {
				l, got := limiter(t, tt.limit, quotient.Replicas(max(tt.replicas, 1))), want
				w := ask(handle(l, func(w http.ResponseWriter, _ *http.Request) { got = fieldsOf(w.Header()) },
					SendFields(set)), get(t, "/"))
				if got != want || fieldsOf(w.Header()) != want {
					t.Errorf("%s, set %d: the handler sees\n%s\nand the client\n%s\nwant\n%s", name, set, got,
						fieldsOf(w.Header()), want)
				}
			})
		}
	}
}

// However many limits there are, few texts are kept, and all are right. As many as are kept are made once.
func TestFieldsOfManyLimits(t *testing.T) {
	of := func(limit int) []quotient.RuleState {
		return []quotient.RuleState{{Rule: quotient.Rule{Name: "minute", Limit: float64(limit), Window: time.Minute}}}
	}
	for limits, once := range map[int]bool{10 * maxRuleTexts: false, maxRuleTexts: true} {
		s, made := &sender{set: FieldsDraft11}, map[*ruleTexts]bool{}
		for range 3 {
			for i := 1; i <= limits; i++ {
				texts := s.textsOf(of(i))
				tested.Want(t, "policy", texts.policy, fmt.Sprintf(`"minute";q=%d;w=60`, i))
				made[texts] = true
			}
		}
		if n := len(s.texts); n != maxRuleTexts || once != (len(made) == limits) {
			t.Errorf("%d texts are kept of %d limits, want %d; %d are made", n, limits, maxRuleTexts, len(made))
		}
	}
	thrice := slices.Concat(of(1), of(1), of(1))
	tested.Want(t, "a rule that stands three times",
		(&sender{set: FieldsDraft11}).textsOf(thrice).policy, `"minute";q=1;w=60, "minute/";q=1;w=60`)
}

// A handler's changes to the fields of its answer stay with that answer.
func TestFieldsOfOneAnswerAreItsOwn(t *testing.T) {
	for _, set := range []FieldSet{FieldsDraft11, FieldsXRateLimit} {
		answers := 0
		h := handle(limiter(t, rates(quotient.PerMinute(100))), func(w http.ResponseWriter, _ *http.Request) {
			if got := fieldsOf(w.Header()); got == "" || strings.Contains(got, "spoiled") {
				t.Errorf("set %d: answer %d says %q", set, answers, got)
			}
			for name, lines := range w.Header() {
				lines[0] = "spoiled"
				w.Header()[name] = append(lines, "spoiled")
			}
			answers++
		}, SendFields(set))
		ask(h, get(t, "/"))
		ask(h, get(t, "/"))
	}
}

// While an upstream's Retry-After holds all requests back, nothing is left although the rate is not used up.
func TestFieldsOfAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, served := limiter(t, rates(quotient.PerSecond(100)), quotient.Policy(policy.Tracking{}),
			quotient.BeyondShare()), 0
		h := handle(l, func(w http.ResponseWriter, _ *http.Request) {
			served++
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(http.StatusTooManyRequests)
		}, SendFields(FieldsDraft11))
		for asked := 1; asked <= 20; asked++ {
			w := ask(h, get(t, "/"))
			if served < asked {
				says(t, w, 429, draft(`"second";q=100;w=1`, `"second";r=0;t=`+w.Header().Get("Retry-After")))
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
			quotient.Rate{Name: "hour", Events: 1000, Per: time.Hour, Kind: quotient.Window}))
		h := Middleware(l, Path(), SendFields(FieldsXRateLimit))(ok)
		for range 979 {
			ask(h, get(t, "/"))
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		tested.Want(t, "X-RateLimit-Remaining", ask(h, get(t, "/")).Header().Get("X-RateLimit-Remaining"), "20")
		served := 0
		for ask(h, get(t, "/")).Code != http.StatusTooManyRequests {
			served++
		}
		tested.Want(t, "served then", served, 20)
	})
}

// Two Middlewares both send their limits, and X-RateLimit-* is the one with fewer requests left.
func TestFieldsOfTwoMiddlewares(t *testing.T) {
	few, many := rates(quotient.Rate{Name: "few", Events: 10, Per: time.Minute, Burst: 10}),
		rates(quotient.Rate{Name: "many", Events: 1000, Per: time.Second})
	for _, tt := range []struct {
		outer, inner quotient.Limit
		set          FieldSet
		want         string
	}{
		{few, many, FieldsDraft11, draft(`"few";q=10;w=60`+"\nRateLimit-Policy: "+`"many";q=1000;w=1`,
			`"few";r=9;t=6`+"\nRateLimit: "+`"many";r=999;t=1`)},
		{few, many, FieldsXRateLimit, xRate("10 9 6")},
		{many, few, FieldsXRateLimit, xRate("10 9 6")},
		{few, few, FieldsXRateLimit, xRate("10 9 6")},
	} {
		synctest.Test(t, func(t *testing.T) {
			inner := Middleware(limiter(t, tt.inner), Path(), SendFields(tt.set))(ok)
			says(t, ask(Middleware(limiter(t, tt.outer), Path(), SendFields(tt.set))(inner), get(t, "/")), 204, tt.want)
		})
	}
	w := httptest.NewRecorder()
	maps.Copy(w.Header(), fields("X-RateLimit-Remaining", "few", "X-RateLimit-Reset", "1")) // not of this package
	handle(limiter(t, many), ok, SendFields(FieldsXRateLimit)).ServeHTTP(w, get(t, "/"))
	tested.Want(t, "X-RateLimit-Remaining", w.Header().Get("X-RateLimit-Remaining"), "999")
}

// A refusal by a Middleware behind is no answer of the handler.
func TestRefusalBehindIsNoFeedback(t *testing.T) {
	l, heard := learning(t)
	inner := Middleware(limiter(t, quotient.Limit{Deny: true}), Path(), SendFields(FieldsDraft11))(ok)
	ask(Middleware(l, Path())(inner), get(t, "/"))
	heard.learned(t, gives(policy.Failed, 0))
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

// Neither of two Middlewares learns from what it has set or from what the other one says, and both learn from the
// handler's own fields.
func TestFieldsAreNoFeedback(t *testing.T) {
	plenty, foreign := rates(quotient.PerMinute(6e7)), policy.Quota{Limit: 100, Remaining: 50, Reset: 30 * time.Second}
	list := []string{"RateLimit-Policy", `"p";q=100;w=60`, "RateLimit", `"p";r=50;t=30`}
	x := []string{"X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "50", "X-RateLimit-Reset", "30"}
	for name, tt := range map[string]struct {
		set   FieldSet
		says  []string
		want  policy.Quota
		lines int // of RateLimit or X-RateLimit-Limit
	}{
		"draft": {FieldsDraft11, nil, policy.Quota{}, 2}, "x": {FieldsXRateLimit, nil, policy.Quota{}, 1},
		"draft, replaced": {FieldsDraft11, list, foreign, 1}, "draft, added to": {FieldsDraft11, list, foreign, 3},
		"x, added to": {FieldsXRateLimit, x, foreign, 2},
	} {
		for _, hijackable := range []bool{false, true} {
			outer, inner := &sink{}, &sink{}
			h := handle(limiter(t, plenty, quotient.Policy(inner)), func(w http.ResponseWriter, _ *http.Request) {
				for i := 0; i < len(tt.says); i += 2 {
					if strings.Contains(name, "replaced") {
						w.Header().Del(tt.says[i])
					}
					w.Header().Add(tt.says[i], tt.says[i+1])
				}
			}, SendFields(tt.set))
			answer := httptest.NewRecorder()
			w := http.ResponseWriter(answer)
			if hijackable {
				w = onlyUnwrap{&full{ResponseRecorder: answer}}
			}
			front := Middleware(limiter(t, plenty, quotient.Policy(outer)), Path(), SendFields(tt.set))
			front(h).ServeHTTP(w, get(t, "/"))
			n := max(len(answer.Header()["Ratelimit"]), len(answer.Header()["X-Ratelimit-Limit"]))
			want := []policy.Quota{tt.want}
			if n != tt.lines || !slices.Equal(outer.heard, want) || !slices.Equal(inner.heard, want) {
				t.Errorf("%s: %d lines are left, and the policies got %+v and %+v; want %d and %+v", name, n,
					outer.heard, inner.heard, tt.lines, tt.want)
			}
		}
	}
}

// The fields of a Middleware in front about its own limit last no longer than the refusal of one behind it.
func TestFieldsInFrontAgreeWithARefusalBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for set, want := range map[FieldSet]string{
			FieldsDraft11: draft(`"hour";q=100;w=3600`, `"hour";r=99;t=5`), FieldsXRateLimit: xRate("100 99 5"),
		} {
			hour := quotient.Rate{Name: "hour", Events: 100, Per: time.Hour, Burst: 100}
			front := Middleware(limiter(t, rates(hour)), Path(), SendFields(set))
			behind := limiter(t, rates(quotient.Every(5*time.Second)))
			behind.Allow("/")
			says(t, ask(front(handle(behind, ok)), get(t, "/")), 429, want)
			w := ask(front(handle(behind, ok, SendFields(set))), get(t, "/"))
			if left := w.Header().Get("X-RateLimit-Remaining"); set == FieldsXRateLimit && left != "0" {
				t.Errorf("%s left in a refusal", left)
			}
		}
	})
	h := http.Header{"Ratelimit": {`"a";r=1;t=60, x;r=2`, "not a list;;"}, "X-Ratelimit-Reset": {"1700000000"}}
	lowerResets(h, 5)
	got := fmt.Sprint(h)
	if got != `map[Ratelimit:["a";r=1;t=5, x;r=2 not a list;;] X-Ratelimit-Reset:[1700000000]]` {
		t.Error(got)
	}
}

// member is one of both fields of draft 11.
type member struct{ q, w, r, t int64 }

// none stands for a parameter that is absent.
const none = -1

// readDraft11 parses both fields, as any other reader of structured fields would.
func readDraft11(t *rapid.T, h http.Header) map[string]member {
	out := map[string]member{}
	for _, field := range []string{"Ratelimit-Policy", "Ratelimit"} {
		list, err := httpsfv.UnmarshalList(h[field])
		if err != nil {
			t.Fatalf("%s %q: %v", field, h[field], err)
		}
		for _, m := range list {
			item := m.(httpsfv.Item)
			number := func(name string) int64 {
				if v, is := item.Params.Get(name); is {
					return v.(int64)
				}
				return none
			}
			name := item.Value.(string)
			if field == "Ratelimit-Policy" {
				out[name] = member{q: number("q"), w: number("w")}
				continue
			}
			x, is := out[name]
			if !is {
				t.Fatalf("%q is no policy of %q", name, h["Ratelimit-Policy"])
			}
			x.r, x.t = number("r"), number("t")
			out[name] = x
		}
	}
	return out
}

// drawFleetLimit is a limit with buckets, large bursts, paced rates, windows and slots, in whole and in odd
// numbers.
func drawFleetLimit(t *rapid.T) quotient.Limit {
	limit := quotient.Limit{InFlight: rapid.IntRange(0, 4).Draw(t, "in flight")}
	for i := range rapid.SampledFrom([]int{2, 3, 1, 0}).Draw(t, "rates") {
		r := quotient.Rate{
			Name:   "r" + strconv.Itoa(i),
			Events: rapid.SampledFrom([]float64{.3, 1, 2, 2.5, 7, 30, 100}).Draw(t, "events"),
			Per:    rapid.SampledFrom([]time.Duration{1e8, 1e9, 15e8, 1e10, 6e10, 36e11}).Draw(t, "per"),
		}
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			r.Burst = rapid.SampledFrom([]int{1, 3, 10, 250}).Draw(t, "burst")
		case 1:
			r.Kind = quotient.Window
		case 2:
			r.Kind = quotient.Paced
		}
		limit.Rates = append(limit.Rates, r)
	}
	return limit
}

// agrees fails unless the policy is the rule, and nothing in the answer speaks against something else in it.
func agrees(t *rapid.T, limit quotient.Limit, replicas int, w *httptest.ResponseRecorder) {
	now := readDraft11(t, w.Header())
	retry, err := strconv.ParseInt(w.Header().Get("Retry-After"), 10, 64)
	if refused := w.Code >= 429; refused != (err == nil) {
		t.Fatalf("status %d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
	}
	for name, x := range now {
		switch {
		case x.r < 0 || x.r > x.q:
			t.Fatalf("%s: r=%d of q=%d", name, x.r, x.q)
		case err == nil && x.t > retry:
			t.Fatalf("%s: t=%d in a refusal with Retry-After %d", name, x.t, retry)
		}
	}
	if rule := w.Header().Get("Refused-By"); err == nil && now[rule].r != 0 {
		t.Fatalf("%s refuses, and has r=%d", rule, now[rule].r)
	}
	for _, r := range limit.Rates {
		x := now[r.Name]
		per := float64(x.q) / float64(x.w)
		if want := r.Events / r.Per.Seconds(); per > want*(1+1e-9) {
			t.Fatalf("%+v is sent as %+v, %v a second and not %v", r, x, per, want)
		}
		if wholeRate := r.Events == math.Trunc(r.Events) && r.Per%time.Second == 0; wholeRate &&
			float64(r.Burst) <= r.Events &&
			(float64(x.q) != r.Events || x.w != int64(r.Per/time.Second)) {
			t.Fatalf("%+v is sent as %+v", r, x)
		}
		if part := r.Burst / replicas; part > 1 &&
			float64(r.Burst) > r.Events*max(1, float64(time.Second)/float64(r.Per)) && x.q != int64(r.Burst) {
			t.Fatalf("%+v is sent as %+v: its burst is another", r, x)
		}
	}
}

// agreesX is agrees for X-RateLimit-*.
func agreesX(t *rapid.T, w *httptest.ResponseRecorder) {
	var x [3]int64
	for i, name := range xNames {
		n, is := numberIn(w.Header()[name])
		if !is {
			t.Fatalf("%s: %q", name, w.Header()[name])
		}
		x[i] = n
	}
	heard, garbage := anyUpstream.Feedback(w.Code, w.Header(), time.Time{})
	want := policy.Quota{Limit: float64(x[0]), Remaining: float64(x[1]), Reset: inSeconds(float64(x[2]))}
	if heard.Quotas[0] != want || garbage != 0 {
		t.Fatalf("our own client understands %+v of %v", heard, w.Header())
	}
	retry, err := strconv.ParseInt(w.Header().Get("Retry-After"), 10, 64)
	switch {
	case x[1] < 0 || x[1] > x[0]:
		t.Fatalf("%d left of %d", x[1], x[0])
	case err == nil && (x[2] > retry || x[1] != 0):
		t.Fatalf("%d left and reset in %d, in a refusal with Retry-After %d", x[1], x[2], retry)
	}
}

// No answer's fields speak against its status, its Retry-After or each other, whatever the limits and however
// they have been used; and what is sent is what was configured.
func TestPropertyFieldsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			limit := drawFleetLimit(t)
			pool := quotient.Pool{Replicas: rapid.IntRange(1, 5).Draw(t, "replicas")}
			pool.Ordinal = rapid.IntRange(0, pool.Replicas).Draw(t, "ordinal")
			l, err := quotient.New(limit, quotient.StartPool(pool))
			tested.Must(t, err)
			own := drawFleetLimit(t)
			tested.Must(t, l.Override("own", &own, 0))
			handlers := map[FieldSet]http.Handler{}
			held, release := 0, make(chan struct{})
			for _, set := range []FieldSet{FieldsDraft11, FieldsXRateLimit} {
				handlers[set] = Middleware(l, Header("Key"), SendFields(set))(http.HandlerFunc(
					func(_ http.ResponseWriter, r *http.Request) {
						if r.Header.Get("Hold") != "" {
							held++
							<-release
						}
					}))
			}
			defer func() { close(release); synctest.Wait() }()
			for range 50 {
				key, limit := "any", limit
				if rapid.Bool().Draw(t, "own") {
					key, limit = "own", own
				}
				r, _ := http.NewRequest(http.MethodGet, "/", nil)
				r.Header.Set("Key", key)
				switch rapid.SampledFrom([]string{"draft", "draft", "x", "use", "wait", "hold", "release"}).
					Draw(t, "step") {
				case "use":
					for range rapid.SampledFrom([]int{2, 10, 300}).Draw(t, "asks") {
						l.Allow(key)
					}
				case "wait":
					time.Sleep(time.Duration(rapid.SampledFrom([]float64{1e7, 3e8, 1e9, 7e9, 1e11}).Draw(t,
						"pause")))
				case "hold":
					r.Header.Set("Hold", "yes")
					go handlers[FieldsDraft11].ServeHTTP(httptest.NewRecorder(), r)
					synctest.Wait()
				case "release":
					for ; held > 0; held-- {
						release <- struct{}{}
					}
					synctest.Wait()
				case "x":
					w := httptest.NewRecorder()
					handlers[FieldsXRateLimit].ServeHTTP(w, r)
					if len(limit.Rates) > 0 {
						agreesX(t, w)
					}
				case "draft":
					d := l.Check(key)
					w := httptest.NewRecorder()
					handlers[FieldsDraft11].ServeHTTP(w, r)
					w.Header().Set("Refused-By", d.Rule.Name)
					agrees(t, limit, pool.Replicas, w)
				}
			}
		})
	})
}

// A refusal's fields say that nothing is left, at least until Retry-After, whatever the reason.
func TestFieldsAgreeWithTheRefusal(t *testing.T) {
	second := quotient.Rate{Name: "second", Events: 100, Per: time.Second}
	every := quotient.Every(time.Minute)
	twice := quotient.Rate{Name: "s", Events: 1, Per: time.Second, Burst: 2}
	third := quotient.StartPool(quotient.Pool{Replicas: 4, Ordinal: 3})
	awaits := []quotient.Option{quotient.AwaitPool(time.Minute), quotient.Replicas(4)}
	for name, tt := range map[string]struct {
		limit    quotient.Limit
		opts     []quotient.Option
		asks     int // before the refusal, by the limiter itself
		draft, x string
	}{
		"a turn to come": {rates(every), []quotient.Option{third}, 0,
			draft(`"interval";q=1;w=60`, `"interval";r=0;t=120`), xRate("1 0 120")},
		"used up": {rates(twice), nil, 2, draft(`"s";q=2;w=2`, `"s";r=0;t=1`), xRate("2 0 1")},
		"one of two used up": {rates(quotient.Every(time.Second), quotient.PerHour(3600)), nil, 1,
			draft(`"interval";q=1;w=1, "hour";q=3600;w=3600`, `"interval";r=0;t=1, "hour";r=`), xRate("1 0 1")},
		"no slot here": {quotient.Limit{Rates: []quotient.Rate{second}, InFlight: 2},
			[]quotient.Option{quotient.Replicas(4)}, 0,
			draft(`"second";q=100;w=1, "in-flight";q=2;qu="concurrent-requests"`, `"second";r=25;t=0, "in-flight";r=0`),
			xRate("100 0 1")},
		"no word on the pool": {rates(second), awaits, 0, "", ""},
	} {
		for set, want := range map[FieldSet]string{FieldsDraft11: tt.draft, FieldsXRateLimit: tt.x} {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, tt.limit, tt.opts...)
				for range tt.asks {
					l.Allow("/")
				}
				w := ask(handle(l, ok, SendFields(set)), get(t, "/"))
				got := fieldsOf(w.Header())
				if w.Code < 429 || !strings.HasPrefix(got, want) || want == "" && got != "" {
					t.Errorf("%s: status %d,\n%s\nwant\n%s", name, w.Code, got, want)
				}
				// What other limiters have left is of no use while a pool is awaited.
				behind := Also(limiter(t, rates(second), awaits...), Path())
				front := handle(limiter(t, rates(second)), ok, behind, SendFields(set))
				says(t, ask(front, get(t, "/")), 503, "")
			})
		}
	}
}
