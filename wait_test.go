package quotient

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/internal/waited"
)

const ms = time.Millisecond

// admitTimes notes what OnAdmit gets.
type admitTimes chan struct{ waited, overhead time.Duration }

// onAdmits returns where what OnAdmit gets is noted, and the option for it.
func onAdmits() (admitTimes, Option) {
	got := make(admitTimes, 10)
	return got, OnAdmit(func(_ string, waited, overhead time.Duration) {
		got <- struct{ waited, overhead time.Duration }{waited, overhead}
	})
}

func TestDeadline(t *testing.T) {
	row(t, "a turn beyond it fails at once", func(t *testing.T) {
		l := mustNew(t, Rates(Every(10*time.Second)), Replicas(2))
		wants(t, l, "k", 1)
		c := askingUntil(t, l, 19*time.Second, "k")
		is(t, "the error", *c.refusedAfter(t, 0, ReasonDeadline), LimitedError{Key: "k",
			Decision: Decision{Rule: "interval", Reason: ReasonDeadline, Limit: 1, Share: .5,
				Window: 10 * time.Second, RetryAfter: 20 * time.Second}})
		if !errors.Is(c.err, context.DeadlineExceeded) || !errors.Is(c.err, ErrLimited) {
			t.Errorf("%v is not what it should be", c.err)
		}
		first := askingUntil(t, l, 21*time.Second, "k")
		askingUntil(t, l, 39*time.Second, "k").refusedAfter(t, 0, ReasonDeadline) // behind the first
		time.Sleep(20 * time.Second)
		first.admittedAfter(t, 20*time.Second)
	})
	row(t, "an unknown turn waits for it", func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 1})
		p := took(t, l, "k")
		c := askingUntil(t, l, 5*time.Second, "k")
		time.Sleep(5 * time.Second)
		if !c.ended() || c.err != context.DeadlineExceeded || c.took != 5*time.Second {
			t.Errorf("ended after %v with %v", c.took, c.err)
		}
		p.Release()
		took(t, l, "k")
	})
	row(t, "one that has passed leaves no trace", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		l := mustNew(t, Rates(perSecond(1, 3)))
		_, err := l.Acquire(ctx, "k")
		is(t, "the error", err, context.Canceled)
		stats(t, l, "Admitted", 0, "Cancelled", 0, "Keys", 0)
	})
}

func TestMaxWait(t *testing.T) {
	row(t, "a turn that is too late", func(t *testing.T) {
		l := mustNew(t, Rates(Every(10*time.Second)), MaxWait(10*time.Second))
		wants(t, l, "k", 1)
		c := asking(t, l, "k")
		is(t, "retry after", asking(t, l, "k").refusedAfter(t, 0, ReasonWait).RetryAfter, 20*time.Second)
		time.Sleep(10 * time.Second)
		c.admittedAfter(t, 10*time.Second)
	})
	// Slots alone are decided without a clock: an overtaker sets the timer again.
	row(t, "behind an overtaker of slots", func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 2}, MaxWait(time.Second))
		took(t, l, "k")
		low := asking(t, l, "k", Weight(2), PriorityLow.Option())
		time.Sleep(900 * ms)
		took(t, l, "k", PriorityHigh.Option())
		time.Sleep(100 * ms)
		low.refusedAfter(t, time.Second, ReasonWait)
	})
}

// Failure mode 8: the longest Duration is no bound, and above all it does not overflow into the past. This
// runs by the real clock: in a bubble a timer that fires without end stops the clock.
func TestLongestMaxWait(t *testing.T) {
	l := mustNew(t, Limit{InFlight: 1}, MaxWait(math.MaxInt64))
	took(t, l, "k")
	s := l.shard("k")
	s.mu.Lock() // a timer that fires must wait for this
	defer s.mu.Unlock()
	now := s.tick(instant{at: time.Hour})
	g, w := s.gate(l.hash("k"), "k", now, 0), newWaiter(oneRequest)
	w.key, w.since = "k", now.at
	l.waiting.Add(1)
	s.enqueue(g, w, now)
	timer := g.ext.timer
	for range 1000 {
		runtime.Gosched()
	}
	if timer != nil && !timer.Stop() {
		t.Error("the timer of a waiter that may wait for 292 years has fired at once")
	}
	s.dequeue(g, w)
}

