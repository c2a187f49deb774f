package quotient

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The seventh overtaker makes the oldest next, but nobody asks it: its timer is that of the head.
func TestSeventhOvertakerWakesTheOldest(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(100, 100), Rate{Name: "tok", Unit: "tokens", Events: 1, Per: time.Hour, Burst: 1}))
		took(t, l, "k", Weight(100), Cost("tokens", 1)) // all is empty
		low := asking(t, l, "k", PriorityLow.Ask())     // would be served in 10 ms
		normal := asking(t, l, "k", Cost("tokens", 1))  // goes before it, and waits an hour for a token
		time.Sleep(time.Second)
		low.waits(t) // head of line, by design
		for range 7 {
			took(t, l, "k", PriorityCritical.Ask())
		}
		time.Sleep(time.Second)
		if !low.ended() {
			t.Error("low is next, has all it asks for, and is not asked")
		}
		if _, d := l.TryAcquire("k", PriorityCritical.Ask()); !d.OK {
			t.Errorf("and a critical ask is refused: %+v", d)
		}
		time.Sleep(10 * time.Minute)
		if !low.ended() {
			t.Error("low still waits 10 minutes later")
		}
		low.cancel()
		normal.cancel()
		synctest.Wait()
	})
}

// A key that holds its slots, or waits, through the overflow gate would have its limit twice with a gate of its own: it can be denied, and goes
// back to the overflow gate after that.
func TestOverrideOfAKeyInTheOverflowGate(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 2}, MaxKeys(1))
		took(t, l, "busy")
		p := took(t, l, "k")
		took(t, l, "k")
		waiter := asking(t, l, "k")
		says(t, l.Override("k", ptr(Limit{InFlight: 2})), "Override", `"k"`, "only be denied")
		override(t, l, "k", ptr(Deny()))
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

// R3: "A key with a limit of its own is remembered ... beside MaxKeys".
func TestOverriddenKeysStandBesideMaxKeys(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 1}, MaxKeys(4))
		override(t, l, "own1", ptr(Deny()))
		override(t, l, "own2", ptr(Deny()))
		for i := range 4 {
			l.TryAcquire(key(i))
		}
		if s := l.Stats(); s.Overflowed != 0 || s.Admitted != 4 {
			t.Errorf("%d of 4 keys admitted, %d asks overflowed (MaxKeys 4, %d keys)", s.Admitted, s.Overflowed, s.Keys)
		}
	})
}

// After an override was set and taken off, the era is the old one again: Correct gives back what had been refilled.
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
		wants(t, l, "k", 0) // "nothing that was taken under another limit or pool", "cannot have come back by itself since"
	})
}

// A dry run decides as ever: TryAcquireUpTo must take what the real one would, not run the bucket into debt.
func TestDryRunOfTryAcquireUpToOwesNothing(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		for _, dry := range []bool{false, true} {
			l := limiterOf(t, rated(perSecond(100, 100)), StartPool(Pool{Replicas: 10}))
			l.SetDryRun(dry)
			l.TryAcquireUpTo("k", 100) // the real one: 10
			time.Sleep(time.Second)    // 10 more
			for range 10 {
				l.Allow("k")
			}
			s := l.Stats()
			t.Logf("dry %v: refused %v, dry run admitted %v", dry, s.Refused, s.DryRunAdmitted)
			if s.Refused[ReasonRate]+s.DryRunAdmitted[ReasonRate] != 0 {
				t.Errorf("dry %v: stops somebody whom the real limiter admits", dry)
			}
		}
	})
}

// A waiter that a dry run let go and whose context ended is taken off Admitted, but not off DryRunAdmitted.
func TestCancelledDryAdmissionIsNotCounted(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		var l *Limiter
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l = limiterOf(t, Limit{InFlight: 1}, OnWait(func(string, time.Duration) { l.SetDryRun(true); panic("hook") }))
		took(t, l, "k")
		func() {
			defer func() { _ = recover() }()
			_, _ = l.Acquire(ctx, "k")
		}()
		s := l.Stats()
		if s.Admitted != 1 || s.Cancelled != 1 || len(s.DryRunAdmitted) != 0 {
			t.Errorf("admitted %d, cancelled %d, of them by the dry run %v", s.Admitted, s.Cancelled, s.DryRunAdmitted)
		}
	})
}

// The stack of a leak begins with the caller.
func TestLeakStackOfTryAcquireUpTo(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		leaks := make(chan Leak, 2) // reports come in goroutines of their own
		l := limiterOf(t, Limit{InFlight: 5}, MaxHold(time.Second), LeakCheck(func(x Leak) { leaks <- x }))
		l.TryAcquireUpTo("k", 1)
		l.TryAcquire("k")
		time.Sleep(2 * time.Second)
		l.Stats()
		for range 2 {
			x := <-leaks
			if first, _, _ := strings.Cut(x.Stack, "\n"); !strings.Contains(first, "TestLeakStack") {
				t.Errorf("first frame: %s", first)
			}
		}
	})
}

// Explanation.Next is "what the ask would get from TryAcquire now".
func TestNextIsWhatTryAcquireSays(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{Rates: []Rate{perSecond(1, 1)}, InFlight: 1})
		took(t, l, "k")
		c := asking(t, l, "k")
		e := l.Explain("k")
		check := l.Check("k")
		_, d := l.TryAcquire("k")
		if e.Next.Reason != d.Reason || e.Next.RetryAfter != d.RetryAfter {
			t.Errorf("Next %v %v, Check %v %v, TryAcquire %v %v", e.Next.Reason, e.Next.RetryAfter, check.Reason, check.RetryAfter, d.Reason, d.RetryAfter)
		}
		c.cancel()
		synctest.Wait()
	})
}

