package quotient

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// resets fails unless Reset of the key reports that it is remembered.
func resets(t *testing.T, l *Limiter, key string) {
	t.Helper()
	if !l.Reset(key) {
		t.Errorf("key %q is not remembered", key)
	}
}

func TestReset(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		var log strings.Builder
		l := limiterOf(t, rated(perSecond(1, 5), Rate{Name: "hour", Events: 3600, Per: time.Hour, Burst: 8}),
			Logger(slog.New(slog.NewTextHandler(&log, nil))))
		wants(t, l, "k", 5)
		wants(t, l, "other", 5)
		resets(t, l, "k")
		wants(t, l, "k", 5)
		refusedFor(t, l, ReasonRate, "other")
		if text := log.String(); strings.Count(text, "level=INFO msg=\"key reset\" key=k") != 1 {
			t.Errorf("logged %q", text)
		}
	})
}

// A key that is not remembered has nothing to forgive, and is not remembered for it.
func TestResetOfAKeyNeverSeen(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(1, 5)))
		if l.Reset("k") || l.Stats().Keys != 0 || l.Stats().Version != 0 {
			t.Errorf("a key never seen: %+v", l.Stats())
		}
		took(t, l, "k")
		resets(t, l, "k")
		if v := l.Stats().Version; v != 1 {
			t.Errorf("version %d after one reset", v)
		}
	})
}

// A raise brings no tokens, and a reset no more than a key never seen has.
func TestResetAfterAChangeOfTheLimit(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(10, 10)))
		wants(t, l, "k", 10)
		setLimit(t, l, rated(perSecond(10, 30)))
		time.Sleep(500 * time.Millisecond)
		resets(t, l, "k")
		wants(t, l, "k", 15)
	})
}

// A gate follows changes when it is touched. A key that was not touched since follows them first.
func TestResetOfAKeyThatHasMissedChanges(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(100, 10)))
		wants(t, l, "k", 10)
		setLimit(t, l, rated(perSecond(10, 10)))
		time.Sleep(time.Second)
		setLimit(t, l, rated(perSecond(1, 10)))
		resets(t, l, "k")
		wants(t, l, "k", 10)
	})
}

// A new replica starts empty: so does a key that it forgives.
func TestResetOnAReplicaThatJoins(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(10, 10)), StartEmpty())
		time.Sleep(300 * time.Millisecond)
		wants(t, l, "k", 3)
		resets(t, l, "k")
		wants(t, l, "k", 3)
	})
}

func TestResetKeepsSlots(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{Rates: []Rate{perSecond(1, 9)}, InFlight: 3})
		p, q := took(t, l, "k", Weight(2)), took(t, l, "k")
		resets(t, l, "k")
		refusedFor(t, l, ReasonInFlight, "k")
		inFlight(t, l, 3)
		p.Release()
		p.Release()
		r := took(t, l, "k", Weight(2))
		refusedFor(t, l, ReasonInFlight, "k")
		q.Release()
		r.Release()
		inFlight(t, l, 0)
		has(t, l, "k", 7)
		if n := l.Stats().DoubleReleases; n != 1 {
			t.Errorf("%d double releases, want the one", n)
		}
	})
}

func TestResetKeepsTheEndsOfPermits(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 1}, MaxHold(time.Second))
		took(t, l, "k")
		resets(t, l, "k")
		c := asking(t, l, "k")
		c.waits(t)
		time.Sleep(time.Second)
		c.admittedAfter(t, time.Second)
		if n := l.Stats().Reclaimed; n != 1 {
			t.Errorf("%d permits given back by time", n)
		}
	})
}

func TestResetServesWaiters(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(1, 3)))
		wants(t, l, "k", 3)
		first, second := asking(t, l, "k", Weight(2)), asking(t, l, "k")
		third, low := asking(t, l, "k"), asking(t, l, "k", PriorityLow.Option())
		first.waits(t)
		time.Sleep(100 * time.Millisecond)
		resets(t, l, "k")
		first.admittedAfter(t, 100*time.Millisecond)
		second.admittedAfter(t, 100*time.Millisecond)
		third.waits(t)
		time.Sleep(time.Second)
		third.admittedAfter(t, 1100*time.Millisecond)
		low.waits(t)
		time.Sleep(time.Second)
		low.admittedAfter(t, 2100*time.Millisecond)
	})
}

// A waiter that a reset has let through, and that gives up, returns what it took. A call admitted before the
// reset does not.
func TestResetAndWaitersThatGiveUp(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(1, 2)))
		wants(t, l, "k", 2)
		s := l.shard("k")
		for _, c := range []struct {
			name string
			then func(g *gate, w *waiter)
			left float64
		}{
			{"let through by it", func(*gate, *waiter) {}, 2},
			{"let through before it", func(*gate, *waiter) { resets(t, l, "k"); took(t, l, "k") }, 1},
		} {
			s.mu.Lock()
			g, w := s.find(l.hash("k")), newWaiter(oneRequest)
			w.key, w.since = "k", s.now().at
			l.waiting.Add(1)
			s.enqueue(g, w, s.latest)
			s.mu.Unlock()
			resets(t, l, "k")
			c.then(g, w)
			s.mu.Lock()
			s.cancelAndUnlock(g, w)
			if has(t, l, "k", c.left); t.Failed() {
				t.Fatal(c.name)
			}
			for l.Allow("k") {
			}
		}
	})
}