// Failure mode 3: a raised limit lets all waiters through that it admits, at once.
func TestRaiseWakesWaiters(t *testing.T) {
	for name, raise := range map[string]func(*testing.T, *Limiter){
		"a higher rate": func(t *testing.T, l *Limiter) {
			setLimit(t, l, Limit{Rates: []Rate{perSecond(1e12, 1000)}, InFlight: 2_000_000})
			time.Sleep(time.Microsecond)
		},
		"no rate":     func(t *testing.T, l *Limiter) { setLimit(t, l, Limit{InFlight: 2_000_000}) },
		"no limit":    func(t *testing.T, l *Limiter) { setLimit(t, l, Limit{}) },
		"fewer peers": func(t *testing.T, l *Limiter) { setReplicas(t, l, 1); time.Sleep(10 * ms) },
	} {
		row(t, name, func(t *testing.T) {
			l := mustNew(t, Limit{Rates: []Rate{perSecond(1e6, 1000)}, InFlight: 1999}, Replicas(1000))
			took(t, l, "k")
			var calls []*call
			for range 1000 {
				calls = append(calls, asking(t, l, "k"))
			}
			start := time.Now()
			raise(t, l)
			for i, c := range calls {
				if !c.ended() || c.err != nil {
					t.Fatalf("waiter %d of 1000 was not let through: %v", i, c.err)
				}
			}
			if d := time.Since(start); d > 10*ms {
				t.Errorf("it took %v", d)
			}
		})
	}
}

// Failure mode 4: a cut re-paces those who wait already.
func TestCutRepacesWaiters(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(1000, 1)))
		wants(t, l, "k", 1)
		for range 500 {
			defer asking(t, l, "k").cancel()
		}
		setLimit(t, l, Rates(perSecond(1, 1)))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		stats(t, l, "Admitted", 11)
	})
}

// Waiters that a cut makes impossible are refused, with the reason, wherever they stand in a queue, however
// long, and in whatever class. Those before and behind them stay.
func TestCutRefusesWhatNeverFits(t *testing.T) {
	for reason, cut := range map[Reason]func(*testing.T, *Limiter){
		ReasonTooLarge: func(t *testing.T, l *Limiter) { setLimit(t, l, Limit{InFlight: 2}) },
		ReasonShare:    func(t *testing.T, l *Limiter) { setReplicas(t, l, 2) },
		ReasonDenied:   func(t *testing.T, l *Limiter) { setLimit(t, l, Limit{Deny: true}) },
	} {
		row(t, reason, func(t *testing.T) {
			l := mustNew(t, Limit{InFlight: 4})
			p := took(t, l, "k", Weight(4))
			var small, large []*call
			for i := range 200 {
				class := Priority(i%numClasses) + PriorityLow
				large = append(large, asking(t, l, "k", Weight(3), class.Option()))
				small = append(small, asking(t, l, "k", class.Option()))
			}
			time.Sleep(time.Second)
			cut(t, l)
			for i := range large {
				if large[i].refusedAfter(t, time.Second, reason); reason == ReasonDenied {
					small[i].refusedAfter(t, time.Second, reason)
				} else {
					small[i].waits(t)
				}
			}
			if p.Release(); reason != ReasonDenied {
				small[3].admittedAfter(t, time.Second) // the first two of the highest class
				small[7].admittedAfter(t, time.Second)
				inFlight(t, l, 2)
			}
			for _, c := range small {
				c.cancel()
			}
		})
	}
}

