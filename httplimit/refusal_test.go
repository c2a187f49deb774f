package httplimit

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
)

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
	if status == 429 && retryAfter == "" { // denied: no waiting helps
		wantType = "about:blank"
	}
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
	tested.Not(t, !slices.Equal(rules, violated), "violated-policies %q, want %q", rules, violated)
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

// shortage is a limiter that is short of something, and how a request is refused that may wait for a minute.
type shortage struct {
	name    string
	limiter func(t *testing.T) *quotient.Limiter
	own     time.Duration // the deadline of the request; 0: none
	want    quotient.Decision
	after   time.Duration
	detail  string // but for when to try again
}

// short is a function that makes a limiter whose key / has admitted a request, with some that wait.
func short(waiters int, limit quotient.Limit, opts ...quotient.Option) func(t *testing.T) *quotient.Limiter {
	return func(t *testing.T) *quotient.Limiter {
		l := limiter(t, limit, opts...)
		l.TryAcquire("/")
		for range waiters {
			go func() { _, _ = l.Acquire(t.Context(), "/") }()
			synctest.Wait()
		}
		return l
	}
}

// crowded is a function that makes a limiter with no room for the key /.
func crowded(limit quotient.Limit) func(t *testing.T) *quotient.Limiter {
	return func(t *testing.T) *quotient.Limiter {
		l := limiter(t, limit, quotient.MaxKeys(1))
		for _, key := range []string{"a", "b"} { // b has the gate of the further keys
			l.TryAcquire(key)
		}
		return l
	}
}

const (
	usedUp  = `The quota of the limit "hour" is used up.`
	served  = "The limit of concurrent requests is reached."
	tooLate = "The request would have to wait longer than allowed."
	reduced = "The service can accept no more requests for the moment."
	inLine  = "Too many requests are waiting already."
)

// renewed is a limiter whose slot is taken since a while, so that its rate has room again.
func renewed(t *testing.T) *quotient.Limiter {
	l := short(0, both)(t)
	time.Sleep(2 * time.Hour)
	return l
}

func reason(r quotient.Reason, rule string, wait time.Duration) quotient.Decision {
	return quotient.Decision{Reason: r, Rule: quotient.Rule{Name: rule}, RetryAfter: wait}
}

// shortages are all that a request which may wait for a minute can be refused for.
func shortages() []shortage {
	rate := reason(quotient.ReasonRate, "hour", time.Hour)
	slots, share := reason(quotient.ReasonInFlight, "in-flight", 0), reason(quotient.ReasonShare, "in-flight", 0)
	second := quotient.MaxWait(time.Second)
	return []shortage{
		{"rate", short(0, hourly), 0, rate, 0, usedUp},
		{"rate behind waiters", short(2, hourly), 0, reason(quotient.ReasonRate, "hour", 3*time.Hour), 0, usedUp},
		{"rate, and all slots", short(0, both), 0, rate, 0, usedUp},
		{"slots", short(0, oneSlot), 0, slots, time.Minute, served},
		{"slots, and the rate has room", renewed, 0, slots, time.Minute, served},
		{"slots behind waiters", short(2, oneSlot), 0, slots, time.Minute, served},
		{"share", short(0, oneSlot, quotient.Replicas(2)), 0, share, 0, reduced},
		{"keys, known", crowded(hourly), 0, reason(quotient.ReasonKeys, "hour", 2*time.Hour), 0, reduced},
		{"keys", crowded(oneSlot), 0, reason(quotient.ReasonKeys, "in-flight", 0), time.Minute, reduced},
		{"the request's own deadline", short(0, hourly), time.Second,
			reason(quotient.ReasonDeadline, "hour", time.Hour), 0, tooLate},
		{"a full queue", short(1, oneSlot, quotient.MaxWaiting(1, 1)), 0,
			reason(quotient.ReasonQueue, "in-flight", 0), 0, inLine},
		{"the limiter's bound, known", short(0, hourly, second), 0,
			reason(quotient.ReasonWait, "hour", time.Hour), 0, tooLate},
		{"the limiter's bound", short(0, oneSlot, second), 0, reason(quotient.ReasonWait, "in-flight", 0),
			time.Second, tooLate},
	}
}

