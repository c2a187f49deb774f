package httplimit

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/policy"
)

var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusNoContent)
})

// ask sends one request to a handler and returns the answer.
func ask(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestRefusals(t *testing.T) {
	minute := quotient.Rates(quotient.Rate{Name: "minute", Events: 1, Per: time.Minute, Burst: 1})
	hour := quotient.Rates(quotient.Rate{Name: "hour", Events: 1, Per: time.Hour, Burst: 1})
	tests := []struct {
		name       string
		limit      quotient.Limit
		opts       []quotient.Option
		wait       time.Duration
		status     int
		retryAfter string
		violated   []string
	}{
		{"rate", minute, nil, 0, 429, "60", []string{"minute"}},
		{"rate, queue full", hour, []quotient.Option{quotient.MaxWaiting(0, 0)}, Forever, 429, "3600",
			[]string{"hour"}},
		{"rate, wait too long", hour, []quotient.Option{quotient.MaxWait(time.Minute)}, Forever, 429, "3600",
			[]string{"hour"}},
		{"rate, bounded wait too long", hour, nil, time.Minute, 429, "3600", []string{"hour"}},
		{"in flight", oneSlot, nil, 0, 429, "1", []string{"in-flight"}},
		{"share", oneSlot, []quotient.Option{quotient.Replicas(2)}, 0, 503, "1", []string{"in-flight"}},
		{"share, waiting", oneSlot, []quotient.Option{quotient.Replicas(2)}, Forever, 503, "1",
			[]string{"in-flight"}},
		{"share, bounded wait", oneSlot, []quotient.Option{quotient.Replicas(2)}, time.Minute, 503, "1",
			[]string{"in-flight"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, tt.limit, tt.opts...)
				l.TryAcquire("k")
				opts := []Option{}
				if tt.wait > 0 {
					opts = append(opts, Wait(tt.wait))
				}
				w := ask(Middleware(l, Constant("k"), opts...)(ok), get(t, "/"))
				checkRefusal(t, w, tt.status, tt.retryAfter, tt.violated)
			})
		})
	}
}

func checkRefusal(t *testing.T, w *httptest.ResponseRecorder, status int, retryAfter string,
	violated []string) {
	t.Helper()
	h := w.Result().Header
	if w.Code != status || h.Get("Retry-After") != retryAfter {
		t.Errorf("status %d, Retry-After %q; want %d, %q", w.Code, h.Get("Retry-After"), status, retryAfter)
	}
	if h.Get("Cache-Control") != "no-store" || h.Get("Content-Type") != "application/problem+json" {
		t.Errorf("Cache-Control %q, Content-Type %q", h.Get("Cache-Control"), h.Get("Content-Type"))
	}
	var p map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("body %q: %v", w.Body, err)
	}
	wantType := map[int]string{
		429: "https://iana.org/assignments/http-problem-types#quota-exceeded",
		413: "https://iana.org/assignments/http-problem-types#quota-exceeded",
		503: "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
	}[status]
	seconds := ""
	if n, told := p["retry-after-seconds"].(float64); told {
		seconds = strconv.Itoa(int(n))
	}
	if detail, _ := p["detail"].(string); seconds != retryAfter || !strings.HasSuffix(detail, ".") {
		t.Errorf("retry-after-seconds %q, detail %q; want %q and a sentence", seconds, detail, retryAfter)
	}
	if p["type"] != wantType || p["status"] != float64(status) || p["title"] == "" {
		t.Errorf("problem %v, want type %s and status %d", p, wantType, status)
	}
	rules := []string{}
	for _, rule := range p["violated-policies"].([]any) {
		rules = append(rules, rule.(string))
	}
	if !slices.Equal(rules, violated) {
		t.Errorf("violated-policies %q, want %q", rules, violated)
	}
}

