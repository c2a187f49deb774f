package quotient

import (
	"context"
	"iter"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// takeFor has a limiter take requests of a cost, each millisecond, and returns how many were admitted.
func takeFor(d time.Duration, l *Limiter, opts ...CallOption) (got int) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for {
			if _, d := l.TryAcquire("k", opts...); !d.OK {
				break
			}
			got++
		}
	}
	return got
}

// Each rate of a limit is lent, of requests and of units, and the tightest decides.
func TestSeveralRatesAreLent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ls := pooled(t, 4, Rates(
			Rate{Events: 1000, Per: time.Second, Burst: 40},
			Rate{Name: "minute", Events: 600_000, Per: time.Minute, Burst: 400},
			Rate{Events: 4000, Per: time.Second, Burst: 400, Unit: "tok"}))
		takeFor(2*time.Second, ls[0], Cost("tok", 8))
		within(t, "by tokens", 485, 500, takeFor(time.Second, ls[0], Cost("tok", 8)))
		takeFor(2*time.Second, ls[0], Cost("tok", 1))
		within(t, "by requests", 970, 1000, takeFor(time.Second, ls[0], Cost("tok", 1)))
		within(t, "another one begins", 250, 430, takeFor(time.Second, ls[1], Cost("tok", 1)))
	})
}

// A paced rate is lent where its replicas take no turns: the interval is shorter. Where they do, and windows,
// are the clock's.
func TestPacedRatesAndWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ls := pooled(t, 4, Rates(Rate{Events: 100, Per: time.Second, Burst: 1, NoTurns: true}))
		takeFor(2*time.Second, ls[0])
		within(t, "paced", 96, 100, takeFor(time.Second, ls[0]))
	})
	for _, r := range []Rate{
		{Events: 100, Per: time.Second, Aligned: true},
		{Events: 10, Per: time.Second, Burst: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := mustNew(t, Rates(r), StartPool(Pool{Replicas: 4, Ordinal: 1, Fixed: true}))
			l.Allow("k")
			Lend(l, "k", 1, time.Minute)
			most := int(r.Events) / 4
			within(t, "divided by the clock", most-1, most+1, takeFor(time.Second, l))
		})
	}
}

// A key that changes its plan is back under a share, and may borrow of the other limit from then on.
func TestALoanAndPlans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gold := Rates(Rate{Events: 2000, Per: time.Second, Burst: 40})
		_, ls := pooled(t, 4, Rates(Rate{Events: 1000, Per: time.Second, Burst: 40}),
			Plans(map[string]Limit{"gold": gold}))
		takeFor(2100*time.Millisecond, ls[0]) // between two turns
		if got := takeFor(time.Millisecond, ls[0], Plan("gold")); gateOf(ls[0], "k").part() != 0 || got > 20 {
			t.Error("the loan is that of another plan", got)
		}
		takeFor(3*time.Second, ls[0], Plan("gold"))
		within(t, "gold", 1940, 2000, takeFor(time.Second, ls[0], Plan("gold")))
		must(t, ls[0].SetPlan("gold", &Limit{Rates: []Rate{{Events: 400, Per: time.Second, Burst: 40}}}))
		within(t, "less gold", 380, 440, takeFor(time.Second, ls[0], Plan("gold")))
	})
}

