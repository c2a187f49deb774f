package httplimit

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
)

// shortage is a limiter that is short of something, and how a request is refused that may wait for a minute.
type shortage struct {
	name       string
	limiter    func(t *testing.T) *quotient.Limiter
	own        time.Duration // the deadline of the request; 0: none
	want       quotient.Decision
	after      time.Duration
	detail     string
	retryAfter string
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

// both is a limit of a rate and of slots.
var both = quotient.Limit{Rates: hourly.Rates, InFlight: 1}

const (
	usedUp  = `The quota of the limit "hour" is used up. Try again in `
	served  = "The limit of concurrent requests is reached. Try again in 1 second."
	tooLate = "The request would have to wait longer than allowed. Try again in "
	reduced = "The service can accept no more requests for the moment. Try again in "
)

// shortages are all that a request which may wait for a minute can be refused for.
var shortages = []shortage{
	{"rate", short(0, hourly), 0, reason(quotient.ReasonRate, "hour", time.Hour), 0,
		usedUp + "3600 seconds.", "3600"},
	{"rate behind waiters", short(2, hourly), 0, reason(quotient.ReasonRate, "hour", 3*time.Hour), 0,
		usedUp + "10800 seconds.", "10800"},
	{"rate, and all slots", short(0, both), 0, reason(quotient.ReasonRate, "hour", time.Hour), 0,
		usedUp + "3600 seconds.", "3600"},
	{"slots", short(0, oneSlot), 0, reason(quotient.ReasonInFlight, "in-flight", 0), time.Minute,
		served, "1"},
	{"slots behind waiters", short(2, oneSlot), 0, reason(quotient.ReasonInFlight, "in-flight", 0),
		time.Minute, served, "1"},
	{"keys, known", crowded(hourly), 0, reason(quotient.ReasonKeys, "hour", time.Hour), 0,
		reduced + "3600 seconds.", "3600"},
	{"keys", crowded(oneSlot), 0, reason(quotient.ReasonKeys, "in-flight", 0), time.Minute,
		reduced + "1 second.", "1"},
	{"the request's own deadline", short(0, hourly), time.Second,
		reason(quotient.ReasonDeadline, "hour", time.Hour), 0, tooLate + "3600 seconds.", "3600"},
	{"a full queue", short(1, oneSlot, quotient.MaxWaiting(1, 1)), 0,
		reason(quotient.ReasonQueue, "in-flight", 0), 0,
		"Too many requests are waiting already. Try again in 1 second.", "1"},
	{"the limiter's bound, known", short(0, hourly, quotient.MaxWait(time.Second)), 0,
		reason(quotient.ReasonWait, "hour", time.Hour), 0, tooLate + "3600 seconds.", "3600"},
	{"the limiter's bound", short(0, oneSlot, quotient.MaxWait(time.Second)), 0,
		reason(quotient.ReasonWait, "in-flight", 0), time.Second, tooLate + "1 second.", "1"},
}

func reason(r quotient.Reason, rule string, wait time.Duration) quotient.Decision {
	return quotient.Decision{Reason: r, Rule: rule, RetryAfter: wait}
}

// A refusal after a wait, or for one that would be too long, names what is short and not the bound. Its body,
// its Retry-After and its fields say the same.
func TestReasonAfterAWait(t *testing.T) {
	for _, tt := range shortages {
		for _, method := range []string{"GET", "POST"} {
			t.Run(tt.name+", "+method, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { refusedFor(t, tt, method) })
			})
		}
	}
}

// refusedFor asks once, and fails unless the request is refused as the row says.
func refusedFor(t *testing.T, tt shortage, method string) {
	l, r, start := tt.limiter(t), waitingRequests(t)[method], time.Now()
	if tt.own > 0 {
		limited, cancel := context.WithTimeout(t.Context(), tt.own)
		defer cancel()
		r = r.WithContext(limited)
	}
	var got quotient.Decision
	noted := OnRefuse(func(_ http.ResponseWriter, _ *http.Request, d quotient.Decision) { got = d })
	w := ask(Middleware(l, Path(), Wait(time.Minute), SendFields(FieldsDraft11), noted)(ok), r)
	if waited := time.Since(start); waited != tt.after {
		t.Errorf("refused after %v, want %v", waited, tt.after)
	}
	if got.Reason != tt.want.Reason || got.Rule != tt.want.Rule ||
		got.RetryAfter.Round(time.Second) != tt.want.RetryAfter {
		t.Errorf("%+v\nwant %+v", got, tt.want)
	}
	checkRefusal(t, w, statusOf(tt.want.Reason), tt.retryAfter, []string{tt.want.Rule})
	if text := w.Body.String(); !strings.Contains(strings.ReplaceAll(text, `\"`, `"`),
		`"detail":"`+tt.detail+`"`) {
		t.Errorf("the body is %s\nwant %s", text, tt.detail)
	}
	agreesWith := fmt.Sprintf(`%q;r=0;t=%s`, tt.want.Rule, tt.retryAfter)
	if tt.want.Rule == "in-flight" {
		agreesWith = `"in-flight";r=0`
	}
	if fields := w.Header().Get("RateLimit"); !strings.Contains(fields, agreesWith) {
		t.Errorf("RateLimit: %s, want %s in it", fields, agreesWith)
	}
}
