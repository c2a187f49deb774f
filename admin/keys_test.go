package admin

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
)

// A key of a policy that learns comes with its paces and how much of each is used; another key without.
func TestKeysHaveTheirPace(t *testing.T) {
	rate := quotient.RuleState{
		Rule: quotient.Rule{Name: "second", Limit: 10, Share: 5, Window: 1e9}, Burst: 5, Left: 4}
	keys := newKeys("api", []quotient.KeyState{
		{Key: "plain", Rules: []quotient.RuleState{rate}},
		{Key: "learns", Rules: []quotient.RuleState{
			rate,
			{Rule: quotient.Rule{Name: "adaptive", Share: 50, Limit: 100}, Pace: 40, Burst: 4, Left: 1},
			{Rule: quotient.Rule{Name: "adaptive", Unit: "in-flight", Share: 3, Limit: 9}, Pace: 2.5, Burst: 3, Left: -1},
			{Rule: quotient.Rule{Name: "adaptive", Unit: "tokens"}, Pace: 0.5, Burst: 1, Left: 2},
		}},
	}).Keys
	if keys[0].Learned != nil || keys[0].Rate != 0 {
		t.Errorf("a key without a policy has learned %+v", keys[0])
	}
	if keys[1].Rate != 40 || len(keys[1].Learned) != 3 {
		t.Fatalf("%+v", keys[1])
	}
	for i, want := range []Learned{
		{Unit: "", Pace: 40, Used: 0.75, Share: 50, Ceiling: 100},
		{Unit: "in-flight", Pace: 2.5, Used: 1, Share: 3, Ceiling: 9},
		{Unit: "tokens", Pace: 0.5, Used: 0},
	} {
		if got := keys[1].Learned[i]; got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// TestHottest: callers that wait count first, then what is used, then the name, of however many keys.
func TestHottest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := quotient.Rates(quotient.Rate{Events: 1, Per: time.Hour, Burst: 100})
		limit.InFlight = 10
		l := quotient.Must(quotient.New(limit))
		for _, key := range []string{"b", "a", "c", "c"} {
			l.Allow(key)
		}
		l.TryAcquire("slots", quotient.Weight(10))
		ctx, stop := context.WithCancel(t.Context())
		go l.Acquire(ctx, "slots") //nolint:errcheck // it waits until the end
		synctest.Wait()
		for i := range 3000 { // of the same use as a and b, and behind them by name
			l.Allow(fmt.Sprint("key", i))
		}
		got := ""
		for _, k := range topKeys(l, 4, false) {
			got += fmt.Sprintf("%s %.2f %d ", k.Key, k.Used, k.Waiting)
		}
		l.TryAcquire("b", quotient.Weight(11)) // refused, which uses nothing
		if most := topKeys(l, 3, true); most[0].Key != "b" || most[1].Key != "slots" || most[2].Key != "c" {
			t.Errorf("the most refused are %+v", most)
		}
		if got != "slots 1.00 1 c 0.02 0 a 0.01 0 b 0.01 0 " || len(topKeys(l, 10000, false)) != 3004 {
			t.Error(got)
		}
		stop()
		_ = l.Override("a", &quotient.Limit{Deny: true}, 0)
		if n := leastAllocs(func() { new(seen).overridesOf(l, 1) }); n > 100 {
			t.Errorf("a list of one override takes %v allocations: a look at each key", n)
		}
	})
}

// TestScansAreShared: within a second all who ask the same get the same answer, and only then is there
// another look.
func TestScansAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t)
		h := quiet(t, l)
		count := func(path string) int { return len(decode[Keys](t, get(path).send(t, h)).Keys) }
		l.Allow("a")
		tested.Want(t, "keys", count("/keys"), 1)
		l.Allow("b")
		time.Sleep(scanFresh - 1)
		tested.Want(t, "keys within a second, of one scan", count("/keys?top=20&limiter=api"), 1)
		tested.Want(t, "keys of a scan for others", count("/keys?top=21"), 2)
		time.Sleep(time.Nanosecond)
		tested.Want(t, "keys after a second", count("/keys"), 2)
	})
}

// TestScansAreOneAtATime: while one is under way the others wait, and leave when their clients do; no scan is
// made for those.
func TestScansAreOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t)
		h := quiet(t, l).(*Handler)
		h.api.scans.place <- struct{}{} // one that takes long
		ctx, cancel := context.WithCancel(t.Context())
		answers := make(chan *httptest.ResponseRecorder)
		ask := func(ctx context.Context, path string) {
			rec := httptest.NewRecorder()
			req := overLoopback(httptest.NewRequestWithContext(ctx, "GET", path, nil))
			h.ServeHTTP(rec, req)
			answers <- rec
		}
		for i := range 100 {
			go ask(ctx, fmt.Sprintf("/keys?top=%d", i+1))
		}
		go ask(t.Context(), "/keys")
		synctest.Wait()
		cancel()
		for range 100 {
			rec := <-answers
			tested.Want(t, "a client that has gone", rec.Code, http.StatusServiceUnavailable)
		}
		if <-h.api.scans.place; (<-answers).Code != http.StatusOK || len(h.api.scans.done) != 1 {
			t.Errorf("%d scans, want that of the client who waited", len(h.api.scans.done))
		}
		for range 10 {
			go ask(ctx, "/keys?top=7")
			if (<-answers).Code != http.StatusServiceUnavailable || len(h.api.scans.done) != 1 {
				t.Error("a scan for a client that had gone before its turn")
			}
		}
	})
}

// TestScansAreForgotten: whatever is requested, few answers are kept.
func TestScansAreForgotten(t *testing.T) {
	l := newLimiter(t)
	h := quiet(t, l).(*Handler)
	for i := range 100 {
		if rec := get(fmt.Sprintf("/keys?top=%d", i+1)).send(t, h); rec.Code != http.StatusOK ||
			len(h.api.scans.done) > mostScans {
			t.Fatalf("%d, %d answers are kept", rec.Code, len(h.api.scans.done))
		}
	}
}