// AppendQuotas is "like Check", which counts permits whose time is over as given back.
func TestQuotasCountNoPermitWhoseTimeIsOver(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 1}, MaxHold(time.Second))
		took(t, l, "k")
		time.Sleep(2 * time.Second)
		left := l.AppendQuotas(nil, "k")[0].Left
		top := l.Top(1)[0]
		if ok := l.Check("k").OK; ok && left != 1 {
			t.Errorf("Check admits, AppendQuotas before it said %v left, Top %v in flight", left, top.InFlight)
		}
	})
}

// The end of SetPoolFor must not leave a replica the whole limit when all that was ever said is larger.
func TestEndOfAWordIsNotTheWholeLimit(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(100, 100)))
		setReplicas(t, l, 10)
		if err := l.SetPoolFor(Pool{Replicas: 20}, time.Minute); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute + time.Second)
		if p := l.Pool(); p.Replicas == 1 {
			t.Errorf("pool of %d replicas: SetPool said 10, SetPoolFor 20, and nothing is configured", p.Replicas)
		}
	})
}

// On an error no limiter.
func TestRegistryReturnsNoLimiterWithAnError(t *testing.T) {
	var r Registry
	if l, err := r.Limiter("Bad Name", Limit{InFlight: 1}); err == nil || l != nil {
		t.Errorf("%v, %v", l != nil, err)
	}
}

// Who is refused in the queue while its context ends is one ask, and counted once.
func TestRefusedAndCancelledIsOneAsk(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		var l *Limiter
		l = limiterOf(t, Limit{InFlight: 1}, OnWait(func(string, time.Duration) {
			setLimit(t, l, Deny()) // refuses the waiter whose hook this is
			panic("hook")
		}))
		took(t, l, "k")
		func() {
			defer func() { _ = recover() }()
			_, _ = l.Acquire(t.Context(), "k")
		}()
		s := l.Stats()
		n := s.Admitted + s.Cancelled
		for _, r := range s.Refused {
			n += r
		}
		if n != 2 {
			t.Errorf("2 asks, %d counted: admitted %d, cancelled %d, refused %v", n, s.Admitted, s.Cancelled, s.Refused)
		}
	})
}

// An overtaker that comes after a permit's time is over, but before the timer (which is a millisecond late), takes it back, takes
// part of it, and sets the timer to the end of its own permit: who waits is not asked until then.
func TestOvertakerThatReclaimsWakesWhoWaits(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 3}, MaxHold(5*time.Second))
		took(t, l, "k", Weight(3))
		waiter := asking(t, l, "k", Weight(2))
		time.Sleep(4 * time.Second)
		s := l.shard("k")
		s.mu.Lock()
		gateNow := s.get("k")
		gateNow.more.timer.Reset(time.Second + 2*time.Millisecond) // as a busy machine's: late
		s.mu.Unlock()
		time.Sleep(time.Second + time.Millisecond)
		start := time.Now()
		p := took(t, l, "k", PriorityHigh.Ask())
		p.ExpireIn(time.Hour)
		time.Sleep(30 * time.Minute)
		if !waiter.ended() {
			t.Errorf("2 slots are free; the waiter still waits %v later (%+v)", time.Since(start), l.Explain("k").Rules)
		}
		waiter.cancel()
		synctest.Wait()
	})
}

// AwaitPool, opened for good by SetPool: the end of a later SetPoolFor shuts it again.
func TestEndOfAWordShutsNobodyOut(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(60, 60)), AwaitPool(), HintMaxAge(time.Hour), StartPool(Pool{Replicas: 3}))
		setReplicas(t, l, 10)
		time.Sleep(time.Minute)
		wants(t, l, "k", 6)
		if err := l.SetPoolFor(Pool{Replicas: 20}, time.Minute); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		if _, d := l.TryAcquire("k"); !d.OK {
			t.Errorf("refused: %v; SetPool has opened it for good", d.Reason)
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

// AwaitPool's wait counts from the first Follow, also when a Follow begins anew while a word is in force.
func TestAwaitCountsFromTheFirstFollow(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(60, 60)), AwaitPool(), HintMaxAge(time.Minute), StartPool(Pool{Replicas: 3}))
		first, stop := context.WithTimeout(t.Context(), 50*time.Second)
		defer stop()
		go func() { _ = l.Follow(first, failing{}) }()
		time.Sleep(40 * time.Second)
		if err := l.SetPoolFor(Pool{Replicas: 6}, 30*time.Second); err != nil {
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

// A state that is told under a version is that version's: else an ETag stands for a body of the version before.
func TestStatsAreOfTheirVersion(t *testing.T) {
	l := limiterOf(t, rated(perSecond(10, 10)))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for on := true; ; on = !on {
			select {
			case <-stop:
				return
			default:
				l.SetDryRun(on) // an odd version is a dry run
			}
		}
	}()
	wrong := 0
	for range 20000 {
		if s := l.Stats(); s.DryRun != (s.Version%2 == 1) {
			wrong++
		}
	}
	close(stop)
	<-done
	if wrong > 0 {
		t.Errorf("%d of 20000 Stats show the state of another version", wrong)
	}
}
