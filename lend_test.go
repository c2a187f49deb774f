package quotient

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/internal/fairshare"
	"github.com/quotient-go/quotient/policy"
)

// aThousand is a rate of 1,000 a second with a burst.
func aThousand(burst int) Rate { return Rate{Events: 1000, Per: time.Second, Burst: burst} }

// aHundred is a rate of 100 a second with a burst.
func aHundred(burst int) Rate { return Rate{Events: 100, Per: time.Second, Burst: burst} }

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

// waiting has n callers wait for a key, and counts those that were admitted.
func waiting(l *Limiter, n int) (admitted func() int) {
	var count atomic.Int64
	for range n {
		go func() {
			if _, err := l.Acquire(context.Background(), "k"); err == nil {
				count.Add(1)
			}
		}()
	}
	synctest.Wait()
	return func() int { synctest.Wait(); return int(count.Load()) }
}

// admitAll asks up to n times, and returns how many were admitted.
func (l *Limiter) admitAll(n int) (got int) {
	for range n {
		if _, d := l.TryAcquire("k"); d.OK {
			got++
		}
	}
	return got
}

// seenOf is what a turn would see of a key.
func (l *Limiter) seenOf(key string) fairshare.Seen {
	s, hash := l.lock(key)
	defer s.mu.Unlock()
	return s.seen(s.ownGate(hash, key), hash, s.now(), 0)
}

// partIs fails unless a part of a key's limit is lent.
func partIs(t *testing.T, what string, l *Limiter, part float64) {
	t.Helper()
	is(t, what, gateOf(l, "k").part(), part)
}

func TestWaitersGoAtOnceWhereMoreIsLent(t *testing.T) {
	row(t, "slots", func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 4}, Replicas(4))
		took(t, l, "k")
		admitted := waiting(l, 3)
		is(t, "under the share", admitted(), 0)
		Lend(l, "k", .75, time.Second)
		is(t, "of four slots three are lent", admitted(), 2)
		Lend(l, "k", 1, time.Second)
		is(t, "all are lent", admitted(), 3)
	})
	row(t, "a rate", func(t *testing.T) {
		l := mustNew(t, Rates(aHundred(4)), Replicas(4))
		l.Allow("k")
		admitted := waiting(l, 20)
		time.Sleep(20 * time.Millisecond)
		Lend(l, "k", 1, time.Second)
		is(t, "half of the first interval has passed", admitted(), 0)
		time.Sleep(5 * time.Millisecond)
		is(t, "the rest passes four times as fast", admitted(), 1)
		time.Sleep(100 * time.Millisecond)
		is(t, "at the whole rate", admitted(), 11)
		Lend(l, "k", 0, time.Second)
		time.Sleep(80 * time.Millisecond)
		is(t, "back under the share", admitted(), 13)
		time.Sleep(time.Second)
	})
	row(t, "a turn", func(t *testing.T) {
		_, ls := pooled(t, 4, Limit{InFlight: 42})
		admitted := waiting(ls[0], 50)
		is(t, "at first", admitted(), 10)
		time.Sleep(time.Second)
		is(t, "then", admitted(), 42)
		must(t, ls[0].SetLimit(Limit{}))
	})
}

// Nothing runs at the end of a loan, and slots alone read no clock: a call sees the end all the same.
func TestALoanEndsByItself(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 4}, Replicas(4))
		p := took(t, l, "k")
		Lend(l, "k", 1, time.Second)
		time.Sleep(999 * time.Millisecond)
		is(t, "all but one slot", l.admitAll(2), 2)
		time.Sleep(time.Millisecond)
		p.Release()
		is(t, "the loan has ended", l.admitAll(2), 0)

		r := mustNew(t, Rates(aHundred(400)), Replicas(4))
		is(t, "its part of the burst", r.admitAll(500), 100)
		Lend(r, "k", 1, time.Second)
		time.Sleep(3 * time.Second)
		is(t, "a second of all, and two of the share", r.admitAll(500), 100)
		Lend(r, "k", .5, 200*time.Millisecond)
		time.Sleep(time.Second)
		is(t, "a fifth of a second of half", r.admitAll(500), 30)
	})
}

