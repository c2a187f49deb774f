package quotient

import (
	"math"
	"testing"
	"testing/synctest"
	"time"
)

func poolFor(t *testing.T, l *Limiter, n int, ttl time.Duration) {
	t.Helper()
	if err := l.SetPool(Pool{Replicas: n}, ttl); err != nil {
		t.Fatal(err)
	}
}

func replicas(t *testing.T, l *Limiter, n int, source string) {
	t.Helper()
	synctest.Wait()
	if s := l.Stats().Pool; s.Replicas != n || s.Source != source {
		t.Errorf("%d replicas, %s; want %d, %s", s.Replicas, s.Source, n, source)
	}
}

func TestSetPoolFor(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(60, 60)), Replicas(3))
		poolFor(t, l, 6, time.Minute)
		replicas(t, l, 6, "set")
		if until := l.Stats().Pool.Until; !until.Equal(time.Now().Add(time.Minute)) {
			t.Errorf("until %v", until)
		}
		time.Sleep(time.Minute - 1)
		replicas(t, l, 6, "set")
		time.Sleep(time.Nanosecond)
		replicas(t, l, 3, "configured")
		if l.Stats().Version != 2 || !l.Stats().Pool.Until.IsZero() {
			t.Error(l.Stats().Version, l.Stats().Pool.Until)
		}
	})
}

func TestSetPoolForHoldsAgainstHints(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(60, 60)), Replicas(3), HoldDown(0))
		src := following(t, l)
		defer src.cancel()
		src.says(4)
		replicas(t, l, 4, "followed")
		poolFor(t, l, 9, time.Minute)
		src.says(12)
		replicas(t, l, 9, "set")
		src.says(5)
		replicas(t, l, 9, "set")
		time.Sleep(time.Minute)
		replicas(t, l, 5, "followed")
		if l.Stats().Version != 2 {
			t.Error("a hint counts as a change of configuration")
		}
	})
}

func TestSetPoolForIsReplaced(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(60, 60)), Replicas(3))
		poolFor(t, l, 6, time.Minute)
		first := l.Stats().Pool.Until
		time.Sleep(30 * time.Second)
		poolFor(t, l, 7, time.Minute)
		l.ttlEnds(first) // its timer went off just before it was stopped
		time.Sleep(59 * time.Second)
		replicas(t, l, 7, "set")
		time.Sleep(time.Second)
		replicas(t, l, 3, "configured")
		poolFor(t, l, 6, time.Minute)
		setReplicas(t, l, 8)
		time.Sleep(time.Hour)
		replicas(t, l, 8, "set") // it has no end
		poolFor(t, l, 6, time.Minute)
		time.Sleep(time.Minute)
		replicas(t, l, 3, "configured") // not the 8: after the ttl no one must remember what was set before
	})
}

func TestSetPoolForWhilePoolIsAwaited(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(60, 60)), AwaitPool(), HintMaxAge(time.Hour), Replicas(3))
		poolFor(t, l, 6, time.Minute)
		time.Sleep(time.Second)
		wants(t, l, "k", 10)
		time.Sleep(time.Minute)
		replicas(t, l, 3, "awaited")
		refusedFor(t, l, ReasonPool, "k")
	})
}

func TestSetPoolForErrors(t *testing.T) {
	l := limiterOf(t, rated(perSecond(60, 60)))
	says(t, l.SetPool(Pool{Replicas: 3}, -time.Second), "SetPool", "ttl", "-1s")
	says(t, l.SetPool(Pool{Replicas: -3}, time.Second), "Replicas", "-3")
	if l.Stats().Version != 0 || l.Stats().Pool.Replicas != 1 {
		t.Error("a refused SetPool has changed something")
	}
}

// The end of a ttl of SetPool must not leave a replica the whole limit when all pools that were ever set are
// larger.
func TestEndOfATTLIsNotTheWholeLimit(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(100, 100)))
		setReplicas(t, l, 10)
		if err := l.SetPool(Pool{Replicas: 20}, time.Minute); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute + time.Second)
		if p := l.Stats().Pool.Pool; p.Replicas == 1 {
			t.Errorf("pool of %d replicas: SetPool set 10, and 20 for a time, and nothing is configured",
				p.Replicas)
		}
	})
}

// A pool that SetPool has set counts at once, and until the source reports something new.
func TestSetPoolStaysUntilTheSourceReportsSomethingNew(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{})
		src := following(t, l)
		src.says(4)
		setReplicas(t, l, 2)
		counted(t, l, 2)
		if got := l.Stats().Pool; got.Source != "set" || got.Age != 0 {
			t.Errorf("got %+v", got)
		}
		for range 10 {
			time.Sleep(10 * time.Second)
			src.says(4)
			counted(t, l, 2)
		}
		src.says(5)
		counted(t, l, 5)
		src.cancel()
	})
}

func TestSetPoolRefuses(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(6, 6)), Replicas(3))
		for _, p := range []Pool{{}, {Replicas: -1}, {Replicas: math.MaxInt}, {Replicas: 2, Ordinal: 3}} {
			says(t, l.SetPool(p, 0), "Pool.")
		}
		counted(t, l, 3)
		wants(t, l, "k", 2)
		if st := l.Stats().Pool; st.Rejected != 4 || st.Source != "configured" {
			t.Errorf("got %+v", st)
		}
	})
}