func TestDeniedIsRefusedAtOnce(t *testing.T) {
	b := newBody("text")
	for _, opts := range [][]Option{nil, {Wait(time.Hour)}, {Wait(Forever)}} {
		for _, r := range []*http.Request{get(t, "/"), post(t, b)} {
			l := limiter(t, quotient.Limit{Deny: true})
			w := ask(Middleware(l, Path(), opts...)(ok), r)
			if w.Code != 429 || w.Header().Get("Retry-After") != "" { // no waiting helps
				t.Errorf("status %d, Retry-After %q; want 429 and none", w.Code,
					w.Header().Get("Retry-After"))
			}
		}
	}
	if text := readAll(t, b); text != "text" {
		t.Errorf("of the body %q is left, want all of it", text)
	}
}

func TestStatusOfEveryReason(t *testing.T) {
	for reason := quotient.ReasonNone; reason <= quotient.ReasonPool; reason++ {
		want := 429
		if reason == quotient.ReasonTooLarge {
			want = 413
		}
		if reason == quotient.ReasonShare || reason == quotient.ReasonKeys || reason == quotient.ReasonPool {
			want = 503
		}
		if got := statusOf(reason); got != want {
			t.Errorf("status of reason %v is %d, want %d", reason, got, want)
		}
	}
}

func TestRetryAfterIsRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		-1: 1, 0: 1, 1: 1, time.Second: 1, time.Second + 1: 2, 2*time.Second - 1: 2, time.Hour: 3600,
		1<<63 - 1: 9223372037,
	} {
		if got := wholeSeconds(d); got != want {
			t.Errorf("%v is sent as %d, want %d", d, got, want)
		}
	}
}

func TestRefusalWithoutARule(t *testing.T) {
	w := httptest.NewRecorder()
	w.Header().Set("Content-Length", "7")
	w.Header().Set("ETag", `"x"`)
	(&refusal{status: 503}).write(w, get(t, "/"), nil)
	checkRefusal(t, w, 503, "1", []string{})
	if w.Header().Get("Content-Length") != "" || w.Header().Get("ETag") != "" {
		t.Errorf("fields of another answer are left: %v", w.Header())
	}
}

func TestContextThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, oneSlot)
		permit, _ := l.TryAcquire("k")
		h := Middleware(l, Constant("k"), Wait(Forever))(ok)
		for _, r := range []*http.Request{get(t, "/"), post(t, newBody("text")), post(t, newBody(long))} {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			checkRefusal(t, ask(h, r.WithContext(ctx)), 503, "1", []string{})
			cancel()
		}
		permit.Release()
		idle(t, l)
	})
}

// A turn that lies beyond the request's deadline is refused at once, with the
// time until the turn.
func TestDeadlineBeforeTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, quotient.Rates(quotient.Rate{Name: "minute", Events: 1, Per: time.Minute, Burst: 1}))
		l.TryAcquire("k")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		w := ask(Middleware(l, Constant("k"), Wait(Forever))(ok), get(t, "/").WithContext(ctx))
		checkRefusal(t, w, 429, "60", []string{"minute"})
		if waited := time.Since(start); waited != 0 {
			t.Errorf("refused after %v, want at once", waited)
		}
	})
}

func TestRequestsWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, quotient.Rates(quotient.Every(time.Second)))
		h := Middleware(l, Path(), Wait(Forever))(ok)
		start := time.Now()
		for range 4 {
			if w := ask(h, get(t, "/a")); w.Code != 204 {
				t.Fatalf("status %d, want 204", w.Code)
			}
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("four requests took %v, want 3s", took)
		}
		if w := ask(h, get(t, "/b")); w.Code != 204 || time.Since(start) != 3*time.Second {
			t.Error("another key waited too")
		}
	})
}

func TestLongKeysOfACustomFunctionAreHashed(t *testing.T) {
	l := limiter(t, oneSlot)
	h := Middleware(l, func(*http.Request) string {
		return long
	})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		for state := range l.Keys() {
			key := state.Key
			if key != bound(long) {
				t.Errorf("key of %d bytes, want a hash", len(key))
			}
		}
	}))
	ask(h, get(t, "/"))
	idle(t, l)
}

