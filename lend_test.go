package quotient

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/internal/fairshare"
	"github.com/quotient-go/quotient/policy"
)

// lendSlots has a limiter of four slots in a pool of four take one of them, so that the key is remembered.
func lendSlots(t *testing.T, opts ...Option) (*Limiter, Permit) {
	l := mustNew(t, Limit{InFlight: 4}, append(opts, Replicas(4))...)
	p, d := l.TryAcquire("k")
	if !d.OK {
		t.Fatal(d)
	}
	return l, p
}

// waiting has n callers wait for a key, and counts those that were admitted.
func waiting(l *Limiter, n int) (admitted func() int) {
	var mu sync.Mutex
	count := 0
	for range n {
		go func() {
			if _, err := l.Acquire(context.Background(), "k"); err == nil {
				mu.Lock()
				defer mu.Unlock()
				count++
			}
		}()
	}
	synctest.Wait()
	return func() int { synctest.Wait(); mu.Lock(); defer mu.Unlock(); return count }
}

func TestWaitersGoAtOnceWhereMoreIsLent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := lendSlots(t)
		admitted := waiting(l, 3)
		within(t, "under the share", 0, 0, admitted())
		Lend(l, "k", .75, time.Second)
		within(t, "of four slots three are lent", 2, 2, admitted())
		Lend(l, "k", 1, time.Second)
		within(t, "all are lent", 3, 3, admitted())

		r := mustNew(t, Rates(Rate{Events: 100, Per: time.Second, Burst: 4}), Replicas(4))
		r.Allow("k")
		admitted = waiting(r, 20)
		time.Sleep(20 * time.Millisecond)
		Lend(r, "k", 1, time.Second)
		within(t, "half of the first interval has passed", 0, 0, admitted())
		time.Sleep(5 * time.Millisecond)
		within(t, "the rest passes four times as fast", 1, 1, admitted())
		time.Sleep(100 * time.Millisecond)
		within(t, "at the whole rate", 11, 11, admitted())
		Lend(r, "k", 0, time.Second)
		time.Sleep(80 * time.Millisecond)
		within(t, "back under the share", 13, 13, admitted())
		time.Sleep(time.Second)
	})
}

// Nothing runs at the end of a loan, and slots alone read no clock: a call sees the end all the same.
func TestALoanEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := lendSlots(t)
		Lend(l, "k", 1, time.Second)
		time.Sleep(999 * time.Millisecond)
		within(t, "all but one slot", 2, 2, l.admitAll(2))
		time.Sleep(time.Millisecond)
		p.Release()
		within(t, "the loan has ended", 0, 0, l.admitAll(2))

		r := mustNew(t, Rates(Rate{Events: 100, Per: time.Second, Burst: 400}), Replicas(4))
		within(t, "its part of the burst", 100, 100, r.admitAll(500))
		Lend(r, "k", 1, time.Second)
		time.Sleep(3 * time.Second)
		within(t, "a second of all, and two of the share", 100, 100, r.admitAll(500))
		Lend(r, "k", .5, 200*time.Millisecond)
		time.Sleep(time.Second)
		within(t, "a fifth of a second of half", 30, 30, r.admitAll(500))
	})
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

// An overcharged call gets the rest back also when another part was lent meanwhile.
func TestRefundsOutliveAnotherPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := Rates(Rate{Events: 100, Per: time.Second, Burst: 400, Unit: "tok"})
		l := mustNew(t, limit, Replicas(4))
		l.TryAcquire("k")
		Lend(l, "k", .5, time.Minute)
		p, d := l.TryAcquire("k", Cost("tok", 100))
		if !d.OK {
			t.Fatal(d)
		}
		Lend(l, "k", .25, time.Minute)
		must(t, p.Correct("tok", 40))
		if _, d := l.TryAcquire("k", Cost("tok", 61)); d.OK {
			t.Error("more came back than was charged too much")
		}
		if _, d := l.TryAcquire("k", Cost("tok", 60)); !d.OK {
			t.Error("what was charged too much is lost:", d)
		}
		time.Sleep(time.Second)
		if used := l.seenOf("k").Used; used != 1 {
			t.Errorf("100 of 100 a second count as %v", used)
		}
		must(t, p.Correct("tok", 50))
		time.Sleep(time.Second)
		if used := l.seenOf("k").Used; used != .1 {
			t.Errorf("a charge that came later counts as %v, want .1", used)
		}
	})
}