// A change of the limit, of one key's or of the pool holds at once for what is lent, from the next call on.
func TestChangesInTheMiddleOfALoan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ls := pooled(t, 4, Rates(Rate{Events: 1000, Per: time.Second, Burst: 40}))
		l := ls[0]
		takeFor(3*time.Second, l)
		must(t, l.SetLimit(Rates(Rate{Events: 2000, Per: time.Second, Burst: 40})))
		within(t, "a higher limit", 1940, 2000, takeFor(time.Second, l))
		must(t, l.SetLimit(Limit{Deny: true}))
		within(t, "denied", 0, 0, takeFor(time.Second, l))
		must(t, l.SetLimit(Rates(Rate{Events: 1000, Per: time.Second, Burst: 40})))
		takeFor(2*time.Second, l)
		within(t, "again", 970, 1000, takeFor(time.Second, l))
		must(t, l.Override("k", &Limit{Rates: []Rate{{Events: 400, Per: time.Second, Burst: 40}}}))
		takeFor(2*time.Second, l)
		within(t, "its own limit is lent too", 388, 400, takeFor(time.Second, l))
		must(t, l.Override("k", nil))
		takeFor(2*time.Second, l)
		l.Reset("k")
		within(t, "forgiven", 970, 1010, takeFor(time.Second, l))
		must(t, l.SetPool(Pool{Replicas: 5}, 0)) // more than the four that say something
		takeFor(200*time.Millisecond, l)
		within(t, "one is missing", 200, 201, takeFor(time.Second, l))
	})
}

// A pool that is awaited lends once it is known.
func TestAwaitedPoolsLend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ls := pooled(t, 2, Rates(Rate{Events: 1000, Per: time.Second, Burst: 40}), AwaitPool(),
			HintMaxAge(time.Hour))
		takeFor(2*time.Second, ls[0])
		within(t, "one of two", 970, 1000, takeFor(time.Second, ls[0]))
	})
}

// shelf is a Carrier that carries for several limiters, each under its name, in a pool of two.
type shelf struct {
	mu    sync.Mutex
	turns map[string]func(Sums)
}

func (s *shelf) Watch(ctx context.Context, report func(Pool, error)) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		report(Pool{Replicas: 2}, nil)
		s.mu.Lock()
		for _, turn := range s.turns {
			turn(&idle{said: map[string]Terms{}})
		}
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func (s *shelf) Carry(name string, turn func(Sums)) (func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns[name] = turn
	return func() { s.mu.Lock(); defer s.mu.Unlock(); delete(s.turns, name) }, nil
}

// idle are sums with a replica that uses nothing of any key.
type idle struct{ said map[string]Terms }

func (i *idle) Say(key string, own Terms) { i.said[key] = own }
func (i *idle) Keys() iter.Seq[string]    { return func(func(string) bool) {} }
func (i *idle) Bytes() (uint64, uint64)   { return 0, 0 }
func (i *idle) Sum(string) (Terms, time.Duration) {
	return Terms{2, 1, 0, 0, 0, 0}, 200 * time.Millisecond
}

func TestARegistryLendsEachOfItsLimiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Registry
		limit := Rates(Rate{Events: 1000, Per: time.Second, Burst: 40})
		s := &shelf{turns: map[string]func(Sums){}}
		go func() { _ = r.Follow(t.Context(), s) }()
		synctest.Wait()
		for _, name := range []string{"a", "b"} {
			l, err := r.Limiter(name, limit, Demand(4, 2*time.Second))
			must(t, err)
			takeFor(2*time.Second, l)
			within(t, name, 970, 1000, takeFor(time.Second, l))
		}
		if s.mu.Lock(); len(s.turns) != 2 {
			t.Error(len(s.turns), "limiters are carried")
		}
		s.mu.Unlock()
		a, err := r.Limiter("a", limit)
		must(t, err)
		r.Remove("a")
		within(t, "removed", 490, 530, takeFor(time.Second, a))
	})
}

// A controller under the share has what is lent as its bounds, and its share again when a loan has ended:
// also where nothing but answers shows the time.
func TestControllersUnderAPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := mustNew(t, Rates(Rate{Events: 100, Per: time.Second, Burst: 40}), Replicas(4),
			Policy(policy.Tracking{}))
		p, _ := l.TryAcquire("k")
		bounds := func() float64 { return gateOf(l, "k").setting.ctrls[0].bounds.Ceiling }
		Lend(l, "k", .5, time.Second)
		if got := bounds(); got != 50 {
			t.Error("the ceiling of a part is", got)
		}
		time.Sleep(2 * time.Second)
		p.Done(policy.Feedback{Outcome: policy.Throttled})
		if got := bounds(); got != 25 {
			t.Error("the ceiling of the share is", got)
		}
	})
}
