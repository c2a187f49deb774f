package quotient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/internal/meter"
	"github.com/quotient-go/quotient/internal/waited"
	"github.com/quotient-go/quotient/policy"
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
			Decision: Decision{Reason: ReasonDeadline, RetryAfter: 20 * time.Second,
				Rule: Rule{Name: "interval", Limit: 1, Share: .5, Window: 10 * time.Second}}})
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

// The longest Duration is no bound, and above all it does not overflow into the past. This
// runs by the real clock: in a bubble a timer that fires without end stops the clock.
func TestLongestMaxWait(t *testing.T) {
	l := mustNew(t, Limit{InFlight: 1}, MaxWait(math.MaxInt64))
	took(t, l, "k")
	s := l.shard("k")
	s.mu.Lock() // a timer that fires must wait for this
	defer s.mu.Unlock()
	now := s.tick(meter.Instant{At: time.Hour})
	g, w := s.gate(l.hash("k"), "k", 0), newWaiter(oneRequest)
	w.key, w.since = "k", now.At
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

// A raised limit lets all waiters through that it admits, at once.
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

// A cut re-paces those who wait already.
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

// A head that gives up wakes the next one.
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
		time.Sleep(time.Minute)       // a wait counts from when the caller came, also where no clock was read then
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

// A caller that wakes later than a tenth of the interval after its turn has lost it, and
// waits for the next. Nothing but the limiter's or the processor's lateness has made it wait longer than its
// first turn: that is overhead.
func TestLateCallersLoseTheirTurn(t *testing.T) {
	second, two := Every(time.Second), Rate{Events: 1, Per: 2 * time.Second, Kind: Paced}
	jobs := Rate{Name: "jobs", Unit: "jobs", Events: 1, Per: time.Second, Kind: Paced}
	noTurns := Rate{Events: 1, Per: time.Second, Kind: Paced, NoTurns: true}
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
		{"a bucket", Rates(perSecond(1, 1)), 1, 1900 * ms, 1900 * ms, 0, 0},
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
	jobs := Limit{Rates: []Rate{{Name: "jobs", Unit: "jobs", Events: 1, Per: 2 * time.Second, Kind: Paced}},
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

// A context that fails at any call that a waiter makes of it takes the waiter out of the queue, and
// nothing is lost.
func TestBrokenContextLosesNothing(t *testing.T) {
	for _, how := range contextFailures {
		for _, c := range []struct {
			method string
			nth    int
			ends   bool // the context has ended by then
		}{{"Deadline", 1, false}, {"Err", 1, false}, {"Err", 2, true}, {"Done", 1, false}} {
			row(t, []any{c.method, c.nth, how}, func(t *testing.T) {
				l := mustNew(t, Rates(perSecond(1, 1), tokensPerMinute(100, 100)), MaxWaiting(1, 1))
				wants(t, l, "k", 1)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				brokeOff := (&brokenContext{ctx, how, c.method, c.nth}).under(t, l.acquiring("k", Cost("tokens", 2)))
				if c.ends {
					cancel()
				}
				brokeOff()
				stats(t, l, "Waiting", 0)
				next := asking(t, l, "k") // there is one place, and one event in a second
				time.Sleep(time.Second)
				next.admittedAfter(t, time.Second)
				is(t, "tokens of a key that has used none", tokensOf(t, l, "k")[1], 100)
			})
		}
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

// classOf is the class of a letter: L, N, H or C.
func classOf(letter rune) Priority {
	return Priority(strings.IndexRune("LNHC", letter)) + PriorityLow
}

// askingFor starts one call for each letter, in this order.
func askingFor(t *testing.T, l *Limiter, key, letters string) []*call {
	t.Helper()
	var calls []*call
	for _, letter := range letters {
		calls = append(calls, asking(t, l, key, classOf(letter).Option()))
	}
	return calls
}

// A call that takes no tokens has no time to come back by behind a caller that waits for them.
func TestTurnsByUnit(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := mustNew(t, tokenLimit(1, 1))
		took(t, l, "k", Cost("tokens", 1))
		first := asking(t, l, "k", Cost("tokens", 1))
		is(t, "retry after", refusedFor(t, l, ReasonRate, "k").RetryAfter, 0)
		time.Sleep(time.Second)
		first.admittedAfter(t, time.Second)
	})
}

func TestPriorityOfACall(t *testing.T) {
	for want, name := range []string{"low", "normal", "high", "critical", "invalid"} {
		is(t, want, (Priority(want) + PriorityLow).String(), name)
	}
	is(t, "a refusal of a newer version", Decision{}.String(), "refused")
	l := mustNew(t, Limit{})
	for _, p := range []Priority{-128, -2, 3, 127} {
		says(t, refusal("k", refusedFor(t, l, ReasonBadRequest, "k", p.Option())), "Priority",
			fmt.Sprint(int(p)))
		_, err := l.Acquire(t.Context(), "k", p.Option())
		says(t, err, "Priority", fmt.Sprint(int(p)))
	}
	d, err := newDemand([]CallOption{PriorityCritical.Option(), Weight(3), PriorityLow.Option()}, l.inForce)
	if err != nil || d.class != PriorityLow || d.weight != 3 || d.priced {
		t.Errorf("%+v, %v: the last class of a call counts, and nothing else changes", d, err)
	}
}

func TestAcquireAllocatesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	t.Run("for a priority", func(t *testing.T) {
		l := mustNew(t, Limit{Rates: []Rate{perSecond(1e6, 1e6)}, InFlight: 4})
		is(t, "allocations", testing.AllocsPerRun(1000, func() {
			p, err := l.Acquire(ctx, "k", PriorityHigh.Option())
			q, d := l.TryAcquire("k", Weight(2), PriorityLow.Option())
			if err != nil || !d.OK {
				t.Fatal(err, d)
			}
			p.Release()
			q.Release()
		}), 0)
	})
	l := mustNew(t, Limit{InFlight: 1})
	use := func() {
		p, err := l.Acquire(ctx, "k")
		if runtime.Gosched(); err == nil {
			p.Release()
		}
	}
	t.Run("for a slot that is free", func(t *testing.T) {
		is(t, "allocations", testing.AllocsPerRun(1000, use), 0)
	})
	t.Run("for a slot that others wait for", func(t *testing.T) {
		if info, _ := debug.ReadBuildInfo(); slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
			t.Skip("under the race detector a sync.Pool forgets at random")
		}
		var others sync.WaitGroup
		for range 8 {
			others.Go(func() {
				for ctx.Err() == nil {
					use()
				}
			})
		}
		is(t, "allocations of all nine", testing.AllocsPerRun(1000, use), 0)
		if w := l.Stats().Waited; w < 8000 {
			t.Errorf("only %d have waited", w)
		}
		cancel()
		others.Wait()
	})
}

// A walk through a queue goes on, after others had the lock, with a waiter that must not be in another queue then. A
// call that is to take the place of one looks again whether that waits, and meanwhile both may have been admitted.
func TestWaiterThatOthersComeBackToIsNotUsedAgain(t *testing.T) {
	for name, leave := range map[string]func(*Limiter, *shard, *gate) *waiter{
		"in a walk": func(l *Limiter, s *shard, g *gate) *waiter {
			for range rejectBatch + 1 {
				s.enqueue(g, newWaiter(oneRequest), s.latest)
			}
			s.rejectIf(g, func(*waiter) verdict { return verdict{} })
			last := g.ext.queue.last[-PriorityLow]
			s.dequeue(g, last)
			return last
		},
		"in a full queue": func(l *Limiter, s *shard, g *gate) *waiter {
			low := newWaiter(oneRequest)
			s.enqueue(g, low, s.latest)
			g.used = 0
			w, err := s.line(t.Context(), g, "k", demand{weight: 1, class: PriorityHigh}, s.latest)
			if err != nil || w.queued || low.queued || low.refused != nil {
				t.Fatalf("%v, %+v, %+v: not both are admitted", err, w, low)
			}
			return low
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := mustNew(t, Limit{InFlight: 2}, MaxWaiting(1, 9))
			s, h := l.lock("k")
			defer s.mu.Unlock()
			g := s.gate(h, "k", 0)
			g.used = 2
			w := leave(l, s, g)
			l.recycle(w)
			for range 10 {
				if l.newWaiter(oneRequest) == w {
					t.Fatal("it is used again")
				}
			}
		})
	}
}