// Bursts of the window and of the bucket are there again; the end of the window is where it was.
func TestResetOfAnAlignedWindow(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(aligned(3, time.Minute)), Replicas(1))
		time.Sleep(30 * time.Second)
		wants(t, l, "k", 3)
		resets(t, l, "k")
		wants(t, l, "k", 3)
		time.Sleep(29 * time.Second)
		wants(t, l, "k", 0)
		time.Sleep(time.Second)
		wants(t, l, "k", 3)
	})
}

// An event comes only in a turn of the replica, also when it was forgiven.
func TestResetKeepsTurns(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Rates(Every(time.Second)), StartPool(Pool{Replicas: 4, Ordinal: 1, Fixed: true}))
		c := asking(t, l, "k")
		time.Sleep(4 * time.Second)
		if !c.ended() || c.err != nil {
			t.Fatal("no turn came", c.err)
		}
		time.Sleep(500 * time.Millisecond) // the turn is over, and the next is not yet
		resets(t, l, "k")
		d := refusedFor(t, l, ReasonRate, "k")
		time.Sleep(d.RetryAfter)
		took(t, l, "k")
		if at := time.Now().UnixNano() % int64(4*time.Second); at > int64(100*time.Millisecond) {
			t.Errorf("%v into the cycle is no turn", time.Duration(at))
		}
	})
}

// A limit of its own stays, is full, also where the override has just raised it, and follows the pool.
func TestResetOfAnOverriddenKey(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(10, 10)), StartEmpty())
		override(t, l, "k",
			ptr(Limit{Rates: []Rate{perSecond(10, 30), tokensPerMinute(60, 9)}, InFlight: 40}))
		resets(t, l, "k")
		took(t, l, "k", Weight(30), Cost("tokens", 9)).Release()
		refusedFor(t, l, ReasonRate, "k")
		if len(l.Overrides()) != 1 {
			t.Errorf("overrides: %v", l.Overrides())
		}
		setReplicas(t, l, 2)
		resets(t, l, "k")
		has(t, l, "k", 15)
		override(t, l, "k", ptr(Limit{Deny: true}))
		resets(t, l, "k")
		refusedFor(t, l, ReasonDenied, "k")
		setReplicas(t, l, 1)
		resets(t, l, "k")
		refusedFor(t, l, ReasonDenied, "k")
		override(t, l, "k", nil)
		override(t, l, "k", ptr(rated(aligned(7, time.Hour))))
		for l.Allow("k") {
		}
		resets(t, l, "k")
		wants(t, l, "k", 7)
	})
}

func TestResetInADryRun(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(1, 2)))
		l.SetDryRun(true)
		for range 5 {
			took(t, l, "k")
		}
		resets(t, l, "k")
		for range 3 {
			took(t, l, "k")
		}
		if n := l.Stats().DryRunAdmitted[ReasonRate]; n != 4 {
			t.Errorf("%d asks were beyond the limit, want 3 and 1", n)
		}
	})
}

// The gate of keys without room is that of many: one of them must not have it forgiven.
func TestResetOfAKeyInTheOverflowGate(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{Rates: []Rate{perSecond(1, 5)}, InFlight: 9}, MaxKeys(1))
		took(t, l, "busy")
		took(t, l, "late", Weight(5))
		if l.Reset("late") {
			t.Error("a key without a gate of its own was forgiven")
		}
		refusedFor(t, l, ReasonKeys, "other")
		resets(t, l, "busy")
		has(t, l, "busy", 5)
		refusedFor(t, l, ReasonKeys, "late")
	})
}

// Keys of one hash share a gate too.
func TestResetOfAKeyOfTheSameHash(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(1, 5)), WithHash(func(string) uint64 { return 7 }))
		wants(t, l, "a", 5)
		if l.Reset("b") {
			t.Error("a key was forgiven with that of another")
		}
		refusedFor(t, l, ReasonRate, "a")
		resets(t, l, "a")
		wants(t, l, "b", 5)
	})
}

// A reset forgets what was learned, pauses too. A permit that is out brings back feedback later; it is
// learned from as always, and not for a time long past.
func TestResetForgetsWhatWasLearned(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := learning(t, withinShare)
		time.Sleep(time.Hour)
		sends(t, l, "k", policy.Feedback{Outcome: policy.Throttled, RetryAfter: time.Minute})
		paces(t, l, "k", 5)
		c := asking(t, l, "k")
		c.waits(t)
		resets(t, l, "k")
		c.admittedAfter(t, 0)
		paces(t, l, "k", 10)
		if in := l.Explain("k").ctrls()[0].ForgottenIn; in != 0 {
			t.Errorf("something is to be forgotten in %v", in)
		}
		resets(t, l, "k")
		c.permit.Done(success)
		if in := l.Explain("k").ctrls()[0].ForgottenIn; in != forgetAfter {
			t.Errorf("forgotten in %v, want %v", in, forgetAfter)
		}
	})
}

