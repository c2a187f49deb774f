package quotient

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A late timer: it is stopped, and what it would have done is done later by hand.
func lateBy(t *testing.T, l *Limiter, key string, turn, late time.Duration) {
	t.Helper()
	s := l.shard(key)
	s.mu.Lock()
	g := s.find(l.hash(key))
	g.ext.timer.Stop()
	s.mu.Unlock()
	time.Sleep(turn + late)
	s.mu.Lock()
	s.serveAndUnlock(g)
}

// TestDueOfEachWaiterOfALateTimer: one token comes every 10 ms, the timer is 40 ms late, and five waiters are
// served at once. Each could have gone at its own token: the first is 40 ms late, the next 30, and so on. A
// slow rate that has room for longer than any Duration beside it changes nothing.
func TestDueOfEachWaiterOfALateTimer(t *testing.T) {
	fast := Rate{Name: "x", Events: 1, Per: 10 * time.Millisecond, Burst: 10}
	for name, limit := range map[string]Limit{
		"alone":               rated(fast),
		"beside one too slow": rated(fast, Rate{Name: "slow", Events: 1, Per: 200 * year, Burst: 1000}),
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T) {
				got := make(chan time.Duration, 10)
				l := limiterOf(t, limit,
					OnAdmit(func(_ string, _, overhead time.Duration) { got <- overhead }))
				took(t, l, "k", Weight(10))
				<-got
				for range 5 {
					go func() { _, _ = l.Acquire(t.Context(), "k") }()
					synctest.Wait()
				}
				lateBy(t, l, "k", 10*time.Millisecond, 40*time.Millisecond)
				var over []time.Duration
				var sum time.Duration
				for range 5 {
					d := <-got
					over = append(over, d)
					sum += d
				}
				if sum != 100*time.Millisecond {
					t.Errorf("overheads %v, together %v; want 40+30+20+10+0 = 100ms", over, sum)
				}
			})
		})
	}
}

// TestDueIsNotBeforeTheArrival: the head's timer is late, a caller arrives after the head's turn, the head
// leaves, and the newcomer is served at once. Its overhead cannot be longer than its whole wait.
func TestDueIsNotBeforeTheArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type times struct{ waited, overhead time.Duration }
		got := make(chan times, 10)
		l, err := New(Rates(Rate{Name: "x", Events: 1, Per: 10 * time.Millisecond, Burst: 10}),
			OnAdmit(func(_ string, waited, overhead time.Duration) { got <- times{waited, overhead} }))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Acquire(t.Context(), "k", Weight(10)); err != nil {
			t.Fatal(err)
		}
		<-got
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() { _, err := l.Acquire(ctx, "k"); left <- err }()
		synctest.Wait()
		s := l.shard("k")
		s.mu.Lock()
		s.find(l.hash("k")).ext.timer.Stop()
		s.mu.Unlock()
		time.Sleep(40 * time.Millisecond)
		go func() { _, _ = l.Acquire(t.Context(), "k") }()
		synctest.Wait()
		cancel()
		<-left
		if d := <-got; d.overhead > d.waited {
			t.Errorf("overhead %v in a wait of %v", d.overhead, d.waited)
		}
	})
}

// TestALostTurnIsOverhead: a caller that wakes after its turn of a paced rate waits for the next. Nothing but
// the limiter's or the processor's lateness has made it wait longer than its first turn.
func TestALostTurnIsOverhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type times struct{ waited, overhead time.Duration }
		got := make(chan times, 10)
		first := true
		l, err := New(Rates(Every(5*time.Second)), OnWait(func(string, time.Duration) {
			if first {
				first = false
				time.Sleep(7 * time.Second)
			}
		}), OnAdmit(func(_ string, waited, overhead time.Duration) { got <- times{waited, overhead} }))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := l.Acquire(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
		<-got
		if d := <-got; d.waited != 10*time.Second || d.overhead != 5*time.Second || l.Stats().Expired != 1 {
			t.Errorf("%v of %v are overhead, %d turns lost; want 5 s of 10 s, and one", d.overhead, d.waited,
				l.Stats().Expired)
		}
	})
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
	c := &call{cancel: cancel, done: make(chan struct{})}
	go func() {
		start := time.Now()
		c.permit, c.err = l.Acquire(&sleepy{ctx, naps}, key, opts...)
		c.took = time.Since(start)
		close(c.done)
	}()
	c.ended() // it sleeps
	return c
}

func naps(d ...time.Duration) []time.Duration { return d }

const ms = time.Millisecond