// A look for waiters that can never be admitted ends after some, and says where to go on: a lock is held
// meanwhile.
func TestLooksForTheHopelessAreShort(t *testing.T) {
	var q queue
	for range 2*rejectBatch + 1 {
		q.push(newWaiter(oneRequest))
	}
	var from *waiter
	var looks []int
	for len(looks) == 0 || from != nil && len(looks) < 9 {
		n := 0
		_, from = q.hopeless(from, func(*waiter) verdict { n++; return verdict{} })
		looks = append(looks, n)
	}
	is(t, "looked at", fmt.Sprint(looks), fmt.Sprint([]int{rejectBatch, rejectBatch, 1}))
}

// Under pressure the youngest of the lowest class gives up its place first.
func TestFullQueue(t *testing.T) {
	row(t, "in total: only those of the same key are displaced", func(t *testing.T) {
		l := mustNew(t, Rates(Every(time.Second)), MaxWaiting(100, 3))
		wants(t, l, "a", 1)
		wants(t, l, "b", 1)
		a, b := askingFor(t, l, "a", "L"), askingFor(t, l, "b", "LL")
		askingFor(t, l, "a", "H")
		a[0].refusedAfter(t, 0, ReasonQueue)
		askingFor(t, l, "a", "H")[0].refusedAfter(t, 0, ReasonQueue)
		stats(t, l, "Waiting", 3)
		time.Sleep(time.Hour)
		b[0].admittedAfter(t, time.Second)
		b[1].admittedAfter(t, 2*time.Second)
	})
	row(t, "a caller that would be refused anyway displaces no waiter", func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(1, 5)), MaxWaiting(1, 1))
		took(t, l, "k", Weight(5))
		low := asking(t, l, "k", PriorityLow.Option())
		askingUntil(t, l, time.Second-1, "k", PriorityHigh.Option()).refusedAfter(t, 0, ReasonDeadline)
		asking(t, l, "k", Weight(6), PriorityHigh.Option()).refusedAfter(t, 0, ReasonTooLarge)
		low.waits(t)
		high := asking(t, l, "k", Weight(2), PriorityHigh.Option())
		back := low.refusedAfter(t, 0, ReasonQueue).RetryAfter
		is(t, "may come back behind the one in its place", back, 3*time.Second)
		time.Sleep(2 * time.Second)
		high.admittedAfter(t, 2*time.Second)
	})
	row(t, "the gate of keys without room refuses for want of keys", func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 1}, MaxKeys(1), MaxWaiting(2, 100))
		took(t, l, "busy")
		p := took(t, l, "late")
		low := asking(t, l, "late", PriorityLow.Option())
		normal := asking(t, l, "later")
		high := asking(t, l, "latest", PriorityHigh.Option())
		low.refusedAfter(t, 0, ReasonKeys)
		asking(t, l, "last", PriorityLow.Option()).refusedAfter(t, 0, ReasonKeys)
		p.Release()
		high.admittedAfter(t, 0)
		normal.gaveUp(t)
	})
	row(t, "the one with its turn is displaced, and the next is tried at once", func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(1, 100)), MaxWaiting(2, 100))
		took(t, l, "k", Weight(100))
		low := asking(t, l, "k", Weight(100), PriorityLow.Option())
		high := asking(t, l, "k", Weight(50), PriorityHigh.Option())
		gateOf(l, "k").ext.queue.passed = trickle - 1
		time.Sleep(49 * time.Second)
		setLimit(t, l, Rates(perSecond(1, 100))) // the low one is tried, and stays the next
		high2 := asking(t, l, "k", PriorityHigh.Option())
		low.refusedAfter(t, 49*time.Second, ReasonQueue)
		time.Sleep(2 * time.Second)
		high.admittedAfter(t, 50*time.Second)
		high2.admittedAfter(t, 2*time.Second)
	})
	row(t, "what a late timer has left undone is done at once, in more than a batch", func(t *testing.T) {
		const n = 3 * wakeBatch
		l := mustNew(t, Rates(perSecond(1, 2*n)), MaxWaiting(n, n))
		took(t, l, "k", Weight(2*n))
		calls := askingFor(t, l, "k", strings.Repeat("L", n))
		stopTimer(l, "k").ext.queue.passed = trickle - 1
		time.Sleep(2 * n * time.Second)
		askingFor(t, l, "k", "H")[0].ended()
		for i, c := range calls {
			if !c.ended() {
				t.Fatalf("%d of %d wait on", i, n)
			}
		}
	})
}

