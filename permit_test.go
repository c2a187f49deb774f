package quotient

import (
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// inFlight fails unless so many slots are taken, of all keys.
func inFlight(t *testing.T, l *Limiter, n int) {
	t.Helper()
	if got := l.Stats().InFlight; got != n {
		t.Errorf("%d are in flight, want %d", got, n)
	}
}

func TestReleaseCountsOnce(t *testing.T) {
	l := limiterOf(t, Limit{InFlight: 3})
	p := took(t, l, "k", Weight(2))
	other := took(t, l, "k")
	copied := p
	inFlight(t, l, 3)
	p.Release()
	for range 5 {
		copied.Release()
		p.Done(policy.Feedback{Outcome: policy.Throttled})
	}
	inFlight(t, l, 1)
	if got := l.Stats().DoubleReleases; got != 10 {
		t.Errorf("counted %d double releases, want 10", got)
	}
	took(t, l, "k", Weight(2))
	refusedFor(t, l, ReasonInFlight, "k")
	other.Release()
	inFlight(t, l, 2)
}

// A slot of the permit table is used again; the permit that had it before is not valid for its successor.
func TestStalePermitDoesNotReleaseItsSuccessor(t *testing.T) {
	l := limiterOf(t, Limit{Rates: []Rate{tokensPerMinute(60, 60)}, InFlight: 1})
	stale := took(t, l, "k", Cost("tokens", 1))
	stale.Release()
	for range 10 {
		p := took(t, l, "k", Cost("tokens", 1))
		if p.h != stale.h || p.gen == stale.gen {
			t.Fatalf("permit %+v after %+v, want the same slot and another generation", p, stale)
		}
		stale.Release()
		stale.ExpireIn(-1)
		says(t, stale.Correct("tokens", 5), "released")
		inFlight(t, l, 1)
		p.Release()
	}
	inFlight(t, l, 0)
}

// Failure mode 27: no number of uses makes a permit of long ago good again. There were 2^31 since then.
func TestStalePermitOfLongAgo(t *testing.T) {
	limit := Limit{InFlight: 1, Rates: []Rate{perSecond(1e6, 1e6), tokensPerMinute(6e7, 1e6)}}
	l := limiterOf(t, limit, Policy(policy.AIMD{}, CeilingShare))
	stale := took(t, l, "k", Cost("tokens", 1))
	stale.Release()
	for range 2 {
		stale.h.gen += 1<<31 - 1 // together, with the next taking, as if it had been used so often
	}
	p := took(t, l, "k", Cost("tokens", 1))
	if p.h != stale.h || p.h.gen%2 == 0 {
		t.Fatalf("not the same holding: %+v, then %+v", stale, p)
	}
	stale.Release()
	stale.Done(policy.Feedback{Outcome: policy.Throttled})
	stale.Report(policy.Feedback{Outcome: policy.Throttled})
	stale.ExpireIn(1)
	says(t, stale.Correct("tokens", 5), "released")
	says(t, stale.Correct("", 0), "released")
	inFlight(t, l, 1)
	if st := l.Stats(); st.DoubleReleases != 2 || st.Throttled != 0 {
		t.Errorf("%d double releases, throttled %d, want 2 and 0", st.DoubleReleases, st.Throttled)
	}
}

// What a permit was taken for says nothing of the next one in the same place.
func TestPermitsLeaveNothingBehind(t *testing.T) {
	limit := Limit{Rates: []Rate{perSecond(1e6, 1e6), tokensPerMinute(600, 600)}, InFlight: 10}
	for _, c := range []struct {
		name    string
		asks    []Ask
		correct []int // costs, one after the other
	}{
		{"no cost", nil, nil},
		{"no cost, then some", nil, []int{5}},
		{"no cost, then some, then none", nil, []int{5, 0}},
		{"a cost of nothing", []Ask{Cost("tokens", 0)}, nil},
		{"a cost of nothing, then some", []Ask{Cost("tokens", 0)}, []int{7}},
		{"a cost", []Ask{Cost("tokens", 20)}, nil},
		{"a cost, then none", []Ask{Cost("tokens", 20)}, []int{0}},
		{"a cost, then more", []Ask{Cost("tokens", 20)}, []int{50}},
		{"a cost, then more, then less", []Ask{Cost("tokens", 20)}, []int{50, 30}},
		{"a cost, then more, then none", []Ask{Cost("tokens", 20)}, []int{50, 0}},
		{"weight", []Ask{Weight(4)}, nil},
	} {
		row(t, c.name, func(t *testing.T) {
			l := limiterOf(t, limit, MaxHold(time.Minute), MaxKeys(10))
			p := took(t, l, "k", c.asks...)
			for _, used := range c.correct {
				if err := p.Correct("tokens", used); err != nil {
					t.Fatal(err)
				}
			}
			p.Release()
			left := *p.h
			left.s, left.gen, left.next = nil, 0, nil
			left.weight, left.slots, left.era, left.since, left.place = 0, 0, 0, 0, 0 // each taking sets them
			if !reflect.DeepEqual(left, holding{}) {
				t.Errorf("left behind: %+v", left)
			}
			// The next one has taken no tokens, so that it has none to give back, and owes what it says.
			took(t, l, "other", Cost("tokens", 100)).Release()
			before := tokensOf(t, l, "other")[1]
			next := took(t, l, "other")
			if next.h != p.h {
				t.Fatal("the permit stands elsewhere")
			}
			if err := next.Correct("tokens", 10); err != nil {
				t.Fatal(err)
			}
			if got := tokensOf(t, l, "other")[1]; got != before-10 {
				t.Errorf("10 tokens were corrected, %v are taken", before-got)
			}
			if err := next.Correct("tokens", 0); err != nil {
				t.Fatal(err)
			}
			if got := tokensOf(t, l, "other")[1]; got != before {
				t.Errorf("none were used, %v are taken", before-got)
			}
			next.Release()
		})
	}
}

func TestPermitTableGrowsByBlocks(t *testing.T) {
	const many = 3*permitBlock + 1
	l := limiterOf(t, Limit{InFlight: many})
	s := l.shard("k")
	for range 3 {
		seen := map[*holding]bool{}
		var permits []Permit
		for range many {
			p := took(t, l, "k")
			seen[p.h] = true
			permits = append(permits, p)
		}
		if len(seen) != many || len(s.permits.blocks) != 4 {
			t.Errorf("%d slots in %d blocks, want %d in 4", len(seen), len(s.permits.blocks), many)
		}
		for _, p := range permits {
			p.Release()
		}
		inFlight(t, l, 0)
	}
}

func TestZeroPermitDoesNothing(t *testing.T) {
	var p Permit
	p.Release()
	p.Release()
	p.Done(policy.Feedback{Outcome: policy.Success})
	p.ExpireIn(time.Second)
	says(t, p.Correct("tokens", 1), "without a Cost")
	l := limiterOf(t, rated(PerSecond(1)))
	if got := took(t, l, "k"); got != p {
		t.Errorf("a permit with nothing to give back is %+v", got)
	}
}

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
		{"the last one counts", 0, []time.Duration{time.Second, time.Minute, 10 * time.Second}, 10 * time.Second},
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

// The end that ExpireIn sets counts also for somebody who waits already.
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

// An expired permit is given back when somebody needs it, whoever that is.
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
		if first, _, _ := strings.Cut(leak.Stack, "\n"); !strings.Contains(first, "takesAndForgets") || !strings.Contains(first, "permit_test.go:") {
			t.Errorf("the stack begins with %q", first)
		}
	})
}

