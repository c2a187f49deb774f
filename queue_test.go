package quotient

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

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

// Failure mode 32: in any eight admissions one is of the caller that has waited longest. It is the one that
// came first, not the one of the lowest class.
func TestHigherClassesGoFirst(t *testing.T) {
	for queue, want := range map[string]string{
		"NNNN":    "[0 1 2 3]",
		"LNHC":    "[3 2 1 0]",
		"LNLNHLH": "[4 6 1 3 0 2 5]",
		// After seven that went past the oldest it has its turn.
		"LHHHHHHHHH":   "[1 2 3 4 5 6 7 0 8 9]",
		"NLHHHHHHHHHH": "[2 3 4 5 6 7 8 0 9 10 11 1]",
		// The count for the highest class starts again whenever it is the oldest itself.
		"HLHHHHHHHH": "[0 2 3 4 5 6 7 8 1 9]",
	} {
		row(t, queue, func(t *testing.T) {
			l := mustNew(t, Rates(Every(time.Second)))
			wants(t, l, "k", 1)
			calls := askingFor(t, l, "k", queue)
			var got []int
			for range queue {
				time.Sleep(time.Second)
				for i, c := range calls {
					if c.ended() && !slices.Contains(got, i) {
						got = append(got, i)
					}
				}
			}
			is(t, "served", fmt.Sprint(got), want)
		})
	}
}

// The turn of a call is that behind the waiters of the class and above, and no later.
func TestTurnsByClass(t *testing.T) {
	for _, c := range []struct {
		queue string
		ask   rune
		want  time.Duration
	}{
		{"NN", 'L', 3}, {"NN", 'N', 3}, {"NN", 'H', 1},
		{"LNHC", 'L', 5}, {"LNHC", 'N', 4}, {"LNHC", 'H', 3}, {"LNHC", 'C', 2},
	} {
		for name, opts := range map[string][]Option{"fixed": nil, "controllers": {Policy(policy.AIMD{})}} {
			row(t, fmt.Sprint(c.queue, string(c.ask), name), func(t *testing.T) {
				want, class := c.want*time.Second, classOf(c.ask).Option()
				l := mustNew(t, Rates(Every(time.Second)), opts...)
				wants(t, l, "k", 1)
				askingFor(t, l, "k", c.queue)
				is(t, "TryAcquire", refusedFor(t, l, ReasonRate, "k", class).RetryAfter, want)
				is(t, "Check", l.Check("k", class).RetryAfter, want)
				askingUntil(t, l, want-1, "k", class).refusedAfter(t, 0, ReasonDeadline)
				got := asking(t, l, "k", class)
				time.Sleep(5 * time.Second)
				got.admittedAfter(t, want)
			})
		}
	}
}

// A turn comes behind those ahead of it in a rate's own unit, whatever they take of the others.
func TestTurnsByUnit(t *testing.T) {
	row(t, "of both", func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(100, 100),
			Rate{Name: "tokens", Unit: "tokens", Events: 1, Per: time.Second, Burst: 4}))
		took(t, l, "k", Cost("tokens", 4))
		asking(t, l, "k", Weight(50), Cost("tokens", 3))
		asking(t, l, "k", Cost("tokens", 2)).waits(t)
		d := l.Check("k", Cost("tokens", 1))
		is(t, "tokens", fmt.Sprint(d.RetryAfter, " ", d.Rule), "6s tokens")
		is(t, "requests", l.Check("k", Weight(50)).RetryAfter, 20*time.Millisecond)
		time.Sleep(5 * time.Second)
	})
	// A call that takes no tokens has no time to come back by behind a caller that waits for them.
	row(t, "of another", func(t *testing.T) {
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
	d, err := newDemand([]CallOption{PriorityCritical.Option(), Weight(3), PriorityLow.Option()}, nil, nil)
	if err != nil || d.class != PriorityLow || d.weight != 3 || d.priced {
		t.Errorf("%+v, %v: the last class of a call counts, and nothing else changes", d, err)
	}
}

func TestPriorityAllocatesNothing(t *testing.T) {
	l, ctx := mustNew(t, Limit{Rates: []Rate{perSecond(1e6, 1e6)}, InFlight: 4}), context.Background()
	is(t, "allocations", testing.AllocsPerRun(1000, func() {
		p, err := l.Acquire(ctx, "k", PriorityHigh.Option())
		q, d := l.TryAcquire("k", Weight(2), PriorityLow.Option())
		if err != nil || !d.OK {
			t.Fatal(err, d)
		}
		p.Release()
		q.Release()
	}), 0)
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
	row(t, "names the rule of its time, whatever has changed when it wakes", func(t *testing.T) {
		slow := func() { time.Sleep(time.Second) }
		a, b := Rate{Name: "a", Events: 100, Per: time.Second}, Rate{Name: "b", Events: 7, Per: time.Second}
		l := mustNew(t, Limit{Rates: []Rate{a}, InFlight: 1}, MaxWaiting(1, 9))
		p := took(t, l, "k")
		low := hooking(t, l, slow, PriorityLow.Option())
		high := hooking(t, l, slow)
		c := b
		c.Name = "c"
		setLimit(t, l, Limit{Rates: []Rate{a, b, c}, InFlight: 1})
		time.Sleep(time.Second)
		err := low.refusedAfter(t, time.Second, ReasonQueue)
		is(t, "refused by", fmt.Sprint(err.Rule, " ", err.Limit), inFlightRule+" 1")
		p.Release()
		high.admittedAfter(t, time.Second)
	})
}

func TestOvertakers(t *testing.T) {
	row(t, "count anew when the queue was empty", func(t *testing.T) {
		l := mustNew(t, Limit{Rates: []Rate{perSecond(1e6, 1e6), PerMinute(1e9)}, InFlight: 1})
		p := took(t, l, "k")
		for range 2 {
			low := asking(t, l, "k", PriorityLow.Option())
			for range 5 {
				high := asking(t, l, "k", PriorityHigh.Option())
				p.Release()
				high.admittedAfter(t, 0)
				p = high.permit
			}
			low.gaveUp(t)
		}
	})
	// Failure mode 27.
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
	// A call of a higher class than all who wait takes what is there, or becomes the next at once. One that asks
	// for less does not overtake one of its class or above.
	row(t, "higher class is next at once", func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(1, 5)))
		took(t, l, "k", Weight(5))
		low := asking(t, l, "k", Weight(5), PriorityLow.Option())
		time.Sleep(3 * time.Second)
		refusedFor(t, l, ReasonRate, "k", PriorityLow.Option())
		is(t, "Check of a low one", l.Check("k", PriorityLow.Option()).OK, false)
		asking(t, l, "k", Weight(2), PriorityHigh.Option()).admittedAfter(t, 0)
		is(t, "Allow, which is normal, behind a low one", l.Allow("k"), true)
		high := asking(t, l, "k", Weight(3), PriorityHigh.Option())
		refusedFor(t, l, ReasonRate, "k") // normal, behind high
		upTo(t, l, "k", 3, 0)
		refusedFor(t, l, ReasonRate, "k", PriorityHigh.Option()) // and no call overtakes within a class
		time.Sleep(3 * time.Second)
		high.admittedAfter(t, 3*time.Second)
		time.Sleep(5 * time.Second)
		low.admittedAfter(t, 11*time.Second)
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