// Failure mode 32: a head that gives up wakes the next one.
func TestCancelledHeadWakesTheNext(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(1, 5)))
		took(t, l, "k", Weight(3))
		head, next := asking(t, l, "k", Weight(4)), asking(t, l, "k", Weight(2))
		next.waits(t)
		time.Sleep(500 * ms)
		head.gaveUp(t)
		next.admittedAfter(t, 500*ms)
		has(t, l, "k", 0.5)
	})
}

func TestWaiting(t *testing.T) {
	// Behind a head that waits for a slot, an aligned window with room must not count as a wait for the next
	// window.
	row(t, "aligned turn behind a slot", func(t *testing.T) {
		day := aligned(1000, 24*time.Hour)
		l := mustNew(t, Limit{InFlight: 1, Rates: []Rate{day}}, MaxWait(time.Minute))
		took(t, l, "k")
		a, b := asking(t, l, "k"), asking(t, l, "k") // 998 of 1000 are left today
		a.waits(t)
		b.waits(t)
		if _, d := l.TryAcquire("k"); d.RetryAfter > time.Minute {
			t.Errorf("RetryAfter %v with 998 of 1000 left in the window", d.RetryAfter)
		}
		a.gaveUp(t)
		b.gaveUp(t)
	})
	// A waiter that is given up gets an error, also where the context has none: or the caller would believe that
	// it holds a permit.
	row(t, "context without an error", func(t *testing.T) {
		inner, cancel := context.WithCancel(t.Context())
		cancel()
		l := mustNew(t, Limit{InFlight: 1})
		took(t, l, "k")
		_, err := l.Acquire(endless{inner}, "k")
		is(t, "Limiter.Acquire", err, context.Canceled)
	})
	row(t, "hooks", func(t *testing.T) {
		var admissions []string
		var mu sync.Mutex // each hook runs on its caller's goroutine
		l := mustNew(t, Limit{Rates: []Rate{perSecond(1, 2)}, InFlight: 2},
			OnAdmit(func(key string, waited, over time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				admissions = append(admissions, fmt.Sprint(key, " ", waited, " ", over))
			}))
		p, q := asking(t, l, "k").permit, asking(t, l, "k").permit
		asking(t, l, "k")
		asking(t, l, "k")
		p.Release()
		q.Release()
		time.Sleep(10 * time.Second)
		asking(t, l, "k").cancel()
		took(t, l, "other", Weight(2))
		took(t, l, "third").Release()
		l.Allow("third")
		l.Allow("other")             // is refused,
		l.TryAcquireUpTo("other", 1) // this too,
		l.TryAcquireUpTo("third", 9) // and this takes what is there, which is nothing
		l.TryAcquireUpTo("last", 9)
		is(t, "admissions", fmt.Sprint(admissions),
			"[k 0s 0s k 0s 0s k 1s 0s k 2s 0s other 0s 0s third 0s 0s third 0s 0s last 0s 0s]")
	})
	row(t, "context gets a wait", func(t *testing.T) {
		var got []string
		l := mustNew(t, Limit{InFlight: 1})
		with := func(f waited.Hook) context.Context { return context.WithValue(t.Context(), waited.Key{}, f) }
		ctx := with(func(w, o time.Duration) { got = append(got, fmt.Sprint(w, " ", o)) })
		p, err := l.Acquire(ctx, "k") // does not wait
		must(t, err)
		time.AfterFunc(3*time.Second, p.Release)
		p, err = l.Acquire(ctx, "k")
		must(t, err)
		is(t, "waits", fmt.Sprint(got), "[3s 0s]")
		ctx = with(func(_, _ time.Duration) { panic("hook") })
		time.AfterFunc(time.Second, p.Release)
		func() {
			defer func() { _ = recover() }()
			_, _ = l.Acquire(ctx, "k")
		}()
		inFlight(t, l, 0) // or no caller could release it
	})
}