// Also a permit that was waited for was taken by the caller, not by whoever made room.
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

func TestCorrect(t *testing.T) {
	for _, c := range []struct {
		name      string
		estimate  int
		corrected []int
		left      float64 // of 100
	}{
		{"less is given back", 60, []int{20}, 80},
		{"nothing was used", 60, []int{0}, 100},
		{"more is taken", 60, []int{90}, 10},
		{"more than there is is owed", 60, []int{250}, -150},
		{"as estimated", 60, []int{60}, 40},
		{"each time the whole cost", 60, []int{90, 10, 70}, 30},
		{"a debt is taken back", 60, []int{1000, 60}, 40},
	} {
		row(t, c.name, func(t *testing.T) {
			l := limiterOf(t, rated(tokensPerMinute(60, 100)))
			p := took(t, l, "k", Cost("tokens", c.estimate))
			for _, used := range c.corrected {
				if err := p.Correct("tokens", used); err != nil {
					t.Error(err)
				}
			}
			has(t, l, "k", c.left)
			p.Release()
			has(t, l, "k", c.left)
		})
	}
}

// A refund never leaves a key better off than one that has never asked, or forgetting it would show.
func TestRefundAfterTheSizeWasLowered(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(tokensPerMinute(60, 10)))
		p := took(t, l, "k", Cost("tokens", 4))
		setReplicas(t, l, 5)
		setReplicas(t, l, 1)
		if err := p.Correct("tokens", 0); err != nil {
			t.Fatal(err)
		}
		has(t, l, "k", 2)
	})
}

