package quotient

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// order returns the callers that were admitted, by the time it took.
func order(t *testing.T, calls []*call) []int {
	t.Helper()
	var who []int
	for i, c := range calls {
		if !c.ended() || c.err != nil {
			t.Errorf("call %d: %v", i, c.err)
			return nil
		}
		who = append(who, i)
	}
	slices.SortStableFunc(who, func(a, b int) int { return int(calls[a].took - calls[b].took) })
	return who
}

func TestHigherClassesGoFirst(t *testing.T) {
	for _, c := range []struct {
		queue string
		want  []int
	}{
		{"NNNN", []int{0, 1, 2, 3}},
		{"LLLL", []int{0, 1, 2, 3}},
		{"LNHC", []int{3, 2, 1, 0}},
		{"CHNL", []int{0, 1, 2, 3}},
		{"LNLNHLH", []int{4, 6, 1, 3, 0, 2, 5}},
		// After seven that went past the oldest it has its turn.
		{"LHHHHHHHHH", []int{1, 2, 3, 4, 5, 6, 7, 0, 8, 9}},
		{"LLHHHHHHHHHHHHHHHH", []int{2, 3, 4, 5, 6, 7, 8, 0, 9, 10, 11, 12, 13, 14, 15, 1, 16, 17}},
		{"NLHHHHHHHHHH", []int{2, 3, 4, 5, 6, 7, 8, 0, 9, 10, 11, 1}},
		{"LNCCCCCCCCHHHHHHH", []int{2, 3, 4, 5, 6, 7, 8, 0, 9, 10, 11, 12, 13, 14, 15, 1, 16}},
		// The count for the highest class starts again whenever it is the oldest itself.
		{"HLHHHHHHHH", []int{0, 2, 3, 4, 5, 6, 7, 8, 1, 9}},
	} {
		row(t, c.queue, func(t *testing.T) {
			l := limiterOf(t, rated(Every(time.Second)))
			wants(t, l, "k", 1)
			calls := askingFor(t, l, "k", c.queue)
			time.Sleep(time.Duration(len(c.queue)) * time.Second)
			if got := order(t, calls); !slices.Equal(got, c.want) {
				t.Errorf("served %v, want %v", got, c.want)
			}
		})
	}
}

// The longest waiter is the one that came first, not the one of the lowest class.
func TestTrickleGoesByAge(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		const soon = 100 * time.Millisecond
		l := limiterOf(t, rated(Every(time.Second)))
		wants(t, l, "k", 1)
		high := askingFor(t, l, "k", "HHH")
		time.Sleep(soon)
		low := askingFor(t, l, "k", "L")
		time.Sleep(soon)
		more := askingFor(t, l, "k", "HHHHHHHH")
		time.Sleep(time.Hour)
		for i, c := range high {
			c.admittedAfter(t, time.Duration(i+1)*time.Second)
		}
		low[0].admittedAfter(t, 11*time.Second-soon) // three, of which none was younger, and seven that were
		more[6].admittedAfter(t, 10*time.Second-2*soon)
		more[7].admittedAfter(t, 12*time.Second-2*soon)
	})
}

// Failure mode 32: one that asks for much stays chosen until it is admitted, whatever comes.
func TestLargeLowCallIsNotStarved(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(1, 20)))
		took(t, l, "k", Weight(20))
		low := asking(t, l, "k", Weight(20), PriorityLow.Option())
		time.Sleep(8 * time.Second)
		for range 7 {
			took(t, l, "k", PriorityHigh.Option())
		}
		refusedFor(t, l, ReasonRate, "k", PriorityCritical.Option()) // one event is there, for the oldest
		late := askingFor(t, l, "k", "CH")
		time.Sleep(19*time.Second - 1)
		low.waits(t)
		time.Sleep(time.Nanosecond)
		low.admittedAfter(t, 27*time.Second)
		has(t, l, "k", 0)
		time.Sleep(2 * time.Second)
		late[0].admittedAfter(t, 20*time.Second)
		late[1].admittedAfter(t, 21*time.Second)
	})
}

