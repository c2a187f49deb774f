package quotient

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A call that names an unknown plan is warned of, whichever verb asks, and at most once a second. Other
// calls that are not valid are not, nor are mere looks.
func TestUnknownPlanIsWarnedOf(t *testing.T) {
	long := strings.Repeat("x", 65)
	for name, ask := range map[string]func(*Limiter, ...CallOption){
		"Acquire": func(l *Limiter, opts ...CallOption) {
			_, _ = l.Acquire(context.Background(), "k", opts...)
		},
		"TryAcquire":    func(l *Limiter, opts ...CallOption) { l.TryAcquire("k", opts...) },
		"TryAcquireAll": func(l *Limiter, opts ...CallOption) { TryAcquireAll(nil, Claim{l, "k", opts}) },
		"TryAcquireUpTo": func(l *Limiter, opts ...CallOption) {
			l.TryAcquireUpTo("k", 1, opts...)
		},
	} {
		inFakeTime(t, func(t *testing.T) {
			var r Registry
			log := recording()
			l, err := r.Limiter("api", rated(perSecond(1, 5)), Logger(slog.New(log)))
			must(t, err)
			must(t, l.SetPlan("paid", &Limit{}))
			ask(l, Plan("paid"))
			ask(l, Plan(""))
			ask(l, Cost("nothing", 1), Weight(1))
			l.Check("k", Plan("gold"))
			l.Explain("k", Plan("gold"))
			synctest.Wait()
			logged(t, log, "plan set limiter=api")
			must(t, l.SetPlan("paid", nil))
			log.take()
			for _, plan := range []string{"gold", "silver", "paid", long} {
				ask(l, Plan(plan), Weight(1))
			}
			time.Sleep(999 * time.Millisecond)
			ask(l, Plan("silver"), Weight(1))
			time.Sleep(time.Millisecond)
			ask(l, Plan(long), Weight(1))
			synctest.Wait()
			const text = "WARN a call names a plan that the limiter does not have limiter=api plan="
			log.wrote(t, "0s "+text+"gold", "1s "+text+long[:64]+"…")
			if n := l.Stats().Refused[ReasonBadRequest]; n != 7 {
				t.Errorf("%s: %d are refused, want 7", name, n)
			}
			if t.Failed() {
				t.Fatal(name)
			}
		})
	}
}

// A log that asks the limiter, as a handler may, is not waited for under a lock.
func TestUnknownPlanIsLoggedWithoutALock(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		h := &shardHandler{Handler: slog.DiscardHandler}
		h.l = limiterOf(t, Limit{}, Logger(slog.New(h)))
		h.l.TryAcquire("k", Plan("gold"), Weight(1))
		time.Sleep(time.Second)
		synctest.Wait()
		if h.lines != 1 || h.locked {
			t.Errorf("%d lines, want 1; a lock is held: %t", h.lines, h.locked)
		}
	})
}

// shardHandler is a log that looks whether a lock is held that Stats takes.
type shardHandler struct {
	slog.Handler
	l      *Limiter
	lines  int
	locked bool
}

func (h *shardHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h *shardHandler) Handle(context.Context, slog.Record) error {
	h.lines++
	time.Sleep(time.Millisecond) // of the bubble: the call has returned by then, unless it is what logs
	for i := range h.l.shards {
		if !h.l.shards[i].mu.TryLock() {
			h.locked = true
			continue
		}
		h.l.shards[i].mu.Unlock()
	}
	return nil
}
