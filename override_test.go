package quotient

import (
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

func override(t *testing.T, l *Limiter, key string, limit *Limit) {
	t.Helper()
	if err := l.Override(key, limit); err != nil {
		t.Fatal(err)
	}
}

func ptr[T any](v T) *T { return &v }

func TestOverride(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(10, 10)))
		override(t, l, "big", ptr(rated(perSecond(100, 30))))
		wants(t, l, "big", 10) // raised, but nothing is given that was not there
		time.Sleep(time.Second)
		wants(t, l, "big", 30)
		wants(t, l, "other", 10)
		override(t, l, "big", nil)
		time.Sleep(100 * time.Millisecond)
		wants(t, l, "big", 1)
	})
}

func TestOverrideFollowsThePool(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(10, 10)))
		override(t, l, "k", ptr(rated(perSecond(100, 100))))
		time.Sleep(time.Second)
		setReplicas(t, l, 4)
		wants(t, l, "k", 25)
		setLimit(t, l, rated(perSecond(1000, 1000))) // of all others
		time.Sleep(time.Second)
		wants(t, l, "k", 25)
		setReplicas(t, l, 2)
		time.Sleep(time.Second)
		wants(t, l, "k", 50)
	})
}

func TestOverrideReachesWaiters(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(1, 1)))
		wants(t, l, "k", 1)
		first, second := asking(t, l, "k"), asking(t, l, "k")
		override(t, l, "k", ptr(rated(perSecond(10, 1))))
		time.Sleep(100 * time.Millisecond)
		first.admittedAfter(t, 100*time.Millisecond)
		second.waits(t)
		override(t, l, "k", ptr(Limit{Deny: true}))
		second.refusedAfter(t, 100*time.Millisecond, ReasonDenied)
		refusedFor(t, l, ReasonDenied, "k")
		override(t, l, "k", nil)
		time.Sleep(time.Second)
		wants(t, l, "k", 1)
	})
}

// An override needs a clock, or the wall's, also where the limiter itself needs none.
func TestOverrideBringsItsClock(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 3})
		took(t, l, "k").Release()
		override(t, l, "k", ptr(rated(perSecond(5, 5))))
		wants(t, l, "k", 5)
		time.Sleep(time.Second)
		wants(t, l, "k", 5)
		override(t, l, "k", ptr(rated(aligned(7, time.Second))))
		time.Sleep(time.Second)
		wants(t, l, "k", 7)
		if l.clock.Load() != clockWall {
			t.Error("an aligned rate without the wall's clock")
		}
		override(t, l, "k", nil)
		if l.clock.Load() != clockNone {
			t.Error("slots alone need no clock")
		}
		setLimit(t, l, Limit{InFlight: 2})
		if l.clock.Load() != clockNone {
			t.Error("slots alone need no clock")
		}
	})
}

func TestOverrideOfSlots(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(100, 100)))
		before := took(t, l, "k")
		override(t, l, "k", ptr(Limit{InFlight: 2}))
		p, q := took(t, l, "k"), took(t, l, "k")
		refusedFor(t, l, ReasonInFlight, "k")
		waiter := asking(t, l, "k")
		p.Release()
		waiter.admittedAfter(t, 0)
		override(t, l, "k", nil)
		q.Release()
		waiter.permit.Release()
		before.Release()
		inFlight(t, l, 0)
		if n := l.Stats().DoubleReleases; n != 0 {
			t.Errorf("%d double releases", n)
		}
	})
}

// Events taken under another limit are not given back under this one, wherever the limit came from.
func TestOverrideGivesNothingBackThatItDidNotTake(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(10, 10)))
		p, n := l.TryAcquireUpTo("k", 10)
		override(t, l, "k", ptr(rated(perSecond(10, 10))))
		if err := p.Correct("", 0); err != nil || n != 10 {
			t.Errorf("%v, %d taken", err, n)
		}
		wants(t, l, "k", 0)
		time.Sleep(time.Second)
		p, _ = l.TryAcquireUpTo("k", 10)
		override(t, l, "k", nil)
		if err := p.Correct("", 0); err != nil {
			t.Error(err)
		}
		wants(t, l, "k", 0)
	})
}

