package quotient

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A late timer: it is stopped, and what it would have done is done later by hand.
func lateBy(t *testing.T, l *Limiter, key string, turn, late time.Duration) {
	t.Helper()
	s := l.shard(key)
	s.mu.Lock()
	g := s.get(key)
	g.more.timer.Stop()
	s.mu.Unlock()
	time.Sleep(turn + late)
	s.fire(g)
}

// TestDueOfEachWaiterOfALateTimer: one token comes every 10 ms, the timer is 40 ms late, and five waiters are
// served at once. Each could have gone at its own token: the first is 40 ms late, the next 30, and so on. A
// slow rate that has room for longer than any Duration beside it changes nothing.
func TestDueOfEachWaiterOfALateTimer(t *testing.T) {
	fast := Rate{Name: "x", Events: 1, Per: 10 * time.Millisecond, Burst: 10}
	for name, limit := range map[string]Limit{
		"alone":               rated(fast),
		"beside one too slow": rated(fast, Rate{Name: "slow", Events: 1, Per: 200 * year, Burst: 1000}),
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T) {
				got := make(chan time.Duration, 10)
				l := limiterOf(t, limit, OnAdmit(func(_ string, _, overhead time.Duration) { got <- overhead }))
				took(t, l, "k", Weight(10))
				<-got
				for range 5 {
					go func() { _, _ = l.Acquire(t.Context(), "k") }()
					synctest.Wait()
				}
				lateBy(t, l, "k", 10*time.Millisecond, 40*time.Millisecond)
				var over []time.Duration
				var sum time.Duration
				for range 5 {
					d := <-got
					over = append(over, d)
					sum += d
				}
				if sum != 100*time.Millisecond {
					t.Errorf("overheads %v, together %v; want 40+30+20+10+0 = 100ms", over, sum)
				}
			})
		})
	}
}

// TestDueIsNotBeforeTheArrival: the head's timer is late, somebody arrives after the head's turn, the head leaves, and the newcomer is
// served at once. Its overhead cannot be longer than its whole wait.
func TestDueIsNotBeforeTheArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type times struct{ waited, overhead time.Duration }
		got := make(chan times, 10)
		l, err := New(Limit{Rates: []Rate{{Name: "x", Events: 1, Per: 10 * time.Millisecond, Burst: 10}}},
			OnAdmit(func(_ string, waited, overhead time.Duration) { got <- times{waited, overhead} }))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Acquire(t.Context(), "k", Weight(10)); err != nil {
			t.Fatal(err)
		}
		<-got
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() { _, err := l.Acquire(ctx, "k"); left <- err }()
		synctest.Wait()
		s := l.shard("k")
		s.mu.Lock()
		s.get("k").more.timer.Stop()
		s.mu.Unlock()
		time.Sleep(40 * time.Millisecond)
		go func() { _, _ = l.Acquire(t.Context(), "k") }()
		synctest.Wait()
		cancel()
		<-left
		if d := <-got; d.overhead > d.waited {
			t.Errorf("overhead %v in a wait of %v", d.overhead, d.waited)
		}
	})
}

// TestALostTurnIsOverhead: a caller that wakes after its turn of a paced rate waits for the next. Nothing but the limiter's
// or the processor's lateness has made it wait longer than its first turn.
func TestALostTurnIsOverhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type times struct{ waited, overhead time.Duration }
		got := make(chan times, 10)
		first := true
		l, err := New(Limit{Rates: []Rate{Every(5 * time.Second)}},
			OnWait(func(string, time.Duration) {
				if first {
					first = false
					time.Sleep(7 * time.Second)
				}
			}),
			OnAdmit(func(_ string, waited, overhead time.Duration) { got <- times{waited, overhead} }))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := l.Acquire(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
		<-got
		if d := <-got; d.waited != 10*time.Second || d.overhead != 5*time.Second || l.Stats().Expired != 1 {
			t.Errorf("%v of %v are overhead, %d turns lost; want 5 s of 10 s, and one", d.overhead, d.waited, l.Stats().Expired)
		}
	})
}