func TestRefundsUnderAPart(t *testing.T) {
	tok := Rate{Events: 100, Per: time.Second, Burst: 400, Unit: "tok"}
	row(t, "what was charged too much comes back under another part", func(t *testing.T) {
		l := mustNew(t, Rates(tok), Replicas(4))
		took(t, l, "k")
		Lend(l, "k", .5, time.Minute)
		p := took(t, l, "k", Cost("tok", 100))
		Lend(l, "k", .25, time.Minute)
		must(t, p.Correct("tok", 40))
		refuses(t, l, "k", Cost("tok", 61))
		took(t, l, "k", Cost("tok", 60))
		time.Sleep(time.Second)
		is(t, "100 of 100 a second", l.seenOf("k").Used, 1)
		must(t, p.Correct("tok", 50))
		time.Sleep(time.Second)
		is(t, "a charge that came later", l.seenOf("k").Used, .1)
	})
	row(t, "events that have come back by themselves do not come back again", func(t *testing.T) {
		l := mustNew(t, Rates(tok), Replicas(4))
		took(t, l, "k")
		Lend(l, "k", .5, time.Minute)
		p := took(t, l, "k", Cost("tok", 60))
		time.Sleep(10 * time.Second)
		took(t, l, "k", Cost("tok", 70))
		Lend(l, "k", .25, time.Minute)
		must(t, p.Correct("tok", 0))
		refuses(t, l, "k", Cost("tok", 31))
	})
	row(t, "a request brings no more than the fastest refill may have left of it", func(t *testing.T) {
		l := mustNew(t, Rates(aHundred(400)), Replicas(4))
		took(t, l, "k")
		Lend(l, "k", 1, time.Minute)
		time.Sleep(time.Second)
		p := upTo(t, l, "k", 100, 100)
		time.Sleep(500 * time.Millisecond)
		is(t, "half has come by itself", l.admitAll(500), 50)
		Lend(l, "k", 0, time.Minute)
		correct(t, p, 0)
		within(t, "half comes back", 49, 50, l.admitAll(500))
	})
}

// The use through a gate that keys share is not known, and so all of the share is claimed.
func TestKeysWithoutAGateOfTheirOwn(t *testing.T) {
	l := mustNew(t, Limit{InFlight: 4}, MaxKeys(1), Demand(1, time.Second))
	if seen := l.seenOf("k"); seen.Span == 0 {
		t.Error("a key that is not remembered was used for sure")
	}
	took(t, l, "a")
	took(t, l, "k")
	is(t, "of a key in the gate of keys without room", l.seenOf("k"), fairshare.Seen{})
	l = mustNew(t, Limit{InFlight: 4}, Demand(1, time.Second), WithHash(func(string) uint64 { return 7 }))
	took(t, l, "a")
	is(t, "of a key with the hash of another", l.seenOf("k"), fairshare.Seen{})
}

