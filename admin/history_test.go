package admin

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
)

// history is what GET /state?history=1 answers.
func historyOf(t *testing.T, h http.Handler) History {
	t.Helper()
	rec := get("/state?history=1").send(t, h)
	s := decode[State](t, rec)
	if s.History == nil {
		t.Fatalf("there is no history: %d %.200s", rec.Code, rec.Body)
	}
	return *s.History
}

// quietOf is a handler of a registry.
func quietOf(t *testing.T, reg *quotient.Registry) *Handler {
	t.Helper()
	h, err := New(reg, Logger(slog.New(slog.DiscardHandler)))
	must(t, err)
	return h
}

// TestHistoryIsOfTheLastTwoMinutes: one sample a second, at most 120, with rates a second and levels.
func TestHistoryIsOfTheLastTwoMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t)
		h := quiet(t, l)
		if got := historyOf(t, h); len(got.AgeSeconds) != 0 || len(got.Limiters["api"].Admitted) != 0 {
			t.Errorf("before the first second there is %v", got)
		}
		permit, _ := l.TryAcquire("held")
		for range 3 {
			l.Allow("k")
		}
		time.Sleep(1500 * time.Millisecond)
		for range 12 {
			l.Allow("full") // ten fit
		}
		time.Sleep(2 * time.Second)
		got := historyOf(t, h)
		tested.Not(t, !slices.Equal(got.AgeSeconds, []float64{2.5, 1.5, 0.5}), "ages are %v", got.AgeSeconds)
		api := got.Limiters["api"]
		if !slices.Equal(api.Admitted, []float64{4, 10, 0}) ||
			!slices.Equal(api.Refused["rate"], []float64{0, 2, 0}) ||
			!slices.Equal(api.InFlight, []uint32{0, 0, 0}) || !slices.Equal(api.Waiting, []uint32{0, 0, 0}) {
			t.Errorf("the samples are %+v", api)
		}
		permit.Release()
		time.Sleep(117 * time.Second)
		got = historyOf(t, h)
		if len(got.AgeSeconds) != 120 || got.AgeSeconds[0] != 119.5 || got.Limiters["api"].Admitted[0] != 4 {
			t.Errorf("after two minutes: %d samples, the oldest of %v s", len(got.AgeSeconds),
				got.AgeSeconds[0])
		}
		time.Sleep(time.Second)
		if got := historyOf(t, h); len(got.AgeSeconds) != 120 || got.Limiters["api"].Admitted[0] != 10 {
			oldest := got.Limiters["api"].Admitted[0]
			t.Errorf("a second later: %d samples, the oldest with %v", len(got.AgeSeconds), oldest)
		}
	})
}

// TestHistoryHasLevels: what waits and what is in flight at the samples.
func TestHistoryHasLevels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := quotient.New(quotient.Limit{InFlight: 2})
		must(t, err)
		h := quiet(t, l)
		historyOf(t, h)
		one, _ := l.TryAcquire("k")
		two, _ := l.TryAcquire("k")
		waited := make(chan quotient.Permit)
		go func() { p, _ := l.Acquire(t.Context(), "k"); waited <- p }()
		time.Sleep(1500 * time.Millisecond)
		one.Release()
		(<-waited).Release()
		time.Sleep(time.Second)
		got := historyOf(t, h).Limiters["api"]
		if !slices.Equal(got.Waiting, []uint32{1, 0}) || !slices.Equal(got.InFlight, []uint32{2, 1}) {
			t.Errorf("the samples are %+v", got)
		}
		two.Release()
	})
}

