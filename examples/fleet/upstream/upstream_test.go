package upstream

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/policy"
)

const ms = time.Millisecond

func TestBucket(t *testing.T) {
	b := &bucket{10, 2, 2, 0}
	for i, row := range []struct {
		now  time.Duration
		ok   bool
		wait time.Duration
	}{
		{0, true, 0},
		{0, true, 100 * ms},
		{0, false, 100 * ms},
		{50 * ms, false, 50 * ms},
		{100 * ms, true, 100 * ms},
		{90 * ms, false, 100 * ms}, // time does not go back
		{10 * time.Second, true, 0},
		{10 * time.Second, true, 100 * ms},
		{10 * time.Second, false, 100 * ms}, // never above the burst
	} {
		ok, wait := b.take(row.now), b.wait(1)
		if ok != row.ok || (wait-row.wait).Abs() > time.Microsecond {
			t.Errorf("row %d: take(%v) = %v, then wait %v, want %v, %v", i, row.now, ok, wait,
				row.ok, row.wait)
		}
	}
}

// TestPropertyBucket: the admitted requests stay within its limit in every window, and it refuses no client
// that waited for the given time.
func TestPropertyBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Float64Range(1, 200).Draw(t, "rate")
		burst := rapid.IntRange(1, 30).Draw(t, "burst")
		b := &bucket{rate, float64(burst), float64(burst), 0}
		var accepted []time.Duration
		for now := time.Duration(0); now < 5*
			time.Second; now += time.Duration(rapid.IntRange(0, 200).Draw(t, "gap")) * ms {
			if !b.take(now) {
				wait := b.wait(1)
				now += wait + time.Microsecond
				if !b.take(now) {
					t.Fatalf("refused at %v after the wait of %v that it asked for", now, wait)
				}
			}
			accepted = append(accepted, now)
		}
		for i := range accepted {
			for j := i; j < len(accepted); j++ {
				allowed := (accepted[j]-accepted[i]).Seconds()*rate + float64(burst)
				if float64(j-i+1) > allowed+1e-6 {
					t.Fatalf("%d from %v to %v, %v allowed", j-i+1, accepted[i], accepted[j], allowed)
				}
			}
		}
	})
}

// ask sends one request to u and returns the answer.
func ask(u *Upstream, departure string) *httptest.ResponseRecorder {
	req := httptest.NewRequest("GET", "/", nil)
	req.Header.Set(Header, departure)
	rec := httptest.NewRecorder()
	u.ServeHTTP(rec, req)
	return rec
}

const departure = `{"Replica":7,"Sent":1,"Late":5}`

func TestUpstreamAnswersAndLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := New(0.4, 2, RetryAfter)
		time.Sleep(time.Second)
		for i, want := range []int{204, 204, 429} {
			rec := ask(u, departure)
			if rec.Code != want {
				t.Errorf("request %d: status %d, want %d", i, rec.Code, want)
			}
			if retry := rec.Header().Get("Retry-After"); want == 429 && retry != "3" { // 2.5 s, rounded up
				t.Errorf("Retry-After %q, want 3", retry)
			}
		}
		want := Arrival{Sent: 1, Late: 5, Arrived: time.Second, Replica: 7, Accepted: true}
		log := u.Log()
		if len(log) != 3 || log[0] != want || log[2].Accepted {
			t.Errorf("log %+v", log)
		}
	})
}

// TestWhatIsReported reads the answers as a client does.
func TestWhatIsReported(t *testing.T) {
	full := policy.Quota{Limit: 10, Remaining: 9, Reset: time.Second}
	empty := policy.Quota{Limit: 10, Remaining: 0, Reset: 2 * time.Second}
	for _, row := range []struct {
		tell        string
		first, last policy.Quota
		retry       time.Duration
	}{
		{Nothing, policy.Quota{}, policy.Quota{}, 0},
		{RetryAfter, policy.Quota{}, policy.Quota{}, time.Second},
		{Fields, full, empty, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			u := New(8, 10, row.tell)
			for i := range 11 {
				rec := ask(u, departure)
				f, garbage := new(httplimit.Profile).Feedback(rec.Code, rec.Header(), time.Now())
				if garbage > 0 {
					t.Errorf("%v: garbage in %v", row.tell, rec.Header())
				}
				if i == 0 && (f.Outcome != policy.Success || f.Quotas[0] != row.first) {
					t.Errorf("%v: first %+v", row.tell, f)
				}
				if i == 10 &&
					(f.Outcome != policy.Throttled || f.Quotas[0] != row.last || f.RetryAfter != row.retry) {
					t.Errorf("%v: last %+v", row.tell, f)
				}
			}
		})
	}
}

// TestANewLimitHoldsAtOnce: what was saved up under the old one counts up to the new burst.
func TestANewLimitHoldsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := New(100, 20, Nothing)
		u.SetLimit(1, 2)
		for i, want := range []int{204, 204, 429} {
			if rec := ask(u, departure); rec.Code != want {
				t.Errorf("request %d: status %d, want %d", i, rec.Code, want)
			}
		}
		time.Sleep(time.Second)
		u.SetLimit(100, 20)
		for i, want := range []int{204, 429} {
			if rec := ask(u, departure); rec.Code != want {
				t.Errorf("request %d after the limit came back: status %d, want %d", i, rec.Code, want)
			}
		}
		time.Sleep(time.Second)
		for i := range 21 {
			if rec := ask(u, departure); (rec.Code == 204) != (i < 20) {
				t.Errorf("request %d of a full bucket: status %d", i, rec.Code)
			}
		}
	})
}

func TestUpstreamRefusesTheUnsigned(t *testing.T) {
	u := New(1, 1, Fields)
	for _, departure := range []string{"", "{}", "null", `{"Sent":1}`, `{"Replica":-1}`, `{"Replica":1,"Sent":"x"}`} {
		if rec := ask(u, departure); rec.Code != http.StatusBadRequest {
			t.Errorf("%q: status %d, want 400", departure, rec.Code)
		}
	}
	if log := u.Log(); len(log) != 0 {
		t.Errorf("logged %+v", log)
	}
}