func TestGivingUp(t *testing.T) {
	row(t, "counts in no estimate", func(t *testing.T) {
		l := mustNew(t, Rates(Every(time.Second)))
		wants(t, l, "k", 1)
		stays := asking(t, l, "k")
		asking(t, l, "k").gaveUp(t)
		is(t, "retry after", refusedFor(t, l, ReasonRate, "k").RetryAfter, 2*time.Second)
		stays.cancel()
	})
	row(t, "leaves nothing behind an empty queue", func(t *testing.T) {
		l := mustNew(t, Rates(Every(time.Hour)))
		wants(t, l, "k", 1)
		c := asking(t, l, "k")
		g, s := gateOf(l, "k"), l.shard("k")
		timer := g.ext.timer
		c.gaveUp(t)
		is(t, "left", g.ext == nil && len(s.waiting) == 0, true)
		is(t, "the timer goes on", timer.Stop(), false)
	})
	// The head's timer is late, a caller arrives after the head's turn, and the head leaves. The newcomer's
	// overhead is not longer than its wait.
	row(t, "serves one that came after the turn", func(t *testing.T) {
		got, noted := onAdmits()
		l := mustNew(t, Rates(Rate{Name: "x", Events: 1, Per: 10 * ms, Burst: 10}), noted)
		took(t, l, "k", Weight(10))
		<-got
		head := asking(t, l, "k")
		stopTimer(l, "k")
		time.Sleep(40 * ms)
		asking(t, l, "k")
		head.gaveUp(t)
		if d := <-got; d.overhead > d.waited {
			t.Errorf("overhead %v in a wait of %v", d.overhead, d.waited)
		}
	})
}

// stopTimer stops the timer of a key's queue, as if it were late.
func stopTimer(l *Limiter, key string) *gate {
	s := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.find(l.hash(key))
	g.ext.timer.Stop()
	return g
}

// One token comes every 10 ms, the timer is 40 ms late, and five waiters are served at once. Each could have
// gone at its own token: the first is 40 ms late, the next 30, and so on. A slow rate that has room for
// longer than any Duration beside it changes nothing.
func TestDueOfEachWaiterOfALateTimer(t *testing.T) {
	fast := Rate{Name: "x", Events: 1, Per: 10 * ms, Burst: 10}
	for name, limit := range map[string]Limit{
		"alone":               Rates(fast),
		"beside one too slow": Rates(fast, Rate{Name: "slow", Events: 1, Per: 200 * year, Burst: 1000}),
	} {
		row(t, name, func(t *testing.T) {
			got, noted := onAdmits()
			l := mustNew(t, limit, noted)
			took(t, l, "k", Weight(10))
			<-got
			for range 5 {
				asking(t, l, "k")
			}
			g := stopTimer(l, "k")
			time.Sleep(50 * ms)
			s := l.shard("k")
			s.mu.Lock()
			s.serveAndUnlock(g)
			var sum time.Duration
			for range 5 {
				sum += (<-got).overhead
			}
			is(t, "overheads of 40+30+20+10+0 ms", sum, 100*ms)
		})
	}
}

// sleepy is a context for a caller that sleeps between being queued and looking whether it was admitted: its
// k-th look comes after the k-th nap. That is what a busy scheduler does to a goroutine, and it costs the
// limiter nothing.
type sleepy struct {
	context.Context
	naps []time.Duration
}

func (c *sleepy) Done() <-chan struct{} {
	if len(c.naps) > 0 {
		time.Sleep(c.naps[0])
		c.naps = c.naps[1:]
	}
	return c.Context.Done()
}

// sleeping is asking for a caller that takes naps.
func sleeping(t *testing.T, l *Limiter, key string, naps []time.Duration, opts ...CallOption) *call {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	return calling(&sleepy{ctx, naps}, cancel, l, key, opts...)
}

func naps(d ...time.Duration) []time.Duration { return d }