// Failure mode 26: a caller that wakes later than a tenth of the interval after its turn has lost it, and
// waits for the next.
func TestLateCallersLoseTheirTurn(t *testing.T) {
	jobs := Rate{Name: "jobs", Unit: "jobs", Events: 1, Per: time.Second, Burst: 1}
	for _, c := range []struct {
		name    string
		limit   Limit
		opts    []CallOption
		nap     time.Duration
		want    time.Duration
		expired uint64
	}{
		{"in time", rated(Every(time.Second)), nil, 1100 * ms, 1100 * ms, 0},
		{"late", rated(Every(time.Second)), nil, 1100*ms + 1, 2 * time.Second, 1},
		{"so late that the next turn is there", rated(Every(time.Second)), nil, 2300 * ms, 2300 * ms, 1},
		{"a long interval, in time", rated(Every(4 * time.Second)), nil, 4400 * ms, 4400 * ms, 0},
		{"a long interval, late", rated(Every(4 * time.Second)), nil, 4400*ms + 1, 8 * time.Second, 1},
		{"a short interval", rated(Every(time.Second - 1)), nil, 1900 * ms, 1900 * ms, 0},
		{"a burst", rated(perSecond(1, 2)), []CallOption{Weight(2)}, 2900 * ms, 2900 * ms, 0},
		{"a window", rated(Rate{Events: 1, Per: time.Second, Aligned: true}), nil, 1900 * ms, 1900 * ms, 0},
		{"without turns", rated(Rate{Events: 1, Per: time.Second, Burst: 1, NoTurns: true}), nil, 1200 * ms,
			2 * time.Second, 1},
		{"of the shortest interval",
			rated(Every(time.Second), Rate{Events: 1, Per: 2 * time.Second, Burst: 1}), nil, 2150 * ms,
			4 * time.Second, 1}, {"of the shortest interval, in any order",
			rated(Rate{Events: 1, Per: 2 * time.Second, Burst: 1}, Every(time.Second)), nil, 2150 * ms,
			4 * time.Second, 1},
		{"nothing of the paced rate", rated(jobs, perSecond(1, 2)), []CallOption{Weight(2)}, 2900 * ms,
			2900 * ms, 0},
	} {
		row(t, c.name, func(t *testing.T) {
			var hooks atomic.Int32
			l := limiterOf(t, c.limit, OnAdmit(func(string, time.Duration, time.Duration) { hooks.Add(1) }))
			took(t, l, "k", c.opts...)
			got := sleeping(t, l, "k", naps(c.nap), c.opts...)
			time.Sleep(c.want + time.Hour)
			got.admittedAfter(t, c.want)
			if st := l.Stats(); st.Expired != c.expired || st.Admitted != 2 || st.Waited != 1 ||
				st.Waiting != 0 || hooks.Load() != 2 {
				t.Errorf("expired %d, admitted %d, waited %d, waiting %d; OnAdmit called %d times",
					st.Expired, st.Admitted, st.Waited, st.Waiting, hooks.Load())
			}
		})
	}
}

// A turn is lost three times at most: or one on a slow machine would never act.
func TestFourthTurnIsTaken(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Every(time.Second)))
		wants(t, l, "k", 1)
		c := sleeping(t, l, "k", naps(1500*ms, 1500*ms, 1500*ms, 1500*ms, 1500*ms))
		time.Sleep(time.Minute)
		c.admittedAfter(t, 6*time.Second)
		if st := l.Stats(); st.Expired != 3 || st.Admitted != 2 {
			t.Errorf("expired %d, admitted %d", st.Expired, st.Admitted)
		}
	})
}

// The events of a lost turn are gone: the next caller is a whole interval behind it.
func TestLostTurnStaysSpent(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Every(time.Second)))
		wants(t, l, "k", 1)
		c := sleeping(t, l, "k", naps(1500*ms))
		time.Sleep(1600 * ms)
		c.gaveUp(t)
		has(t, l, "k", 0.6)
		if st := l.Stats(); st.Expired != 1 || st.Cancelled != 1 || st.Waiting != 0 || st.Admitted != 1 {
			t.Errorf("%+v", st)
		}
	})
}

// A caller that has lost a turn stands before all others of its class, and behind the classes above.
func TestLateCallersComeFirst(t *testing.T) {
	for _, wakes := range []time.Duration{2200 * ms, 2500 * ms} { // before the second, and after it
		row(t, wakes, func(t *testing.T) {
			l := limiterOf(t, rated(Every(time.Second)))
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

// A lost turn of a replica that takes turns with others is waited for: the next is a whole cycle away.
func TestLostTurnOfAFleet(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Every(time.Second)), StartPool(Pool{Replicas: 3, Ordinal: 1, Fixed: true}))
		took(t, l, "k")
		c := sleeping(t, l, "k", naps(3101*ms))
		time.Sleep(time.Minute)
		c.admittedAfter(t, 6*time.Second)
	})
}