func TestLoans(t *testing.T) {
	// It is not dropped in the middle of a loan.
	row(t, "keep a key, which would be back under its share", func(t *testing.T) {
		l := mustNew(t, Rates(aHundred(4)), Replicas(4), MaxKeys(1))
		l.Allow("k")
		Lend(l, "k", 1, time.Minute)
		time.Sleep(30 * time.Second)
		l.Allow("other")
		stats(t, l, "Evicted", 0)
		time.Sleep(31 * time.Second)
		l.Allow("another")
		stats(t, l, "Evicted", 1)
	})
	// So is a controller of slots.
	row(t, "are forgiven also where there are slots, as long as they are lent", func(t *testing.T) {
		rate := Rate{Events: 10, Per: time.Second}
		l := mustNew(t, Rates(rate), Replicas(4), Policy(policy.Tracking{}))
		l.Allow("k")
		must(t, l.SetLimit(Limit{InFlight: 2, Rates: []Rate{rate}}))
		Lend(l, "k", 1, time.Second)
		l.Reset("k")
		l.Explain("k")
		within(t, "slots, as many as the controller dares", 1, 2, l.admitAll(5))
		time.Sleep(2 * time.Second)
		l.Reset("k")
		l.Explain("k")
		is(t, "a share of half a slot", l.admitAll(5), 0)
	})
	row(t, "of each rate of a limit, and the tightest decides", func(t *testing.T) {
		_, ls := pooled(t, 4, Rates(aThousand(40),
			Rate{Name: "minute", Events: 600_000, Per: time.Minute, Burst: 400},
			Rate{Events: 4000, Per: time.Second, Burst: 400, Unit: "tok"}))
		takeFor(2*time.Second, ls[0], Cost("tok", 8))
		within(t, "by tokens", 485, 500, takeFor(time.Second, ls[0], Cost("tok", 8)))
		takeFor(2*time.Second, ls[0], Cost("tok", 1))
		within(t, "by requests", 970, 1000, takeFor(time.Second, ls[0], Cost("tok", 1)))
		within(t, "another one begins", 250, 430, takeFor(time.Second, ls[1], Cost("tok", 1)))
	})
	// It may borrow of the other limit from then on.
	row(t, "end when a key changes its plan", func(t *testing.T) {
		gold := Rates(Rate{Events: 2000, Per: time.Second, Burst: 40})
		_, ls := pooled(t, 4, Rates(aThousand(40)), Plans(map[string]Limit{"gold": gold}))
		takeFor(2100*time.Millisecond, ls[0]) // between two turns
		within(t, "a share of gold", 0, 20, takeFor(time.Millisecond, ls[0], Plan("gold")))
		partIs(t, "the loan is that of another plan", ls[0], 0)
		takeFor(3*time.Second, ls[0], Plan("gold"))
		within(t, "gold", 1940, 2000, takeFor(time.Second, ls[0], Plan("gold")))
		must(t, ls[0].SetPlan("gold", &Limit{Rates: []Rate{{Events: 400, Per: time.Second, Burst: 40}}}))
		within(t, "less gold", 380, 440, takeFor(time.Second, ls[0], Plan("gold")))
	})
	row(t, "follow each change at once, from the next call on", func(t *testing.T) {
		_, ls := pooled(t, 4, Rates(aThousand(40)))
		l := ls[0]
		second := func(what string, low, high int) { within(t, what, low, high, takeFor(time.Second, l)) }
		takeFor(3*time.Second, l)
		must(t, l.SetLimit(Rates(Rate{Events: 2000, Per: time.Second, Burst: 40})))
		second("a higher limit", 1940, 2000)
		must(t, l.SetLimit(Limit{Deny: true}))
		second("denied", 0, 0)
		must(t, l.SetLimit(Rates(aThousand(40))))
		takeFor(2*time.Second, l)
		second("again", 970, 1000)
		must(t, l.Override("k", &Limit{Rates: []Rate{{Events: 400, Per: time.Second, Burst: 40}}}))
		takeFor(2*time.Second, l)
		second("its own limit is lent too", 388, 400)
		must(t, l.Override("k", nil))
		takeFor(2*time.Second, l)
		l.Reset("k")
		second("forgiven", 970, 1010)
		must(t, l.SetPool(Pool{Replicas: 5}, 0)) // more than the four that say something
		takeFor(200*time.Millisecond, l)
		second("one is missing", 200, 201)
	})
	// They end also where nothing but answers shows the time.
	row(t, "are the bounds of controllers", func(t *testing.T) {
		l := mustNew(t, Rates(aHundred(40)), Replicas(4), Policy(policy.Tracking{}))
		p := took(t, l, "k")
		ceiling := func() float64 { return gateOf(l, "k").setting.ctrls[0].bounds.Ceiling }
		Lend(l, "k", .5, time.Second)
		is(t, "the ceiling of a part", ceiling(), 50)
		time.Sleep(2 * time.Second)
		p.Done(policy.Feedback{Outcome: policy.Throttled})
		is(t, "the ceiling of the share", ceiling(), 25)
	})
}

