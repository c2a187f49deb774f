package quotient

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/policy"
)

func TestAwaitPoolNeedsAnEnd(t *testing.T) {
	_, err := New(Rates(PerSecond(10)), AwaitPool())
	if err == nil || !strings.Contains(err.Error(), "HintMaxAge") {
		t.Errorf("without HintMaxAge: %v", err)
	}
}

// TestAwaitPool checks that nothing passes, whatever the limit is made of, before a source or SetPool brings
// the size of the pool.
func TestAwaitPool(t *testing.T) {
	for _, limit := range []Limit{
		{Rates: []Rate{PerSecond(1000)}},
		{Rates: []Rate{PerSecond(1e9)}}, // enough for the largest pool
		{InFlight: 10},
		{Rates: []Rate{PerSecond(1000)}, InFlight: 10},
		{Rates: []Rate{{Events: 1000, Per: time.Second, Aligned: true}}},
		{Rates: []Rate{PerSecond(1000), {Unit: "tokens", Events: 1000, Per: time.Second}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, err := New(limit, Replicas(9), AwaitPool(), HintMaxAge(time.Minute), AtLeastOne())
			if err != nil {
				t.Fatal(err)
			}
			src := following(t, l)
			defer src.cancel()
			time.Sleep(59 * time.Second)
			if st := l.Stats().Pool; st.Source != "awaited" {
				t.Errorf("%v: before the first hint the pool is %+v", limit, st)
			}
			if l.Allow("k") {
				t.Errorf("%v: Allow before the first hint", limit)
			}
			if _, d := l.TryAcquire("k"); d.OK || d.Reason != ReasonPool || d.RetryAfter != 0 {
				t.Errorf("%v: TryAcquire before the first hint: %+v", limit, d)
			}
			if _, n := l.TryAcquireUpTo("k", 5); n != 0 {
				t.Errorf("%v: %d before the first hint", limit, n)
			}
			if d := l.Check("k"); d.OK || d.Reason != ReasonPool {
				t.Errorf("%v: Check before the first hint: %+v", limit, d)
			}
			got := make(chan error)
			go func() {
				// also a weight above the share that is not known yet
				p, err := l.Acquire(t.Context(), "k", Weight(2))
				p.Release()
				got <- err
			}()
			synctest.Wait()
			src.says(2)
			if err := <-got; err != nil {
				t.Errorf("%v: a waiter after the hint: %v", limit, err)
			}
		})
	}
}

// TestAwaitPoolStartsEmpty checks that what was not admitted is not saved up either.
func TestAwaitPoolStartsEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(Rates(PerSecond(1000)), Replicas(9), AwaitPool(), StartEmpty(), HintMaxAge(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Minute)
		if err := l.SetPool(Pool{Replicas: 4}, 0); err != nil {
			t.Fatal(err)
		}
		if _, n := l.TryAcquireUpTo("k", 1000); n > 2 {
			t.Errorf("%d at once", n)
		}
		time.Sleep(100 * time.Millisecond)
		if _, n := l.TryAcquireUpTo("other", 1000); n < 24 || n > 27 {
			t.Errorf("%d after .1 s at 250/s", n)
		}
	})
}

// TestAwaitPoolStartsFull checks that each key begins with its share of the first pool. A call from before
// the stop goes on too, and so do a key with a limit of its own and one of a plan. The end of a stop brings
// no burst.
func TestAwaitPoolStartsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiterOf(t, Rates(PerHour(1000)), AwaitPool(), HintMaxAge(time.Minute),
			Plans(map[string]Limit{"paid": Rates(PerHour(5000))}))
		own := Rates(PerHour(3000))
		must(t, l.Override("own", &own))
		refusedFor(t, l, ReasonPool, "asked before")
		src := following(t, l)
		src.says(2)
		upTo(t, l, "asked before", 9999, 500)
		upTo(t, l, "new", 9999, 500)
		upTo(t, l, "own", 9999, 1500)
		upTo(t, l, "tenant", 9999, 2500, Plan("paid"))
		limit := Rates(PerHour(3600))
		must(t, l.Override("new", &limit))
		upTo(t, l, "new", 9999, 0)
		time.Sleep(2 * time.Minute)
		refusedFor(t, l, ReasonPool, "new")
		src.says(2)
		upTo(t, l, "asked before", 9999, 1)
		upTo(t, l, "later", 9999, 1)
		must(t, src.cancelled())
	})
}

// TestAwaitPoolFallsBack checks that a source which never reports stops no replica for ever.
func TestAwaitPoolFallsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(Limit{InFlight: 10}, Replicas(5), AwaitPool(), HintMaxAge(20*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		defer following(t, l).cancel()
		began := time.Now()
		p, err := l.Acquire(t.Context(), "k", Weight(2))
		if took := time.Since(began); err != nil || took != 20*time.Second {
			t.Errorf("%v after %v", err, took)
		}
		p.Release()
		if got := l.Stats().Pool; got.Pool != (Pool{Replicas: 5}) || got.Source != "configured" {
			t.Errorf("%+v", got)
		}
	})
}