// Its slots come back while it waits, and a permit that was given back by time meanwhile is not given back
// twice.
func TestLostTurnGivesItsSlotsBack(t *testing.T) {
	for name, opts := range map[string][]Option{
		"plain":              nil,
		"given back by time": {MaxHold(200 * ms), LeakCheck(func(Leak) {})},
	} {
		row(t, name, func(t *testing.T) {
			l := limiterOf(t, Limit{Rates: []Rate{Every(time.Second)}, InFlight: 1}, opts...)
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
			inFlight(t, l, 0)
			if st := l.Stats(); st.DoubleReleases != 0 {
				t.Errorf("%d double releases", st.DoubleReleases)
			}
		})
	}
}

// All that happens to a waiter meanwhile happens to one that has lost its turn.
func TestLateCallersAreWaiters(t *testing.T) {
	jobs := Limit{Rates: []Rate{{Name: "jobs", Unit: "jobs", Events: 1, Per: 2 * time.Second, Burst: 1}},
		InFlight: 4}
	cut := jobs
	cut.InFlight = 2
	for _, c := range []struct {
		name string
		do   func(*testing.T, *Limiter, *call)
		at   time.Duration // when that is done; the turn is at 2 s, and lost at 2.5 s
		want time.Duration
		why  Reason // none: the call's context has ended
	}{
		{"the context ends", func(_ *testing.T, _ *Limiter, c *call) { c.cancel() }, 3 * time.Second,
			3 * time.Second, ReasonNone},
		{"deny", func(t *testing.T, l *Limiter, _ *call) { setLimit(t, l, Limit{Deny: true}) },
			3 * time.Second, 3 * time.Second, ReasonDenied},
		{"deny before it wakes", func(t *testing.T, l *Limiter, _ *call) {
			setLimit(t, l, Limit{Deny: true})
		}, 2200 * ms, 2500 * ms, ReasonDenied},
		{"a cut", func(t *testing.T, l *Limiter, _ *call) { setLimit(t, l, cut) }, 3 * time.Second,
			3 * time.Second, ReasonTooLarge},
		{"a cut before it wakes", func(t *testing.T, l *Limiter, _ *call) { setLimit(t, l, cut) }, 2200 * ms,
			2500 * ms, ReasonTooLarge},
		{"one that takes its place", func(t *testing.T, l *Limiter, _ *call) {
			asking(t, l, "k", Cost("jobs", 1), PriorityHigh.Option()).waits(t)
		}, 2700 * ms, 2700 * ms, ReasonQueue},
		{"patience", func(*testing.T, *Limiter, *call) {}, 0, 3500 * ms, ReasonWait},
	} {
		row(t, c.name, func(t *testing.T) {
			l := limiterOf(t, jobs, MaxWait(3500*ms), MaxWaiting(2, 2))
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
			if st := l.Stats(); st.Expired != 1 || st.Waiting != 0 {
				t.Errorf("expired %d, waiting %d", st.Expired, st.Waiting)
			}
			ahead.permit.Release()
		})
	}
}

// A queue that is full does not refuse a caller that has lost its turn.
func TestFullQueueTakesLateCallersBack(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Every(time.Second)), MaxWaiting(1, 1))
		wants(t, l, "k", 1)
		late := sleeping(t, l, "k", naps(1500*ms))
		time.Sleep(1200 * ms)
		second := asking(t, l, "k")
		time.Sleep(400 * ms)
		if st := l.Stats(); st.Waiting != 2 {
			t.Errorf("%d wait", st.Waiting)
		}
		asking(t, l, "k").refusedAfter(t, 0, ReasonQueue)
		time.Sleep(time.Minute)
		late.admittedAfter(t, 2*time.Second)
		second.admittedAfter(t, 1800*ms)
	})
}

// A caller may sleep for so long that its key has been dropped: it must not be admitted by the gate of then
// beside that of now.
func TestLateCallerOfAKeyThatWasDropped(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Every(time.Second)), MaxKeys(1))
		wants(t, l, "k", 1)
		c := sleeping(t, l, "k", naps(10*time.Second))
		time.Sleep(5 * time.Second)
		wants(t, l, "other", 1) // takes the place of the key, which is idle
		time.Sleep(5 * time.Second)
		c.admittedAfter(t, 10*time.Second)
		wants(t, l, "k", 0)
	})
}