func TestOvertakers(t *testing.T) {
	row(t, "that never give back do not keep the others waiting", func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 3}, MaxHold(5*time.Second))
		p := took(t, l, "k", Weight(2))
		p.ExpireIn(0)
		waiter := asking(t, l, "k", Weight(3))
		took(t, l, "k", PriorityHigh.Option())
		p.Release()
		time.Sleep(5 * time.Second)
		waiter.admittedAfter(t, 5*time.Second)
	})
	// It does not wait for the turn of one that needs more.
	row(t, "make a waiter next, which is admitted at once where there is room", func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(1, 20)))
		took(t, l, "k", Weight(20))
		low := asking(t, l, "k", PriorityLow.Option())
		big := asking(t, l, "k", Weight(18), PriorityHigh.Option())
		time.Sleep(10 * time.Second) // ten tokens, which are not enough for the big one
		low.waits(t)
		for range trickle - 1 {
			took(t, l, "k", PriorityCritical.Option())
		}
		low.admittedAfter(t, 10*time.Second)
		big.waits(t)
		time.Sleep(16 * time.Second)
		big.admittedAfter(t, 26*time.Second)
	})
	row(t, "make the oldest next, and the timer that is set is not its own", func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(100, 100),
			Rate{Name: "tok", Unit: "tokens", Events: 1, Per: time.Hour, Burst: 1}))
		took(t, l, "k", Weight(100), Cost("tokens", 1)) // all is empty
		low := asking(t, l, "k", PriorityLow.Option())  // would be served in 10 ms
		normal := asking(t, l, "k", Cost("tokens", 1))  // goes before it, and waits an hour for a token
		time.Sleep(time.Second)
		low.waits(t) // head of line, by design
		for range 7 {
			took(t, l, "k", PriorityCritical.Option())
		}
		low.admittedAfter(t, time.Second)
		took(t, l, "k", PriorityCritical.Option())
		normal.gaveUp(t)
	})
	// One comes after a permit's time is over, but before the timer, which is late. It takes the permit back,
	// takes part of it, and sets the timer to the end of its own permit.
	row(t, "that take permits back wake who waits", func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 3}, MaxHold(5*time.Second))
		took(t, l, "k", Weight(3))
		waiter := asking(t, l, "k", Weight(2))
		time.Sleep(4 * time.Second)
		gateOf(l, "k").ext.timer.Reset(time.Second + 2*ms) // as a busy machine's: late
		time.Sleep(time.Second + ms)
		took(t, l, "k", PriorityHigh.Option()).ExpireIn(time.Hour)
		time.Sleep(30 * time.Minute)
		is(t, "2 slots are free, and the waiter has ended", waiter.ended(), true)
	})
}