// TestAwaitPoolWithoutLimit checks that no caller waits where nothing is to be shared.
func TestAwaitPoolWithoutLimit(t *testing.T) {
	l, err := New(Limit{}, Replicas(9), AwaitPool(), HintMaxAge(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if !l.Allow("k") {
		t.Error("refused")
	}
}

// While the pool is awaited no controller is called, so no timer is set for when one wants to be: it would
// go off again and again.
func TestNoTimerSpinsWhileThePoolIsAwaited(t *testing.T) {
	for _, mode := range []policy.RampMode{policy.RampScheduled, policy.RampRelaxed, policy.RampOnlyIfUsed,
		policy.RampGoBack} {
		row(t, mode, func(t *testing.T) {
			ramp := policy.Ramp{Mode: mode, Start: .2, Over: 5 * time.Second, CoolDown: 2 * time.Second}
			l := limiterOf(t, Limit{InFlight: 1}, Policy(ramp), BeyondShare(), AwaitPool(),
				HintMaxAge(time.Second), Replicas(2))
			must(t, l.SetPool(Pool{Replicas: 1}, 10*time.Second))
			time.Sleep(time.Second)
			took(t, l, "k")
			c := asking(t, l, "k")
			time.Sleep(time.Minute) // the pool is awaited again
			if n := fired(l); n > 100 {
				t.Errorf("the timer has gone off %d times in a minute", n)
			}
			c.gaveUp(t)
		})
	}
}

// fired is how often the timers of the only shard have gone off.
func fired(l *Limiter) uint64 {
	s := &l.shards[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts.fired
}

// ends is a source that fails after ten seconds.
type ends struct{}

func (ends) Watch(ctx context.Context, _ func(Pool, error)) error {
	select {
	case <-time.After(10 * time.Second):
	case <-ctx.Done():
	}
	return errors.New("connection lost")
}

// A source that ends again and again before HintMaxAge has passed does not stop a replica for ever.
func TestAwaitPoolOfASourceThatEnds(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 10}, Replicas(9), AwaitPool(), HintMaxAge(25*time.Second))
		for range 4 {
			if l.Follow(t.Context(), ends{}) == nil {
				t.Error("no error")
			}
		}
		if d := l.Check("k"); !d.OK {
			t.Errorf("after 40 s: %+v", d)
		}
	})
}

// failing is a source that fails.
type failing struct{}

func (failing) Watch(ctx context.Context, report func(Pool, error)) error {
	report(Pool{}, errors.New("down"))
	<-ctx.Done()
	return ctx.Err()
}

// AwaitPool's wait counts from the first Follow, also when a Follow begins again while a ttl of SetPool runs.
func TestAwaitCountsFromTheFirstFollow(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(60, 60)), AwaitPool(), HintMaxAge(time.Minute), Replicas(3))
		first, stop := context.WithTimeout(t.Context(), 50*time.Second)
		defer stop()
		go func() { _ = l.Follow(first, failing{}) }()
		time.Sleep(40 * time.Second)
		if err := l.SetPool(Pool{Replicas: 6}, 30*time.Second); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		second, stop2 := context.WithCancel(t.Context())
		go func() { _ = l.Follow(second, failing{}) }()
		time.Sleep(30 * time.Second) // 80 s after the first Follow began, and the word is over
		if p := l.Stats().Pool; p.Source != "configured" {
			t.Errorf("pool %+v, want the configured one: HintMaxAge after the first Follow is over", p)
		}
		stop2()
		synctest.Wait()
	})
}

// SetPool ends the wait of AwaitPool for good: the end of a later ttl does not begin it again.
func TestEndOfATTLDoesNotAwaitAgain(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(60, 60)), AwaitPool(), HintMaxAge(time.Hour), Replicas(3))
		setReplicas(t, l, 10)
		time.Sleep(time.Minute)
		wants(t, l, "k", 6)
		if err := l.SetPool(Pool{Replicas: 20}, time.Minute); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		if _, d := l.TryAcquire("k"); !d.OK {
			t.Errorf("refused: %v; SetPool has opened it for good", d.Reason)
		}
	})
}

// TestAwaitPoolDenied checks that a limit that refused everything when the pool became known keeps nothing
// of the wait: keys begin with the rules of the limit that comes next.
func TestAwaitPoolDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := Rates(PerHour(1000))
		l := limiterOf(t, limit, AwaitPool(), HintMaxAge(time.Hour))
		refusedFor(t, l, ReasonPool, "asked before")
		must(t, l.SetLimit(Limit{Deny: true}))
		must(t, l.SetPool(Pool{Replicas: 2}, 0))
		refusedFor(t, l, ReasonDenied, "asked before")
		must(t, l.SetLimit(limit))
		upTo(t, l, "asked before", 9999, 500)
		upTo(t, l, "new", 9999, 500)
	})
}