// Events that have come back by themselves do not come back again, whatever part was lent meanwhile.
func TestRefundsAfterTheBucketWasFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := mustNew(t, Rates(Rate{Events: 100, Per: time.Second, Burst: 400, Unit: "tok"}), Replicas(4))
		l.TryAcquire("k")
		Lend(l, "k", .5, time.Minute)
		p, _ := l.TryAcquire("k", Cost("tok", 60))
		time.Sleep(10 * time.Second)
		l.TryAcquire("k", Cost("tok", 70))
		Lend(l, "k", .25, time.Minute)
		must(t, p.Correct("tok", 0))
		if _, d := l.TryAcquire("k", Cost("tok", 31)); d.OK {
			t.Error("it came back twice")
		}
	})
}

// A request that is given back brings no more than the fastest refill may have left of it.
func TestRefundsOfRequestsUnderAPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := mustNew(t, Rates(Rate{Events: 100, Per: time.Second, Burst: 400}), Replicas(4))
		l.TryAcquire("k")
		Lend(l, "k", 1, time.Minute)
		time.Sleep(time.Second)
		p, n := l.TryAcquireUpTo("k", 100)
		within(t, "all", 100, 100, n)
		time.Sleep(500 * time.Millisecond)
		within(t, "half has come by itself", 50, 50, l.admitAll(500))
		Lend(l, "k", 0, time.Minute)
		must(t, p.Correct("", 0))
		within(t, "half comes back", 49, 50, l.admitAll(500))
	})
}

// seenOf is what a turn would see of a key.
func (l *Limiter) seenOf(key string) fairshare.Seen {
	s, hash := l.lock(key)
	defer s.mu.Unlock()
	g := s.ownGate(hash, key)
	return s.seen(g, hash, s.now(), 0)
}

// The use through a gate that keys share is not known, and so all of the share is claimed.
func TestKeysWithoutAGateOfTheirOwn(t *testing.T) {
	l := mustNew(t, Limit{InFlight: 4}, MaxKeys(1), Demand(1, time.Second))
	if seen := l.seenOf("k"); seen.Span == 0 {
		t.Error("a key that is not remembered was used for sure")
	}
	l.TryAcquire("a")
	l.TryAcquire("k")
	if seen := l.seenOf("k"); seen != (fairshare.Seen{}) {
		t.Errorf("of a key in the gate of keys without room is known %+v", seen)
	}
	c := mustNew(t, Limit{InFlight: 4}, Demand(1, time.Second), WithHash(func(string) uint64 { return 7 }))
	c.TryAcquire("a")
	if seen := c.seenOf("k"); seen != (fairshare.Seen{}) {
		t.Errorf("of a key with the hash of another is known %+v", seen)
	}
}

// A key that has a loan is not dropped: it would be back under its share.
func TestALoanKeepsAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := mustNew(t, Rates(Rate{Events: 100, Per: time.Second, Burst: 4}), Replicas(4), MaxKeys(1))
		l.Allow("k")
		Lend(l, "k", 1, time.Minute)
		time.Sleep(30 * time.Second)
		l.Allow("other")
		if s := l.Stats(); s.Evicted != 0 {
			t.Error("it was dropped in the middle of a loan")
		}
		time.Sleep(31 * time.Second)
		l.Allow("another")
		if s := l.Stats(); s.Evicted != 1 {
			t.Errorf("%d keys were dropped after it", s.Evicted)
		}
	})
}

// A key is forgiven also where it has slots, and so a controller of slots, only as long as they are lent.
func TestResetOfALoan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := Limit{InFlight: 2, Rates: []Rate{{Events: 10, Per: time.Second}}}
		l := mustNew(t, limit, Replicas(4), Policy(policy.Tracking{}))
		l.TryAcquire("k")
		if _, d := l.TryAcquire("k"); d.OK {
			t.Error("a share of half a slot admits")
		}
		l = mustNew(t, Rates(Rate{Events: 10, Per: time.Second}), Replicas(4), Policy(policy.Tracking{}))
		l.Allow("k")
		must(t, l.SetLimit(limit))
		Lend(l, "k", 1, time.Second)
		l.Reset("k")
		l.Explain("k")
		within(t, "slots, as many as the controller dares", 1, 2, l.admitAll(5))
		time.Sleep(2 * time.Second)
		l.Reset("k")
		l.Explain("k")
		within(t, "no slots", 0, 0, l.admitAll(5))
	})
}