// A paced rate is lent where its replicas take no turns: the interval is shorter. Where they do, and windows,
// are the clock's. Asks for as many as there is room for are held back too.
func TestWhatIsLent(t *testing.T) {
	row(t, "paced", func(t *testing.T) {
		_, ls := pooled(t, 4, Rates(Rate{Events: 100, Per: time.Second, Burst: 1, NoTurns: true}))
		takeFor(2*time.Second, ls[0])
		within(t, "paced", 96, 100, takeFor(time.Second, ls[0]))
	})
	for _, r := range []Rate{aligned(100, time.Second), {Events: 10, Per: time.Second, Burst: 1}} {
		row(t, r, func(t *testing.T) {
			l := mustNew(t, Rates(r), StartPool(Pool{Replicas: 4, Ordinal: 1, Fixed: true}))
			l.Allow("k")
			Lend(l, "k", 1, time.Minute)
			most := int(r.Events) / 4
			within(t, "divided by the clock", most-1, most+1, takeFor(time.Second, l))
		})
	}
	row(t, "up to", func(t *testing.T) {
		_, ls := pooled(t, 4, Rates(aThousand(400)))
		got := 0
		for i := range 60 {
			time.Sleep(50 * time.Millisecond)
			if _, n := ls[0].TryAcquireUpTo("k", 100); i >= 40 {
				got += n
			}
		}
		within(t, "the third second", 970, 1000, got)
	})
	row(t, "an awaited pool, once it is known", func(t *testing.T) {
		_, ls := pooled(t, 2, Rates(aThousand(40)), AwaitPool(), HintMaxAge(time.Hour))
		takeFor(2*time.Second, ls[0])
		within(t, "one of two", 970, 1000, takeFor(time.Second, ls[0]))
	})
}

// refusing is a Carrier that carries nothing.
type refusing struct{ hubEnd }

func (refusing) Carry(string, func(Sums)) (func(), error) { return nil, errors.New("not today") }

