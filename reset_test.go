package quotient

import (
	"log/slog"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// resets fails unless Reset of the key reports that it is remembered.
func resets(t *testing.T, l *Limiter, key string) {
	t.Helper()
	is(t, "remembered", l.Reset(key), true)
}

func TestReset(t *testing.T) {
	row(t, "reset", func(t *testing.T) {
		log := recording()
		l := mustNew(t, Rates(perSecond(1, 5), Rate{Name: "hour", Events: 3600, Per: time.Hour, Burst: 8}),
			Logger(slog.New(log)))
		log.take() // the hour's rate never decides
		is(t, "a key never seen is forgiven", l.Reset("k"), false)
		stats(t, l, "Keys", 0, "Version", 0)
		wants(t, l, "k", 5)
		wants(t, l, "other", 5)
		resets(t, l, "k")
		wants(t, l, "k", 5)
		refusedFor(t, l, ReasonRate, "other")
		stats(t, l, "Version", 1)
		log.wrote(t, "0s INFO key reset key=k")
	})
	// A key that was forgiven equals one never seen, and is dropped as soon as nothing of it is out.
	row(t, "and eviction", func(t *testing.T) {
		l := mustNew(t, Limit{Rates: []Rate{{Events: 1, Per: time.Hour, Burst: 2}}, InFlight: 2},
			MaxKeys(1))
		p := took(t, l, "k")
		resets(t, l, "k")
		refusedFor(t, l, ReasonTooLarge, "other", Weight(3)) // looks for room
		is(t, "a key whose permit is out was dropped", gateOf(l, "k") == nil, false)
		p.Release()
		took(t, l, "other").Release()
		is(t, "a key that has nothing out was dropped", gateOf(l, "k") == nil, true)
	})
}

func TestResetKeeps(t *testing.T) {
	row(t, "the ends of permits", func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 1}, MaxHold(time.Second))
		took(t, l, "k")
		resets(t, l, "k")
		c := asking(t, l, "k")
		time.Sleep(time.Second)
		c.admittedAfter(t, time.Second)
	})
	row(t, "turns", func(t *testing.T) {
		l := mustNew(t, Rates(Every(time.Second)), StartPool(Pool{Replicas: 4, Ordinal: 1, Fixed: true}))
		c := asking(t, l, "k")
		time.Sleep(4 * time.Second)
		is(t, "a turn came", c.ended(), true)
		time.Sleep(500 * ms) // the turn is over, and the next is not yet
		resets(t, l, "k")
		time.Sleep(refusedFor(t, l, ReasonRate, "k").RetryAfter)
		took(t, l, "k")
		if at := time.Now().UnixNano() % int64(4*time.Second); at > int64(100*ms) {
			t.Errorf("%v into the cycle is no turn", time.Duration(at))
		}
	})
	// The controller of a key that was forgiven is seeded as that of its gate was.
	row(t, "the seed of controllers", func(t *testing.T) {
		l := learning(t, withinShare)
		sends(t, l, "k", success)
		for _, own := range []*Limit{nil, ptr(Rates(perSecond(8, 8)))} {
			override(t, l, "k", own)
			before := gateOf(l, "k").ext.learned.seed
			resets(t, l, "k")
			if seed := gateOf(l, "k").ext.learned.seed; seed != before || seed == 0 {
				t.Errorf("seed %d, before %d", seed, before)
			}
		}
	})
}

func TestResetServesWaiters(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(1, 3)))
		wants(t, l, "k", 3)
		first, second := asking(t, l, "k", Weight(2)), asking(t, l, "k")
		third, low := asking(t, l, "k"), asking(t, l, "k", PriorityLow.Option())
		time.Sleep(100 * ms)
		resets(t, l, "k")
		first.admittedAfter(t, 100*ms)
		second.admittedAfter(t, 100*ms)
		time.Sleep(time.Minute)
		third.admittedAfter(t, 1100*ms)
		low.admittedAfter(t, 2100*ms)
	})
}

// A waiter that a reset has let through, and that gives up, returns what it took. A call admitted before the
// reset does not.
func TestResetAndWaitersThatGiveUp(t *testing.T) {
	for name, left := range map[string]float64{"let through by it": 2, "let through before it": 1} {
		row(t, name, func(t *testing.T) {
			l := mustNew(t, Rates(perSecond(1, 2)))
			wants(t, l, "k", 2)
			s := l.shard("k")
			s.mu.Lock()
			g, w := s.find(l.hash("k")), newWaiter(oneRequest)
			w.key, w.since = "k", s.now().at
			l.waiting.Add(1)
			s.enqueue(g, w, s.latest)
			s.mu.Unlock()
			resets(t, l, "k")
			if left == 1 {
				resets(t, l, "k")
				took(t, l, "k")
			}
			s.mu.Lock()
			s.cancelAndUnlock(g, w)
			has(t, l, "k", left)
		})
	}
}

// A gate that keys share is not forgiven for one of them: that of keys without room, and that of one hash.
func TestResetOfAGateThatIsShared(t *testing.T) {
	row(t, "for want of room", func(t *testing.T) {
		l := mustNew(t, Limit{Rates: []Rate{perSecond(1, 5)}, InFlight: 9}, MaxKeys(1))
		took(t, l, "busy")
		took(t, l, "late", Weight(5))
		is(t, "forgiven", l.Reset("late"), false)
		refusedFor(t, l, ReasonKeys, "other")
		resets(t, l, "busy")
		has(t, l, "busy", 5)
		refusedFor(t, l, ReasonKeys, "late")
	})
	row(t, "for one hash", func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(1, 5)), WithHash(func(string) uint64 { return 7 }))
		wants(t, l, "a", 5)
		is(t, "forgiven", l.Reset("b"), false)
		refusedFor(t, l, ReasonRate, "a")
		resets(t, l, "a")
		wants(t, l, "b", 5)
	})
}

// A reset forgets what was learned, pauses too. A permit that is out brings back feedback later; it is
// learned from as always, and not for a time long past.
func TestResetForgetsWhatWasLearned(t *testing.T) {
	row(t, "of a rate", func(t *testing.T) {
		l := learning(t, withinShare)
		time.Sleep(time.Hour)
		sends(t, l, "k", policy.Feedback{Outcome: policy.Throttled, RetryAfter: time.Minute})
		paces(t, l, "k", 5)
		c := asking(t, l, "k")
		c.waits(t)
		resets(t, l, "k")
		c.admittedAfter(t, 0)
		paces(t, l, "k", 10)
		is(t, "forgotten in", l.Explain("k").ctrls()[0].ForgottenIn, 0)
		resets(t, l, "k")
		c.permit.Done(success)
		is(t, "forgotten in", l.Explain("k").ctrls()[0].ForgottenIn, forgetAfter)
	})
	row(t, "of slots", func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 8}, policyOf(&spyController{start: 8, next: 2}, withinShare))
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