// A call of a higher class than all who wait takes what is there, or becomes the next at once.
func TestHigherClassIsNextAtOnce(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(1, 5)))
		took(t, l, "k", Weight(5))
		low := asking(t, l, "k", Weight(5), PriorityLow.Option())
		time.Sleep(3 * time.Second)
		refusedFor(t, l, ReasonRate, "k", PriorityLow.Option())
		asking(t, l, "k", Weight(2), PriorityHigh.Option()).admittedAfter(t, 0)
		if !l.Allow("k") {
			t.Error("Allow, which is normal, is refused behind a low one")
		}
		high := asking(t, l, "k", Weight(3), PriorityHigh.Option())
		refusedFor(t, l, ReasonRate, "k")                        // normal, behind high
		refusedFor(t, l, ReasonRate, "k", PriorityHigh.Option()) // and no call overtakes within a class
		time.Sleep(3 * time.Second)
		high.admittedAfter(t, 3*time.Second)
		time.Sleep(5 * time.Second)
		low.admittedAfter(t, 11*time.Second)
	})
}

// A caller that asks for less does not overtake one of its class or above that asks for more.
func TestNoWaiterOvertakesBecauseOfSize(t *testing.T) {
	for _, class := range "LNHC" {
		row(t, string(class), func(t *testing.T) {
			l := limiterOf(t, rated(perSecond(1, 5)))
			took(t, l, "k", Weight(5))
			large := asking(t, l, "k", Weight(5), classOf(class).Option())
			time.Sleep(4 * time.Second)
			for c := PriorityLow; c <= classOf(class); c++ {
				refusedFor(t, l, ReasonRate, "k", c.Option())
				if d := l.Check("k", c.Option()); d.OK {
					t.Errorf("Check of %v says there is room", c)
				}
			}
			time.Sleep(time.Second)
			large.admittedAfter(t, 5*time.Second)
		})
	}
}

// A waiter that others have passed is served as soon as there is room again, and its wait is no overhead.
func TestOvertakenAreServedAllTheSame(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit Limit
		past  func(*testing.T, *Limiter)
		want  time.Duration
	}{
		{"Allow under slots", Limit{Rates: []Rate{perSecond(1, 3)}, InFlight: 3},
			func(t *testing.T, l *Limiter) { l.Allow("k") }, 4 * time.Second},
		{"TryAcquire", rated(perSecond(1, 3)), func(t *testing.T, l *Limiter) { took(t, l, "k") },
			4 * time.Second},
		{"TryAcquireUpTo", rated(perSecond(1, 3)), func(t *testing.T, l *Limiter) {
			if _, n := l.TryAcquireUpTo("k", 9); n != 2 {
				t.Errorf("got %d, want what is there", n)
			}
		}, 5 * time.Second},
		{"Acquire", rated(perSecond(1, 3)), func(t *testing.T, l *Limiter) {
			asking(t, l, "k").admittedAfter(t, 0)
		}, 4 * time.Second},
	} {
		row(t, c.name, func(t *testing.T) {
			var overhead atomic.Int64
			l := limiterOf(t, c.limit,
				OnAdmit(func(_ string, _, o time.Duration) { overhead.Store(int64(o)) }))
			wants(t, l, "k", 3)
			low := asking(t, l, "k", Weight(3), PriorityLow.Option())
			time.Sleep(2 * time.Second)
			c.past(t, l)
			time.Sleep(3 * time.Second)
			low.admittedAfter(t, c.want)
			if o := time.Duration(overhead.Load()); o != 0 {
				t.Errorf("%v of the wait is overhead", o)
			}
		})
	}
}