func TestCarriersOfLimiters(t *testing.T) {
	row(t, "a carrier that refuses", func(t *testing.T) {
		l := mustNew(t, Rates(PerSecond(10)), Demand(1, time.Second))
		h := &hub{turns: time.Second, said: []map[string]Terms{{}}}
		err := l.Follow(t.Context(), &refusing{hubEnd{hub: h}})
		is(t, "Follow", fmt.Sprint(err), "quotient: Follow: source: not today")
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = l.Follow(ctx, FixedOrdinal(1, &hubEnd{hub: h})) }()
		time.Sleep(3 * time.Second)
		if err := l.Follow(t.Context(), &hubEnd{hub: h}); err == nil {
			t.Error("two sources carry what one limiter says")
		}
		is(t, "age behind FixedOrdinal", l.Stats().Demand.MaxAge, time.Second)
		is(t, "fixed", l.Stats().Pool.Pool.Fixed, true)
		cancel()
		synctest.Wait()
		is(t, "Follow has ended", l.Stats().Demand, DemandStats{})
	})
	// A loan ends with the Follow that brought it, and the next Follow may bring another.
	row(t, "follow ends and begins again", func(t *testing.T) {
		h := &hub{turns: 200 * time.Millisecond, said: []map[string]Terms{{}, {}}}
		l := mustNew(t, Rates(aThousand(40)), Replicas(2), Demand(4, 2*time.Second))
		other := mustNew(t, Rates(aThousand(40)), Replicas(2), Demand(4, 2*time.Second))
		go func() { _ = other.Follow(t.Context(), &hubEnd{hub: h, replica: 1}) }()
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			go func() { _ = l.Follow(ctx, &hubEnd{hub: h}) }()
			hammer(2*time.Second, l)
			within(t, "borrowed", 970, 1000, hammer(time.Second, l)...)
			cancel()
			synctest.Wait()
			within(t, "alone", 500, 501, hammer(time.Second, l)...)
		}
	})
	row(t, "counted keys are forgotten", func(t *testing.T) {
		const turns, late = 200 * time.Millisecond, 3
		rate := Rate{Events: 400, Per: time.Minute, Aligned: true, Counted: true}
		ends, ls := make([]*farEnd, 2), make([]*Limiter, 2)
		for i := range ends {
			ends[i] = &farEnd{Wire: Wire{Own: map[string]Terms{}}, other: make([]map[string]Terms, late),
				late: late * turns}
			ls[i] = mustNew(t, Rates(rate), Replicas(2), Demand(10, 2*time.Second))
			ls[i].beginExchange()
		}
		atWindow(rate.Per)
		is(t, "of the share", ls[0].admitAll(100), 100)
		for range 4 * time.Minute / turns {
			for i, l := range ls {
				l.turn(ends[i])
				ends[i].other = append(ends[i].other[1:], maps.Clone(ends[1-i].Own))
			}
			time.Sleep(turns)
		}
		for i, e := range ends {
			for text := range e.Own {
				if strings.HasPrefix(text, textCount) {
					t.Errorf("replica %d still counts %q", i, text)
				}
			}
		}
	})
	row(t, "a registry lends each of its limiters", func(t *testing.T) {
		var r Registry
		s := &shelf{turns: map[string]func(Sums){}}
		go func() { _ = r.Follow(t.Context(), s) }()
		synctest.Wait()
		for _, name := range []string{"a", "b"} {
			l, err := r.Limiter(name, Rates(aThousand(40)), Demand(4, 2*time.Second))
			must(t, err)
			takeFor(2*time.Second, l)
			within(t, name, 970, 1000, takeFor(time.Second, l))
		}
		s.mu.Lock()
		is(t, "carried", len(s.turns), 2)
		s.mu.Unlock()
		a, _ := r.Get("a")
		r.Remove("a")
		within(t, "removed", 490, 530, takeFor(time.Second, a))
	})
}

// farEnd is a replica of two. The report of the other one comes late.
type farEnd struct {
	Wire
	other []map[string]Terms // oldest first
	late  time.Duration
	pause time.Duration // after each sum
}

func (e *farEnd) Keys() iter.Seq[string] {
	all := maps.Clone(e.Own)
	maps.Copy(all, e.other[0])
	return maps.Keys(all)
}

func (e *farEnd) Sum(key string) (sum Terms, age time.Duration) {
	sum = e.Own[key]
	for i, n := range e.other[0][key] {
		sum[i] += n
	}
	time.Sleep(e.pause)
	return sum, e.late
}

