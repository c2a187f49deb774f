package quotient

import (
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestMaxHoldGivesBack(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 2}, MaxHold(time.Minute))
		lost := took(t, l, "k")
		time.Sleep(30 * time.Second)
		took(t, l, "k")
		refusedFor(t, l, ReasonInFlight, "k")
		time.Sleep(30*time.Second - 1)
		refusedFor(t, l, ReasonInFlight, "k")
		time.Sleep(time.Nanosecond)
		took(t, l, "k")
		refusedFor(t, l, ReasonInFlight, "k")
		lost.Release() // too late: counted, nothing else
		inFlight(t, l, 2)
		if st := l.Stats(); st.Reclaimed != 1 || st.DoubleReleases != 1 {
			t.Errorf("reclaimed %d, double releases %d, want 1 and 1", st.Reclaimed, st.DoubleReleases)
		}
		time.Sleep(time.Hour)
		inFlight(t, l, 0) // reading statistics gives back, too
	})
}

func TestMaxHoldLetsAWaiterIn(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 1}, MaxHold(time.Minute))
		took(t, l, "k")
		time.Sleep(10 * time.Second)
		c := asking(t, l, "k")
		time.Sleep(50 * time.Second)
		c.admittedAfter(t, 50*time.Second)
		inFlight(t, l, 1)
	})
}

func TestExpireIn(t *testing.T) {
	for _, c := range []struct {
		name    string
		maxHold time.Duration
		set     []time.Duration
		free    time.Duration // after so long; 0: not within an hour
	}{
		{"in place of nothing", 0, []time.Duration{10 * time.Second}, 10 * time.Second},
		{"later than MaxHold", time.Second, []time.Duration{10 * time.Second}, 10 * time.Second},
		{"sooner than MaxHold", time.Minute, []time.Duration{10 * time.Second}, 10 * time.Second},
		{"the last one counts", 0, []time.Duration{time.Second, time.Minute, 10 * time.Second},
			10 * time.Second},
		{"0 takes the end off", time.Minute, []time.Duration{time.Second, 0}, 0},
		{"so does less", 0, []time.Duration{time.Second, -time.Second}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T) {
				var opts []Option
				if c.maxHold > 0 {
					opts = append(opts, MaxHold(c.maxHold))
				}
				l := limiterOf(t, Limit{InFlight: 1}, opts...)
				p := took(t, l, "k")
				for _, d := range c.set {
					p.ExpireIn(d)
				}
				waiter := asking(t, l, "k")
				if c.free == 0 {
					time.Sleep(time.Hour)
					waiter.waits(t)
					waiter.cancel()
					return
				}
				time.Sleep(c.free)
				waiter.admittedAfter(t, c.free)
			})
		})
	}
}

// The end that ExpireIn sets counts also for a caller that waits already.
func TestExpireInWakesAWaiter(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 1})
		p := took(t, l, "k")
		c := asking(t, l, "k")
		time.Sleep(time.Second)
		p.ExpireIn(2 * time.Second)
		time.Sleep(2 * time.Second)
		c.admittedAfter(t, 3*time.Second)
	})
}

// An expired permit is given back when any call needs it.
func TestExpiredPermitIsFreeForTryAcquire(t *testing.T) {
	for name, ask := range map[string]func(*Limiter) bool{
		"Allow":          func(l *Limiter) bool { return l.Allow("k") },
		"TryAcquire":     func(l *Limiter) bool { _, d := l.TryAcquire("k"); return d.OK },
		"TryAcquireUpTo": func(l *Limiter) bool { _, n := l.TryAcquireUpTo("k", 1); return n == 1 },
	} {
		row(t, name, func(t *testing.T) {
			l := limiterOf(t, Limit{InFlight: 1})
			took(t, l, "k").ExpireIn(time.Second)
			time.Sleep(2 * time.Second)
			if !ask(l) {
				t.Errorf("%s: the slot of a permit that ended a second ago is not free", name)
			}
		})
	}
}

// Failure mode 8: the longest Duration is as good as for ever.
func TestLongestHold(t *testing.T) {
	for name, hold := range map[string]func(*Limiter) Permit{
		"MaxHold": func(l *Limiter) Permit { p, _ := l.TryAcquire("k"); return p },
		"ExpireIn": func(l *Limiter) Permit {
			p, _ := l.TryAcquire("k")
			p.ExpireIn(math.MaxInt64)
			return p
		},
	} {
		row(t, name, func(t *testing.T) {
			var opts []Option
			if name == "MaxHold" {
				opts = append(opts, MaxHold(math.MaxInt64))
			}
			l := limiterOf(t, Limit{InFlight: 1}, opts...)
			time.Sleep(time.Second)
			hold(l)
			if l.Stats().InFlight != 1 {
				t.Errorf("%s: a permit that may be held for 292 years was given back at once", name)
			}
		})
	}
}

