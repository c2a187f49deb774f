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
		l := mustNew(t, Limit{InFlight: 2}, MaxHold(time.Minute))
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
		stats(t, l, "InFlight", 2, "Reclaimed", 1, "DoubleReleases", 1)
		time.Sleep(time.Hour)
		inFlight(t, l, 0) // reading statistics gives back, too
	})
}

// The end that a permit has last counts, also for a caller that waits already.
func TestExpireIn(t *testing.T) {
	for _, c := range []struct {
		name    string
		maxHold time.Duration
		set     []time.Duration
		free    time.Duration // after so long; 0: not within an hour
	}{
		{"MaxHold alone", time.Minute, nil, time.Minute},
		{"in place of nothing", 0, []time.Duration{10 * time.Second}, 10 * time.Second},
		{"later than MaxHold", time.Second, []time.Duration{10 * time.Second}, 10 * time.Second},
		{"sooner than MaxHold", time.Minute, []time.Duration{10 * time.Second}, 10 * time.Second},
		{"the last one", 0, []time.Duration{time.Second, time.Minute, 10 * time.Second}, 10 * time.Second},
		{"0 takes the end off", time.Minute, []time.Duration{time.Second, 0}, 0},
		{"so does less", 0, []time.Duration{time.Second, -time.Second}, 0},
	} {
		for _, waits := range []bool{false, true} { // when the end is set
			row(t, []any{c.name, waits}, func(t *testing.T) {
				l := mustNew(t, Limit{InFlight: 1}, MaxHold(c.maxHold))
				p := took(t, l, "k")
				var waiter *call
				if waits {
					waiter = asking(t, l, "k")
				}
				for _, d := range c.set {
					p.ExpireIn(d)
				}
				if !waits {
					waiter = asking(t, l, "k")
				}
				if c.free == 0 {
					time.Sleep(time.Hour)
					waiter.waits(t)
					waiter.cancel()
					return
				}
				time.Sleep(c.free)
				waiter.admittedAfter(t, c.free)
			})
		}
	}
}

// Failure mode 8: the longest Duration is as good as for ever.
func TestLongestHold(t *testing.T) {
	for _, maxHold := range []time.Duration{math.MaxInt64, 0} {
		row(t, maxHold, func(t *testing.T) {
			l := mustNew(t, Limit{InFlight: 1}, MaxHold(maxHold))
			time.Sleep(time.Second)
			if p := took(t, l, "k"); maxHold == 0 {
				p.ExpireIn(math.MaxInt64)
			}
			inFlight(t, l, 1)
		})
	}
}

// takesAndForgets is the function that a report of a leak must name.
//
//go:noinline
func takesAndForgets(t *testing.T, l *Limiter, verb string) {
	switch verb {
	case "Acquire":
		if _, err := l.Acquire(t.Context(), "leaky"); err != nil {
			t.Error(err)
		}
	case "TryAcquire":
		l.TryAcquire("leaky")
	case "TryAcquireUpTo":
		l.TryAcquireUpTo("leaky", 1)
	}
	runtime.KeepAlive(l)
}

// The stack of a leak begins with who took the permit: not with who made room, if it was waited for.
func TestLeakCheckNamesWhoTookThePermit(t *testing.T) {
	for _, verb := range []string{"Acquire", "TryAcquire", "TryAcquireUpTo", "a wait"} {
		row(t, verb, func(t *testing.T) {
			leaks := make(chan Leak, 1)
			l := mustNew(t, Limit{InFlight: 1}, MaxHold(time.Minute), LeakCheck(func(k Leak) { leaks <- k }))
			if verb == "a wait" {
				p := took(t, l, "leaky")
				go takesAndForgets(t, l, "Acquire")
				synctest.Wait()
				p.Release()
			} else {
				takesAndForgets(t, l, verb)
			}
			time.Sleep(90 * time.Second)
			l.Stats()
			leak := <-leaks
			is(t, "key", leak.Key, "leaky")
			is(t, "held", leak.Held, 90*time.Second)
			first, _, _ := strings.Cut(leak.Stack, "\n")
			if !strings.Contains(first, "takesAndForgets") || !strings.Contains(first, "leak_test.go:") {
				t.Errorf("the stack begins with %q", first)
			}
		})
	}
}

func TestMaxHold(t *testing.T) {
	// While a waiter waits for a rate, the end of a permit's time must not make its timer fire without end: here
	// the turn is so far away that it counts as unknown. Nothing may wait for the fake clock while the timer may
	// be busy.
	row(t, "expired permit and a turn that is unknown", func(t *testing.T) {
		hardlyEver := Rate{Events: 0.001, Per: math.MaxInt64}
		l := mustNew(t, Limit{Rates: []Rate{hardlyEver}, InFlight: 5}, MaxHold(time.Minute))
		took(t, l, "k")
		c := asking(t, l, "k")
		time.Sleep(time.Minute)
		g, s := gateOf(l, "k"), l.shard("k")
		s.mu.Lock()
		now := s.now()
		s.serve(g, now)
		m := g.ext
		if len(m.expiring) > 0 && m.nextEnd <= now.at && m.blocked == ReasonInFlight {
			t.Error("the timer is set to an instant that is past: it fires without end")
		}
		s.mu.Unlock()
		c.cancel()
	})
	// MaxHold must bound what is remembered of permits that are never released, also if Stats is never called.
	row(t, "max hold bounds memory", func(t *testing.T) {
		l := mustNew(t, tokenLimit(1000, 1000), MaxHold(time.Second))
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