// The take of a call is as old as the youngest of the rules that it has taken from, and of no others. Events
// of a window and slots, learned or not, have no age.
func TestAgeOfATake(t *testing.T) {
	tokens := Rate{Name: "tokens", Unit: "tokens", Events: 1, Per: time.Second, Burst: 10}
	priced := demand{weight: 1, costs: [maxUnits]int{1}, priced: true}
	for name, c := range map[string]struct {
		limit       Limit
		opts        []Option
		least, most time.Duration // after a request of ten a second
	}{
		"rates":   {Limit{Rates: []Rate{perSecond(10, 10), tokens}, InFlight: 5}, nil, 800 * ms, 900 * ms},
		"windows": {Rates(perSecond(10, 10), aligned(100, time.Minute)), nil, 800 * ms, 900 * ms},
		"slots":   {Limit{InFlight: 50}, []Option{Policy(policy.AIMD{})}, 1, time.Hour},
	} {
		row(t, name, func(t *testing.T) {
			l := mustNew(t, c.limit, c.opts...)
			if time.Sleep(time.Second); name == "rates" {
				took(t, l, "k", Cost("tokens", 10)).Release()
			} else {
				took(t, l, "k")
			}
			if name == "slots" {
				time.Sleep(time.Second)
			}
			s, g := l.shard("k"), gateOf(l, "k")
			s.mu.Lock()
			defer s.mu.Unlock()
			now := s.now()
			if got := g.age(now, &oneRequest); got < c.least || got > c.most {
				t.Errorf("the age is %v", got)
			}
			if name == "rates" {
				is(t, "the age where no token is left", g.age(now, &priced), 0)
			}
		})
	}
}