// refusing is a Carrier that carries nothing.
type refusing struct{ hubEnd }

func (refusing) Carry(string, func(Sums)) (func(), error) { return nil, errors.New("not today") }

func TestACarrierThatRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := mustNew(t, Rates(PerSecond(10)), Demand(1, time.Second))
		h := &hub{turns: time.Second, said: []map[string]Terms{{}}}
		if err := l.Follow(t.Context(), &refusing{hubEnd{hub: h}}); err == nil ||
			err.Error() != "quotient: Follow: source: not today" {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = l.Follow(ctx, FixedOrdinal(1, &hubEnd{hub: h})) }()
		time.Sleep(3 * time.Second)
		if err := l.Follow(t.Context(), &hubEnd{hub: h}); err == nil {
			t.Error("two sources carry what one limiter says")
		}
		if s := l.Stats(); s.Demand.MaxAge != time.Second || !s.Pool.Pool.Fixed {
			t.Errorf("behind FixedOrdinal: %+v of %+v", s.Demand, s.Pool.Pool)
		}
		cancel()
		synctest.Wait()
		if s := l.Stats(); s.Demand != (DemandStats{}) {
			t.Errorf("Follow has ended: %+v", s.Demand)
		}
	})
}

// A loan ends with the Follow that brought it, and the next Follow may bring another.
func TestFollowEndsAndBeginsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hub{turns: 200 * time.Millisecond, said: []map[string]Terms{{}, {}}}
		l := mustNew(t, Rates(Rate{Events: 1000, Per: time.Second, Burst: 40}), Replicas(2),
			Demand(4, 2*time.Second))
		other := mustNew(t, Rates(Rate{Events: 1000, Per: time.Second, Burst: 40}), Replicas(2),
			Demand(4, 2*time.Second))
		go func() { _ = other.Follow(t.Context(), &hubEnd{hub: h, replica: 1}) }()
		for i := range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			go func() { _ = l.Follow(ctx, &hubEnd{hub: h}) }()
			hammer(2*time.Second, l)
			within(t, fmt.Sprint("borrowed, time ", i), 970, 1000, hammer(time.Second, l)...)
			cancel()
			synctest.Wait()
			within(t, fmt.Sprint("alone, time ", i), 500, 501, hammer(time.Second, l)...)
		}
	})
}

// Asks for as many as there is room for are held back too.
func TestUpToBorrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ls := pooled(t, 4, Rates(Rate{Events: 1000, Per: time.Second, Burst: 400}))
		got := 0
		for i := range 60 {
			time.Sleep(50 * time.Millisecond)
			if _, n := ls[0].TryAcquireUpTo("k", 100); i >= 40 {
				got += n
			}
		}
		within(t, "the third second", 970, 1000, got)
	})
}

// A turn lets those through that wait, where nothing else would.
func TestATurnLetsWaitersThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ls := pooled(t, 4, Limit{InFlight: 42})
		admitted := waiting(ls[0], 50)
		within(t, "at first", 10, 10, admitted())
		time.Sleep(time.Second)
		within(t, "then", 42, 42, admitted())
		for range 8 {
			go func() { _, _ = ls[0].Acquire(t.Context(), "k") }()
		}
		_ = ls[0].SetLimit(Limit{})
		time.Sleep(time.Second)
	})
}

// young claims that its reports are from the future.
type young struct{ hubEnd }

func (y *young) Sum(key string) (Terms, time.Duration) {
	sum, _ := y.hubEnd.Sum(key)
	return sum, -time.Hour
}

func TestReportsOfTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hub{turns: time.Second, said: []map[string]Terms{{}, {textKey + "k": {1, 1}}}}
		l := mustNew(t, Limit{InFlight: 4}, Replicas(2), Demand(1, time.Second))
		l.beginExchange()
		within(t, "the share", 2, 2, l.admitAll(4))
		for range 4 {
			l.turn(&young{hubEnd{hub: h}})
			l.admitAll(1)
			time.Sleep(900 * time.Millisecond)
		}
		if g := gateOf(l, "k"); g.part() != 1 {
			t.Error("nothing is lent:", g.part())
		}
		time.Sleep(100 * time.Millisecond)
		l.admitAll(1)
		if g := gateOf(l, "k"); g.part() != 0 {
			t.Error("news of the future is believed for longer than maxAge")
		}
	})
}