// Overridden keys are remembered beside MaxKeys, and count also while all others are busy.
func TestOverrideWhileAllKeysAreBusy(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(1, 1)), MaxKeys(4))
		for i := range 9 {
			l.Allow(key(i))
		}
		override(t, l, "evil", ptr(Limit{Deny: true}))
		override(t, l, "good", ptr(rated(perSecond(1, 3))))
		refusedFor(t, l, ReasonDenied, "evil")
		says(t, l.Override("third", ptr(Limit{Deny: true})), "Override", `"third"`, "2 keys")
		time.Sleep(time.Hour)
		for i := range 9 {
			l.Allow(key(i))
		}
		wants(t, l, "good", 3)
		refusedFor(t, l, ReasonDenied, "evil")
		if n := l.Stats().Keys; n > 6 {
			t.Errorf("%d keys, want at most 4 and 2", n)
		}
		override(t, l, "evil", nil)
		override(t, l, "third", ptr(Limit{Deny: true}))
		if s := l.Stats(); s.Overrides != 2 || len(l.Overrides()) != 2 || !l.Overrides()["third"].Deny {
			t.Errorf("%d overrides: %v", s.Overrides, l.Overrides())
		}
	})
}

// However often keys come and go, no more than MaxKeys and half of it are remembered.
func TestOverridesThatComeAndGo(t *testing.T) {
	l := limiterOf(t, rated(Rate{Events: 1, Per: time.Hour, Burst: 1, NoTurns: true}), MaxKeys(10))
	refused := 0
	for i := range 100 {
		k := key(i)
		if l.Override(k, ptr(rated(Rate{Events: 1, Per: time.Hour, Burst: 2}))) != nil {
			refused++
			continue
		}
		l.Allow(k)
		override(t, l, k, nil)
	}
	if n := l.Stats().Keys; n > 15 || refused == 0 {
		t.Errorf("%d keys, %d refused", n, refused)
	}
}

func TestOverrideErrors(t *testing.T) {
	l := limiterOf(t, rated(perSecond(1, 1)))
	for _, c := range []struct {
		limit Limit
		words []string
	}{
		{Limit{InFlight: -1}, []string{"Override", "Limit.InFlight", "-1"}},
		{rated(Rate{Events: -5, Per: time.Second}), []string{"Rates[0]", "Events", "-5"}},
		{rated(Rate{Unit: "a", Name: "a", Events: 1, Per: 1}, Rate{Unit: "b", Events: 1, Per: 1},
			Rate{Unit: "c", Events: 1, Per: 1}, Rate{Unit: "d", Events: 1, Per: 1}),
			[]string{"Rates[3].Unit", `"d"`}},
	} {
		version := l.Stats().Version
		says(t, l.Override("k", &c.limit), c.words...)
		if len(l.Overrides()) != 0 || l.Stats().Version != version {
			t.Error("a refused override has changed something")
		}
	}
	override(t, l, "k", nil)
	if l.Stats().Version != 0 {
		t.Error("taking off what is not there has changed something")
	}
}

// The units of a limit of its own can be asked for, for that key and, with no rate that counts them, for any.
func TestOverrideWithAUnitOfItsOwn(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(10, 10)))
		override(t, l, "k", ptr(rated(tokensPerMinute(60, 60))))
		took(t, l, "k", Cost("tokens", 60))
		refusedFor(t, l, ReasonRate, "k", Cost("tokens", 1))
		took(t, l, "other", Cost("tokens", 1000))
	})
}

func TestOverrideUnderAController(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(10, 10)), Policy(policy.Tracking{}), BeyondShare())
		override(t, l, "k", ptr(rated(perSecond(4, 4))))
		e := l.Explain("k")
		if len(e.ctrls()) != 1 || e.ctrls()[0].Limit != 4 || !e.Overridden {
			t.Errorf("%+v", e)
		}
		override(t, l, "k", ptr(Limit{InFlight: 2}))
		if e := l.Explain("k"); len(e.ctrls()) != 2 || e.ctrls()[1].Unit != "in-flight" {
			t.Errorf("%+v", e)
		}
		override(t, l, "k", nil)
		if e := l.Explain("k"); len(e.ctrls()) != 1 || e.ctrls()[0].Limit != 10 {
			t.Errorf("%+v", e)
		}
	})
}