// MaxWait ends on time for every waiter, in whatever class and whichever is next.
func TestMaxWaitInEveryClass(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 1}, MaxWait(10*time.Second))
		p := took(t, l, "k")
		var calls []*call
		for _, letter := range "LNHCCHNL" {
			calls = append(calls, askingFor(t, l, "k", string(letter))...)
			time.Sleep(time.Second)
		}
		time.Sleep(5*time.Second - 1)
		for i, c := range calls {
			if ended := c.ended(); ended != (i < 3) {
				t.Errorf("call %d has ended: %v", i, ended)
			}
		}
		time.Sleep(time.Minute)
		for _, c := range calls {
			c.refusedAfter(t, 10*time.Second, ReasonWait)
		}
		p.Release()
		inFlight(t, l, 0)
	})
}

// The turn that OnWait gets is that behind the waiters of the class and above, and no later.
func TestTurnsByClass(t *testing.T) {
	for _, c := range []struct {
		queue string
		ask   rune
		want  time.Duration
	}{
		{"NN", 'L', 3 * time.Second},
		{"NN", 'N', 3 * time.Second},
		{"NN", 'H', time.Second},
		{"LNHC", 'L', 5 * time.Second},
		{"LNHC", 'N', 4 * time.Second},
		{"LNHC", 'H', 3 * time.Second},
		{"LNHC", 'C', 2 * time.Second},
	} {
		for name, opts := range map[string][]Option{"fixed": nil, "controllers": {Policy(policy.AIMD{})}} {
			row(t, fmt.Sprint(c.queue, string(c.ask), name), func(t *testing.T) {
				l := limiterOf(t, rated(Every(time.Second)), opts...)
				wants(t, l, "k", 1)
				for _, w := range askingFor(t, l, "k", c.queue) {
					w.waits(t)
				}
				_, d := l.TryAcquire("k", classOf(c.ask).Option())
				if check := l.Check("k", classOf(c.ask).Option()); d.RetryAfter != c.want ||
					check.RetryAfter != c.want {
					t.Errorf("got %v and %v, want %v", d.RetryAfter, check.RetryAfter, c.want)
				}
				askingUntil(t, l, c.want-1, "k", classOf(c.ask).Option()).refusedAfter(t, 0, ReasonDeadline)
				got := asking(t, l, "k", classOf(c.ask).Option())
				time.Sleep(5 * time.Second)
				got.admittedAfter(t, c.want)
			})
		}
	}
}

// A cut refuses those it can never admit in every class, and only those; a cancel leaves the others in order.
func TestCutAndCancelInEveryClass(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 4})
		p := took(t, l, "k", Weight(4))
		var small, large []*call
		for c := PriorityLow; c <= PriorityCritical; c++ {
			large = append(large, asking(t, l, "k", Weight(3), c.Option()))
			small = append(small, asking(t, l, "k", c.Option()))
		}
		setLimit(t, l, Limit{InFlight: 1})
		for _, c := range large {
			c.refusedAfter(t, 0, ReasonTooLarge)
		}
		small[3].gaveUp(t)
		small[1].gaveUp(t)
		p.Release()
		small[2].admittedAfter(t, 0)
		small[0].waits(t)
		small[2].permit.Release()
		small[0].admittedAfter(t, 0)
	})
}

func TestPriorityNames(t *testing.T) {
	for want, name := range map[Priority]string{
		PriorityLow:      "low",
		PriorityNormal:   "normal",
		PriorityHigh:     "high",
		PriorityCritical: "critical",
	} {
		if got := want.String(); got != name {
			t.Errorf("%q is spelt %q", name, got)
		}
	}
	if got := Priority(3).String(); got != "invalid" {
		t.Errorf("3 is %q", got)
	}
}