// herd is clients of one key that come at one instant, and come again when they are told to, until each has had
// its answer.
type herd struct {
	l        *Limiter
	opts     []CallOption
	requests int
	most     int           // requests at one instant but the first
	waited   time.Duration // by the client that has waited longest
}

// come lets so many clients come, each at its own time. Each asks, and is told to come again, or has its answer.
func (h *herd) come(t *testing.T, n int, ask func() Decision) {
	t.Helper()
	start, answers, together := time.Now(), 0, 0
	for due := make([]time.Time, n); len(due) > 0; {
		slices.SortStableFunc(due, time.Time.Compare)
		if wait := time.Until(due[0]); wait > 0 {
			time.Sleep(wait)
			together = 0
		}
		if together++; time.Since(start) > 0 {
			h.most = max(h.most, together)
		}
		earliest := h.earliest(t)
		d := ask()
		if h.requests++; d.OK {
			h.waited, due, answers = time.Since(start), due[1:], answers+1
			continue
		}
		if d.RetryAfter < earliest || h.requests > 100*n {
			t.Fatalf("told %v, and there is room after %v at the earliest", d.RetryAfter, earliest)
		}
		due[0] = time.Now().Add(d.RetryAfter)
	}
	t.Logf("%d requests for %d answers, at most %d at one instant but the first, the last after %v",
		h.requests, answers, h.most, h.waited)
}

// earliest is when a call would have its turn if no other came.
func (h *herd) earliest(t *testing.T) time.Duration {
	now := h.l.now()
	s, hash := h.l.lock("k")
	defer s.mu.Unlock()
	now = s.tick(now)
	d, err := newDemand(h.opts, s.l.inForce)
	must(t, err)
	return s.peek(hash, "k", now).probe(now, &d).wait
}

// try is a request that does not wait.
func (h *herd) try() Decision {
	p, d := h.l.TryAcquire("k", h.opts...)
	p.Release()
	return d
}

func TestHerdIsSpread(t *testing.T) {
	minute := Rate{Events: 10, Per: time.Minute}
	aligned := Rate{Events: 10, Per: time.Minute, Kind: Window}
	with := func(r Rate, change func(*Rate)) Rate { change(&r); return r }
	tokens := func(r *Rate) { r.Name, r.Unit, r.Events = "tokens", "tokens", 5*r.Events }
	fifth := []CallOption{Cost("tokens", 5)}
	for name, c := range map[string]struct {
		limit Limit
		pool  Pool
		opts  []CallOption
		most  time.Duration // that one waits; 0: as long as 19 whole minutes and one
		setup Option
	}{
		"bucket":  {limit: Rates(minute)},
		"paced":   {limit: Rates(with(minute, func(r *Rate) { r.Kind = Paced }))},
		"aligned": {limit: Rates(aligned)},
		"an hour": {limit: Rates(with(aligned, func(r *Rate) { r.Per = time.Hour })), most: 20 * time.Hour},
		"fast":    {limit: Rates(with(minute, func(r *Rate) { r.Per = 100 * ms })), most: 2 * time.Second},
		"counted": {limit: Rates(with(aligned, func(r *Rate) { r.Kind = CountedWindow }))},
		"a part of a window": {limit: Rates(with(aligned, func(r *Rate) { r.Events = 35 })),
			pool: Pool{Replicas: 4, Ordinal: 2}, most: 24 * time.Minute},
		"sparse windows": {limit: Rates(aligned), pool: Pool{Replicas: 25, Ordinal: 2}, most: 501 * time.Minute},
		"turns": {limit: Rates(with(minute, func(r *Rate) { r.Kind = Paced })),
			pool: Pool{Replicas: 4, Ordinal: 2}, most: 81 * time.Minute},
		"two rates": {limit: Rates(aligned, Rate{Name: "fast", Events: 1, Per: 2 * time.Second, Kind: Paced})},
		"a long and a short window": {limit: Rates(with(aligned, func(r *Rate) { r.Events = 40 }),
			Rate{Name: "fast", Events: 1, Per: 5 * time.Second, Kind: Window})},
		"costs":            {limit: Rates(with(minute, tokens)), opts: fifth},
		"costs of windows": {limit: Rates(with(aligned, tokens)), opts: fifth},
		"a weight":         {limit: Rates(with(aligned, func(r *Rate) { r.Events = 20 })), opts: []CallOption{Weight(2)}},
		"more than fits": {limit: Rates(with(minute, func(r *Rate) { r.Burst = 20 })), pool: Pool{Replicas: 10},
			opts: []CallOption{Weight(4)}, most: 801 * time.Minute},
		"a policy": {limit: Rates(minute), setup: Policy(&spyController{start: 1. / 6, next: 1. / 6})},
	} {
		row(t, name, func(t *testing.T) {
			if c.setup == nil {
				c.setup = together()
			}
			if c.pool == (Pool{}) {
				c.pool.Replicas = 1
			}
			h := &herd{l: mustNew(t, c.limit, c.setup, StartPool(c.pool)), opts: c.opts}
			h.come(t, 200, h.try)
			if most := cmp.Or(c.most, 20*time.Minute); h.requests > 600 || h.most > 20 || h.waited > most {
				t.Errorf("one waited %v, want at most %v", h.waited, most)
			}
		})
	}
}