func TestPanicReleasesOnce(t *testing.T) {
	learner, heard := learning(t)
	for _, l := range []*quotient.Limiter{limiter(t, oneSlot), learner} {
		for _, value := range []any{http.ErrAbortHandler, "a bug"} {
			h := Middleware(l,
				Path())(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(value) }))
			func() {
				defer func() {
					if got := recover(); got != value {
						t.Errorf("recovered %v, want %v", got, value)
					}
				}()
				ask(h, get(t, "/"))
			}()
			idle(t, l)
		}
	}
	failed := policy.Feedback{Outcome: policy.Failed}
	heard.learned(t, failed, failed)
}

func TestHandlersAnswerIsFeedback(t *testing.T) {
	l, heard := learning(t)
	tests := []struct {
		name   string
		handle func(http.ResponseWriter)
		want   policy.Feedback
	}{
		{"nothing", func(http.ResponseWriter) {}, policy.Feedback{Outcome: policy.Success}},
		{"body", func(w http.ResponseWriter) { _, _ = w.Write([]byte("x")) },
			policy.Feedback{Outcome: policy.Success}},
		{"not found", func(w http.ResponseWriter) { w.WriteHeader(404) },
			policy.Feedback{Outcome: policy.Success}},
		{"server error", func(w http.ResponseWriter) { w.WriteHeader(500) },
			policy.Feedback{Outcome: policy.Success}},
		{"429", func(w http.ResponseWriter) { w.WriteHeader(429) },
			policy.Feedback{Outcome: policy.Throttled}},
		{"429 with a time", func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(429)
		}, policy.Feedback{Outcome: policy.Throttled, RetryAfter: 7 * time.Second}},
		{"503 with a time", func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "1.5")
			w.WriteHeader(503)
		}, policy.Feedback{Outcome: policy.Unavailable, RetryAfter: 1500 * time.Millisecond}},
		{"1xx first", func(w http.ResponseWriter) {
			w.WriteHeader(103)
			w.WriteHeader(429)
		}, policy.Feedback{Outcome: policy.Throttled}},
		{"the first status counts", func(w http.ResponseWriter) {
			w.WriteHeader(200)
			w.WriteHeader(429)
		}, policy.Feedback{Outcome: policy.Success}},
		{"flush first", func(w http.ResponseWriter) {
			w.(http.Flusher).Flush()
			w.WriteHeader(429)
		}, policy.Feedback{Outcome: policy.Success}},
		{"101", func(w http.ResponseWriter) { w.WriteHeader(101) }, policy.Feedback{Outcome: policy.Success}},
	}
	for _, tt := range tests {
		h := Middleware(l,
			Path())(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { tt.handle(w) }))
		t.Run(tt.name, func(t *testing.T) {
			ask(h, get(t, "/"))
			heard.learned(t, tt.want)
			idle(t, l)
		})
	}
}

func TestPanicAfterTheAnswerCountsAsTheAnswer(t *testing.T) {
	l, heard := learning(t)
	h := Middleware(l, Path())(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(429)
		panic(http.ErrAbortHandler)
	}))
	func() {
		defer func() { _ = recover() }()
		ask(h, get(t, "/"))
	}()
	heard.learned(t, policy.Feedback{Outcome: policy.Throttled})
	idle(t, l)
}

func TestMistakesPanicAtOnce(t *testing.T) {
	for name, mistake := range map[string]func(){
		"nil limiter":         func() { Middleware(nil, Path()) },
		"nil key":             func() { Middleware(limiter(t, oneSlot), nil) },
		"StreamLifetime zero": func() { StreamLifetime(0) },
		"UnreadBodyWait -1s":  func() { UnreadBodyWait(-time.Second) },
		"Wait zero":           func() { Wait(0) },
		"Wait -1ns":           func() { Wait(-1) },
		"CountGarbage nil":    func() { CountGarbage(nil) },
		"PriorityBy nil":      func() { PriorityBy(nil) },
		"SendFields unknown":  func() { SendFields(FieldsXRateLimit + 1) },
		"nil handler":         func() { Middleware(limiter(t, oneSlot), Path())(nil) },
		"Around nil limiter":  func() { Around(nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			mistake()
		}()
	}
}