func TestOverridesWhileInUse(t *testing.T) {
	l := limiterOf(t, Limit{Rates: []Rate{perSecond(1e6, 1000)}, InFlight: 50}, MaxKeys(64))
	done := make(chan struct{})
	for w := range 4 {
		go func() {
			defer func() { done <- struct{}{} }()
			for i := range 4000 {
				if p, d := l.TryAcquire(key((i + w) % 7)); d.OK {
					p.Release()
				}
			}
		}()
	}
	for i := range 300 {
		switch i % 4 {
		case 0:
			override(t, l, key(i%7), ptr(Limit{InFlight: 5}))
		case 1:
			override(t, l, key(i%7), nil)
		case 2:
			setReplicas(t, l, 1+i%3)
		case 3:
			setLimit(t, l, Limit{Rates: []Rate{perSecond(1e6, 1000+i)}, InFlight: 50 + i%2})
		}
	}
	for range 4 {
		<-done
	}
	inFlight(t, l, 0)
	if s := l.Stats(); s.DoubleReleases != 0 {
		t.Errorf("%d double releases", s.DoubleReleases)
	}
}

// A key that holds its slots, or waits, through the overflow gate would have its limit twice with a gate of
// its own. It can be denied, and goes back to the overflow gate after that.
func TestOverrideOfAKeyInTheOverflowGate(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 2}, MaxKeys(1))
		took(t, l, "busy")
		p := took(t, l, "k")
		took(t, l, "k")
		waiter := asking(t, l, "k")
		says(t, l.Override("k", ptr(Limit{InFlight: 2})), "Override", `"k"`, "only be denied")
		override(t, l, "k", ptr(Limit{Deny: true}))
		refusedFor(t, l, ReasonDenied, "k")
		says(t, l.Override("k", ptr(Limit{InFlight: 2})), "only be denied")
		override(t, l, "k", nil)
		if s := l.Stats(); s.Keys != 1 || s.Overrides != 0 {
			t.Errorf("%d keys, %d overrides", s.Keys, s.Overrides)
		}
		refusedFor(t, l, ReasonKeys, "k")
		p.Release()
		waiter.refusedAfter(t, 0, ReasonDenied)
	})
}

// A key with a limit of its own is remembered beside MaxKeys.
func TestOverriddenKeysStandBesideMaxKeys(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 1}, MaxKeys(4))
		override(t, l, "own1", ptr(Limit{Deny: true}))
		override(t, l, "own2", ptr(Limit{Deny: true}))
		for i := range 4 {
			l.TryAcquire(key(i))
		}
		if s := l.Stats(); s.Overflowed != 0 || s.Admitted != 4 {
			t.Errorf("%d of 4 keys admitted, %d asks overflowed (MaxKeys 4, %d keys)", s.Admitted,
				s.Overflowed, s.Keys)
		}
	})
}

// After an override was set and taken off, the era is the old one again: Correct gives back what had been
// refilled.
func TestSetAndTakenOffOverrideIsAnotherLimit(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(1, 100)))
		p, n := l.TryAcquireUpTo("k", 100)
		override(t, l, "k", ptr(rated(perSecond(1e6, 100))))
		time.Sleep(time.Millisecond)
		override(t, l, "k", nil)
		wants(t, l, "k", 100) // refilled by the override
		if err := p.Correct("", 0); err != nil || n != 100 {
			t.Fatal(err)
		}
		wants(t, l, "k", 0) // by the promises of Permit.Correct
	})
}

// Two keys of one hash share a gate: they are limited more than due. A limit of its own is still that of one
// key.
func TestKeysOfOneHash(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		oneHash := func(o *options) error { o.hashKey = func(string) uint64 { return 7 }; return nil }
		l := limiterOf(t, rated(perSecond(1, 5)), oneHash)
		took(t, l, "a")
		wants(t, l, "b", 4)
		time.Sleep(5 * time.Second)
		override(t, l, "b", ptr(Limit{Deny: true}))
		refusedFor(t, l, ReasonDenied, "b")
		for range 5 {
			if c := l.Check("a"); !c.OK {
				t.Errorf("a key beside one that is denied: %+v", c)
			}
			took(t, l, "a")
		}
		refusedFor(t, l, ReasonKeys, "a") // through the gate of keys without room
		override(t, l, "b", nil)
		override(t, l, "a", ptr(rated(perSecond(10, 20))))
		time.Sleep(5 * time.Second)
		wants(t, l, "a", 20)
		wants(t, l, "b", 5)
	})
}