func TestCorrectRefuses(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(tokensPerMinute(60, 100)))
		p := took(t, l, "k", Cost("tokens", 60))
		says(t, p.Correct("tokens", -1), "Correct", `"tokens"`, "-1")
		says(t, p.Correct("tokens", maxAsk+1), "Correct", "1099511627777")
		says(t, p.Correct("bytes", 1), "Correct", `"bytes"`)
		says(t, p.Correct("", 2), "Correct", "2 is above the 1 requests")
		has(t, l, "k", 40)
		p.Release()
		says(t, p.Correct("tokens", 1), "Correct", "released")
		has(t, l, "k", 40)
	})
}

// What is owed is repaid before the next admission, and what is given back lets waiters in.
func TestCorrectMovesWaiters(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(tokensPerMinute(60, 100)))
		p := took(t, l, "k", Cost("tokens", 100))
		c := asking(t, l, "k", Cost("tokens", 10))
		if err := p.Correct("tokens", 150); err != nil {
			t.Error(err)
		}
		time.Sleep(59 * time.Second)
		c.waits(t)
		if err := p.Correct("tokens", 149); err != nil {
			t.Error(err)
		}
		c.admittedAfter(t, 59*time.Second)
	})
}

// An estimate of nothing is an estimate, too.
func TestCorrectOfACostOfNothing(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(tokensPerMinute(60, 100)))
		if err := took(t, l, "k", Cost("tokens", 0)).Correct("tokens", 30); err != nil {
			t.Error(err)
		}
		has(t, l, "k", 70)
	})
}

// Failure mode 5: a waiter that is admitted in the instant in which its context ends gives all back.
func TestCancelOfAGrantedWaiter(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{Rates: []Rate{perSecond(1, 1), tokensPerMinute(60, 60)}, InFlight: 1})
		d := demand{weight: 1, costs: [maxUnits]int{60}}
		s := l.shard("k")
		s.mu.Lock()
		now := s.tick(l.now())
		g := s.gate("k", now)
		w := newWaiter(d)
		w.key = "k"
		l.waiting.Add(1)
		s.enqueue(g, w, now)
		s.mu.Unlock()
		if got := tokensOf(t, l, "k"); len(w.ready) != 1 || got[0] != 0 || got[1] != 0 {
			t.Fatalf("the waiter is not admitted: %v", got)
		}
		_ = s.cancel(g, w, nil)
		if got := tokensOf(t, l, "k"); got[0] != 1 || got[1] != 60 {
			t.Errorf("left %v, want 1 and 60", got)
		}
		inFlight(t, l, 0)
		if st := l.Stats(); st.Admitted != 0 || st.Cancelled != 1 || st.Waiting != 0 {
			t.Errorf("admitted %d, cancelled %d, waiting %d, want 0, 1, 0", st.Admitted, st.Cancelled, st.Waiting)
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
		time.Sleep(time.Hour) // a timer that fires at once again and again would stop the clock after a minute
		c.admittedAfter(t, time.Hour)
	})
}

// The same where the rate's turn is so far away that it counts as unknown. Nothing may wait for the fake clock
// while the timer may be busy.
func TestExpiredPermitAndATurnThatIsUnknown(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		hardlyEver := Rate{Events: 0.001, Per: math.MaxInt64}
		l := limiterOf(t, Limit{Rates: []Rate{hardlyEver}, InFlight: 5}, MaxHold(time.Minute))
		took(t, l, "k")
		c := asking(t, l, "k")
		time.Sleep(time.Minute)
		g, s := gateOf(l, "k"), l.shard("k")
		s.mu.Lock()
		now := s.tick(l.now())
		s.serve(g, now)
		m := g.more
		past := len(m.expiring) > 0 && !l.base.Add(m.nextEnd).After(now)
		if past && m.blocked == ReasonInFlight {
			t.Error("the timer is set to an instant that is past: it fires without end")
		}
		s.mu.Unlock()
		c.cancel()
	})
}

// Copies of a permit may be released by many goroutines at once: one of them counts.
func TestReleaseByManyAtOnce(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 100})
		took(t, l, "k", Weight(50))
		for range 50 {
			p := took(t, l, "k", Weight(2))
			for range 4 {
				go p.Release()
			}
			synctest.Wait()
		}
		inFlight(t, l, 50)
		if got := l.Stats().DoubleReleases; got != 150 {
			t.Errorf("counted %d double releases, want 150", got)
		}
	})
}