// One client that asks a thousand times a second, and obeys nothing, keeps an obedient one away for at most a
// hundred turns. An hour after it has gone nothing is left of that.
func TestHammerPromisesLittle(t *testing.T) {
	for name, c := range map[string]struct {
		rate Rate
		most time.Duration // the first turn, and a hundred behind it
	}{
		"window": {Rate{Events: 10, Per: time.Minute, Kind: Window}, 11 * time.Minute},
		"bucket": {Rate{Events: 10, Per: time.Minute}, 10*time.Minute + 6*time.Second},
		"fast":   {Rate{Events: 100, Per: time.Second}, 1010 * ms},
	} {
		row(t, name, func(t *testing.T) {
			l, longest := mustNew(t, Rates(c.rate)), time.Duration(0)
			for range 300_000 {
				l.TryAcquire("k")
				longest = max(longest, l.Check("k").RetryAfter)
				time.Sleep(ms)
			}
			wrong(t, longest > c.most, "an obedient client is told %v, want at most %v", longest, c.most)
			time.Sleep(time.Hour)
			wants(t, l, "k", int(c.rate.Events))
			if d := refusedFor(t, l, ReasonRate, "k"); d.RetryAfter > time.Minute {
				t.Errorf("an hour later: %v", d)
			}
		})
	}
}

// Who is not told when to come is promised nothing: a look, Allow, a batch. A key's promises are for those who
// take the same unit of it, and go when it is forgiven or dropped.
func TestPromises(t *testing.T) {
	minute := Rate{Events: 1, Per: time.Minute, Burst: 1}
	tries := func(l *Limiter, opts ...CallOption) { l.TryAcquire("k", opts...) }
	for name, c := range map[string]struct {
		then func(l *Limiter)
		want time.Duration
	}{
		"nothing":             {func(*Limiter) {}, time.Minute},
		"a refusal":           {func(l *Limiter) { tries(l) }, 2 * time.Minute},
		"two refusals":        {func(l *Limiter) { tries(l); tries(l) }, 3 * time.Minute},
		"of a claim":          {func(l *Limiter) { TryAcquireAll(nil, Claim{Limiter: l, Key: "k"}) }, 2 * time.Minute},
		"looks":               {func(l *Limiter) { l.Check("k"); l.Explain("k") }, time.Minute},
		"Allow":               {func(l *Limiter) { l.Allow("k") }, time.Minute},
		"a batch":             {func(l *Limiter) { l.TryAcquireUpTo("k", 5) }, time.Minute},
		"a dry run":           {func(l *Limiter) { l.SetDryRun(true); tries(l); l.SetDryRun(false) }, time.Minute},
		"another key":         {func(l *Limiter) { l.TryAcquire("a"); l.TryAcquire("a") }, time.Minute},
		"another unit":        {func(l *Limiter) { tries(l, Cost("tokens", 10)) }, time.Minute},
		"too early by little": {func(l *Limiter) { tries(l); time.Sleep(time.Minute - 1) }, 1},
		"half a minute later": {func(l *Limiter) { tries(l); time.Sleep(30 * time.Second) }, 90 * time.Second},
		"a reset":             {func(l *Limiter) { tries(l); l.Reset("k"); l.Allow("k") }, time.Minute},
		"a dropped key": {func(l *Limiter) {
			tries(l)
			time.Sleep(2 * time.Hour)
			l.Allow("a") // there is room for one key
			time.Sleep(2 * time.Hour)
			l.Allow("k")
		}, time.Minute},
	} {
		row(t, name, func(t *testing.T) {
			l := mustNew(t, Rates(minute, tokensPerMinute(.1, 10)), MaxKeys(1))
			took(t, l, "k", Cost("tokens", 10)).Release()
			c.then(l)
			is(t, "the next is told", l.Check("k").RetryAfter, c.want)
			for g := range l.shards[0].promises {
				if gateOf(l, g.name) != g && !l.shards[0].overflow.is(g) {
					t.Errorf("the gate of %q was dropped, and is kept for a promise", g.name)
				}
			}
		})
	}
}