// TestHistoryStartsAndEnds: with the first reader, and five minutes after the last one; while Serve runs,
// without any.
func TestHistoryStartsAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reg quotient.Registry
		must(t, reg.Add("api", newLimiter(t)))
		h := quietOf(t, &reg)
		runs := func() bool {
			synctest.Wait()
			h.api.samples.mu.Lock()
			defer h.api.samples.mu.Unlock()
			tested.Want(t, "a timer for the samples that are kept", h.api.samples.timer != nil, h.api.samples.of != nil)
			return h.api.samples.timer != nil
		}
		tested.Not(t, runs(), "it runs before there is a reader")
		get("/state").send(t, h)
		time.Sleep(sampleAfter)
		tested.Not(t, !runs(), "it ended too early")
		time.Sleep(2 * time.Second)
		tested.Not(t, runs(), "it did not end")
		end := h.api.samples.serve()
		time.Sleep(time.Hour)
		if got := historyOf(t, h); !runs() || len(got.AgeSeconds) != 120 {
			t.Errorf("after an hour of Serve there are %d samples", len(got.AgeSeconds))
		}
		other := h.api.samples.serve()
		end()
		tested.Not(t, !runs(), "it ended with the first of two servers")
		other()
		tested.Not(t, runs(), "it goes on after the last server")
		get("/state").send(t, h)
		time.Sleep(1500 * time.Millisecond)
		tested.Want(t, "samples of a new reader", len(historyOf(t, h).AgeSeconds), 1)
	})
}

// TestStreamsKeepTheHistory: an open stream is a reader for as long as it is open.
func TestStreamsKeepTheHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startStreaming(t, EventsEvery(time.Second))
		f := s.dial()
		for range 540 { // nine minutes
			if _, err := f.block(); err != nil {
				t.Fatal(err)
			}
		}
		tested.Want(t, "samples", len(historyOf(t, &Handler{s.h}).AgeSeconds), 120)
	})
}

// TestHistoryOfLimitersThatComeAndGo: a new limiter has fewer samples, also one of an old name, and one that
// is gone leaves nothing.
func TestHistoryOfLimitersThatComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reg quotient.Registry
		add := func(name string) *quotient.Limiter {
			l := newLimiter(t)
			must(t, reg.Add(name, l))
			return l
		}
		h := quietOf(t, &reg)
		old := add("a")
		for range 7 {
			old.Allow("k")
		}
		historyOf(t, h)
		time.Sleep(2500 * time.Millisecond)
		add("b").Allow("k") // before its first look, so no sample has it
		time.Sleep(2 * time.Second)
		got := historyOf(t, h)
		if n, m := len(got.Limiters["a"].Admitted), len(got.Limiters["b"].Waiting); n != 4 || m != 1 {
			t.Errorf("a has %d samples, want 4; b %d, want 1", n, m)
		}
		reg.Remove("a")
		add("a")
		time.Sleep(2 * time.Second)
		if got := historyOf(t, h).Limiters["a"]; !slices.Equal(got.Admitted, []float64{0}) {
			t.Errorf("another limiter of the name has %v", got.Admitted)
		}
		reg.Remove("a")
		reg.Remove("b")
		time.Sleep(time.Second)
		h.api.samples.mu.Lock()
		defer h.api.samples.mu.Unlock()
		tested.Want(t, "limiters that are gone and kept", len(h.api.samples.of), 0)
	})
}

// TestHistoryAfterASuspension: samples from before are older than is shown. None is younger than the state.
func TestHistoryAfterASuspension(t *testing.T) {
	r := recorder{reg: new(quotient.Registry)}
	r.seen()
	defer r.stop()
	now := time.Now()
	r.mu.Lock()
	r.ticks, r.at[1], r.at[2] = 2, now.Add(-time.Hour), now
	r.mu.Unlock()
	if got := r.history(now, nil); len(got.AgeSeconds) != 1 || got.AgeSeconds[0] != 0 {
		t.Errorf("the ages are %v", got.AgeSeconds)
	}
	if got := r.history(now.Add(-time.Minute), nil); got.AgeSeconds[0] != 0 {
		t.Errorf("before the sample its age is %v", got.AgeSeconds)
	}
}

// TestHistoryRequests: of one limiter on request, compact, never 304.
func TestHistoryRequests(t *testing.T) {
	h, _, _ := two(t)
	rec := get("/state?limiter=api&history=1").send(t, h)
	lines := strings.Count(rec.Body.String(), "\n")
	if got := decode[State](t, rec).History; got == nil || len(got.Limiters) != 1 || lines != 1 {
		t.Errorf("the history of one limiter is %+v, on %d lines", got, lines)
	}
	if s := decode[State](t, get("/state").send(t, h)); s.History != nil {
		t.Error("there is a history that was not requested")
	}
	req := get("/state?limiter=api&history=1")
	req.header = http.Header{"If-None-Match": {"*"}}
	tested.Want(t, "with If-None-Match", req.send(t, h).Code, http.StatusOK)
}
