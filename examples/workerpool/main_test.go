package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		if err := run(t.Context(), &out); err != nil {
			t.Error(err)
		}
		if !strings.HasPrefix(out.String(), "600 messages") ||
			strings.Contains(out.String(), "  0 taken and given back") {
			t.Error(out.String())
		}
	})
}

// Messages that the queue did not have are not lost: the reader gets its 500 a second although every third
// batch is half empty.
func TestUnusedComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool()
		todo, start := make(chan message, messages), time.Now()
		if err := p.read(t.Context(), &queue{left: messages}, todo); err != nil {
			t.Fatal(err)
		}
		took := time.Since(start)
		if due := (messages - batchMost) * time.Second / readsPerSecond; took < due || took > due+due/10 {
			t.Errorf("%d messages took %v, want %v", len(todo), took, due)
		}
	})
}

func TestCancelledWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		p := newPool()
		if err := p.work(ctx, &queue{left: messages}, &model{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if s := p.model.Stats(); s.InFlight != 0 || s.Waiting != 0 {
			t.Errorf("%d in flight, %d waiting", s.InFlight, s.Waiting)
		}
	})
}

func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		m    *model
		want bool
	}{
		"all held":        {&model{answered: messages, tokens: 22_000, most: weightInFlight}, true},
		"one lost":        {&model{answered: messages - 1}, false},
		"too many tokens": {&model{answered: messages, tokens: 22_001}, false},
		"too many slots":  {&model{answered: messages, most: weightInFlight + 1}, false},
	} {
		if err := c.m.check(time.Second); (err == nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
