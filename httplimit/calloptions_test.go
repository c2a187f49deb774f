package httplimit

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
)

// priced is a limit of requests, of two other units and of slots.
var priced = quotient.Limit{InFlight: 8, Rates: []quotient.Rate{
	{Name: "minute", Events: 20, Per: time.Minute, Burst: 20},
	{Name: "minute", Unit: "tokens", Events: 100, Per: time.Minute, Burst: 100},
	{Name: "hour", Unit: "bytes", Events: 1000, Per: time.Hour, Burst: 1000},
}}

// left is what is left of each rule of a key.
func left(l *quotient.Limiter, key string) (out [4]float64) {
	for i, r := range l.Explain(key).Rules {
		out[i] = r.Left
	}
	return out
}

// unread makes a body of unknown length of a request.
func unread(r *http.Request) { r.Method, r.Body, r.ContentLength = "POST", newBody("text"), -1 }

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
		{"weight=9", 413, all, "in-flight"}, {"tokens=101", 413, all, "minute"},
		{"weight=9000000000000000000", 413, all, "in-flight"}, {"bytes=9000000000000000000", 413, all, "hour"},
	} {
		synctest.Test(t, func(t *testing.T) { transportCounts(t, tt.query, tt.during, tt.status == 413) })
		for _, wait := range [][]Option{nil, {Wait(Forever)}} {
			for _, change := range []func(*http.Request){func(*http.Request) {}, unread} {
				synctest.Test(t, func(t *testing.T) {
					l, during := limiter(t, priced), all
					h := handle(l, func(w http.ResponseWriter, r *http.Request) { during = left(l, "/"); ok(w, r) },
						append(wait, WeightBy(number("weight")), CostBy("tokens", number("tokens")),
							CostBy("bytes", func(*http.Request) int { return 5 }), CostBy("bytes", number("bytes")))...)
					r := get(t, "/?"+tt.query)
					change(r)
					w := ask(h, r)
					if after := left(l, "/"); w.Code != tt.status || during != tt.during || after[3] != 8 {
						t.Errorf("%s: status %d, %v left and then %v; want %d, %v and 8 slots", tt.query, w.Code,
							during, after, tt.status, tt.during)
					}
					if tt.violated != "" {
						checkRefusal(t, w, 413, "", []string{tt.violated})
					}
					idle(t, l)
				})
			}
		}
	}
}

// transportCounts fails unless a Transport counts a request as a Middleware does, and asks once for each RoundTrip.
func transportCounts(t *testing.T, ask string, during [4]float64, tooLarge bool) {
	l, seen, asked := limiter(t, priced), left(limiter(t, priced), "h"), 0
	tr := &Transport{Limiter: l, Weight: number("weight"), Plan: query("plan"),
		Cost: map[string]func(*http.Request) int{"bytes": number("bytes"), "tokens": func(r *http.Request) int {
			asked++
			return number("tokens")(r)
		}}}
	tr.Base = base(func(*http.Request) (*http.Response, error) {
		seen = left(l, "h")
		return &http.Response{Body: http.NoBody}, nil
	})
	_, err := tr.RoundTrip(request(t, "http://h/?"+ask, nil))
	limited, refused := errors.AsType[*quotient.LimitedError](err)
	if refused != tooLarge || refused && limited.Reason != quotient.ReasonTooLarge || seen != during || asked != 1 {
		t.Errorf("%s: %v, %v left, asked %d times; want %v", ask, err, seen, asked, during)
	}
	idle(t, l)
}

// The fields say which unit refuses, of two rules that share a name too.
func TestFieldsOfCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, priced)
		h := handle(l, ok, SendFields(FieldsDraft11), CostBy("tokens", number("tokens")))
		const policies = `"minute";q=20;w=60, "minute/tokens";q=100;w=60;qu="tokens", ` +
			`"hour";q=1000;w=3600;qu="bytes", "in-flight";q=8;qu="concurrent-requests"`
		for _, tt := range []struct {
			tokens string
			status int
			want   string
		}{
			{"70", 204, `"minute";r=19;t=3, "minute/tokens";r=30;t=42, "hour";r=1000;t=0, "in-flight";r=7`},
			{"40", 429, `"minute";r=19;t=3, "minute/tokens";r=0;t=6, "hour";r=1000;t=0, "in-flight";r=8`},
			{"101", 413, `"minute";r=19;t=3, "minute/tokens";r=30;t=42, "hour";r=1000;t=0, "in-flight";r=8`},
		} {
			says(t, ask(h, get(t, "/?tokens="+tt.tokens)), tt.status, draft(policies, tt.want))
		}
	})
}

// A handler gives back what does not count, and the slot stays until it returns.
func TestRefundable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, priced)
		h := handle(l, func(_ http.ResponseWriter, r *http.Request) {
			p, _ := PermitFrom(r.Context())
			tested.Want(t, "left before", left(l, "/"), [4]float64{16, 100, 1000, 4})
			p.Refund()
			tested.Want(t, "left then", left(l, "/"), [4]float64{20, 100, 1000, 4})
		}, WeightBy(number("weight")), Refundable())
		ask(h, get(t, "/?weight=4"))
		tested.Want(t, "left behind", left(l, "/"), [4]float64{20, 100, 1000, 8})
		idle(t, l)
	})
}