// A refusal after a wait, or for one that would be too long, names what is short and not the bound. Its body,
// its Retry-After and its fields say the same.
func TestReasonAfterAWait(t *testing.T) {
	for _, tt := range shortages() {
		for _, method := range []string{"GET", "POST"} {
			bubble(t, tt.name+", "+method, func(t *testing.T) { refusedFor(t, tt, method) })
		}
	}
}

// refusedFor asks once, and fails unless the request is refused as the row says.
func refusedFor(t *testing.T, tt shortage, method string) {
	l, r := tt.limiter(t), waitingRequests(t)[method]
	if tt.own > 0 {
		limited, cancel := context.WithTimeout(t.Context(), tt.own)
		defer cancel()
		r = r.WithContext(limited)
	}
	var got quotient.Decision
	noted := OnRefuse(func(_ http.ResponseWriter, _ *http.Request, d quotient.Decision) { got = d })
	start := time.Now()
	w := ask(handle(l, ok, Wait(time.Minute), SendFields(FieldsDraft11), noted), r)
	elapsed(t, start, tt.after)
	if got.Reason != tt.want.Reason || got.Rule.Name != tt.want.Rule.Name ||
		got.RetryAfter.Round(time.Second) != tt.want.RetryAfter {
		t.Errorf("%+v\nwant %+v", got, tt.want)
	}
	after := max(int(tt.want.RetryAfter.Seconds()), 1)
	detail := fmt.Sprintf(`%s Try again in %d seconds.`, tt.detail, after)
	fields := fmt.Sprintf(`%q;r=0;t=%d`, tt.want.Rule.Name, after)
	if after == 1 {
		detail = tt.detail + " Try again in 1 second."
	}
	if tt.want.Rule.Name == "in-flight" {
		fields = `"in-flight";r=0`
	}
	checkRefusal(t, w, statusOf(tt.want.Reason), strconv.Itoa(after), []string{tt.want.Rule.Name})
	if text := strings.ReplaceAll(w.Body.String(), `\"`, `"`); !strings.Contains(text, `"detail":"`+detail+`"`) {
		t.Errorf("the body is %s\nwant %s", text, detail)
	}
	if got := w.Header().Get("RateLimit"); !strings.Contains(got, fields) {
		t.Errorf("RateLimit: %s, want %s in it", got, fields)
	}
}

// A replica that does not know its share answers 503 after a wait too.
func TestWaitForThePoolEndsWith503(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, oneSlot, quotient.AwaitPool(time.Minute), quotient.Replicas(4))
		start := time.Now()
		checkRefusal(t, ask(handle(l, ok, Wait(time.Second)), get(t, "/")), 503, "1", []string{})
		elapsed(t, start, time.Second)
	})
}

func TestOnRefuse(t *testing.T) {
	const problem = "application/problem+json"
	text := func(w http.ResponseWriter) { _, _ = io.WriteString(w, "slow down") }
	for name, tt := range map[string]struct {
		write             func(http.ResponseWriter)
		status            int
		body, contentType string
	}{
		"nothing": {func(http.ResponseWriter) {}, 429, `"retry-after-seconds":60`, problem},
		"a body":  {text, 429, "slow down", "text/plain; charset=utf-8"},
		"a type": {func(w http.ResponseWriter) { w.Header().Set("Content-Type", "text/x"); text(w) }, 429, "slow down",
			"text/x"},
		"a status":     {func(w http.ResponseWriter) { w.WriteHeader(420) }, 420, "", ""},
		"a hint first": {func(w http.ResponseWriter) { w.WriteHeader(103) }, 429, `"retry-after-seconds":60`, problem},
		"a flush":      {func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }, 429, "", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, minutely(1))
			l.Allow("/x")
			hook := func(w http.ResponseWriter, r *http.Request, d quotient.Decision) {
				h := w.Header()
				if h.Get("Retry-After") != "60" || h.Get("Cache-Control") != "no-store" ||
					h.Get("RateLimit") != `"minute";r=0;t=60` || r.URL.Path != "/x" {
					t.Errorf("%s: the hook sees %v for %s", name, h, r.URL)
				}
				if want := "refused: rate (minute: share 1 of 1 per 1m), retry after 1m0s"; d.String() != want {
					t.Errorf("%s: decision %v, want %s", name, d, want)
				}
				tt.write(w)
			}
			h := handle(l, ok, SendFields(FieldsDraft11), OnRefuse(hook))
			resp, err := serve(t, h).client(t).Get("http://h/x")
			tested.Must(t, err)
			body := readAll(t, resp.Body)
			if resp.StatusCode != tt.status || !strings.Contains(body, tt.body) || tt.body == "" && body != "" {
				t.Errorf("%s: status %d, body %q", name, resp.StatusCode, body)
			}
			if got := resp.Header; got.Get("Content-Type") != tt.contentType || got.Get("Retry-After") != "60" ||
				got.Get("RateLimit") == "" {
				t.Errorf("%s: the client gets %v", name, got)
			}
			_ = resp.Body.Close()
		})
	}
}

