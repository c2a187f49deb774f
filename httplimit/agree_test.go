package httplimit

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dunglas/httpsfv"
	"pgregory.net/rapid"

	"github.com/quotient-go/quotient"
)

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
			r.Aligned = true
		case 2:
			r.Burst = 1
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
	understood(t, limit, w, now, retry)
}

// understood fails unless our own client takes the fields for what they say.
func understood(t *rapid.T, limit quotient.Limit, w *httptest.ResponseRecorder, now map[string]member,
	retry int64) {
	heard, garbage := anyUpstream.Feedback(w.Code, w.Header(), time.Time{})
	if garbage != 0 {
		t.Fatalf("%d pieces of garbage in %v", garbage, w.Header())
	}
	if w.Code == 429 && heard.RetryAfter != time.Duration(retry)*time.Second {
		t.Fatalf("it waits for %v, and not for %d s", heard.RetryAfter, retry)
	}
	if len(limit.Rates) == 0 {
		return
	}
	got := heard.Quotas[0]
	for _, r := range limit.Rates {
		if x := now[r.Name]; got.Limit == float64(x.q) && got.Remaining == float64(x.r) &&
			got.Reset == inSeconds(float64(x.t)) {
			return
		}
	}
	t.Fatalf("it understands %+v of %v", got, w.Header())
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
			if err != nil {
				t.Fatal(err)
			}
			own := drawFleetLimit(t)
			if err := l.Override("own", &own); err != nil {
				t.Fatal(err)
			}
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
					w.Header().Set("Refused-By", d.Rule)
					agrees(t, limit, pool.Replicas, w)
				}
			}
		})
	})
}

// A window that carries a fraction over has an event more than the quota: no more than the quota is sent.
func TestNoMoreIsLeftThanTheQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		half := quotient.Rate{Name: "a", Events: 2.5, Per: time.Minute, Aligned: true}
		l := limiter(t, quotient.Limit{Rates: []quotient.Rate{half}, InFlight: 1},
			quotient.StartPool(quotient.Pool{Replicas: 1, Ordinal: 1}))
		h := Middleware(l, Path(), SendFields(FieldsDraft11))(ok)
		l.TryAcquire("/")
		most := 0.0
		for range 4 {
			time.Sleep(time.Minute)
			most = max(most, l.AppendState(nil, "/")[0].Left)
			if got := ask(h, get(t, "/")).Header().Get("RateLimit"); got != `"a";r=2;t=1, "in-flight";r=0` {
				t.Errorf("RateLimit %s", got)
			}
		}
		if most != 3 {
			t.Errorf("%v were left at most, want 3", most)
		}
	})
}

// The fields of a Middleware in front about its own limit last no longer than the refusal of one behind it.
func TestFieldsInFrontAgreeWithARefusalBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		front := limiter(t, rates(quotient.Rate{Name: "hour", Events: 100, Per: time.Hour, Burst: 100}))
		behind := limiter(t, rates(quotient.Rate{Name: "s", Events: 1, Per: 5 * time.Second, Burst: 1}))
		behind.Allow("/")
		for set, want := range map[FieldSet]string{
			FieldsDraft11:    "RateLimit-Policy: \"hour\";q=100;w=3600\nRateLimit: \"hour\";r=98;t=5",
			FieldsXRateLimit: "X-RateLimit-Limit: 100\nX-RateLimit-Remaining: 99\nX-RateLimit-Reset: 5",
		} {
			outer := Middleware(front, Path(), SendFields(set))
			w := ask(outer(Middleware(behind, Path())(ok)), get(t, "/"))
			if set == FieldsXRateLimit {
				want = fmt.Sprintf("X-RateLimit-Limit: 100\nX-RateLimit-Remaining: %s\nX-RateLimit-Reset: 5",
					w.Header().Get("X-RateLimit-Remaining"))
			} else {
				want = fmt.Sprintf("RateLimit-Policy: \"hour\";q=100;w=3600\nRateLimit: \"hour\";r=%d;t=5",
					int(front.AppendState(nil, "/")[0].Left))
			}
			if got := fieldsOf(w.Header()); w.Code != 429 || got != want {
				t.Errorf("status %d, fields\n%s\nwant 429 and\n%s", w.Code, got, want)
			}
			w = ask(outer(Middleware(behind, Path(), SendFields(set))(ok)), get(t, "/"))
			if left := w.Header().Get("X-RateLimit-Remaining"); set == FieldsXRateLimit && left != "0" {
				t.Errorf("%s left in a refusal", left)
			}
		}
	})
	h := http.Header{
		"Ratelimit":         {`"a";r=1;t=60, x;r=2`, "not a list;;"},
		"X-Ratelimit-Reset": {"1700000000"},
	}
	lowerResets(h, 5)
	got := fmt.Sprint(h)
	if got != `map[Ratelimit:["a";r=1;t=5, x;r=2 not a list;;] X-Ratelimit-Reset:[1700000000]]` {
		t.Error(got)
	}
}