// Failure mode 26: a caller that wakes later than a tenth of the interval after its turn has lost it, and
// waits for the next. Nothing but the limiter's or the processor's lateness has made it wait longer than its
// first turn: that is overhead.
func TestLateCallersLoseTheirTurn(t *testing.T) {
	second, two := Every(time.Second), Rate{Events: 1, Per: 2 * time.Second, Burst: 1}
	jobs := Rate{Name: "jobs", Unit: "jobs", Events: 1, Per: time.Second, Burst: 1}
	noTurns := Rate{Events: 1, Per: time.Second, Burst: 1, NoTurns: true}
	for _, c := range []struct {
		name      string
		limit     Limit
		weight    int
		nap, want time.Duration
		overhead  time.Duration
		expired   int
	}{
		{"in time", Rates(second), 1, 1100 * ms, 1100 * ms, 0, 0},
		{"late", Rates(second), 1, 1100*ms + 1, 2000 * ms, 1000 * ms, 1},
		{"so late that the next turn is there", Rates(second), 1, 2300 * ms, 2300 * ms, 1300 * ms, 1},
		{"a long interval, in time", Rates(Every(4 * time.Second)), 1, 4400 * ms, 4400 * ms, 0, 0},
		{"a long interval, late", Rates(Every(4 * time.Second)), 1, 4400*ms + 1, 8000 * ms, 4000 * ms, 1},
		{"a short interval", Rates(Every(time.Second - 1)), 1, 1900 * ms, 1900 * ms, 0, 0},
		{"a burst", Rates(perSecond(1, 2)), 2, 2900 * ms, 2900 * ms, 0, 0},
		{"a window", Rates(aligned(1, time.Second)), 1, 1900 * ms, 1900 * ms, 0, 0},
		{"without turns", Rates(noTurns), 1, 1200 * ms, 2000 * ms, 1000 * ms, 1},
		{"of the shortest interval", Rates(second, two), 1, 2150 * ms, 4000 * ms, 2000 * ms, 1},
		{"in any order", Rates(two, second), 1, 2150 * ms, 4000 * ms, 2000 * ms, 1},
		{"nothing of the paced rate", Rates(jobs, perSecond(1, 2)), 2, 2900 * ms, 2900 * ms, 0, 0},
	} {
		row(t, c.name, func(t *testing.T) {
			admits, noted := onAdmits()
			l := mustNew(t, c.limit, noted)
			took(t, l, "k", Weight(c.weight))
			<-admits
			got := sleeping(t, l, "k", naps(c.nap), Weight(c.weight))
			time.Sleep(c.want + time.Hour)
			got.admittedAfter(t, c.want)
			stats(t, l, "Expired", c.expired, "Admitted", 2, "Waited", 1, "Waiting", 0)
			if n := <-admits; c.expired > 0 {
				is(t, "overhead", n.overhead, c.overhead)
			}
			is(t, "more calls of OnAdmit", len(admits), 0)
		})
	}
}