// OnHeldBack gets each call of Acquire that was not admitted at once, with its context: how long it has waited, for
// what, and what became of it.
func TestOnHeldBack(t *testing.T) {
	second := Rates(PerSecond(1))
	busy := func(t *testing.T, l *Limiter) { took(t, l, "k") }
	for _, c := range []struct {
		name   string
		limit  Limit
		opt    Option
		before func(t *testing.T, l *Limiter)
		wait   time.Duration // of the context; 0: none
		want   string        // "": no call of the hook
	}{
		{"admitted at once", second, together(), func(*testing.T, *Limiter) {}, 0, ""},
		{"admitted after a wait", second, together(), busy, 0, "1s second <nil>"},
		{"a slot", Limit{InFlight: 1}, together(), func(t *testing.T, l *Limiter) {
			p := took(t, l, "k")
			time.AfterFunc(time.Second, p.Release)
		}, 0, "1s in-flight <nil>"},
		{"refused at once", second, MaxWait(ms), busy, 0, "0s second max_wait"},
		{"refused after a wait", second, together(), func(t *testing.T, l *Limiter) {
			busy(t, l)
			time.AfterFunc(ms, func() { setLimit(t, l, Limit{Deny: true}) })
		}, 0, "1ms  denied"},
		{"given up", Limit{InFlight: 1}, together(), busy, ms, "1ms in-flight context deadline exceeded"},
		{"no pool", second, AwaitPool(time.Minute), func(*testing.T, *Limiter) {}, ms, "1ms  context deadline exceeded"},
		{"a dry run", second, together(), func(t *testing.T, l *Limiter) { busy(t, l); l.SetDryRun(true) }, 0, ""},
	} {
		row(t, c.name, func(t *testing.T) {
			type mark struct{}
			var got []string
			hook := OnHeldBack(func(ctx context.Context, h HeldBack) {
				what := fmt.Sprint(h.Err)
				if limited, ok := h.Err.(*LimitedError); ok {
					what = limited.Reason.String()
				}
				got = append(got, fmt.Sprint(h.Key, ctx.Value(mark{}), " ", h.Waited, " ", h.Name, " ", what))
			})
			l := mustNew(t, c.limit, c.opt, hook, OnHeldBack(nil), hook)
			c.before(t, l)
			ctx := context.WithValue(t.Context(), mark{}, 1)
			if c.wait > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.wait)
				defer cancel()
			}
			_, _ = l.Acquire(ctx, "k")
			if c.want != "" {
				c.want = "k1 " + c.want + "|k1 " + c.want // two hooks
			}
			is(t, "calls", strings.Join(got, "|"), c.want)
		})
	}
	row(t, "room after all in a dry run is no wait", func(t *testing.T) {
		l := mustNew(t, second, OnHeldBack(func(_ context.Context, h HeldBack) { t.Errorf("held back: %+v", h) }))
		busy(t, l)
		l.SetDryRun(true)
		_, err := l.Acquire(slowContext{t.Context()}, "k")
		must(t, err)
	})
	row(t, "a panic gives the permit back", func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 1}, OnHeldBack(func(context.Context, HeldBack) { panic("hook") }))
		p := took(t, l, "k")
		time.AfterFunc(time.Second, p.Release)
		func() {
			defer func() { is(t, "panic", recover(), any("hook")) }()
			_, _ = l.Acquire(t.Context(), "k")
		}()
		took(t, l, "k")
	})
}

// slowContext takes as long for a look at its values as a token of one a second does to come.
type slowContext struct{ context.Context }

func (c slowContext) Value(key any) any { time.Sleep(time.Second); return c.Context.Value(key) }