// The controller of a key that was forgiven is seeded as that of its gate was.
func TestResetKeepsTheSeedOfControllers(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := learning(t, withinShare)
		sends(t, l, "k", success)
		for _, own := range []*Limit{nil, ptr(rated(perSecond(8, 8)))} {
			override(t, l, "k", own)
			before := gateOf(l, "k").ext.learned.seed
			resets(t, l, "k")
			if seed := gateOf(l, "k").ext.learned.seed; seed != before || seed == 0 {
				t.Errorf("seed %d, before %d", seed, before)
			}
		}
	})
}

// Slots that a controller has learned are those of a key never seen again.
func TestResetForgetsLearnedSlots(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 8}, policyOf(&spyController{start: 8, next: 2}, withinShare))
		sends(t, l, "k", success)
		time.Sleep(time.Second)
		p := took(t, l, "k")
		time.Sleep(time.Second)
		refusedFor(t, l, ReasonInFlight, "k", Weight(7))
		resets(t, l, "k")
		took(t, l, "k", Weight(7)).Release()
		p.Release()
		inFlight(t, l, 0)
	})
}

// Events taken before a reset were forgiven: they do not come back too.
func TestResetAndCorrect(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(tokensPerMinute(60, 20)))
		p := took(t, l, "k", Cost("tokens", 20))
		resets(t, l, "k")
		took(t, l, "k", Cost("tokens", 10))
		must(t, p.Correct("tokens", 0))
		has(t, l, "k", 10)
		must(t, p.Correct("tokens", 25)) // all that was not taken before is owed
		has(t, l, "k", -15)
		must(t, p.Correct("tokens", 4)) // and taken since
		has(t, l, "k", 6)
		q := took(t, l, "k", Cost("tokens", 6))
		must(t, q.Correct("tokens", 46)) // a debt
		resets(t, l, "k")
		has(t, l, "k", 20)
		must(t, q.Correct("tokens", 0))
		has(t, l, "k", 20)
	})
}

// Requests of TryAcquireUpTo do not come back after a reset, and their slots do, once.
func TestResetAndCorrectOfRequests(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{Rates: []Rate{perSecond(1, 9)}, InFlight: 6})
		p := upTo(t, l, "k", 6, 6)
		resets(t, l, "k")
		refusedFor(t, l, ReasonInFlight, "k")
		correct(t, p, 2)
		q := upTo(t, l, "k", 9, 4)
		has(t, l, "k", 5)
		correct(t, p, 0)
		has(t, l, "k", 5)
		p.Release()
		q.Release()
		inFlight(t, l, 0)
	})
}

// A key that was forgiven equals one never seen, and is dropped as soon as nothing of it is out.
func TestResetAndEviction(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{Rates: []Rate{{Events: 1, Per: time.Hour, Burst: 2}}, InFlight: 2},
			MaxKeys(1))
		p := took(t, l, "k")
		resets(t, l, "k")
		refusedFor(t, l, ReasonTooLarge, "other", Weight(3)) // looks for room
		if gateOf(l, "k") == nil {
			t.Error("a key whose permit is out was dropped")
		}
		p.Release()
		took(t, l, "other").Release()
		if gateOf(l, "k") != nil || gateOf(l, "other") == nil {
			t.Error("a key that has nothing out was kept")
		}
	})
}

// Whatever is reset meanwhile, each slot comes back once, and the key ends as one never seen.
func TestResetsWhileInUse(t *testing.T) {
	limit := Limit{Rates: []Rate{perSecond(1e6, 1000), tokensPerMinute(6e7, 1e6)}, InFlight: 3}
	l := limiterOf(t, limit, policyOf(policy.AIMD{}, withinShare))
	done := make(chan error)
	for w := range 4 {
		go func() {
			for i := range 2000 {
				p, err := l.Acquire(t.Context(), key((i+w)%3), Cost("tokens", 5))
				if err == nil {
					err = p.Correct("tokens", i%9)
				}
				if err != nil {
					done <- err
					return
				}
				p.Done(success)
			}
			done <- nil
		}()
	}
	for i := range 1000 {
		l.Reset(key(i % 3))
	}
	for range 4 {
		must(t, <-done)
	}
	inFlight(t, l, 0)
	for i := range 3 {
		l.Reset(key(i))
		if s := l.shard(key(i)); gateOf(l, key(i)) != nil && !s.spare(gateOf(l, key(i)), s.now()) {
			t.Errorf("%s is not as good as absent: %+v", key(i), l.Explain(key(i)))
		}
	}
	if s := l.Stats(); s.DoubleReleases != 0 || s.Waiting != 0 {
		t.Errorf("%d double releases, %d waiting", s.DoubleReleases, s.Waiting)
	}
}