func TestLostTurns(t *testing.T) {
	// Or one on a slow machine would never act.
	row(t, "are three at most", func(t *testing.T) {
		l := mustNew(t, Rates(Every(time.Second)))
		wants(t, l, "k", 1)
		c := sleeping(t, l, "k", naps(1500*ms, 1500*ms, 1500*ms, 1500*ms, 1500*ms))
		time.Sleep(time.Minute)
		c.admittedAfter(t, 6*time.Second)
		stats(t, l, "Expired", 3, "Admitted", 2)
	})
	row(t, "stay spent: the next caller is a whole interval behind", func(t *testing.T) {
		l := mustNew(t, Rates(Every(time.Second)))
		wants(t, l, "k", 1)
		c := sleeping(t, l, "k", naps(1500*ms))
		time.Sleep(1600 * ms)
		c.gaveUp(t)
		has(t, l, "k", 0.6)
		stats(t, l, "Expired", 1, "Cancelled", 1, "Waiting", 0, "Admitted", 1)
	})
	row(t, "of a replica that takes turns: the next is a cycle away", func(t *testing.T) {
		l := mustNew(t, Rates(Every(time.Second)), StartPool(Pool{Replicas: 3, Ordinal: 1, Fixed: true}))
		took(t, l, "k")
		c := sleeping(t, l, "k", naps(3101*ms))
		time.Sleep(time.Minute)
		c.admittedAfter(t, 6*time.Second)
	})
	row(t, "are waited for also in a queue that is full", func(t *testing.T) {
		l := mustNew(t, Rates(Every(time.Second)), MaxWaiting(1, 1))
		wants(t, l, "k", 1)
		late := sleeping(t, l, "k", naps(1500*ms))
		time.Sleep(1200 * ms)
		second := asking(t, l, "k")
		time.Sleep(400 * ms)
		stats(t, l, "Waiting", 2)
		asking(t, l, "k").refusedAfter(t, 0, ReasonQueue)
		time.Sleep(time.Minute)
		late.admittedAfter(t, 2*time.Second)
		second.admittedAfter(t, 1800*ms)
	})
	// It must not be admitted by the gate of then beside that of now.
	row(t, "of a key that was dropped meanwhile", func(t *testing.T) {
		l := mustNew(t, Rates(Every(time.Second)), MaxKeys(1))
		wants(t, l, "k", 1)
		c := sleeping(t, l, "k", naps(10*time.Second))
		time.Sleep(5 * time.Second)
		wants(t, l, "other", 1) // takes the place of the key, which is idle
		time.Sleep(5 * time.Second)
		c.admittedAfter(t, 10*time.Second)
		wants(t, l, "k", 0)
	})
}

// A caller that has lost a turn stands before all others of its class, and behind the classes above.
func TestLateCallersComeFirst(t *testing.T) {
	for _, wakes := range []time.Duration{2200 * ms, 2500 * ms} { // before the second, and after it
		row(t, wakes, func(t *testing.T) {
			l := mustNew(t, Rates(Every(time.Second)))
			wants(t, l, "k", 1)
			first := sleeping(t, l, "k", naps(wakes))
			second := sleeping(t, l, "k", naps(2400*ms))
			third := asking(t, l, "k")
			time.Sleep(2450 * ms)
			high, low := asking(t, l, "k", PriorityHigh.Option()), asking(t, l, "k", PriorityLow.Option())
			time.Sleep(time.Minute)
			high.admittedAfter(t, 550*ms)
			first.admittedAfter(t, 4*time.Second)
			second.admittedAfter(t, 5*time.Second)
			third.admittedAfter(t, 6*time.Second)
			low.admittedAfter(t, 4550*ms)
		})
	}
}

// Its slots come back while it waits, and a permit that was given back by time meanwhile is not given back
// twice.
func TestLostTurnGivesItsSlotsBack(t *testing.T) {
	for _, maxHold := range []time.Duration{0, 200 * ms} {
		row(t, maxHold, func(t *testing.T) {
			l := mustNew(t, Limit{Rates: []Rate{Every(time.Second)}, InFlight: 1}, MaxHold(maxHold))
			took(t, l, "k").Release()
			c := sleeping(t, l, "k", naps(1500*ms))
			time.Sleep(1100 * ms)
			inFlight(t, l, 1)
			time.Sleep(200 * ms)
			l.Stats() // gives back what is over
			time.Sleep(300 * ms)
			inFlight(t, l, 0)
			time.Sleep(400 * ms)
			c.admittedAfter(t, 2*time.Second)
			inFlight(t, l, 1)
			c.permit.Release()
			stats(t, l, "InFlight", 0, "DoubleReleases", 0)
		})
	}
}

