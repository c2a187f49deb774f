package admin

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/quotient-go/quotient"
)

// write is a change that went through: from which tag to which.
type write struct{ from, to string }

// TestAttackConcurrentWriters: of a thousand writers who have seen the same state one wins. Then all add one
// to the limit again and again, each on top of what it has read: those that get through form one chain, and
// no addition is lost.
func TestAttackConcurrentWriters(t *testing.T) {
	const writers, rounds = 1000, 2
	l := newLimiter(t)
	srv := httptest.NewServer(quiet(t, l))
	defer srv.Close()
	transport := &http.Transport{MaxIdleConnsPerHost: writers}
	defer transport.CloseIdleConnections()
	c, err := NewClient(srv.URL, HTTPClient(&http.Client{Transport: transport}))
	if err != nil {
		t.Fatal(err)
	}
	first, err := c.Limiter(t.Context(), "api")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var won []write
	conflicts := 0
	add := func(seen LimiterState) {
		limit := quotient.Rates(quotient.PerSecond(seen.Limit.Rates[0].Events + 1))
		got, err := c.SetLimit(t.Context(), "api", limit, IfMatch(seen.ETag))
		var p *Problem
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			won = append(won, write{seen.ETag, got.ETag})
		case errors.Is(err, ErrConflict) && errors.As(err, &p) && p.Field == "If-Match":
			conflicts++
		default:
			t.Error(err)
		}
	}
	together(writers, func() { add(first) })
	if len(won) != 1 || conflicts != writers-1 {
		t.Fatalf("%d of %d writers with one tag won, %d conflicts", len(won), writers, conflicts)
	}
	together(writers, func() {
		for range rounds {
			seen, err := c.Limiter(context.WithoutCancel(t.Context()), "api")
			if err != nil {
				t.Error(err)
				return
			}
			add(seen)
		}
	})
	if len(won)+conflicts != writers*(rounds+1) {
		t.Errorf("%d won and %d conflicts", len(won), conflicts)
	}
	t.Logf("%d won, %d conflicts", len(won), conflicts)
	last := chain(t, first.ETag, won)
	end, err := c.Limiter(t.Context(), "api")
	if err != nil || end.ETag != last || end.Version != first.Version+uint64(len(won)) {
		t.Errorf("at the end %s version %d (%v), want %s and %d more than %d", end.ETag, end.Version, err,
			last, len(won), first.Version)
	}
	if want := first.Limit.Rates[0].Events + float64(len(won)); end.Limit.Rates[0].Events != want {
		t.Errorf("the limit is %v after %d additions, want %v", end.Limit.Rates[0].Events, len(won), want)
	}
}

// together runs f so many times at once.
func together(n int, f func()) {
	start := make(chan struct{})
	var all sync.WaitGroup
	for range n {
		all.Go(func() { <-start; f() })
	}
	close(start)
	all.Wait()
}

// chain follows the writes from the first tag, and fails unless each has one successor and all are on the
// way.
func chain(t *testing.T, tag string, writes []write) string {
	t.Helper()
	next := make(map[string]string)
	for _, w := range writes {
		if other, twice := next[w.from]; twice {
			t.Errorf("from %s both to %s and %s", w.from, w.to, other)
		}
		next[w.from] = w.to
	}
	for range writes {
		to, ok := next[tag]
		if !ok {
			t.Errorf("the chain ends at %s", tag)
		}
		tag = to
	}
	return tag
}

// TestOneChangeAtATime: no other writer can get between the comparison, the old value, the change and the new
// value.
func TestOneChangeAtATime(t *testing.T) {
	l := newLimiter(t)
	h := quiet(t, l).(*Handler).api
	looks := 0
	alone := func() {
		if looks++; h.writing.TryLock() {
			h.writing.Unlock()
			t.Error("another change could come in between")
		}
	}
	c := change{
		show:  func(*quotient.Limiter) slog.Value { alone(); return slog.Value{} },
		apply: func(l *quotient.Limiter) error { alone(); l.SetDryRun(true); return nil },
	}
	_, bad := h.on(overLoopback(httptest.NewRequest("PUT", "/dry-run", nil)), c, nil, h.commit)
	if bad != nil || looks != 3 {
		t.Errorf("%v after %d looks", bad, looks)
	}
}
