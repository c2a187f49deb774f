package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/policy"
)

// ask sends one request to u and returns the answer.
func ask(u *upstream, departure string) *httptest.ResponseRecorder {
	req := httptest.NewRequest("GET", "/", nil)
	req.Header.Set(header, departure)
	rec := httptest.NewRecorder()
	u.ServeHTTP(rec, req)
	return rec
}

const signed = "7 1"

// TestUpstreamAnswersAndLogs reads the answers as a client does.
func TestUpstreamAnswersAndLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream(0.4, 2)
		time.Sleep(time.Second)
		for i, want := range []policy.Feedback{
			{Outcome: policy.Success, Quotas: [4]policy.Quota{{Limit: 2, Remaining: 1, Reset: 3 * time.Second}}},
			{Outcome: policy.Success, Quotas: [4]policy.Quota{{Limit: 2, Reset: 5 * time.Second}}},
			{Outcome: policy.Throttled, Quotas: [4]policy.Quota{{Limit: 2, Reset: 5 * time.Second}},
				RetryAfter: 3 * time.Second}, // 2.5 s, rounded up
		} {
			rec := ask(u, signed)
			f, garbage := new(httplimit.Profile).Feedback(rec.Code, rec.Header(), time.Now())
			if garbage > 0 || f.Outcome != want.Outcome || f.Quotas[0] != want.Quotas[0] || f.RetryAfter != want.RetryAfter {
				t.Errorf("request %d: %+v, want %+v, in %v", i, f, want, rec.Header())
			}
		}
		want := arrival{Sent: 1, Arrived: time.Second, Replica: 7, Accepted: true}
		log := u.logged()
		if len(log) != 3 || log[0] != want || log[2].Accepted {
			t.Errorf("log %+v", log)
		}
	})
}

// TestANewLimitHoldsAtOnce: what was saved up under the old one counts up to the new burst.
func TestANewLimitHoldsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream(100, 20)
		u.set(1, 2)
		for _, accepted := range []int{2, 1, 20} { // under the new limit, as it goes up again, and of a full bucket
			for i := range accepted + 1 {
				if rec := ask(u, signed); (rec.Code == 204) != (i < accepted) {
					t.Errorf("request %d of %d: status %d", i+1, accepted, rec.Code)
				}
			}
			time.Sleep(time.Second)
			u.set(100, 20)
		}
	})
}

func TestUpstreamRefusesTheUnsigned(t *testing.T) {
	u := newUpstream(1, 1)
	for _, departure := range []string{"", "{}", "1", "-1 1", "0 1", "1 x"} {
		if rec := ask(u, departure); rec.Code != http.StatusBadRequest {
			t.Errorf("%q: status %d, want 400", departure, rec.Code)
		}
	}
	if log := u.logged(); len(log) != 0 {
		t.Errorf("logged %+v", log)
	}
}