func TestPriorityOfACall(t *testing.T) {
	l := limiterOf(t, Limit{})
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
	l, ctx := limiterOf(t, Limit{Rates: []Rate{perSecond(1e6, 1e6)}, InFlight: 4}), context.Background()
	if n := testing.AllocsPerRun(1000, func() {
		p, err := l.Acquire(ctx, "k", PriorityHigh.Option())
		q, d := l.TryAcquire("k", Weight(2), PriorityLow.Option())
		if err != nil || !d.OK {
			t.Fatal(err, d)
		}
		p.Release()
		q.Release()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// An overtaker comes after a permit's time is over, but before the timer, which is a millisecond late. It
// takes the permit back, takes part of it, and sets the timer to the end of its own permit. The waiter must
// not have to wait for that.
func TestOvertakerThatReclaimsWakesWhoWaits(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 3}, MaxHold(5*time.Second))
		took(t, l, "k", Weight(3))
		waiter := asking(t, l, "k", Weight(2))
		time.Sleep(4 * time.Second)
		s := l.shard("k")
		s.mu.Lock()
		gateNow := s.find(l.hash("k"))
		gateNow.ext.timer.Reset(time.Second + 2*time.Millisecond) // as a busy machine's: late
		s.mu.Unlock()
		time.Sleep(time.Second + time.Millisecond)
		start := time.Now()
		p := took(t, l, "k", PriorityHigh.Option())
		p.ExpireIn(time.Hour)
		time.Sleep(30 * time.Minute)
		if !waiter.ended() {
			t.Errorf("2 slots are free; the waiter still waits %v later (%+v)", time.Since(start),
				l.Explain("k").Rules)
		}
		waiter.cancel()
		synctest.Wait()
	})
}

// A turn comes behind those ahead of it in a rate's own unit, whatever they take of the others.
func TestTurnsByUnit(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(100, 100),
			Rate{Name: "tokens", Unit: "tokens", Events: 1, Per: time.Second, Burst: 4}))
		took(t, l, "k", Cost("tokens", 4))
		asking(t, l, "k", Weight(50), Cost("tokens", 3))
		asking(t, l, "k", Cost("tokens", 2)).waits(t)
		if d := l.Check("k", Cost("tokens", 1)); d.RetryAfter != 6*time.Second || d.Rule != "tokens" {
			t.Errorf("told %+v, want to wait 6 s for tokens", d)
		}
		if d := l.Check("k", Weight(50)); d.RetryAfter != 20*time.Millisecond {
			t.Errorf("told %+v, want to wait 20 ms for requests", d)
		}
		time.Sleep(5 * time.Second)
	})
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
	for {
		n := 0
		ws, next := q.hopeless(from, func(*waiter) verdict { n++; return verdict{} })
		if looks = append(looks, n); len(ws) > 0 || next == nil || len(looks) > 9 {
			break
		}
		from = next
	}
	if want := []int{rejectBatch, rejectBatch, 1}; !slices.Equal(looks, want) {
		t.Errorf("%v waiters were looked at, want %v", looks, want)
	}
}

// Those that have lost their turn stand behind all higher classes, and among themselves by age.
func TestRequeueBehindAHigherClass(t *testing.T) {
	var q queue
	high, older, newer := newWaiter(demand{weight: 1, class: PriorityHigh}), newWaiter(oneRequest),
		newWaiter(oneRequest)
	older.since, newer.since = 1, 2
	q.push(high)
	q.requeue(older)
	q.requeue(newer)
	if q.head != high || high.next != older || older.next != newer {
		t.Error("the newer of two that have lost their turn stands before the older one")
	}
}

// A call behind a caller that waits for tokens, and that takes none itself, has no time to come back by.
func TestRetryAfterBehindAnotherUnit(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, tokenLimit(1, 1))
		took(t, l, "k", Cost("tokens", 1))
		first := asking(t, l, "k", Cost("tokens", 1))
		if d := refusedFor(t, l, ReasonRate, "k"); d.RetryAfter != 0 {
			t.Errorf("RetryAfter is %v, want 0 for unknown", d.RetryAfter)
		}
		time.Sleep(time.Second)
		if !first.ended() {
			t.Error("the first caller still waits")
		}
	})
}
