package quotient

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestDryRun(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{Rates: []Rate{perSecond(1, 1), tokensPerMinute(60, 60)}, InFlight: 1})
		l.SetDryRun(true)
		p := took(t, l, "k")
		for range 3 {
			q := asking(t, l, "k", Cost("tokens", 9))
			q.admittedAfter(t, 0)
			if err := q.permit.Correct("tokens", 5); err != nil {
				t.Error(err)
			}
			q.permit.Release()
			took(t, l, "k")
			if !l.Allow("k") {
				t.Error("stopped")
			}
			if _, n := l.TryAcquireUpTo("k", 7); n != 7 {
				t.Errorf("%d of 7", n)
			}
		}
		inFlight(t, l, 1)
		p.Release()
		setLimit(t, l, Limit{Deny: true})
		took(t, l, "k")
		asking(t, l, "k").admittedAfter(t, 0)
		refusedFor(t, l, ReasonBadRequest, "k", Weight(-1))
		s := l.Stats()
		if !s.DryRun || !l.Stats().DryRun || s.DryRunAdmitted[ReasonInFlight] != 12 ||
			s.DryRunAdmitted[ReasonDenied] != 2 {
			t.Errorf("%+v", s)
		}
		if len(s.Refused) != 1 || s.Admitted != 15 {
			t.Errorf("%d admitted, %v refused", s.Admitted, s.Refused)
		}
		l.SetDryRun(false)
		refusedFor(t, l, ReasonDenied, "k")
	})
}

func TestDryRunLetsWaitersGo(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{Rates: []Rate{perSecond(1, 1)}, InFlight: 5})
		took(t, l, "k")
		var calls []*call
		for range 200 {
			calls = append(calls, asking(t, l, "k"))
		}
		l.SetDryRun(true)
		synctest.Wait()
		for _, c := range calls {
			c.admittedAfter(t, 0)
			c.permit.Release()
		}
		inFlight(t, l, 1)
		if n := l.Stats().DryRunAdmitted[ReasonRate]; n != 200 {
			t.Errorf("%d were let go", n)
		}
		l.SetDryRun(false)
		time.Sleep(time.Second)
		wants(t, l, "k", 1)
	})
}

func TestDryRunWhilePoolIsAwaited(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(1, 1)), AwaitPool(), HintMaxAge(time.Minute), Replicas(2))
		refusedFor(t, l, ReasonPool, "k")
		l.SetDryRun(true)
		took(t, l, "k")
		if n := l.Stats().DryRunAdmitted[ReasonPool]; n != 1 {
			t.Error(n)
		}
	})
}

// A dry run decides as always: TryAcquireUpTo must take what the real one would, not run the bucket into
// debt.
func TestDryRunOfTryAcquireUpToOwesNothing(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		for _, dry := range []bool{false, true} {
			l := limiterOf(t, rated(perSecond(100, 100)), Replicas(10))
			l.SetDryRun(dry)
			l.TryAcquireUpTo("k", 100) // the real one: 10
			time.Sleep(time.Second)    // 10 more
			for range 10 {
				l.Allow("k")
			}
			s := l.Stats()
			t.Logf("dry %v: refused %v, dry run admitted %v", dry, s.Refused, s.DryRunAdmitted)
			if s.Refused[ReasonRate]+s.DryRunAdmitted[ReasonRate] != 0 {
				t.Errorf("dry %v: stops an ask that the real limiter admits", dry)
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
		l = limiterOf(t, Limit{InFlight: 1}, OnWait(func(string, time.Duration) {
			l.SetDryRun(true)
			panic("hook")
		}))
		took(t, l, "k")
		func() {
			defer func() { _ = recover() }()
			_, _ = l.Acquire(ctx, "k")
		}()
		s := l.Stats()
		if s.Admitted != 1 || s.Cancelled != 1 || len(s.DryRunAdmitted) != 0 {
			t.Errorf("admitted %d, cancelled %d, of them by the dry run %v", s.Admitted, s.Cancelled,
				s.DryRunAdmitted)
		}
	})
}