// takesAndForgets is the function that a report of a leak must name.
//
//go:noinline
func takesAndForgets(t *testing.T, l *Limiter) {
	_, err := l.Acquire(t.Context(), "leaky")
	if err != nil {
		t.Error(err)
	}
	runtime.KeepAlive(l)
}

func TestLeakCheckNamesWhoTookThePermit(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		leaks := make(chan Leak, 1)
		l := limiterOf(t, Limit{InFlight: 1}, MaxHold(time.Minute), LeakCheck(func(k Leak) { leaks <- k }))
		takesAndForgets(t, l)
		time.Sleep(90 * time.Second)
		l.Stats()
		leak := <-leaks
		if leak.Key != "leaky" || leak.Held != 90*time.Second {
			t.Errorf("got key %q held for %v", leak.Key, leak.Held)
		}
		if first, _, _ := strings.Cut(leak.Stack, "\n"); !strings.Contains(first, "takesAndForgets") ||
			!strings.Contains(first, "leak_test.go:") {
			t.Errorf("the stack begins with %q", first)
		}
	})
}

// Also a permit that was waited for was taken by the caller that waited, not by the one that made room.
func TestLeakCheckNamesWhoWaitedForThePermit(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		leaks := make(chan Leak, 1)
		l := limiterOf(t, Limit{InFlight: 1}, MaxHold(time.Minute), LeakCheck(func(k Leak) { leaks <- k }))
		p := took(t, l, "leaky")
		go takesAndForgets(t, l)
		synctest.Wait()
		p.Release()
		time.Sleep(2 * time.Minute)
		l.Stats()
		if leak := <-leaks; !strings.Contains(leak.Stack, "takesAndForgets") {
			t.Errorf("the stack does not name the caller:\n%s", leak.Stack)
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

// While a waiter waits for a rate, the end of a permit's time must not make its timer fire without end.
func TestExpiredPermitDoesNotKeepTheTimerBusy(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{Rates: []Rate{Every(time.Hour)}, InFlight: 5}, MaxHold(time.Minute))
		took(t, l, "k")
		c := asking(t, l, "k")
		defer c.cancel()
		// a timer that fires at once again and again would stop the clock after a minute
		time.Sleep(time.Hour)
		c.admittedAfter(t, time.Hour)
	})
}

// The same where the rate's turn is so far away that it counts as unknown. Nothing may wait for the fake
// clock while the timer may be busy.
func TestExpiredPermitAndATurnThatIsUnknown(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		hardlyEver := Rate{Events: 0.001, Per: math.MaxInt64}
		l := limiterOf(t, Limit{Rates: []Rate{hardlyEver}, InFlight: 5}, MaxHold(time.Minute))
		took(t, l, "k")
		c := asking(t, l, "k")
		time.Sleep(time.Minute)
		g, s := gateOf(l, "k"), l.shard("k")
		s.mu.Lock()
		now := s.now()
		s.serve(g, now)
		m := g.ext
		past := len(m.expiring) > 0 && m.nextEnd <= now.at
		if past && m.blocked == ReasonInFlight {
			t.Error("the timer is set to an instant that is past: it fires without end")
		}
		s.mu.Unlock()
		c.cancel()
	})
}

// MaxHold must bound what is remembered of permits that are never released, also if Stats is never called.
func TestMaxHoldBoundsMemory(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t,
			rated(Rate{Name: "tokens", Unit: "tokens", Events: 1000, Per: time.Second, Burst: 1000}),
			MaxHold(time.Second))
		for range 100 {
			for range 1000 {
				took(t, l, "k", Cost("tokens", 1))
			}
			time.Sleep(time.Second)
		}
		if n := len(l.shard("k").permits.blocks) * permitBlock; n > 3000 {
			t.Errorf("%d holdings, though no more than 2000 are within MaxHold", n)
		}
	})
}

// A permit that ends before those taken earlier is given back at its own end.
func TestLaterPermitThatEndsSooner(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 2})
		took(t, l, "k").ExpireIn(time.Minute)
		took(t, l, "k").ExpireIn(time.Second)
		time.Sleep(time.Second)
		took(t, l, "k")
		refusedFor(t, l, ReasonInFlight, "k")
	})
}

// A batch takes also the slots of permits whose time is over.
func TestExpiredPermitsAreFreeForBatches(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 4})
		upTo(t, l, "k", 8, 4).ExpireIn(time.Second)
		upTo(t, l, "k", 8, 0)
		time.Sleep(time.Second)
		upTo(t, l, "k", 8, 4)
	})
}