// A handler that knows the real cost of a request corrects the permit, also through wrapped writers.
func TestPermitFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, r := range []*http.Request{get(t, "/?tokens=60"), upgrade(t)} {
			r.URL.RawQuery = "tokens=60"
			l := limiter(t, priced)
			ask(handle(l, func(_ http.ResponseWriter, r *http.Request) {
				if p, ok := PermitFrom(r.Context()); !ok || p.Correct("tokens", 15) != nil {
					t.Error("no permit that can be corrected")
				}
			}, CostBy("tokens", number("tokens"))), r)
			tested.Want(t, "tokens left", left(l, "/")[1], 85)
			idle(t, l)
		}
		ask(handle(limiter(t, priced), func(_ http.ResponseWriter, r *http.Request) {
			if _, ok := PermitFrom(r.Context()); ok {
				t.Error("a permit without CostBy")
			}
		}), get(t, "/"))
	})
}

// planned returns a limiter with two plans beside its own limit.
func planned(t testing.TB) *quotient.Limiter {
	return limiter(t, minutely(2),
		quotient.Plans(map[string]quotient.Limit{"free": minutely(3), "paid": minutely(5)}))
}

// A request comes under the limit of its plan, with and without fields, at once and waiting, with and without
// a body. One of an unknown plan comes under the limiter's own limit, and is counted.
func TestPlanBy(t *testing.T) {
	for _, tt := range []struct {
		plan, policy, fields string
		served               int
		unknown              bool
	}{
		{"", `"minute";q=2;w=60`, `"minute";r=1;t=30`, 2, false},
		{"free", `"minute";q=3;w=60`, `"minute";r=2;t=20`, 3, false},
		{"paid", `"minute";q=5;w=60`, `"minute";r=4;t=12`, 5, false},
		{"gold", `"minute";q=2;w=60`, `"minute";r=1;t=30`, 2, true},
	} {
		for fields, opts := range map[string][]Option{
			"": nil, draft(tt.policy, tt.fields): {SendFields(FieldsDraft11)},
		} {
			for _, wait := range [][]Option{nil, {Wait(time.Second)}} { // in which none has its turn
				for _, change := range []func(*http.Request){func(*http.Request) {}, unread} {
					synctest.Test(t, func(t *testing.T) {
						l, none := planned(t), PlanBy(func(*http.Request) string { return "none" })
						h := handle(l, ok, slices.Concat(opts, wait, []Option{none, PlanBy(query("plan"))})...)
						for i := range tt.served + 2 {
							r := get(t, "/?plan="+tt.plan)
							change(r)
							w := ask(h, r)
							if i >= tt.served {
								checkRefusal(t, w, 429, w.Header().Get("Retry-After"), []string{"minute"})
							} else if w.Code != 204 || i == 0 && fieldsOf(w.Header()) != fields {
								t.Errorf("%q: request %d: status %d, fields\n%s\nwant\n%s", tt.plan, i+1, w.Code,
									fieldsOf(w.Header()), fields)
							}
						}
						tr := &Transport{Base: newNoBase(), Limiter: l, Plan: query("plan"),
							Priority: func(*http.Request) quotient.Priority { return quotient.PriorityHigh }}
						for i := range tt.served + 1 {
							ctx, cancel := context.WithTimeout(t.Context(), time.Second)
							_, err := tr.RoundTrip(request(t, "http://h/?plan="+tt.plan, nil).WithContext(ctx))
							if cancel(); (err == nil) != (i < tt.served) || err != nil && !errors.Is(err, quotient.ErrLimited) {
								t.Errorf("%q: request %d of a Transport: %v", tt.plan, i+1, err)
							}
						}
						asks := l.Stats().Refused[quotient.ReasonBadRequest]
						tested.Not(t, tt.unknown != (asks >= uint64(tt.served)), "%q: %d asks of no known plan", tt.plan, asks)
						idle(t, l)
					})
				}
			}
		}
	}
}

func TestPriorities(t *testing.T) {
	byHeader := func(r *http.Request) quotient.Priority {
		n, _ := strconv.Atoi(r.Header.Get("Class"))
		return quotient.Priority(n)
	}
	synctest.Test(t, func(t *testing.T) {
		l, held := taken(t)
		var order []string
		record := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			order = append(order, r.Header.Get("Class"))
		})
		h := handle(l, record, PriorityBy(byHeader), Wait(Forever))
		tr := &Transport{Base: recorder{record}, Limiter: l, Key: Constant("/"), Priority: byHeader}
		for class := quotient.PriorityLow; class <= quotient.PriorityCritical; class++ {
			requests := []*http.Request{get(t, "/"), post(t, newBody("text")), request(t, "http://h/", nil)}
			for i, r := range requests {
				r.Header.Set("Class", strconv.Itoa(int(class)))
				go func() {
					if i < 2 {
						ask(h, r)
					} else if resp, err := tr.RoundTrip(r); err == nil {
						_ = resp.Body.Close()
					}
				}()
				synctest.Wait()
			}
		}
		held.Release()
		synctest.Wait()
		critical, high := strconv.Itoa(int(quotient.PriorityCritical)), strconv.Itoa(int(quotient.PriorityHigh))
		if want := []string{critical, critical, critical, high, high, high}; len(order) != 12 ||
			!slices.Equal(order[:6], want) {
			t.Errorf("served in the order %s, want %s first", order, want)
		}
		wild := PriorityBy(func(*http.Request) quotient.Priority { return 100 })
		tested.Want(t, "status for a priority beyond the classes", ask(handle(l, ok, wild), get(t, "/")).Code, 204)
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