// Reports are believed for maxAge, from when they were made on: not for longer if their clock is ahead, or
// if the turn that brings them is held up.
func TestReportsGrowOld(t *testing.T) {
	start := func(t *testing.T) (*Limiter, *farEnd) {
		l := mustNew(t, Limit{InFlight: 4}, Replicas(2), Demand(1, time.Second))
		l.beginExchange()
		is(t, "the share", l.admitAll(4), 2)
		said := map[string]Terms{textKey + "k": {1, 1}}
		return l, &farEnd{Wire: Wire{Own: map[string]Terms{}}, other: []map[string]Terms{said}}
	}
	row(t, "of the future", func(t *testing.T) {
		l, e := start(t)
		e.late = -time.Hour
		for range 4 {
			l.turn(e)
			l.admitAll(1)
			time.Sleep(900 * time.Millisecond)
		}
		partIs(t, "within maxAge", l, 1)
		time.Sleep(100 * time.Millisecond)
		l.admitAll(1)
		partIs(t, "after maxAge", l, 0)
	})
	row(t, "a turn that is held up", func(t *testing.T) {
		l, e := start(t)
		for range 3 {
			l.admitAll(4)
			l.turn(e)
			time.Sleep(200 * time.Millisecond)
		}
		partIs(t, "fresh", l, 1)
		e.pause = 3 * time.Second
		l.turn(e)
		partIs(t, "three seconds old when it was used", l, 0)
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
			turn(&idle{farEnd{Wire: Wire{Own: map[string]Terms{}}, other: []map[string]Terms{{}}}})
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
type idle struct{ farEnd }

func (*idle) Sum(string) (Terms, time.Duration) { return Terms{2, 1}, 200 * time.Millisecond }

// oneLock is a Carrier that holds its lock while it reports.
type oneLock struct {
	mu    sync.Mutex
	asked chan struct{} // for the lock
}

func (o *oneLock) Watch(ctx context.Context, _ func(Pool, error)) error { <-ctx.Done(); return nil }

func (o *oneLock) wait() {
	o.asked <- struct{}{}
	o.mu.Lock()
	defer o.mu.Unlock()
}

func (o *oneLock) Carry(string, func(Sums)) (func(), error) { o.wait(); return o.wait, nil }

func TestAFollowerStopsDuringAReport(t *testing.T) {
	l := mustNew(t, Limit{InFlight: 4}, Demand(1, time.Second))
	for _, carried := range []bool{true, false} {
		o := &oneLock{asked: make(chan struct{}, 9)}
		f, _ := l.follower(o)
		during := func() { _ = f.carry(o, "a") }
		if carried {
			during()
			<-o.asked
			during = f.stop
		}
		o.mu.Lock()
		done := make(chan struct{})
		go func() { during(); close(done) }()
		<-o.asked
		f.report(&hint{pool: Pool{Replicas: 2}, at: time.Now()})
		if !carried {
			f.stop() // before Carry returns
		}
		o.mu.Unlock()
		if <-done; l.exchange.keys != nil {
			t.Error("what has ended is still carried")
		}
	}
}

// Turns, calls, changes and looks at once, for the race detector and for deadlocks. At the end the counts
// must add up.
func TestTurnsAgainstEverything(t *testing.T) {
	h := &hub{turns: time.Millisecond, said: []map[string]Terms{{}, {}}}
	limit := Limit{InFlight: 20, Rates: []Rate{{Events: 1e6, Per: time.Second, Burst: 100}}}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var all sync.WaitGroup
	var ls []*Limiter
	for j := range 2 {
		l := mustNew(t, limit, MaxKeys(6), Replicas(2), Demand(4, 50*time.Millisecond))
		l.beginExchange()
		ls = append(ls, l)
		for _, f := range []func(i int){
			func(int) { l.turn(&hubEnd{hub: h, replica: j}) },
			func(i int) { p, _ := l.TryAcquire(key(i%9), Weight(1+i%3)); p.Release() },
			func(i int) { p, _ := l.Acquire(ctx, key(i%3)); p.Release() },
			func(i int) { changeSomething(t, l, limit, i); time.Sleep(50 * time.Microsecond) },
		} {
			all.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					f(i)
				}
			})
		}
	}
	all.Wait()
	for _, l := range ls {
		l.endExchange()
		stats(t, l, "InFlight", 0, "Waiting", 0)
		is(t, "keys that are said", l.Stats().Demand.Keys, 0)
	}
}

func changeSomething(t *testing.T, l *Limiter, limit Limit, i int) {
	switch i % 8 {
	case 0:
		must(t, l.SetLimit(Limit{InFlight: 10 + i%20, Rates: limit.Rates}))
	case 1:
		must(t, l.SetPool(Pool{Replicas: 2 + i%3}, 0))
	case 2:
		l.Reset(key(i % 9))
	case 3:
		_ = l.Override(key(i%2), &Limit{InFlight: 5})
	case 4:
		_ = l.Override(key((i+1)%2), nil)
	default:
		l.Stats()
		l.Explain(key(i % 9))
	}
}