// All that happens to a waiter meanwhile happens to one that has lost its turn.
func TestLateCallersAreWaiters(t *testing.T) {
	jobs := Limit{Rates: []Rate{{Name: "jobs", Unit: "jobs", Events: 1, Per: 2 * time.Second, Burst: 1}},
		InFlight: 4}
	to := func(limit Limit) func(*testing.T, *Limiter, *call) {
		return func(t *testing.T, l *Limiter, _ *call) { setLimit(t, l, limit) }
	}
	deny, cut := to(Limit{Deny: true}), to(Limit{Rates: jobs.Rates, InFlight: 2})
	displace := func(t *testing.T, l *Limiter, _ *call) {
		asking(t, l, "k", Cost("jobs", 1), PriorityHigh.Option()).waits(t)
	}
	for _, c := range []struct {
		name     string
		do       func(*testing.T, *Limiter, *call)
		at, want time.Duration // at: when that is done; the turn is at 2 s, and lost at 2.5 s
		why      Reason        // none: the call's context has ended
	}{
		{"the context ends", func(_ *testing.T, _ *Limiter, c *call) { c.cancel() }, 3000 * ms, 3000 * ms,
			ReasonNone},
		{"deny", deny, 3000 * ms, 3000 * ms, ReasonDenied},
		{"deny before it wakes", deny, 2200 * ms, 2500 * ms, ReasonDenied},
		{"a cut", cut, 3000 * ms, 3000 * ms, ReasonTooLarge},
		{"a cut before it wakes", cut, 2200 * ms, 2500 * ms, ReasonTooLarge},
		{"one that takes its place", displace, 2700 * ms, 2700 * ms, ReasonQueue},
		{"patience", func(*testing.T, *Limiter, *call) {}, 0, 3500 * ms, ReasonWait},
	} {
		row(t, c.name, func(t *testing.T) {
			l := mustNew(t, jobs, MaxWait(3500*ms), MaxWaiting(2, 2))
			took(t, l, "k", Cost("jobs", 1)).Release()
			got := sleeping(t, l, "k", naps(2500*ms), Cost("jobs", 1), Weight(3))
			time.Sleep(2150 * ms)
			ahead := asking(t, l, "k", Cost("jobs", 1), PriorityCritical.Option()) // so it is not the next
			time.Sleep(max(0, c.at-2150*ms))
			c.do(t, l, got)
			time.Sleep(time.Minute)
			if c.why != ReasonNone {
				got.refusedAfter(t, c.want, c.why)
			} else if !got.ended() || got.took != c.want || !errors.Is(got.err, context.Canceled) {
				t.Errorf("ended after %v with %v", got.took, got.err)
			}
			stats(t, l, "Expired", 1, "Waiting", 0)
			ahead.permit.Release()
		})
	}
}

// brokenContext panics at the nth call of one of its methods, or ends the goroutine there as FailNow of a
// test does.
type brokenContext struct {
	context.Context
	how, method string
	nth         int
}

// contextFailures are ways in which a method of a context may fail.
var contextFailures = []string{"panics", "ends there"}

var errBroken = errors.New("a broken context")

func (c *brokenContext) meet(method string) {
	if c.method != method {
		return
	}
	if c.nth--; c.nth == 0 && c.how == "panics" {
		panic(errBroken)
	} else if c.nth == 0 {
		runtime.Goexit()
	}
}

func (c *brokenContext) Deadline() (time.Time, bool) { c.meet("Deadline"); return c.Context.Deadline() }
func (c *brokenContext) Done() <-chan struct{}       { c.meet("Done"); return c.Context.Done() }
func (c *brokenContext) Err() error                  { c.meet("Err"); return c.Context.Err() }

// callee is a call that is given a context.
type callee = func(context.Context) error

// acquiring is a call of Acquire.
func (l *Limiter) acquiring(key string, opts ...CallOption) callee {
	return func(ctx context.Context) error { _, err := l.Acquire(ctx, key, opts...); return err }
}

// under starts a call with the context, in a goroutine of its own. It returns a function that fails the test
// unless the call has ended by what the context did.
func (c *brokenContext) under(t *testing.T, call callee) (brokeOff func()) {
	returned, value := false, make(chan any, 1)
	go func() {
		defer func() { value <- recover() }()
		_ = call(c)
		returned = true
	}()
	synctest.Wait()
	return func() {
		t.Helper()
		synctest.Wait()
		select {
		case v := <-value:
			if returned || c.how == "panics" && v != errBroken {
				t.Errorf("returned %v, panicked with %v", returned, v)
			}
		default:
			t.Error("the call goes on")
		}
	}
}

