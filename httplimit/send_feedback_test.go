package httplimit

import (
	"bufio"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/policy"
)

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
			n := max(len(w.Header().Values("RateLimit")), len(w.Header().Values("X-RateLimit-Limit")))
			if n != tt.lines {
				t.Errorf("%d lines are left, want %d", n, tt.lines)
			}
			if !slices.Equal(s.heard, []policy.Quota{tt.want}) {
				t.Errorf("the policy got %+v, want %+v", s.heard, tt.want)
			}
		})
	}
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