// A hook that panics leaves nothing taken, and the next request is served as before.
func TestOnRefuseThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, held := taken(t)
		h := handle(l, ok, Wait(time.Second), SendFields(FieldsDraft11),
			OnRefuse(func(http.ResponseWriter, *http.Request, quotient.Decision) { panic(http.ErrAbortHandler) }))
		for _, r := range waitingRequests(t) {
			tested.Want[any](t, "the panic", panicOf(func() { ask(h, r) }), http.ErrAbortHandler)
		}
		held.Release()
		idle(t, l)
		tested.Want(t, "status", ask(h, get(t, "/")).Code, 204)
	})
}

// Each reason has a status and a sentence; none has the numbers of the limit.
func TestDetailOfEveryReason(t *testing.T) {
	for reason := range quotient.ReasonPool + 1 {
		want := 429
		switch reason {
		case quotient.ReasonTooLarge:
			want = 413
		case quotient.ReasonShare, quotient.ReasonKeys, quotient.ReasonPool:
			want = 503
		}
		d := quotient.Decision{Reason: reason, RetryAfter: 3 * time.Second, Rule: quotient.Rule{
			Name: "minute", Unit: "tokens", Limit: 777, Share: 888, Window: time.Minute}}
		no := refusalOf(d)
		final := reason == quotient.ReasonDenied || reason == quotient.ReasonTooLarge
		text := no.detail()
		if no.status != want || strings.HasSuffix(text, " Try again in 3 seconds.") == final ||
			strings.Contains(text, "777") || strings.Contains(text, "888") {
			t.Errorf("%v: %d %s\nwant %d", reason, no.status, text, want)
		}
		quota := want != 503 && reason != quotient.ReasonDenied
		tested.Want(t, fmt.Sprint(reason), strings.Contains(string(no.body()), "quota-exceeded"), quota)
		d.Rule.Name, d.Unit, d.RetryAfter = "", "", 0 // another waiter is next, and its turn has just come
		if text := refusalOf(d).detail(); strings.Contains(text, `""`) || strings.Contains(text, "1 seconds") {
			t.Errorf("%v: %s", reason, text)
		}
	}
}

// Clients that obey Retry-After, in whole seconds, do not all come again at once.
func TestHerdIsSpread(t *testing.T) {
	aligned := quotient.Rate{Events: 10, Per: time.Minute, Kind: quotient.Window}
	bucket := quotient.Rate{Events: 7, Per: time.Minute}
	fast := quotient.Rate{Events: 20, Per: time.Second}
	for name, limit := range map[string]quotient.Limit{
		"a window": rates(aligned), "a bucket": rates(bucket), "fast": rates(fast), "both": rates(aligned, bucket),
	} {
		bubble(t, name, func(t *testing.T) {
			l := limiter(t, limit)
			h, start := handle(l, ok, SendFields(FieldsDraft11)), time.Now()
			requests, atOnce, due := 0, map[time.Duration]int{}, make([]time.Time, 200)
			for len(due) > 0 {
				slices.SortFunc(due, time.Time.Compare)
				time.Sleep(time.Until(due[0]))
				earliest := l.Check("/").RetryAfter
				requests++
				atOnce[time.Since(start)]++
				w := ask(h, get(t, "/"))
				if w.Code != http.StatusTooManyRequests {
					due = due[1:]
					continue
				}
				after, _ := RetryAfter(w.Header(), time.Now())
				if due[0] = time.Now().Add(after); after < earliest {
					t.Fatalf("Retry-After %v, and there is room after %v", after, earliest)
				}
			}
			atOnce[0] = 0
			if most := slices.Max(slices.Collect(maps.Values(atOnce))); requests > 600 || most > 40 {
				t.Errorf("%d requests for 200 answers, %d of them at one instant", requests, most)
			}
		})
	}
}