// Failure mode 5: a context that fails at any call that a waiter makes of it takes the waiter out of the
// queue, and nothing is lost.
func TestBrokenContextLosesNothing(t *testing.T) {
	for _, how := range contextFailures {
		for _, c := range []struct {
			method string
			nth    int
			ends   bool // the context has ended by then
		}{{"Err", 1, false}, {"Err", 2, true}, {"Done", 1, false}} {
			row(t, []any{c.method, c.nth, how}, func(t *testing.T) {
				breaks := func(call callee) {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					brokeOff := (&brokenContext{ctx, how, c.method, c.nth}).under(t, call)
					if c.ends {
						cancel()
					}
					brokeOff()
				}
				l := mustNew(t, Limit{InFlight: 1, Rates: []Rate{PerHour(1e6), tokensPerMinute(100, 100)}})
				held := took(t, l, "k")
				breaks(l.acquiring("k", Cost("tokens", 2)))
				stats(t, l, "Waiting", 0, "InFlight", 1)
				next := asking(t, l, "k")
				next.waits(t)
				held.Release()
				next.admittedAfter(t, 0)
				next.permit.Release()
				stats(t, l, "Waiting", 0, "InFlight", 0)
				is(t, "tokens of a key that has used none", tokensOf(t, l, "k")[1], 100)
			})
		}
	}
}

// Contexts fail at other times too, and nothing is lost.
func TestBrokenContextAtOtherTimes(t *testing.T) {
	for _, how := range contextFailures {
		// The deadline is asked for under the lock when the turn of a call is known.
		row(t, "deadline "+how, func(t *testing.T) {
			l := mustNew(t, Rates(perSecond(1, 1)), MaxWaiting(1, 1))
			wants(t, l, "k", 1)
			(&brokenContext{t.Context(), how, "Deadline", 1}).under(t, l.acquiring("k"))()
			stats(t, l, "Waiting", 0, "Waited", 0)
			next := asking(t, l, "k") // there is one place, and one event in a second
			time.Sleep(time.Second)
			next.admittedAfter(t, time.Second)
		})
		// A call that is admitted before its context fails gives back all it took.
		row(t, "after the grant "+how, func(t *testing.T) {
			l := mustNew(t, Limit{InFlight: 1, Rates: []Rate{tokensPerMinute(100, 100)}})
			held := took(t, l, "k")
			(&brokenContext{t.Context(), how, "Done", 1}).under(t, func(ctx context.Context) error {
				return l.acquiring("k", Cost("tokens", 2))(&hooked{ctx, held.Release})
			})()
			stats(t, l, "Waiting", 0, "InFlight", 0, "Cancelled", 1)
			has(t, l, "k", 100)
			took(t, l, "k").Release()
		})
		// A waiter that has lost its turn asks its context again; if that fails then, the waiter that has
		// taken its place is given up.
		row(t, "after a lost turn "+how, func(t *testing.T) {
			l := mustNew(t, Limit{InFlight: 1, Rates: []Rate{Every(time.Second)}})
			took(t, l, "k").Release()
			sleeps := &sleepy{t.Context(), naps(1500 * ms)}
			brokeOff := (&brokenContext{sleeps, how, "Done", 2}).under(t, l.acquiring("k"))
			time.Sleep(1600 * ms)
			brokeOff()
			stats(t, l, "Waiting", 0, "InFlight", 0, "Expired", 1)
			next := asking(t, l, "k")
			time.Sleep(time.Second)
			next.admittedAfter(t, 400*ms)
		})
	}
}

// endless is a context that says it is done, and has no error.
type endless struct{ context.Context }

func (endless) Err() error { return nil }
