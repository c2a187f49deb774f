package main

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestBucket(t *testing.T) {
	b := newBucket(10, 2)
	for i, row := range []struct {
		now  time.Duration
		ok   bool
		wait time.Duration
	}{
		{0, true, 0},
		{0, true, 0},
		{0, false, 100 * ms},
		{50 * ms, false, 50 * ms},
		{100 * ms, true, 0},
		{90 * ms, false, 100 * ms}, // time does not go back
		{10 * time.Second, true, 0},
		{10 * time.Second, true, 0},
		{10 * time.Second, false, 100 * ms}, // never above the burst
	} {
		ok, wait := b.take(row.now)
		if ok != row.ok || (wait-row.wait).Abs() > time.Microsecond {
			t.Errorf("row %d: take(%v) = %v, %v, want %v, %v", i, row.now, ok, wait, row.ok, row.wait)
		}
	}
}

// TestPropertyBucket: what it lets through stays within its own budget, and it refuses nobody
// who waited for as long as it said.
func TestPropertyBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Float64Range(1, 200).Draw(t, "rate")
		burst := rapid.IntRange(1, 30).Draw(t, "burst")
		b := newBucket(rate, burst)
		var accepted []time.Duration
		for now := time.Duration(0); now < 5*time.Second; now += time.Duration(rapid.IntRange(0, 200).Draw(t, "gap")) * ms {
			ok, wait := b.take(now)
			if !ok {
				now += wait + time.Microsecond
				if ok, _ = b.take(now); !ok {
					t.Fatalf("refused at %v after the wait of %v that it asked for", now, wait)
				}
			}
			accepted = append(accepted, now)
		}
		if w := flat(rate, float64(burst)).worst(together(accepted...)); w.broken() {
			t.Fatalf("the upstream exceeds its own limit: %+v", w)
		}
	})
}

// ask sends one request to u and returns the answer.
func ask(u *upstream, replica, sent string) *httptest.ResponseRecorder {
	req := httptest.NewRequest("GET", "/", nil)
	req.Header.Set(headerReplica, replica)
	req.Header.Set(headerSent, sent)
	req.Header.Set(headerLate, "5")
	rec := httptest.NewRecorder()
	u.ServeHTTP(rec, req)
	return rec
}

func TestUpstreamAnswersAndLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock()
		u := newUpstream(c, plan{Limit: 0.4, Burst: 1, Room: 1})
		sent := strconv.FormatInt(c.now(), 10)
		time.Sleep(time.Second)
		for i, want := range []int{204, 204, 429} {
			rec := ask(u, "7", sent)
			if rec.Code != want {
				t.Errorf("request %d: status %d, want %d", i, rec.Code, want)
			}
			if retry := rec.Header().Get("Retry-After"); want == 429 && retry != "3" { // 2.5 s, rounded up
				t.Errorf("Retry-After %q, want 3", retry)
			}
		}
		want := arrival{Sent: 0, Late: 5, Arrived: time.Second, Replica: 7, Accepted: true}
		log := u.arrivals()
		if len(log) != 3 || log[0] != want || log[2].Accepted {
			t.Errorf("log %+v", log)
		}
	})
}

func TestUpstreamRefusesTheUnsigned(t *testing.T) {
	u := newUpstream(newClock(), plan{Limit: 1, Burst: 1})
	for _, row := range [][2]string{{"", ""}, {"1", ""}, {"", "1"}, {"x", "1"}, {"1", "1e9"}} {
		if rec := ask(u, row[0], row[1]); rec.Code != http.StatusBadRequest {
			t.Errorf("%q: status %d, want 400", row, rec.Code)
		}
	}
	if log := u.arrivals(); len(log) != 0 {
		t.Errorf("logged %+v", log)
	}
}
